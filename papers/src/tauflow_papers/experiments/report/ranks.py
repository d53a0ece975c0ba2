"""Mean ranks of the models of a comparison over its tasks, and which differ significantly."""

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev
from typing import TYPE_CHECKING

from tauflow._internal.sanitize import format_count, format_markdown_table
from tauflow.errors import ArgumentError
from tauflow.plotting.palette import INK, SLATE
from tauflow.plotting.report_figure import report_figure
from tauflow.runs.report import metric_format
from tauflow.training.metrics import METRICS

from .results_summary import TableSummary
from .row_summary import RowSummary
from .table import format_mean_std

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEVEL = 0.05
"""Significance level of the critical difference."""
_TASKS_OF_TABLE = 4  # more do not fit a page
_METRIC_NAMES = {"mse": "MSE", "auroc": "AUROC", "accuracy": "accuracy, %"}


@dataclass(frozen=True)
class TaskScore:
    """What a model scored on a task.

    Args:
        mean: over the splits.
        std: the sample's standard deviation over them.
        error: standard error of the mean.
        median: over the splits.
        rank: among the models, 1 for the best; equal scores share the mean of their places.
    """

    mean: float
    std: float
    error: float
    median: float
    rank: float


@dataclass(frozen=True)
class Standing:
    """A model among others.

    Args:
        title: its name.
        scores: by task.
        parameters: the median over tasks of its trainable parameters.
        seconds: the median over tasks of the seconds of one training.
    """

    title: str
    scores: Mapping[str, TaskScore]
    parameters: float
    seconds: float

    @property
    def mean_rank(self) -> float:
        """Its mean rank over the tasks."""
        return fmean(score.rank for score in self.scores.values())


@dataclass(frozen=True)
class Ranking:
    """The models of a comparison, the best mean rank first.

    Args:
        standings: of the models.
        metrics: name of the metric of every task.
        splits: how many splits each task has.
        p_value: of Friedman's test that all models rank alike.
        critical_difference: of mean ranks, above which two models differ by Nemenyi's test.
        incomplete: tasks that are left out, as a model lacks runs there.
        untraced: runs of the tasks from sources that are not available any more.
    """

    standings: tuple[Standing, ...]
    metrics: Mapping[str, str]
    splits: int
    p_value: float
    critical_difference: float
    incomplete: tuple[str, ...]
    untraced: int = 0


def rank_models(summary: TableSummary) -> Ranking:
    """Rank the models of a comparison by their mean test scores on each task.

    Tasks are the blocks of the tests: splits of one task are not independent. Demsar 2006,
    "Statistical comparisons of classifiers over multiple data sets": Friedman's test of all, and
    Nemenyi's of pairs.

    Args:
        one: a table whose parts are tasks, and whose rows are models on every task.

    Raises:
        ArgumentError: fewer than two tasks have all runs of three models.
    """
    tasks: dict[str, list[RowSummary]] = {}
    for entry in summary.entries:
        tasks.setdefault(entry.row.part.name, []).append(entry)
    complete = {name: entries for name, entries in tasks.items() if all(map(_is_complete, entries))}
    titles = [entry.row.title for entry in next(iter(tasks.values()))]
    if len(complete) < 2 or len(titles) < 3:
        raise ArgumentError(
            f"{summary.experiment.name}: {format_count(len(complete), 'task')} of {len(tasks)} "
            f"and {format_count(len(titles), 'model')} have all of their runs; ranks need two "
            f"tasks and three models. Run 'tauflow reproduce {summary.experiment.name}'."
        )
    by_task = {name: _score_task(entries) for name, entries in complete.items()}
    standings = [
        Standing(
            title,
            {name: scores[place] for name, scores in by_task.items()},
            median(_get_parameters(entries[place]) for entries in complete.values()),
            median(_compute_seconds(entries[place]) for entries in complete.values()),
        )
        for place, title in enumerate(titles)
    ]
    from scipy.stats import friedmanchisquare

    ranks = [[score.rank for score in each.scores.values()] for each in standings]
    return Ranking(
        standings=tuple(sorted(standings, key=lambda each: each.mean_rank)),
        metrics={name: entries[0].row.metric for name, entries in complete.items()},
        splits=summary.experiment.seeds,
        p_value=float(friedmanchisquare(*ranks).pvalue),
        critical_difference=compute_critical_difference(len(titles), len(complete)),
        incomplete=tuple(name for name in tasks if name not in complete),
        untraced=sum(entry.untraced for entries in complete.values() for entry in entries),
    )


def compute_critical_difference(models: int, tasks: int) -> float:
    r"""Return the difference of mean ranks that is significant at :data:`LEVEL`.

    .. math::
        \mathrm{CD} = q_\alpha \sqrt{\frac{k (k + 1)}{6 N}}

    with k models, N tasks, and :math:`q_\alpha` the quantile of the studentised range over
    :math:`\sqrt 2` (Nemenyi 1963; Demsar 2006, Equation 11).
    """
    from scipy.stats import studentized_range

    quantile = float(studentized_range.ppf(1 - LEVEL, models, math.inf)) / math.sqrt(2)
    return quantile * math.sqrt(models * (models + 1) / (6 * tasks))


def _is_complete(entry: RowSummary) -> bool:
    scored = [r for r in entry.records if r.test is not None and math.isfinite(r.test)]
    return len(scored) >= entry.seeds[1] > 0 and not entry.few_settings and not entry.few_epochs


