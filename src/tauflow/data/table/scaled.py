"""Inputs and targets of a table, scaled by its training part."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tauflow.data.scaler import Standard, minus, missing_in
from tauflow.errors import DataError

from .frames import some
from .inputs import Inputs
from .options import TableOptions
from .sheet import Bools
from .split import Split

_PRECISIONS = {np.float16: "half", np.float32: "single", np.float64: "double"}


def scaled_inputs(
    standard: Standard,
    columns: Sequence[NDArray[Any]],
    names: Sequence[str],
    dtype: type[np.floating[Any]] = np.float32,
) -> tuple[NDArray[Any], Bools]:
    """Return the values of C columns, (R, C), scaled and 0 where missing, and where they are not.

    Args:
        standard: of the columns.
        columns: numbers, (R,) each, or booleans.
        names: of the columns, for messages.
        dtype: of the result; it is computed in double precision.

    Raises:
        DataError: a number is so far from the mean that the dtype cannot hold it.
    """
    observed = np.ones((len(columns[0]), len(columns)), np.bool_)
    scaled = np.zeros(observed.shape, dtype)
    for place, column in enumerate(columns):  # one at a time, as tables may be large
        found = standard.column(place, column)
        with np.errstate(over="ignore"):
            scaled[:, place] = found
        far = np.isinf(scaled[:, place])
        if far.any():
            raise DataError(
                f"{names[place]!r} is {column[int(np.argmax(far))]:.4g} in a row, too far from "
                f"the {standard.mean[place]:.4g} +- {standard.scale[place]:.4g} of the training "
                f"part for {_PRECISIONS[dtype]} precision. Correct it, or leave it empty."
            )
        absent = np.isnan(found)
        if absent.any():
            observed[:, place], scaled[absent, place] = ~absent, 0.0
    return scaled, observed


def standard_of_inputs(inputs: Inputs, split: Split, options: TableOptions) -> Standard:
    """Return mean and deviation of the inputs, by all rows of the training part.

    Inputs of categories, 1 and 0, stay as they are, but for those that are 1 in every row. What
    rows know of later ones counts in the rows to learn from alone: that of the others is of another
    part.

    Raises:
        DataError: the training part has no value of an input.
    """
    count, total, trained = inputs.numbers, len(inputs.names), split.trained.rows
    learned = np.unique(split.parts["train"].rows) if inputs.later else trained
    rows = [trained] * (count - inputs.later) + [learned] * inputs.later
    numbers = (inputs.columns[place][which] for place, which in enumerate(rows))
    found = Standard.of(numbers)  # one column at a time, as tables may be large
    never = next((inputs.names[place] for place in np.flatnonzero(found.never)), None)
    if never is not None:
        raise DataError(
            f"{never!r} has no value in the training part, so that nothing can be learned of it. "
            f"Fill it in, leave it out of the features, or split {options.otherwise}."
        )
    if not options.scale:
        return Standard(np.zeros(total), np.ones(total))
    ones = np.array([column[trained].all() for column in inputs.columns[count:]], np.bool_)
    return Standard(
        np.append(found.mean, np.where(ones, 1.0, 0.0)),
        np.append(found.scale, np.where(ones, 0.0, 1.0)),
    )


def standard_of_targets(split: Split, inputs: Standard, *, wanted: bool) -> Standard | None:
    """Return mean and deviation of targets, 1 of those that are constant; ``None`` of classes.

    They are those of the rows of the training part, however these are cut into windows; of one
    target per id those of its ids. Next steps share that of the inputs.
    """
    target, trained = split.target, split.trained
    if target.is_class:
        return None
    if target.is_next_step:
        times = target.horizon or 1
        count = len(target.outputs) // times
        own = Standard(np.tile(inputs.mean[:count], times), np.tile(inputs.scale[:count], times))
        return own.of_targets()
    if not wanted:
        return Standard(np.zeros(target.y.shape[1]), np.ones(target.y.shape[1]))
    rows = trained.rows if target.per_step else target.firsts(split.parts["train"])
    y = np.where(target.known[rows], target.y[rows], np.nan)
    return Standard.of(y.T).of_targets()


def scaled_targets(standard: Standard, y: NDArray[Any], known: Bools) -> NDArray[np.float32]:
    """Return targets, (R, O), scaled and 0 where they are not known."""
    scaled = np.stack([minus(of, m) for of, m in zip(y.T, standard.mean, strict=True)], axis=1)
    return np.where(known, scaled / standard.scale, 0.0).astype(np.float32)


def warn_of_constants(
    standard: Standard, columns: Sequence[NDArray[Any]], names: Sequence[str], stacklevel: int
) -> None:
    """Warn of inputs that were constant in the training part, and have another value here."""
    changed = [
        f"{name!r} ({standard.mean[place]:.6g})"
        for place, (name, column) in enumerate(zip(names, columns, strict=True))
        if standard.held[place]
        and bool((~missing_in(column) & (column.astype(np.float64) != standard.mean[place])).any())
    ]
    if changed:
        warnings.warn(
            f"other values of inputs that were constant in training are ignored: "
            f"{some(changed, 12)}.",
            UserWarning,
            stacklevel=stacklevel,
        )
