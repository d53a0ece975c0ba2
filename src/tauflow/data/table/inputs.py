"""The inputs of a table: numbers as they are, text as one input for each category."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tauflow.errors import DataError

from .coded import Coded
from .frames import some
from .options import Categories
from .sheet import Floats, Sheet, as_number, is_missing, truth
from .times import is_date

MOST = 50
"""More different texts than these are no categories, but names or remarks."""
ONE_OF = "{}={}"
"""Name of the input that is 1 where a column holds a category."""


@dataclass(frozen=True)
class Inputs:
    """Inputs of every row.

    Args:
        names: of the inputs: numbers first, then one for each category.
        columns: of each input, (R,): numbers, NaN where missing; where a text is, all its inputs
            are 0.
        categories: of the columns of text.
    """

    names: tuple[str, ...]
    columns: tuple[NDArray[Any], ...]
    categories: Categories

    def first(self, count: int) -> Floats:
        """Return the first inputs, all of them numbers, (R, count)."""
        return np.stack(self.columns[:count], axis=1)

    @property
    def numbers(self) -> int:
        """How many of the inputs are numbers."""
        return len(self.names) - sum(len(texts) for _, texts in self.categories)


def inputs_of(sheet: Sheet, features: Sequence[str], known: Categories | None = None) -> Inputs:
    """Return the inputs that columns give.

    Args:
        sheet: the table.
        features: names of its columns.
        known: columns of text with their categories, as an earlier table had them.

    Raises:
        UnknownNameError: there is no such column.
        DataError: a cell does not hold what it should, or a column has too many categories.
    """
    for name in features:
        sheet.check_name(name, "feature")
    if known is None:
        found = {name: categories_in(sheet, name) for name in features}
        known = tuple((name, texts) for name, texts in found.items() if texts)
    texts = dict(known)
    plain = [name for name in features if name not in texts]
    columns: list[NDArray[Any]] = [sheet.numbers(name) for name in plain]
    names = list(plain)
    for name, categories in known:
        codes = _codes(sheet, name, categories)
        for code, category in enumerate(categories):
            names.append(ONE_OF.format(name, category))
            columns.append(codes == code)
    return Inputs(tuple(names), tuple(columns), known)


def categories_in(sheet: Sheet, column: str) -> tuple[str, ...]:
    """Return the different texts of a column, sorted; none if one of them is a number or a date.

    A number among texts is a mistake, and is said to be one where the column is read as numbers.

    Raises:
        DataError: there are more than :data:`MOST`.
    """
    values = sheet.columns[column]
    if not isinstance(values, Coded):
        return ()
    cells = [cell for cell in values.occurring().different if not is_missing(cell)]
    if not all(isinstance(cell, str) and not _is_number(cell) for cell in cells):
        return ()
    if len(cells) > MOST:
        row = int(np.argmin(sheet.missing(column)))
        raise DataError(
            f"{sheet.holds(row, column)}: the column holds {len(cells)} different texts, and at "
            f"most {MOST} are taken as categories. Leave it out of the features, or join some."
        )
    sheet.texts(column)  # which refuses what cannot be printed
    return tuple(sorted(cells))


def _is_number(text: str) -> bool:
    numbers = (as_number(text), as_number(text.replace(",", ".")), truth(text))
    return any(number is not None for number in numbers) or is_date(text)


def _codes(sheet: Sheet, column: str, categories: Sequence[str]) -> np.ndarray:
    """Return which category each row holds, (R,), -1 for none."""
    missing = sheet.missing(column)
    places = {text: place for place, text in enumerate(categories)}
    found = sheet.texts(column).told(lambda text: places.get(text, -1), np.int64)
    found[missing] = -1
    odd = np.flatnonzero((found < 0) & ~missing)
    if odd.size:
        raise DataError(
            f"{sheet.holds(int(odd[0]), column)}, a category that the table of the training had "
            f"not. Known are: {some(categories, 12)}. Correct it, or leave the cell empty."
        )
    return found
