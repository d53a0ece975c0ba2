"""Confidence intervals of scores: the bootstrap over ids, or over blocks of rows."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tauflow._internal.sanitize import format_count
from tauflow.batch import SequenceBatch
from tauflow.data.card import TaskData
from tauflow.training.elementwise import Score

Interval = tuple[float, float]
RESAMPLES = 1_000
MIN_CLUSTERS = 10
"""Clusters that are enough to resample."""
_NUM_BLOCKS = 40
_CONFIDENCE_LEVEL = 0.95
_MAX_WEIGHTS = 50_000_000  # weights of entries in all: of a million entries there are 50 resamples
_WEIGHTS_PER_CHUNK = 4_000_000


@dataclass(frozen=True)
class Clusters:
    """What is drawn with replacement: entries of one cluster hang together.

    Args:
        codes: of each sequence, (B,), or of each step, (B, T), which cluster it is in.
        count: of clusters.
        description: they are, for captions.
    """

    codes: Tensor
    count: int
    description: str


def make_clusters(data: TaskData) -> Clusters | str:
    """Return the clusters of the test split of a table; if there are too few, why.

    They are its ids, or their groups; of fewer than :data:`MIN_CLUSTERS`, blocks of consecutive
    rows, or of consecutive windows of a forecast, where such have separate targets.
    """
    schema, card = data.schema, data.card
    assert schema is not None
    ids = schema.ids["test"]
    names = [schema.groups.get(name, name) for name in ids]
    what = f"groups ({schema.group!r})" if schema.groups else "ids"
    each = torch.from_numpy(np.unique(names, return_inverse=True)[1].astype(np.int64))
    count = int(each.max()) + 1
    if count >= MIN_CLUSTERS:
        return Clusters(each, count, f"the {count} test {what}")
    few = f"the test split has {count} {what if count > 1 else what.replace('s', '', 1)}"
    if not (card.per_step or card.horizon):
        return f"{few}, and at least {MIN_CLUSTERS} are needed"
    owners = torch.from_numpy(np.unique(ids, return_inverse=True)[1].astype(np.int64))
    valid = data.test.valid if card.per_step else torch.ones(len(owners), 1, dtype=torch.bool)
    blocks = torch.zeros(valid.shape, dtype=torch.int64)
    total = int(valid.sum())
    length = max(-(-total // _NUM_BLOCKS), card.season if card.per_step else 1, 1)
    made = 0
    for owner in range(int(owners.max()) + 1):
        is_owned = valid & (owners == owner)[:, None]
        places = torch.arange(int(is_owned.sum())) // length
        blocks[is_owned] = made + places
        made += int(places[-1]) + 1 if len(places) else 0
    unit = "rows" if card.per_step else "windows"
    if made < MIN_CLUSTERS:
        return f"{few} and {total} {unit}, which are too few to resample"
    codes = blocks if card.per_step else blocks[:, 0]
    return Clusters(
        codes, made, f"{format_count(made, 'block')} of {length} consecutive {unit}, as {few}"
    )


def sample_cluster_counts(count: int, resamples: int = RESAMPLES) -> NDArray[np.int64]:
    """Return how often each of so many clusters is drawn in each resample, (R, G)."""
    draw = np.random.default_rng(0)
    return draw.multinomial(count, np.full(count, 1 / count), size=resamples)


def explain_no_interval(score: Score) -> str:
    """Return why resampling makes no interval of a score; nothing if it does."""
    if score.name.removeprefix("binary_").partition(" of ")[0] == "ece":
        return "resamples are worse calibrated than the data themselves, by chance"
    if score.whole is not None and not score.supports_weights:
        return "a score of all entries that takes no weights"
    return ""


def compute_score_interval(
    score: Score,
    prediction: Tensor,
    batch: SequenceBatch,
    clusters: Clusters | None,
) -> tuple[float, Interval | None]:
    """Return a score of predictions, and its 95 % interval.

    The interval holds the middle 95 % of the scores of :data:`RESAMPLES` resamples of the clusters,
    of fewer where there are very many entries. Resamples of which the score cannot be computed, as
    an area of one class, are left out.

    Args:
        score: the metric.
        prediction: of a whole part, as a model makes it.
        batch: the part, without weights.
        clusters: what to resample; by default there is no interval.

    Returns:
        The score; and its interval, ``None`` where there are no clusters, or see
        :func:`explain_no_interval`.
    """
    entries, _ = score.select(prediction, batch)
    if score.whole is None:
        values = score.compare_entries(entries).double().flatten().numpy()
        value = float(values.sum() / float(score.divisor(entries, None)))
    else:
        value = float(score.whole(entries.prediction, entries.y))
    if clusters is None or explain_no_interval(score):
        return value, None
    codes = entries.expand(clusters.codes).numpy()
    if score.whole is None:
        each = np.repeat(codes, len(values) // len(codes))
        sums = np.bincount(each, values, clusters.count)
        counts = np.bincount(each, minlength=clusters.count)
        drawn = sample_cluster_counts(clusters.count)
        with np.errstate(invalid="ignore"):
            return value, compute_interval((drawn @ sums) / (drawn @ counts))
    resamples = min(RESAMPLES, max(50, _MAX_WEIGHTS // len(codes)))
    drawn = sample_cluster_counts(clusters.count)[:resamples]
    at_once = max(1, _WEIGHTS_PER_CHUNK // len(codes))
    scores = [
        score.whole(
            entries.prediction,
            entries.y,
            torch.from_numpy(drawn[first : first + at_once][:, codes]),
        )
        for first in range(0, resamples, at_once)
    ]
    return value, compute_interval(torch.cat(scores).numpy())


def compute_interval(scores: NDArray[np.float64]) -> Interval | None:
    """Return the middle 95 % of scores of resamples; ``None`` if most of them are NaN."""
    known: Sequence[float] = scores[~np.isnan(scores)].tolist()
    if 2 * len(known) < len(scores):
        return None
    low, high = np.quantile(known, [(1 - _CONFIDENCE_LEVEL) / 2, (1 + _CONFIDENCE_LEVEL) / 2])
    return float(low), float(high)
