"""Inputs and targets of a table, scaled by its training split."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tauflow.data.scaler import StandardScaler, find_nan, subtract_exactly
from tauflow.errors import DataError

from .cell_values import Bools
from .inputs import InputColumns
from .options import TableOptions
from .sequences import Sequences, format_names
from .split import TableSplits
from .target import Target

_BLOCK_SIZE = 1 << 18  # numbers that are scaled together
_PRECISIONS = {np.float16: "half", np.float32: "single", np.float64: "double"}


def scale_inputs(
    scaler: StandardScaler,
    columns: Sequence[NDArray[Any]],
    names: Sequence[str],
    dtype: type[np.floating[Any]] = np.float32,
) -> tuple[NDArray[Any], Bools]:
    """Return the values of C columns, (R, C), scaled and 0 where missing, and where they are not.

    Args:
        scaler: of the columns.
        columns: numbers, (R,) each, or booleans.
        names: of the columns, for messages.
        dtype: of the result; it is computed in double precision.

    Raises:
        DataError: a number is so far from the mean that the dtype cannot hold it.
    """
    count = len(columns[0])
    observed = np.empty((count, len(columns)), np.bool_)
    scaled = np.empty(observed.shape, dtype)
    width = max(1, _BLOCK_SIZE // max(1, count))
    for first in range(0, len(columns), width):  # a few at a time, as tables may be large
        part = slice(first, first + width)
        transformed = scaler.transform_columns(first, columns[part])
        absent = np.isnan(transformed)
        with np.errstate(over="ignore"):
            held = np.where(absent, 0.0, transformed).astype(dtype)
        scaled[:, part], observed[:, part] = held.T, ~absent.T
        far = np.isinf(held)
        if far.any():
            here = int(np.argmax(far.any(axis=1)))
            place, row = first + here, int(np.argmax(far[here]))
            raise DataError(
                f"{names[place]!r} is {columns[place][row]:.4g} in a row, too far from the "
                f"{scaler.mean[place]:.4g} +- {scaler.scale[place]:.4g} of the training split for "
                f"{_PRECISIONS[dtype]} precision. Correct it, or leave it empty."
            )
    return scaled, observed


def fit_input_scaler(
    inputs: InputColumns, split: TableSplits, options: TableOptions
) -> StandardScaler:
    """Return mean and deviation of the inputs, by all rows of the training split.

    Inputs of categories, 1 and 0, stay as they are, but for those that are 1 in every row. What
    rows know of later ones counts in the rows to learn from alone: that of the others is of another
    part.

    Raises:
        DataError: the training split has no value of an input.
    """
    count, total, trained = inputs.number_count, len(inputs.names), split.training_sequences.rows
    learned = np.unique(split.sequences["train"].rows) if inputs.future_count else trained
    rows = [trained] * (count - inputs.future_count) + [learned] * inputs.future_count
    numbers = (inputs.columns[place][which] for place, which in enumerate(rows))
    scaler = StandardScaler.fit(numbers)  # one column at a time, as tables may be large
    never = next((inputs.names[place] for place in np.flatnonzero(scaler.is_empty)), None)
    if never is not None:
        raise DataError(
            f"{never!r} has no value in the training split, so that nothing can be learned of it. "
            f"Fill it in, leave it out of the features, or split {options.resplit_advice}."
        )
    if not options.scale:
        return StandardScaler(np.zeros(total), np.ones(total))
    ones = np.array([column[trained].all() for column in inputs.columns[count:]], np.bool_)
    return StandardScaler(
        np.append(scaler.mean, np.where(ones, 1.0, 0.0)),
        np.append(scaler.scale, np.where(ones, 0.0, 1.0)),
    )


def fit_target_scaler(
    split: TableSplits, input_scaler: StandardScaler, *, scale: bool
) -> StandardScaler | None:
    """Return mean and deviation of targets, 1 of those that are constant; ``None`` of classes.

    Labels stay 0 and 1.

    They are those of the rows of the training split, however these are cut into windows; of one
    target per id those of its ids. Next steps share that of the inputs.
    """
    target, trained = split.target, split.training_sequences
    if target.is_class:
        return None
    if target.is_next_step:
        times = target.horizon or 1
        count = len(target.outputs) // times
        target_scaler = StandardScaler(
            np.tile(input_scaler.mean[:count], times), np.tile(input_scaler.scale[:count], times)
        )
        return target_scaler.replace_zero_scale()
    if target.labels or not scale:
        return StandardScaler(np.zeros(target.y.shape[1]), np.ones(target.y.shape[1]))
    rows = trained.rows if target.per_step else target.first_rows(split.sequences["train"])
    y = np.where(target.known[rows], target.y[rows], np.nan)
    return StandardScaler.fit(y.T).replace_zero_scale()


def scale_targets(scaler: StandardScaler, y: NDArray[Any], is_known: Bools) -> NDArray[np.float32]:
    """Return targets, (R, O), scaled and 0 where they are not known."""
    scaled = np.stack(
        [subtract_exactly(of, m) for of, m in zip(y.T, scaler.mean, strict=True)], axis=1
    )
    return np.where(is_known, scaled / scaler.scale, 0.0).astype(np.float32)


def make_targets(
    target: Target, sequences: Sequences, scaler: StandardScaler | None
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return the targets of sequences as batches have them, and which are known if not all are."""
    tensor, known, y = torch.from_numpy, target.known, target.y
    rows = sequences.rows if target.per_step else target.first_rows(sequences)
    if scaler is not None:
        y = np.zeros(y.shape, np.float32)
        y[rows] = scale_targets(scaler, target.y[rows], known[rows])
    y_mask = None
    if target.per_step and not known[target.sequences.rows].all():
        mask = known[:, 0] if known.ndim == 2 and known.shape[1] == 1 else known
        y_mask = tensor(sequences.pad(mask))
    elif known.ndim == 2 and not known[rows].all():
        y_mask = tensor(known[rows][:, None])
    return tensor(sequences.pad(y) if target.per_step else y[rows]), y_mask


def warn_constant_inputs(
    scaler: StandardScaler, columns: Sequence[NDArray[Any]], names: Sequence[str], stacklevel: int
) -> None:
    """Warn of inputs that were constant in the training split, and have another value here."""
    changed = []
    for place in np.flatnonzero(scaler.is_constant[: len(columns)]).tolist():
        column, mean = columns[place], scaler.mean[place]
        if bool((~find_nan(column) & (column.astype(np.float64) != mean)).any()):
            changed.append(f"{names[place]!r} ({mean:.6g})")
    if changed:
        warnings.warn(
            f"other values of inputs that were constant in training are ignored: "
            f"{format_names(changed, 12)}.",
            UserWarning,
            stacklevel=stacklevel,
        )
