"""Whatever users call an array, as one of NumPy's whose missing entries are NaN, or NaT."""

from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tauflow.data.table.table import is_missing
from tauflow.errors import ArgumentError, ShapeError


def to_array(data: Any) -> NDArray[Any]:
    """Return an array, in which what is masked, ``None``, ``pandas.NA`` or NaT is missing.

    Among numbers it is NaN, among dates and durations NaT, and among other objects ``None``.

    Args:
        data: anything that NumPy makes an array of.
    """
    if isinstance(data, np.ma.MaskedArray):
        return _unmask(data)
    if isinstance(data, list | tuple):
        data = [_unmask_element(one) for one in data]
    array = np.asarray(data)
    if array.dtype.kind in "US" and not all(isinstance(one, str | bytes) for one in data):
        array = np.array(data, object)  # NumPy makes text of the numbers beside a text
    return _set_missing(array, find_missing(array)) if array.dtype.kind == "O" else array


def _unmask_element(one: Any) -> Any:
    """Return an entry of a list; of a masked array NumPy would take what is below the mask."""
    if one is np.ma.masked:
        return None
    return _unmask(one) if isinstance(one, np.ma.MaskedArray) else one


def find_missing(array: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which entries are missing: NaN, NaT, ``None`` or ``pandas.NA``, and no text."""
    if array.dtype.kind != "O":
        return np.asarray(array != array)
    cells = [not isinstance(cell, str) and is_missing(cell) for cell in array.ravel().tolist()]
    return np.array(cells, np.bool_).reshape(array.shape)


def _unmask(masked: Any) -> NDArray[Any]:
    mask, values = np.ma.getmaskarray(masked), np.asarray(masked.data)
    if values.dtype.kind == "O":
        mask = mask | find_missing(values)
    return _set_missing(values, mask)


def _set_missing(values: NDArray[Any], missing: NDArray[np.bool_]) -> NDArray[Any]:
    if not missing.any():
        return values
    if values.dtype.kind in "mM":
        return np.where(missing, np.array("NaT", values.dtype), values)
    if values.dtype.kind in "biuf":
        return np.where(missing, np.nan, values)
    present = values[~missing]
    if all(isinstance(cell, Real) for cell in present.tolist()):
        numbers = np.full(values.shape, np.nan)
        numbers[~missing] = present.astype(np.float64)
        return numbers
    objects = values.astype(object)
    objects[missing] = None
    return objects


def to_features(X: Any) -> Any:
    """Return X, (B, I), as an array, or as a frame of pandas, with NaN for what is missing.

    Raises:
        ArgumentError: it is a mapping, or its cells are sequences.
        ShapeError: it is a list of sequences of one axis that differ in length.
    """
    if isinstance(X, Mapping) and not hasattr(X, "ndim"):  # a sparse array may be one, too
        raise ArgumentError(
            "X is a mapping, expected an array, a list of arrays (T_i, I), or a data frame. Give "
            "list(X.values()) if it holds sequences, and id= if it holds the columns of a table."
        )
    if hasattr(X, "iloc") and hasattr(X, "dtypes"):
        objects = [place for place, kind in enumerate(X.dtypes) if kind == object]  # noqa: E721
        for place in objects:
            _check_not_nested(X.iloc[:, place].tolist(), f"column {X.columns[place]!r} of X")
        return X.where(X.notna(), np.nan) if objects else X
    if isinstance(X, list | tuple):
        sizes = [np.shape(one) if np.ndim(one) == 1 else None for one in X]
        if sizes and None not in sizes and len(set(sizes)) > 1:
            other = next(place for place, size in enumerate(sizes) if size != sizes[0])
            raise ShapeError(
                f"X[0] has shape {sizes[0]}, and X[{other}] {sizes[other]}: sequences are (T, I). "
                "Give x[:, None] for each, if they have one feature."
            )
    if not isinstance(X, list | tuple | np.ndarray):
        return X
    found = to_array(X)
    if found.dtype == object:
        _check_not_nested(found.ravel().tolist(), "X")
    return found


def _check_not_nested(cells: list[Any], where: str) -> None:
    several = (x for x in cells if isinstance(x, list | tuple | np.ndarray) or hasattr(x, "iloc"))
    nested = next(several, None)
    if nested is not None:
        raise ArgumentError(
            f"{where} holds a {type(nested).__name__} in a cell, expected numbers. Give a list of "
            "arrays (T_i, I), one for each sequence: x[:, None] of a single feature, or "
            "numpy.column_stack of several."
        )
