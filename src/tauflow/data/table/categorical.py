"""Cells that are objects, such as text, of which many are alike: each is looked at once."""

import sys
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

V = TypeVar("V")


class Categorical:
    """A column of objects: the different ones, and which of them each row holds.

    Args:
        categories: the cells that occur, perhaps with others; texts among them differ.
        codes: which of them each row holds, (R,).
    """

    dtype = np.dtype(object)
    __slots__ = ("categories", "codes")

    def __init__(self, categories: Sequence[Any], codes: NDArray[Any]) -> None:
        self.categories, self.codes = list(categories), codes

    @classmethod
    def from_values(cls, cells: Sequence[Any]) -> "Categorical":
        """Return the column of some cells."""
        pandas = sys.modules.get("pandas")  # many times faster; whoever reads a file has it
        array = to_object_array(cells)
        if pandas is not None and pandas.api.types.infer_dtype(array) == "string":  # or missing
            codes, different = pandas.factorize(array)
            return cls(different, codes).set_value(None, codes < 0)
        cells = array.tolist()
        places: dict[Hashable, int] = {}  # of text alone: 1 and 1.0 are equal, and not the same
        keys = (cell if type(cell) is str else (id(cell),) for cell in cells)
        codes = np.array([places.setdefault(key, len(places)) for key in keys], np.int64)
        _, firsts = np.unique(codes, return_index=True)
        return cls([cells[first] for first in firsts], codes)

    @classmethod
    def from_formatted(cls, values: NDArray[Any]) -> "Categorical":
        """Return the column of the words for numbers, booleans, dates or durations."""
        if values.dtype.itemsize > 8:
            return cls.from_values([str(cell) for cell in values.tolist()])
        keys = values if values.dtype.kind in "biu" else values.view(f"i{values.dtype.itemsize}")
        codes, _ = factorize(keys)
        _, firsts = np.unique(codes, return_index=True)
        found = values[firsts]
        cells = (found.astype(str) if values.dtype.kind in "mM" else found).tolist()
        return cls([str(cell) for cell in cells], codes)

    def __len__(self) -> int:
        return len(self.codes)

    @overload
    def __getitem__(self, rows: "int | np.integer[Any]") -> Any: ...

    @overload
    def __getitem__(self, rows: "NDArray[Any] | slice") -> "Categorical": ...

    def __getitem__(self, rows: Any) -> Any:
        found = self.codes[rows]
        if isinstance(found, np.ndarray):
            return Categorical(self.categories, found)
        return self.categories[found]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        array: NDArray[Any] = to_object_array(self.categories)[self.codes]
        return array

    def tolist(self) -> list[Any]:
        """Return the cells."""
        cells: list[Any] = self.__array__().tolist()
        return cells

    def map_categories(self, function: Callable[[Any], V]) -> list[V]:
        """Return what a function says of each of the different cells."""
        return [function(cell) for cell in self.categories]

    def map_rows(self, function: Callable[[Any], Any], dtype: Any) -> NDArray[Any]:
        """Return what a function says of the cell of every row, (R,)."""
        told: NDArray[Any] = np.array(self.map_categories(function), dtype)[self.codes]
        return told

    def map_values(self, function: Callable[[Any], Any]) -> "Categorical":
        """Return the column with all its cells changed; some may be alike then."""
        found = Categorical.from_values(self.map_categories(function))
        return Categorical(found.categories, found.codes[self.codes])

    def remove_unused_categories(self) -> "Categorical":
        """Return the column without cells that do not occur, in the order of their first rows."""
        codes, kept = factorize(self.codes)
        return Categorical([self.categories[place] for place in kept.tolist()], codes)

    def factorize_by(self, key: Callable[[Any], V]) -> tuple[list[V], NDArray[Any]]:
        """Return the different keys as they first occur, and which each row has, (R,)."""
        found = self.remove_unused_categories()
        places: dict[V, int] = {}
        of_each = [places.setdefault(key(cell), len(places)) for cell in found.categories]
        return list(places), np.array(of_each, np.int64)[found.codes]

    def set_value(self, cell: Any, rows: NDArray[Any]) -> "Categorical":
        """Return the column with a cell, which none has yet, in some rows, (R,) of booleans."""
        if not rows.any():
            return self
        codes = self.codes.copy()
        codes[rows] = len(self.categories)
        return Categorical([*self.categories, cell], codes)


Column = NDArray[Any] | Categorical


def to_object_array(cells: Sequence[Any]) -> NDArray[Any]:
    """Return an array of any objects."""
    array = np.empty(len(cells), object)
    array[:] = cells
    return array


def factorize(keys: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return which of the different keys each is, (R,), and these, as they first occur.

    Args:
        keys: (R,), numbers or booleans.
    """
    if keys.size and keys.dtype.kind in "iu" and keys[0] == 0:
        highest = np.maximum.accumulate(keys)
        if (keys >= 0).all() and (keys[1:] <= highest[:-1] + 1).all():  # numbered already
            return keys, np.arange(int(highest[-1]) + 1)
    pandas = sys.modules.get("pandas")
    if pandas is not None:
        codes, different = pandas.factorize(keys)
        return codes, np.asarray(different)
    different, first, codes = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return np.argsort(order)[codes], different[order]


def equal_rows(column: Column, rows: NDArray[Any], other_rows: NDArray[Any]) -> NDArray[np.bool_]:
    """Return where the cells of some rows equal those of others."""
    if not isinstance(column, Categorical):
        return np.asarray(column[rows] == column[other_rows])
    same: NDArray[np.bool_] = column.codes[rows] == column.codes[other_rows]
    differ = np.flatnonzero(~same)
    ours, theirs = column[rows[differ]].tolist(), column[other_rows[differ]].tolist()
    same[differ] = [bool(a == b) for a, b in zip(ours, theirs, strict=True)]
    return same


def find_unique_values(column: Column) -> list[Any]:
    """Return the different cells of a column."""
    if isinstance(column, Categorical):
        return column.remove_unused_categories().categories
    found: list[Any] = factorize(column)[1].tolist()
    return found
