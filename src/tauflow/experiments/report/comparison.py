"""What comparisons of our own say: which network to take for a task, and what it costs."""

import math
from collections.abc import Iterable, Sequence
from statistics import correlation, fmean
from typing import TYPE_CHECKING, NamedTuple

from tauflow.draw.axes import log_axis, used
from tauflow.draw.canvas import canvas_of, uri_of
from tauflow.draw.palette import BLUE, GREY, INK
from tauflow.experiments.report import table
from tauflow.runs.report import metric_text
from tauflow.runs.report.pictures import Picture
from tauflow.runs.timespan import duration
from tauflow.training.metrics import METRICS

from .front import Front
from .survey import RowSurvey, Survey, TableSurvey
from .tried import is_at_an_end

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_NEXT = 3
"""How many networks are named beside the best."""
_SHOWN = 0.85
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

    entry: RowSurvey
    valid: float
    test: float
    parameters: int | None
    seconds: float | None

    @property
    def title(self) -> str:
        """What it is called, without its task, and whether it looks ahead."""
        row = self.entry.row
        return f"{row.title} (looks ahead)" if table.looks_ahead(row) else row.title


def candidates(one: TableSurvey) -> dict[str, list[Candidate]]:
    """Return the networks of every task of a comparison, the best validation score first.

    Networks that had less than the others are left out: not every setting was tried, or not as
    long as it should be. A setting whose training failed was tried.
    """
    found: dict[str, list[Candidate]] = {}
    for entry in one.measured:
        tried, settings = entry.settings
        tried += sum(failed.row == entry.row.name for failed in one.failures)
        first = next((r.valid for r in entry.records if r.seed == 0), None)
        test = fmean(r.test for r in entry.records if r.test is not None)
        if tried < settings or entry.few_epochs or first is None:
            continue
        if not (math.isfinite(first) and math.isfinite(test)):
            continue
        times = [r.seconds for r in entry.records if r.seconds is not None]
        size = entry.records[0].parameters
        network = Candidate(entry, first, test, size, fmean(times) if times else None)
        found.setdefault(entry.row.part.name or one.experiment.name, []).append(network)
    for networks in found.values():
        sign = -1.0 if METRICS[networks[0].entry.row.metric].higher_is_better else 1.0
        networks.sort(key=lambda network: sign * network.valid)
    return found


def by_validation(found: Survey) -> Front | None:
    """Return which network validation would choose for each task; ``None`` without comparisons."""
    rows, ends = [], []
    for one in found.comparisons:
        for part, networks in candidates(one).items():
            if len(networks) > 1:
                rows.append(_choice(part, networks))
                ends += [
                    is_at_an_end(one.experiment, each.entry.row, each.entry.records[0])
                    for each in networks
                ]
    if not rows:
        return None
    names = ", ".join(one.experiment.name for one in found.comparisons)
    return Front(
        title="Which network validation would take",
        headers=(
            *("task", "network", "the next by validation", "measured in"),
            *("test", "best on test", "place on test", "ranks agree", "parameters", "training"),
        ),
        rows=rows,
        words=4,
        caption=f"From {names}: {_terms(found)}. "
        "Validation, of seed 0, chooses the network, too, as a user would; the best test score of "
        "any is one that nobody can choose beforehand. Ranks agree by Spearman's correlation of "
        "all networks' validation and test scores: where it is near 0, validation says nothing of "
        "the test part, and the network named is as good as drawn. "
        f"{sum(ends)} of {len(ends)} networks chose the smallest or the largest value of a setting "
        "that was tried: a wider search may change the order. † fewer seeds than asked for.",
    )


def _terms(found: Survey) -> str:
    """Say on which terms the networks of comparisons met."""
    rows = [row for one in found.comparisons for row in one.experiment.rows if row.model]
    budgets = sorted({max(1, len(row.search)) for row in rows})
    causal = "networks" if any(map(table.looks_ahead, rows)) else "causal networks"
    if len(budgets) == 1:
        return f"{causal} that had the same budget for choosing settings"
    return f"{causal} with {budgets[0]} to {budgets[-1]} settings to choose from each"


