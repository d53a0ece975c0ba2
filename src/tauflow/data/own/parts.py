"""Draw what is for training, validation and test, or say where to cut it."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tauflow.checks import within
from tauflow.errors import ArgumentError, DataError

Indices = NDArray[np.int64]
_BY_TIME = (
    "if there are targets in the rows, cut each id by time: split_by='time' (--split-by time)"
)
_ADVICE = (
    f"Use more ids, or {_BY_TIME}. Where ids are pieces of long recordings, such as patient and "
    "day, name what they are pieces of, the patient, as group (--group): pieces of one recording "
    "in two parts would be a leak."
)
_ADVICE_ON_GROUPS = f"Use more groups, or leave the group out and, {_BY_TIME}."


def fractions_of(split: Sequence[float]) -> tuple[float, float, float]:
    """Return the fractions of the three parts, which add up to 1.

    Args:
        split: three numbers in any proportion, such as (0.7, 0.15, 0.15) or (70, 15, 15); only the
            second, of the validation part, may be 0.

    Raises:
        ArgumentError: they are not such numbers.
    """
    if isinstance(split, str) or not isinstance(split, Sequence) or len(split) != 3:
        raise ArgumentError(
            f"split must be three numbers, for training, validation and test, got {split!r}. Write "
            "for example 0.7, 0.15, 0.15."
        )
    train, valid, test = (within(0.0, math.inf, split=part) for part in split)
    if train == 0 or test == 0:
        raise ArgumentError(
            f"split must leave something for training and test, got {tuple(split)}. Only the "
            "second number, of the validation part, may be 0."
        )
    total = train + valid + test
    return train / total, valid / total, test / total


def split_ids(
    ids: Sequence[str],
    split: tuple[float, float, float],
    seed: int,
    classes: NDArray[np.int64] | None = None,
    *,
    grouped: str | None = None,
) -> tuple[Indices, Indices, Indices]:
    """Draw the parts; which ids they hold does not depend on the order of the ids.

    Args:
        ids: names of N sequences, or groups of them.
        split: fractions of training, validation and test part; each but an empty one gets at least
            one id.
        seed: of the draw.
        classes: class of each sequence, (N,): parts then hold each class in about the same
            proportion, and the training part at least one id of each.
        grouped: column that the names are of, if they are those of groups; for messages.

    Returns:
        Positions of the ids of each part, increasing.

    Raises:
        DataError: there are too few ids.
    """
    rng = np.random.RandomState(seed)
    count = len(ids)
    drawn = np.argsort(np.array(ids))[rng.permutation(count)]
    for_test = max(1, round(split[2] * count))
    for_valid = max(1, round(split[1] * count)) if split[1] > 0 else 0
    kept = np.zeros(0, np.int64)
    if classes is not None:
        drawn = drawn[np.argsort(classes[drawn], kind="stable")]
        _, firsts = np.unique(classes[drawn], return_index=True)
        kept, drawn = drawn[firsts], np.delete(drawn, firsts)
    room = len(drawn) - (0 if len(kept) else 1)  # at least one id is for training
    if room < for_test + for_valid:
        what = f"{count} ids of {len(kept)} classes" if len(kept) else f"{count} ids"
        if grouped is not None:
            what = f"{count} groups of {grouped!r}"
        each = ", one of each class kept for training," if len(kept) else ""
        raise DataError(
            f"{what}{each} cannot be split into parts of {split[0]:.2g}, {split[1]:.2g} and "
            f"{split[2]:.2g}. {_ADVICE if grouped is None else _ADVICE_ON_GROUPS}"
        )
    test, drawn = _spread(drawn, for_test)
    valid, drawn = _spread(drawn, for_valid)
    return np.sort(np.concatenate([kept, drawn])), np.sort(valid), np.sort(test)


def cuts_of(count: int, split: tuple[float, float, float], least: int) -> tuple[int, int] | None:
    """Return where to cut a row of entries into its training, validation and test part.

    Args:
        count: of the entries.
        split: fractions of the parts.
        least: how many entries each part but an empty one must have.

    Returns:
        Where the second and the third part begin; ``None`` if there are too few entries.
    """
    middle = least if split[1] > 0 else 0
    if count < 2 * least + middle:
        return None
    first = min(max(round(split[0] * count), least), count - middle - least)
    second = min(max(round((split[0] + split[1]) * count), first + middle), count - least)
    return first, second if middle else first


def _spread(drawn: Indices, count: int) -> tuple[Indices, Indices]:
    """Take ``count`` of the entries at equal distances; return them and what is left."""
    places = ((np.arange(count) + 0.5) * len(drawn) / max(count, 1)).astype(np.int64)
    return drawn[places], np.delete(drawn, places)
