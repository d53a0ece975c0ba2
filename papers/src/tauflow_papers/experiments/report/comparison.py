"""What comparisons of our own say: which network to take for a task, and what it costs."""

import math
from collections.abc import Iterable, Sequence
from statistics import correlation, fmean
from typing import TYPE_CHECKING, NamedTuple

from tauflow._internal.sanitize import format_count
from tauflow.plotting.axes import hide_unused, set_log_scale
from tauflow.plotting.palette import BLUE, GREY, INK
from tauflow.plotting.report_figure import report_figure, to_data_uri
from tauflow.runs.report import metric_format
from tauflow.runs.report.plots import ReportPlot
from tauflow.runs.time_limits import format_duration
from tauflow.training.metrics import METRICS

from . import table
from .results_summary import ResultsSummary, TableSummary
from .row_summary import RowSummary
from .summary_table import SummaryTable
from .variation_results import is_at_search_boundary

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_NUM_RUNNERS_UP = 3
"""How many networks are named beside the best."""
_AXIS_SHARE = 0.85
"""Share of the networks whose scores the picture's axis spans; the others are at its end."""


class Candidate(NamedTuple):
    """A network that was tried for a task.

    Args:
        entry: its row.
        valid: validation score of seed 0, with which its settings were chosen.
        test: mean test score.
        parameters: trainable parameters, if known.
        seconds: time of one training, if known.
    """

    entry: RowSummary
    valid: float
    test: float
    parameters: int | None
    seconds: float | None

    @property
    def title(self) -> str:
        """What it is called, without its task, and whether it looks ahead."""
        row = self.entry.row
        return row.title if table.is_causal(row) else f"{row.title} (looks ahead)"


def rank_candidates(summary: TableSummary) -> dict[str, list[Candidate]]:
    """Return the networks of every task of a comparison, the best validation score first.

    Networks that had less than the others are left out: not every setting was tried, or not as
    long as it should be. A setting whose training failed was tried.
    """
    candidates: dict[str, list[Candidate]] = {}
    for entry in summary.measured:
        tried, settings = entry.settings
        tried += sum(failed.row == entry.row.name for failed in summary.failures)
        first = next((r.valid for r in entry.records if r.seed == 0), None)
        test = fmean(r.test for r in entry.records if r.test is not None)
        if tried < settings or entry.few_epochs or first is None:
            continue
        if not (math.isfinite(first) and math.isfinite(test)):
            continue
        times = [r.seconds for r in entry.records if r.seconds is not None]
        size = entry.records[0].parameters
        network = Candidate(entry, first, test, size, fmean(times) if times else None)
        candidates.setdefault(entry.row.part.name or summary.experiment.name, []).append(network)
    for networks in candidates.values():
        sign = -1.0 if METRICS[networks[0].entry.row.metric].higher_is_better else 1.0
        networks.sort(key=lambda network: sign * network.valid)
    return candidates


def tabulate_validation_choices(summary: ResultsSummary) -> SummaryTable | None:
    """Return which network validation would choose for each task; ``None`` without comparisons."""
    rows, ends = [], []
    for comparison in summary.comparisons:
        for part, networks in rank_candidates(comparison).items():
            if len(networks) > 1:
                rows.append(_format_choice(part, networks))
                ends += [
                    is_at_search_boundary(
                        comparison.experiment, each.entry.row, each.entry.records[0]
                    )
                    for each in networks
                ]
    if not rows:
        return None
    names = ", ".join(comparison.experiment.name for comparison in summary.comparisons)
    return SummaryTable(
        title="Model selection by validation",
        headers=(
            *("task", "network", "the next by validation", "measured in"),
            *("test", "best on test", "place on test", "ranks agree", "parameters", "training"),
        ),
        rows=rows,
        num_text_columns=4,
        caption=f"From {names}: {_describe_terms(summary)}. "
        "The network has the best validation score of seed 0, as a user would choose it; "
        "the best test score of all networks is known only afterwards. 'Ranks agree' is Spearman's "
        "correlation of the validation and test scores of all networks: near 0, validation does "
        "not predict the test score, and the choice is as good as a random one. "
        f"{sum(ends)} of {format_count(len(ends), 'network')} chose the smallest or the largest "
        "value of a setting that was tried: a wider search may change the order. † fewer seeds "
        "than requested.",
    )


def _describe_terms(summary: ResultsSummary) -> str:
    """Say on which terms the networks of comparisons met."""
    rows = [
        row for comparison in summary.comparisons for row in comparison.experiment.rows if row.model
    ]
    budgets = sorted({max(1, len(row.search)) for row in rows})
    causal = "causal networks" if all(map(table.is_causal, rows)) else "networks"
    if len(budgets) == 1:
        return f"{causal} that had the same budget for choosing settings"
    return (
        f"{causal} with {budgets[0]} to {format_count(budgets[-1], 'setting')} to choose from each"
    )


