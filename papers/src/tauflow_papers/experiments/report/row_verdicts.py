"""The verdicts of a table's rows, from their runs and by ``papers/PROTOCOL.md``."""

import math
from collections.abc import Iterable, Sequence
from statistics import fmean

from tauflow.runs.report.metric_format import PERCENT_METRICS
from tauflow.training.metrics import METRICS
from tauflow_papers.experiments.spec.experiment import READY, Experiment, Row

from .protocol import (
    CHANCE_MARGIN,
    UNDECIDED,
    UNMEASURED,
    Judgement,
    PublishedNumber,
    correct_judgements,
    find_missing,
    judge_row,
)
from .row_summary import RowSummary
from .table import list_scores
from .variation_results import VariationRuns

_LAST_DIGITS = {True: 1e-4, False: 1e-3}
"""A unit of the last digit that tables print, of a fraction in per cent and of other scores."""


def judge_rows(
    experiment: Experiment, entries: Sequence[RowSummary], tried: Iterable[VariationRuns]
) -> list[Judgement]:
    """Return the verdict of every row of a table.

    Args:
        experiment: the table.
        entries: its rows, not judged yet.
        tried: runs with other settings, of which other splits count where rows are judged over
            splits.
    """
    splits = list(tried)
    judged = [_judge_alone(experiment, entry, splits) for entry in entries]
    return correct_judgements(judged, sum(map(_is_in_family, experiment.rows)))


def find_row_missing(entry: RowSummary) -> str:
    """Say what a row of ours lacks to be compared with others; nothing if it has all."""
    if entry.judged.verdict == UNMEASURED:
        return entry.judged.why
    return find_missing(
        entry.seeds[0], epochs=not entry.few_epochs, settings=not entry.few_settings
    )


def _judge_alone(
    experiment: Experiment, entry: RowSummary, splits: Sequence[VariationRuns]
) -> Judgement:
    row, published = entry.row, _get_published(experiment, entry.row)
    numbers = (published.mean, published.below, published.above)
    if not entry.records or row.unlike or all(number is None for number in numbers):
        return Judgement("")
    scores = list_scores(experiment, entry.records)
    over_splits = bool(experiment.judged_over)
    if over_splits:
        scores = [fmean(scores), *_list_split_scores(experiment, entry, splits)]
    missing = find_missing(
        len(scores),
        epochs=not entry.few_epochs,
        settings=not entry.few_settings,
        splits=len(scores) if over_splits else None,
    )
    if missing:
        return Judgement(UNMEASURED, missing)
    if not all(map(math.isfinite, scores)):
        return Judgement(UNDECIDED, "a score is not finite")
    return judge_row(scores, published, row.metric, over_splits=over_splits)


def _list_split_scores(
    experiment: Experiment, entry: RowSummary, splits: Iterable[VariationRuns]
) -> list[float]:
    """Return the mean score of each other split on which a row has been run in full."""
    return [
        fmean(r.test for r in split_runs.records if r.test is not None)
        for split_runs in splits
        if split_runs.row == entry.row.name and set(split_runs.changes) == {experiment.judged_over}
    ]


def _get_published(experiment: Experiment, row: Row) -> PublishedNumber:
    published = row.published
    return PublishedNumber(
        mean=published.mean,
        std=published.std,
        n=published.n,
        ddof=experiment.ddof,
        unit=_LAST_DIGITS[row.metric in PERCENT_METRICS],
        below=published.below,
        above=published.above,
        chance=published.chance,
    )


def _is_in_family(row: Row) -> bool:
    """Whether a row's difference enters the correction for the number of rows."""
    published = row.published
    if row.status != READY or row.unlike or published.mean is None or row.metric not in METRICS:
        return False
    return published.chance is None or published.mean > published.chance + CHANCE_MARGIN
