"""Cells that are objects, such as text, of which many are alike: each is looked at once."""

import sys
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

V = TypeVar("V")


class Coded:
    """A column of objects: the different ones, and which of them each row holds.

    Args:
        different: the cells that occur, perhaps with others; texts among them differ.
        codes: which of them each row holds, (R,).
    """

    dtype = np.dtype(object)
    __slots__ = ("codes", "different")

    def __init__(self, different: Sequence[Any], codes: NDArray[Any]) -> None:
        self.different, self.codes = list(different), codes

    @classmethod
    def of(cls, cells: Sequence[Any]) -> "Coded":
        """Return the column of some cells."""
        pandas = sys.modules.get("pandas")  # many times faster; whoever reads a file has it
        array = objects(cells)
        if pandas is not None and pandas.api.types.infer_dtype(array) == "string":  # or missing
            codes, different = pandas.factorize(array)
            return cls(different, codes).put(None, codes < 0)
        cells = array.tolist()
        places: dict[Hashable, int] = {}  # of text alone: 1 and 1.0 are equal, and not the same
        keys = (cell if type(cell) is str else (id(cell),) for cell in cells)
        codes = np.array([places.setdefault(key, len(places)) for key in keys], np.int64)
        _, firsts = np.unique(codes, return_index=True)
        return cls([cells[first] for first in firsts], codes)

    @classmethod
    def plain(cls, values: NDArray[Any]) -> "Coded":
        """Return the column of the words for numbers, truth values, dates or durations."""
        if values.dtype.itemsize > 8:
            return cls.of([str(cell) for cell in values.tolist()])
        keys = values if values.dtype.kind in "biu" else values.view(f"i{values.dtype.itemsize}")
        codes, _ = numbered(keys)
        _, firsts = np.unique(codes, return_index=True)
        found = values[firsts]
        cells = (found.astype(str) if values.dtype.kind in "mM" else found).tolist()
        return cls([str(cell) for cell in cells], codes)

    def __len__(self) -> int:
        return len(self.codes)

    @overload
    def __getitem__(self, rows: "int | np.integer[Any]") -> Any: ...

    @overload
    def __getitem__(self, rows: "NDArray[Any] | slice") -> "Coded": ...

    def __getitem__(self, rows: Any) -> Any:
        found = self.codes[rows]
        if isinstance(found, np.ndarray):
            return Coded(self.different, found)
        return self.different[found]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        array: NDArray[Any] = objects(self.different)[self.codes]
        return array

    def tolist(self) -> list[Any]:
        """Return the cells."""
        cells: list[Any] = self.__array__().tolist()
        return cells

    def each(self, of: Callable[[Any], V]) -> list[V]:
        """Return what a function says of each of the different cells."""
        return [of(cell) for cell in self.different]

    def told(self, of: Callable[[Any], Any], dtype: Any) -> NDArray[Any]:
        """Return what a function says of the cell of every row, (R,)."""
        told: NDArray[Any] = np.array(self.each(of), dtype)[self.codes]
        return told

    def changed(self, change: Callable[[Any], Any]) -> "Coded":
        """Return the column with all its cells changed; some may be alike then."""
        found = Coded.of(self.each(change))
        return Coded(found.different, found.codes[self.codes])

    def occurring(self) -> "Coded":
        """Return the column without cells that do not occur, in the order of their first rows."""
        codes, kept = numbered(self.codes)
        return Coded([self.different[place] for place in kept.tolist()], codes)

    def numbered_by(self, key: Callable[[Any], V]) -> tuple[list[V], NDArray[Any]]:
        """Return the different keys as they first occur, and which each row has, (R,)."""
        found = self.occurring()
        places: dict[V, int] = {}
        of_each = [places.setdefault(key(cell), len(places)) for cell in found.different]
        return list(places), np.array(of_each, np.int64)[found.codes]

    def put(self, cell: Any, rows: NDArray[Any]) -> "Coded":
        """Return the column with a cell, which none has yet, in some rows, (R,) of truth values."""
        if not rows.any():
            return self
        codes = self.codes.copy()
        codes[rows] = len(self.different)
        return Coded([*self.different, cell], codes)


Column = NDArray[Any] | Coded


def objects(cells: Sequence[Any]) -> NDArray[Any]:
    """Return an array of any objects."""
    array = np.empty(len(cells), object)
    array[:] = cells
    return array


def numbered(keys: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return which of the different keys each is, (R,), and these, as they first occur.

    Args:
        keys: (R,), numbers or truth values.
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


def alike(column: Column, rows: NDArray[Any], others: NDArray[Any]) -> NDArray[np.bool_]:
    """Return where the cells of some rows equal those of others."""
    if not isinstance(column, Coded):
        return np.asarray(column[rows] == column[others])
    same: NDArray[np.bool_] = column.codes[rows] == column.codes[others]
    differ = np.flatnonzero(~same)
    ours, theirs = column[rows[differ]].tolist(), column[others[differ]].tolist()
    same[differ] = [bool(a == b) for a, b in zip(ours, theirs, strict=True)]
    return same


def different_in(column: Column) -> list[Any]:
    """Return the different cells of a column."""
    if isinstance(column, Coded):
        return column.occurring().different
    found: list[Any] = numbered(column)[1].tolist()
    return found
