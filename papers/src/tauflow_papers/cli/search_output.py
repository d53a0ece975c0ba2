"""What ``tauflow search`` and ``tauflow report`` print."""

import sys

from tauflow._internal.sanitize import replace_control_characters
from tauflow.cli.output import print_line, print_table
from tauflow.runs.report import metric_format
from tauflow_papers.experiments import Point, Search
from tauflow_papers.experiments.report import table
from tauflow_papers.experiments.report.results_summary import ResultsSummary
from tauflow_papers.experiments.report.summary_page import describe_table, make_tiles
from tauflow_papers.experiments.spec.grid import format_settings


def print_search(search: Search) -> None:
    """Print the points of a search, the best first, and what the chosen one reaches on test data.

    The test scores of the others stay unseen, as they must not decide.
    """
    metric = search.row.metric
    names = list(dict.fromkeys(name for point in search.points for name in point.settings))
    headers = (*(name.partition(".")[2] for name in names), "validation", "epoch", "time per epoch")
    print_table(
        headers,
        [_format_point(point, names, search) for point in search.points],
        title=f"{search.experiment.title}: {table.format_row_title(search.row)}",
        caption=f"Validation {metric_format.format_metric_name(search.metric)} "
        "at the selected epoch, best first.",
        numbers=range(len(headers)),
    )
    if search.best is None:
        print_line("Nothing is chosen yet: not every point has been tried, or none has finished.")
        return
    print_line(f"Chosen: {format_settings(search.best.settings)}")
    tests = [record.test for record in search.confirmed if record.test is not None]
    if not tests:
        tests = [record.test for record in search.best.records if record.test is not None]
    if tests:
        ours = table.format_mean_std(
            *table.compute_mean_std(tests, search.experiment.ddof), len(tests), metric
        )
        theirs = table.format_published(search.row.published, metric)
        print_line(
            f"Test {metric_format.format_metric_name(metric)} of the chosen: {ours}, published "
            f"{theirs}"
        )


def _format_point(point: Point, names: list[str], search: Search) -> list[str]:
    """Return a point's line; several seeds that selected different epochs are all named."""
    epochs = [str(record.best_epoch) for record in point.records]
    seconds = [record.seconds_per_epoch or 0.0 for record in point.records]
    return [
        *(str(point.settings.get(name, "–")) for name in names),
        metric_format.format_score(point.score, search.metric),
        ", ".join(dict.fromkeys(epochs)) or "–",
        f"{sum(seconds) / len(seconds):.3g} s" if seconds else "–",
    ]


def print_survey(survey: ResultsSummary) -> None:
    """Print one line for every table with results; the reports hold the rest."""
    for text in survey.warnings:
        print(replace_control_characters(f"warning: {text}"), file=sys.stderr)
    print_table(
        ("table", "results"),
        [(table.experiment.name, describe_table(table)) for table in survey.tables],
        caption=", ".join(f"{name}: {value}" for name, value in make_tiles(survey)),
    )
