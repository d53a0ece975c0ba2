"""How sure a run's answers are: decisions at its threshold, coverage of its intervals."""

import numpy as np
import torch
from numpy.typing import NDArray

from tauflow._internal.sanitize import format_count
from tauflow.errors import ArgumentError
from tauflow.evaluation.outputs import compute_probabilities
from tauflow.evaluation.thresholds import score_decisions
from tauflow.runs.bootstrap import (
    compute_interval,
    make_clusters,
    sample_cluster_counts,
)
from tauflow.runs.task import TaskRun

from .table_sections import Listing

LEVELS = (0.5, 0.8, 0.9, 0.95)
"""Levels of the intervals whose coverage is shown."""
_FEW_IDS = 30  # of which an interval that rows are pooled for is too narrow
_MAX_RESAMPLED = 50_000_000  # counts of entries in all


def list_certainty(run: TaskRun) -> list[Listing]:
    """Return small tables of how sure the answers on the test split of a table are."""
    if run.certainty.threshold is not None:
        return [_list_decisions(run)]
    return [] if run.certainty.conformal is None else _list_coverage(run)


def _get_resamples(run: TaskRun, sequence_index: torch.Tensor) -> NDArray[np.int64] | None:
    """Return how often each test entry counts in each resample, (R, N); ``None`` without any."""
    clusters = make_clusters(run.data)
    if isinstance(clusters, str):  # why there are none
        return None
    codes = clusters.codes
    if codes.ndim == 2:
        valid = run.data.test.valid if run.data.test.y_mask is None else run.data.test.y_mask
        of_entries = codes[valid if valid.ndim == 2 else valid.any(-1)]
    else:
        of_entries = codes[sequence_index]
    resamples = max(50, min(1_000, _MAX_RESAMPLED // max(1, len(of_entries))))
    return sample_cluster_counts(clusters.count, resamples)[:, of_entries.numpy()]


def _list_decisions(run: TaskRun) -> Listing:
    """Return sensitivity, specificity and predictive values at the threshold."""
    threshold, card, schema = run.certainty.threshold, run.data.card, run.data.schema
    assert threshold is not None
    assert schema is not None
    found = run.test_outputs
    probability = compute_probabilities(found.prediction.double(), card.task)
    of_positive = probability[:, threshold.positive].numpy()
    is_positive = found.y.numpy() == threshold.positive
    scores = score_decisions(is_positive, of_positive, threshold.value)
    counts = _get_resamples(run, found.sequence_index)
    drawn = (
        {}
        if counts is None
        else score_decisions(is_positive, of_positive, threshold.value, counts=counts)
    )
    told = of_positive >= threshold.value
    shares = {
        "sensitivity": (told & is_positive, is_positive),
        "specificity": (~told & ~is_positive, ~is_positive),
        "PPV": (told & is_positive, told),
        "NPV": (~told & ~is_positive, ~told),
    }
    rows = []
    for name, value in scores.items():
        ends = compute_interval(drawn[name]) if drawn else None
        part, whole = (int(one.sum()) for one in shares[name])
        shown = "" if ends is None else f"{ends[0]:.3f} to {ends[1]:.3f}"
        rows.append((name, f"{value:.3f}", shown, f"{part} of {whole}"))
    positive = schema.outputs[threshold.positive]
    caption = (
        f"Test split. {positive!r} is predicted from a probability of {threshold.value:.3g} on: "
        f"{threshold.rule}. PPV and NPV: shares of {positive!r} and of the other answers that are "
        "right."
    )
    return Listing("Decisions", ("", "value", "95 % interval", "entries"), rows, caption)


def _list_coverage(run: TaskRun) -> list[Listing]:
    """Return how many test targets the intervals hold, and how wide they are."""
    conformal, schema = run.certainty.conformal, run.data.schema
    assert conformal is not None
    assert schema is not None
    assert schema.y_scale is not None
    found = run.test_outputs
    prediction = found.prediction.double().numpy()
    quantiles = None if found.quantiles is None else found.quantiles.double().numpy()
    y = found.y.double().numpy().reshape(prediction.shape)
    known = ~np.isnan(y)
    counts = _get_resamples(run, found.sequence_index)
    rows = []
    for level in LEVELS:
        try:
            low, high = conformal.interval(prediction, level, quantiles)
        except ArgumentError:  # too few validation targets for this level
            continue
        inside = (low <= y) & (y <= high)
        ends = None
        if counts is not None:
            held = counts @ (inside & known).sum(1)
            ends = compute_interval(held / (counts @ known.sum(1)))
        width = (
            (high - low)[known] * np.broadcast_to(schema.y_scale.numpy(), y.shape)[known]
        ).mean()
        shown = "" if ends is None else f"{100 * ends[0]:.1f} to {100 * ends[1]:.1f} %"
        rows.append(
            (f"{100 * level:g} %", f"{100 * inside[known].mean():.1f} %", shown, f"{width:.4g}")
        )
    if not rows:
        return []
    unit = (
        "the table, averaged over targets" if len(schema.outputs) > 1 else repr(schema.outputs[0])
    )
    how = "learned quantiles, moved" if conformal.levels else "one width for each target, taken"
    caption = (
        f"Share of the test targets that lie in their intervals: {how} by the errors on the "
        f"validation split. Mean widths in units of {unit}."
    )
    ids = set(schema.ids["valid"])
    if len(ids) < min(_FEW_IDS, *conformal.counts) and ids.isdisjoint(schema.ids["train"]):
        caption += (
            f" They are calibrated on rows of {format_count(len(ids), 'id')}: where ids differ, "
            "intervals hold fewer targets of new ids than was asked for."
        )
    headers = ("interval", "targets inside", "95 % interval", "mean width")
    return [Listing("Intervals", headers, rows, caption)]