def _choice(part: str, networks: Sequence[Candidate]) -> tuple[str, ...]:
    best, metric = networks[0], networks[0].entry.row.metric
    pick = max if METRICS[metric].higher_is_better else min
    ours = best.entry.line.ours.split(" (")[0] + " †" * best.entry.few_seeds
    better = sum(pick(one.test, best.test) != best.test for one in networks)
    return (
        part,
        best.title,
        ", ".join(one.title for one in networks[1 : 1 + _NEXT]),
        metric_text.unit(metric),
        ours,
        metric_text.show_number(pick(one.test for one in networks), metric),
        f"{better + 1} of {len(networks)}",
        rank_correlation([(one.valid, one.test) for one in networks]),
        metric_text.show_count(best.parameters),
        "–" if best.seconds is None else duration(best.seconds),
    )


def rank_correlation(pairs: Sequence[tuple[float, float]]) -> str:
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


def trade_offs(tables: Iterable[TableSurvey]) -> Picture | None:
    """Draw test scores over time of training and number of parameters, a line for each task."""
    tasks = [
        (part, networks)
        for one in tables
        if not one.experiment.published
        for part, networks in candidates(one).items()
        if len(networks) > 1
    ]
    if not tasks:
        return None
    with canvas_of((9.6, 3.1 * len(tasks) + 0.2)) as canvas:
        grid = canvas.subplots(len(tasks), 2, squeeze=False)
        used(grid, 2 * len(tasks))
        for (part, networks), (left, right) in zip(tasks, grid, strict=True):
            metric = networks[0].entry.row.metric
            for axes, costs, label in (
                (left, [one.seconds for one in networks], "seconds of one training"),
                (right, [one.parameters for one in networks], "parameters"),
            ):
                known = [place for place, cost in enumerate(costs) if cost]
                if known:
                    shown = [networks[place] for place in known]
                    _draw(axes, shown, [float(costs[place] or 0) for place in known], networks[0])
                axes.set_xlabel(label)
            left.set_ylabel(f"test {metric_text.unit(metric)}")
            left.set_title(part)
        uri = uri_of(canvas)
    caption = (
        "Every network of the comparison. Named are those that no other one beats at less cost, "
        "and the one that validation chooses, drawn dark. Triangles are beyond the axis."
    )
    return Picture("What a good score costs", caption, uri)


def _draw(
    axes: "Axes", networks: Sequence[Candidate], costs: Sequence[float], chosen: Candidate
) -> None:
    metric = chosen.entry.row.metric
    sign = -1.0 if METRICS[metric].higher_is_better else 1.0
    losses = [sign * metric_text.scale_of(metric) * one.test for one in networks]
    names = frontier(costs, losses) | {k for k, one in enumerate(networks) if one is chosen}
    order = sorted(names, key=lambda place: costs[place])  # labels above and below, by turns
    worst = sorted(losses)[round(_SHOWN * (len(losses) - 1))]
    for place, (one, cost, loss) in enumerate(zip(networks, costs, losses, strict=True)):
        named = place in names
        colour = INK if one is chosen else BLUE if named else GREY
        beyond = "v" if sign < 0 else "^"
        marker, score = ("o", sign * loss) if loss <= worst else (beyond, sign * worst)
        axes.plot(cost, score, marker, color=colour, markersize=5, zorder=3 if named else 2)
        if named:
            axes.annotate(
                one.entry.row.title,
                (cost, score),
                xytext=(5, -11 if order.index(place) % 2 else 4),
                textcoords="offset points",
                fontsize=8,
                color=colour,
            )
    axes.margins(0.08, 0.14)  # room for names
    log_axis(axes, axes.xaxis)


def frontier(costs: Sequence[float], losses: Sequence[float]) -> set[int]:
    """Return the positions that no other one beats in one of the two without losing the other."""
    order = sorted(range(len(costs)), key=lambda place: (costs[place], losses[place]))
    found: set[int] = set()
    least = float("inf")
    for place in order:
        if losses[place] < least:
            found.add(place)
            least = losses[place]
    return found
