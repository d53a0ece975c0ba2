"""What there is to learn: targets and weights of sequences."""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import KFold, StratifiedKFold, train_test_split
from sklearn.utils.validation import check_array

from tauflow._internal.checks import check_at_least, check_within
from tauflow._internal.sanitize import format_count
from tauflow.errors import ArgumentError, DataError, ShapeError
from tauflow.tabular.cell_values import Floats, Indices, check_no_datetimes, to_array
from tauflow.tabular.reshape import check_complete, reduce_to_ids
from tauflow.tabular.sequences import Sequences, SourceTable, format_names
from tauflow.training.defaults import (
    DEFAULT_ENSEMBLE,
    DEFAULT_VALIDATION_FRACTION,
    MIN_SEQUENCES_FOR_ENSEMBLE,
    MIN_SEQUENCES_FOR_VALIDATION,
)

from .input_kwargs import INPUT_KWARGS
from .training import AUTO, TrainingPlan


def check_sample_weight(sample_weight: Any, count: int) -> Floats | None:
    """Return the weights of sequences, (B,), ``None`` if they all count alike."""
    if sample_weight is None:
        return None
    sample_weight = to_array(sample_weight)
    check_no_datetimes("sample_weight", sample_weight.dtype)
    weight: Floats = check_array(
        sample_weight,
        ensure_2d=False,
        dtype=np.float64,
        ensure_min_samples=0,
        input_name="sample_weight",
    )
    weight = np.full(count, float(weight)) if weight.ndim == 0 else weight
    if weight.shape != (count,):
        raise ShapeError(
            f"sample_weight has shape {weight.shape}, expected ({count},): one per sequence."
        )
    if (weight < 0).any():
        raise DataError(f"sample_weight is negative at {int(np.argmax(weight < 0))}.")
    if not weight.any():
        raise DataError("every sample_weight is zero: no sequence counts. Give one a weight.")
    return weight


def align_targets(
    targets: Mapping[Any, Any],
    rows: Sequences,
    features: Collection[str],
) -> list[NDArray[Any]]:
    """Return one value per sequence of each of some targets.

    Args:
        given: the targets, by role; the name of a column is that of the rows.
        rows: the sequences.
        features: names of the features, none of which may be a target.
    """
    cells, aligned = iter(rows.targets), []
    for role, values in targets.items():
        name = getattr(values, "name", None)
        if name is not None and name in features:
            raise DataError(
                f"{role} is called {name!r}, and so is a column of X, which would be a feature. "
                f"Drop it from X, or give {role}={name!r}."
            )
        values = next(cells) if isinstance(values, str) else values
        aligned.append(align_to_sequences(str(role), values, rows))
    return aligned


def align_to_sequences(name: str, data: Any, rows: Sequences) -> NDArray[Any]:
    """Return one target, or weight, per sequence, where a table may come with one per row.

    Raises:
        ShapeError: there are neither as many as sequences nor as rows, or it is a single one.
        DataError: a sequence of a table has several, or none, or an index is not that of the ids.
    """
    data = data if hasattr(data, "iloc") else to_array(data)
    if not data.ndim:
        raise ShapeError(f"{name} must hold one entry per sequence, got {data.item()!r}.")
    source, owners = rows.source, None if rows.source is None else rows.source.sequence_index
    if len(data) != len(rows) and (owners is None or len(data) != len(owners)):
        raise ShapeError(
            f"Found input variables with inconsistent numbers of samples: {name} has "
            f"{format_count(len(data), 'entry', 'entries')}, and X has "
            f"{format_count(len(rows), 'sequence')}."
        )
    if rows.ids is None:
        return to_array(data)
    if source is None or owners is None:
        _check_order(name, data, rows.ids)
    elif len(data) != len(rows):
        numbers = np.arange(len(owners))
        values = to_array(data)
        return reduce_to_ids(name, values, owners, rows.ids, numbers)
    y = to_array(data if source is None else _reorder_by_id(rows.ids, name, data, source))
    check_complete(name, y, rows.ids)
    return y


def _reorder_by_id(ids: NDArray[Any], name: str, data: Any, source: SourceTable) -> NDArray[Any]:
    """Return targets, or weights, one per id, in the order of the ids.

    An index that holds the ids says which is whose, as after ``groupby(id)``: pandas sorts by it.
    One that holds something else, and does not count them, is an error.
    """
    if isinstance(data, np.ndarray):
        return data
    index, id, of_rows = data.index, source.id, len(ids) == len(source.sequence_index)
    if of_rows and index.name != id and index.equals(source.index):
        return np.asarray(data)
    if index.is_unique and index.nlevels == 1:
        places, numbers = index.get_indexer(ids), np.arange(len(index))
        counted = index.name is None and np.array_equal(index, numbers)
        if counted and (places >= 0).all() and not np.array_equal(places, numbers):
            raise DataError(
                f"{name} is numbered 0, 1, 2 ..., as it would be in the order in which ids first "
                f"occur, and these numbers are ids of {id!r}, too, in another order. Call its "
                f"index {id!r} if it holds the ids, or give an array in their order."
            )
        if (places >= 0).all():
            return np.asarray(data.iloc[places])
    if not of_rows and not np.array_equal(index, np.arange(len(index))):
        raise DataError(
            f"{name} has one entry per id, and its index holds "
            f"{format_names(list(map(str, index)))}, expected the ids of {id!r}, "
            f"{format_names(list(map(str, ids)))}. Set them as its index, or give an array in the "
            "order in which ids first occur."
        )
    return np.asarray(data)


