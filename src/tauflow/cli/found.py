"""What ``tauflow search`` and ``tauflow report`` print."""

import sys

from tauflow.experiments import Point, Search
from tauflow.experiments.report import table
from tauflow.experiments.report.survey import Survey
from tauflow.experiments.report.survey_page import facts, summary
from tauflow.experiments.spec.grid import show
from tauflow.plain_text import visible
from tauflow.runs.report import metric_text

from .output import print_table, say


def print_search(found: Search) -> None:
    """Print the points of a search, the best first, and what the chosen one reaches on test data.

    The test scores of the others stay unseen, as they must not decide.
    """
    metric = found.row.metric
    names = list(dict.fromkeys(name for point in found.points for name in point.settings))
    headers = (*(name.partition(".")[2] for name in names), "validation", "epoch", "time per epoch")
    print_table(
        headers,
        [_cells(point, names, found) for point in found.points],
        title=f"{found.experiment.title}: {table.title(found.row)}",
        caption=f"Validation {metric_text.unit(found.metric)} at the selected epoch, best first.",
        numbers=range(len(headers)),
    )
    if found.best is None:
        say("Nothing is chosen yet: not every point has been tried, or none has finished.")
        return
    say(f"Chosen: {show(found.best.settings)}")
    tests = [record.test for record in found.confirmed if record.test is not None]
    if not tests:
        tests = [record.test for record in found.best.records if record.test is not None]
    if tests:
        ours = table.show_spread(*table.summarise(tests, found.experiment.ddof), len(tests), metric)
        theirs = table.show_published(found.row.published, metric)
        say(f"Test {metric_text.unit(metric)} of the chosen: {ours}, published {theirs}")


def _cells(point: Point, names: list[str], found: Search) -> list[str]:
    """Return a point's line; several seeds that selected different epochs are all named."""
    epochs = [str(record.best_epoch) for record in point.records]
    seconds = [record.seconds_per_epoch or 0.0 for record in point.records]
    return [
        *(str(point.settings.get(name, "–")) for name in names),
        metric_text.show_number(point.score, found.metric),
        ", ".join(dict.fromkeys(epochs)) or "–",
        f"{sum(seconds) / len(seconds):.3g} s" if seconds else "–",
    ]


def print_survey(found: Survey) -> None:
    """Print one line for every table with results; the reports hold the rest."""
    for text in found.warnings:
        print(visible(f"warning: {text}"), file=sys.stderr)
    print_table(
        ("table", "results"),
        [(one.experiment.name, summary(one)) for one in found.tables],
        caption=", ".join(f"{name}: {value}" for name, value in facts(found)),
    )