def _score_task(entries: Sequence[RowSummary]) -> list[TaskScore]:
    sign = -1.0 if METRICS[entries[0].row.metric].higher_is_better else 1.0
    tests = [[r.test for r in entry.records if r.test is not None] for entry in entries]
    means = [sign * fmean(scores) for scores in tests]
    return [
        TaskScore(
            sign * mean,
            stdev(scores) if len(scores) > 1 else 0.0,
            stdev(scores) / math.sqrt(len(scores)) if len(scores) > 1 else 0.0,
            median(scores),
            (sum(other < mean for other in means) + sum(other <= mean for other in means) + 1) / 2,
        )
        for mean, scores in zip(means, tests, strict=True)
    ]


def _get_parameters(entry: RowSummary) -> int:
    return entry.records[0].parameters or 0


def _compute_seconds(entry: RowSummary) -> float:
    return fmean(record.seconds or 0.0 for record in entry.records)


def find_cliques(ranks: Sequence[float], difference: float) -> list[tuple[int, int]]:
    """Return the first and last place of the largest groups that do not differ significantly.

    Args:
        ranks: mean ranks, increasing.
        difference: critical difference.
    """
    cliques: list[tuple[int, int]] = []
    for first, rank in enumerate(ranks):
        last = max(place for place, other in enumerate(ranks) if other - rank <= difference)
        if last > first and (not cliques or last > cliques[-1][1]):
            cliques.append((first, last))
    return cliques


def draw_critical_difference(ranking: Ranking) -> bytes:
    """Return the critical-difference diagram (Demsar 2006, Figure 1) as SVG.

    Models hang from the axis of mean ranks; bars join those that do not differ significantly.
    """
    names = [standing.title for standing in ranking.standings]
    ranks = [standing.mean_rank for standing in ranking.standings]
    half = math.ceil(len(names) / 2)
    cliques = find_cliques(ranks, ranking.critical_difference)
    top = 1.0 + 0.35 * len(cliques)
    from matplotlib import rc_context

    size = (8.2, 0.9 + 0.22 * (top + half))
    with rc_context({"svg.fonttype": "none"}), report_figure(size) as canvas:
        axes = canvas.subplots()
        low, high = math.floor(min(ranks)), math.ceil(max(ranks))
        width = high - low
        axes.set(xlim=(low - 0.35 * width, high + 0.35 * width), ylim=(top + half, -1.6))
        axes.axis("off")
        axes.plot((low, high), (0, 0), color=INK, linewidth=1.2)
        for tick in range(low, high + 1):
            axes.plot((tick, tick), (0, -0.25), color=INK, linewidth=1)
            axes.text(tick, -0.4, str(tick), ha="center", va="bottom")
        for place, (name, rank) in enumerate(zip(names, ranks, strict=True)):
            _hang_name(axes, name, rank, top, place, half, (low, high))
        for level, (first, last) in enumerate(cliques):
            height = 0.5 + 0.35 * level
            axes.plot((ranks[first], ranks[last]), (height, height), color=INK, linewidth=3)
        axes.text(
            low,
            -1.3,
            f"mean rank over {format_count(len(ranking.metrics), 'task')}; critical difference "
            f"{ranking.critical_difference:.1f}",
            color=SLATE,
        )
        file = io.BytesIO()
        canvas.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()


def _hang_name(
    axes: "Axes",
    name: str,
    rank: float,
    top: float,
    place: int,
    half: int,
    span: tuple[float, float],
) -> None:
    is_left = place < half
    height = top + (place if is_left else 2 * half - 1 - place)
    width = span[1] - span[0]
    end = span[0] - 0.04 * width if is_left else span[1] + 0.04 * width
    margin = -0.01 * width if is_left else 0.01 * width
    axes.plot((rank, rank, end), (0, height, height), color=SLATE, linewidth=0.8)
    text = f"{name}  {rank:.1f}" if is_left else f"{rank:.1f}  {name}"
    axes.text(end + margin, height, text, ha="right" if is_left else "left", va="center")


def make_rank_table(ranking: Ranking, models: int | None = None) -> str:
    """Return a table in Markdown of mean ranks and costs.

    Args:
        ranking: of the models.
        models: how many, the best first; by default all.
    """
    rows = [
        (
            standing.title,
            f"{standing.mean_rank:.1f}",
            str(sum(score.rank == 1 for score in standing.scores.values())),
            f"{standing.parameters:,.0f}" if standing.parameters else metric_format.DASH,
            f"{standing.seconds:.2g}" if standing.seconds >= 0.1 else "0",
        )
        for standing in ranking.standings[:models]
    ]
    headers = ("model", "mean rank", "best on", "parameters", "training time, s")
    return "\n".join(format_markdown_table(headers, rows, range(1, len(headers))))


def make_score_table(ranking: Ranking) -> str:
    """Return tables in Markdown of test scores, of four tasks each, the best in bold."""
    tables, tasks = [], list(ranking.metrics.items())
    for first in range(0, len(tasks), _TASKS_OF_TABLE):
        part = tasks[first : first + _TASKS_OF_TABLE]
        rows = []
        for standing in ranking.standings:
            cells = []
            for task, metric in part:
                score = standing.scores[task]
                text = format_mean_std(score.mean, score.std, None, metric)
                cells.append(f"**{text}**" if score.rank == 1 else text)
            rows.append((standing.title, *cells))
        headers = ("model", *(f"{task}, {_METRIC_NAMES.get(name, name)}" for task, name in part))
        tables.append("\n".join(format_markdown_table(headers, rows, range(1, len(headers)))))
    return "\n\n".join(tables)