def _format_choice(part: str, networks: Sequence[Candidate]) -> tuple[str, ...]:
    best, metric = networks[0], networks[0].entry.row.metric
    pick = max if METRICS[metric].higher_is_better else min
    ours = best.entry.line.ours.split(" (")[0] + " †" * best.entry.few_seeds
    better = sum(pick(network.test, best.test) != best.test for network in networks)
    return (
        part,
        best.title,
        ", ".join(network.title for network in networks[1 : 1 + _NUM_RUNNERS_UP]),
        metric_format.format_metric_name(metric),
        ours,
        metric_format.format_score(pick(network.test for network in networks), metric),
        f"{better + 1} of {len(networks)}",
        format_rank_correlation([(network.valid, network.test) for network in networks]),
        metric_format.format_parameter_count(best.parameters),
        "–" if best.seconds is None else format_duration(best.seconds),
    )


def format_rank_correlation(pairs: Sequence[tuple[float, float]]) -> str:
    """Return Spearman's coefficient as text; a dash of scores that are all the same."""
    first, second = (
        # The mean of the places that equal values take together, twice.
        [
            sum(other < value for other in side) + sum(other <= value for other in side)
            for value in side
        ]
        for side in zip(*pairs, strict=True)
    )
    if len(set(first)) < 2 or len(set(second)) < 2:
        return "–"
    return f"{correlation(first, second):.2f}"


def plot_trade_offs(tables: Iterable[TableSummary]) -> ReportPlot | None:
    """Draw test scores over time of training and number of parameters, a line for each task."""
    tasks = [
        (part, networks)
        for table in tables
        if not table.experiment.published
        for part, networks in rank_candidates(table).items()
        if len(networks) > 1
    ]
    if not tasks:
        return None
    with report_figure((9.6, 3.1 * len(tasks) + 0.2)) as canvas:
        grid = canvas.subplots(len(tasks), 2, squeeze=False)
        hide_unused(grid, 2 * len(tasks))
        for (part, networks), (left, right) in zip(tasks, grid, strict=True):
            metric = networks[0].entry.row.metric
            for axes, costs, label in (
                (left, [network.seconds for network in networks], "seconds of one training"),
                (right, [network.parameters for network in networks], "parameters"),
            ):
                known = [place for place, cost in enumerate(costs) if cost]
                if known:
                    shown = [networks[place] for place in known]
                    _plot_networks(
                        axes, shown, [float(costs[place] or 0) for place in known], networks[0]
                    )
                axes.set_xlabel(label)
            left.set_ylabel(f"test {metric_format.format_metric_name(metric)}")
            left.set_title(part)
        uri = to_data_uri(canvas)
    caption = (
        "Every network of the comparison. Named are those that no other one beats at less cost, "
        "and the one that validation chooses, drawn dark. Triangles are beyond the axis."
    )
    return ReportPlot("What a good score costs", caption, uri)


def _plot_networks(
    axes: "Axes", networks: Sequence[Candidate], costs: Sequence[float], chosen: Candidate
) -> None:
    metric = chosen.entry.row.metric
    sign = -1.0 if METRICS[metric].higher_is_better else 1.0
    losses = [sign * metric_format.get_display_scale(metric) * network.test for network in networks]
    names = find_pareto_front(costs, losses) | {
        k for k, network in enumerate(networks) if network is chosen
    }
    order = sorted(names, key=lambda place: costs[place])  # labels above and below, by turns
    worst = sorted(losses)[round(_AXIS_SHARE * (len(losses) - 1))]
    for place, (network, cost, loss) in enumerate(zip(networks, costs, losses, strict=True)):
        named = place in names
        colour = INK if network is chosen else BLUE if named else GREY
        beyond = "v" if sign < 0 else "^"
        marker, score = ("o", sign * loss) if loss <= worst else (beyond, sign * worst)
        axes.plot(cost, score, marker, color=colour, markersize=5, zorder=3 if named else 2)
        if named:
            axes.annotate(
                network.entry.row.title,
                (cost, score),
                xytext=(5, -11 if order.index(place) % 2 else 4),
                textcoords="offset points",
                fontsize=8,
                color=colour,
            )
    axes.margins(0.08, 0.14)  # room for names
    set_log_scale(axes, axes.xaxis)


def find_pareto_front(costs: Sequence[float], losses: Sequence[float]) -> set[int]:
    """Return the positions that no other one beats in one of the two without losing the other."""
    order = sorted(range(len(costs)), key=lambda place: (costs[place], losses[place]))
    front: set[int] = set()
    least = float("inf")
    for place in order:
        if losses[place] < least:
            front.add(place)
            least = losses[place]
    return front