def _check_order(name: str, data: Any, ids: NDArray[Any]) -> None:
    """Raise :class:`DataError` if an index says that entries belong to other ids.

    scikit-learn pairs entries and sequences by their places.
    """
    if isinstance(data, np.ndarray) or np.array_equal(data.index, ids):
        return
    shared = data.index.isin(ids)
    if shared.any():
        raise DataError(
            f"{name} is in another order than the sequences of X: its index holds "
            f"{format_names(list(map(str, data.index)))}, and the ids of X are "
            f"{format_names(list(map(str, ids)))}. Give X.per_sequence({name}) of the whole X, or "
            "an array in the order of X.ids."
        )


def split_validation(
    count: int,
    share: float | str,
    random: np.random.RandomState,
    classes: NDArray[Any] | None,
) -> tuple[Indices, Indices]:
    """Return which sequences to train on, and which to validate on.

    Args:
        count: of sequences.
        share: of those to validate on; 0 for none; or ``"auto"``.
        random: draws them.
        classes: to be spread evenly, if there are any; of ``"auto"``, if there are enough of each.
    """
    everything = np.arange(count)
    if share == AUTO:
        share = 0.0 if count < MIN_SEQUENCES_FOR_VALIDATION else DEFAULT_VALIDATION_FRACTION
        classes = classes if _has_enough_per_class(classes, share) else None
    share = check_validation_fraction(share)
    if not share:
        return everything, everything[:0]
    if count < 2:
        raise DataError(
            f"validation_fraction={share:g} keeps sequences for validation, and X has one. Give "
            "several, give validation=, or set validation_fraction=0."
        )
    train_indices, held = train_test_split(
        everything, test_size=share, random_state=random, stratify=classes
    )
    return np.sort(train_indices), np.sort(held)


def plan_networks(
    estimator: Any,
    rows: Sequences,
    seed: int,
    random: np.random.RandomState,
    *,
    goes_on: bool,
    is_free: bool,
) -> TrainingPlan:
    """Return how many networks to train, and on what.

    Args:
        estimator: to be fitted.
        rows: sequences to learn from.
        seed: of the first network.
        random: draws the folds.
        goes_on: whether the networks go on from those that the estimator has.
        is_free: whether each may have another part of the sequences held out.
    """
    several = estimator._is_ensemble and len(rows) >= MIN_SEQUENCES_FOR_ENSEMBLE
    count = DEFAULT_ENSEMBLE if several else 1
    if estimator.ensemble != AUTO and estimator.model != AUTO:
        count = check_at_least(1, ensemble=estimator.ensemble)
    enough = len(rows) >= max(count, MIN_SEQUENCES_FOR_VALIDATION)
    if not (is_free and count > 2 and enough) or estimator._is_per_step:
        return TrainingPlan(count, seed, goes_on)
    classes = rows.y if estimator._is_stratified else None
    even = classes is not None and np.unique(classes, return_counts=True)[1].min() >= count
    folds = (StratifiedKFold if even else KFold)(count, shuffle=True, random_state=random)
    pairs = list(folds.split(np.arange(len(rows)), classes if even else None))
    return TrainingPlan(count, seed, goes_on, pairs)


def check_validation_fraction(share: Any) -> float:
    """Return the share of the sequences to validate on, 0 or more and below 1."""
    if isinstance(share, str):
        raise ArgumentError(f"validation_fraction must be 'auto' or a number, got {share!r}.")
    checked: float = check_within(0.0, 1.0, validation_fraction=share)
    if checked == 1.0:
        raise ArgumentError("validation_fraction=1 leaves nothing to train on. Give a part of 1.")
    return float(checked)


def _has_enough_per_class(classes: NDArray[Any] | None, share: float) -> bool:
    """Whether each of both parts can have one of every class."""
    if classes is None:
        return False
    counts = np.unique(classes, return_counts=True)[1]
    return bool(counts.min() > 1 and share * len(classes) >= len(counts))


def unpack_validation(validation: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """Return validation data by names such as X, y and events, of which the first two are needed.

    They come as a mapping, perhaps with weights and what else ``fit`` takes, or in this order.
    """
    needed, weight = names[:2], ("sample_weight",) if len(names) > 1 else ()
    more = (*names[2:], *weight, *INPUT_KWARGS)
    if not isinstance(validation, Mapping):
        parts = validation if len(names) > 1 else (validation,)
        if not isinstance(parts, tuple) or not len(needed) <= len(parts) <= len(names):
            raise ArgumentError(
                f"validation must be ({', '.join(names)}), or a mapping of these and of what fit "
                f"takes besides, got {type(validation).__name__}."
            )
        validation = dict(zip(names, parts, strict=False))
    if validation.keys() - {*needed, *more} or not validation.keys() >= {*needed}:
        raise ArgumentError(
            f"validation holds {', '.join(map(str, validation))}, expected {', '.join(needed)} and "
            f"perhaps {', '.join(more)}."
        )
    return dict(validation)
