"""Small tables that a report begins with."""

from typing import NamedTuple


class SummaryTable(NamedTuple):
    """A small table of the first screen."""

    title: str
    headers: tuple[str, ...]
    rows: list[tuple[str, ...]]
    num_text_columns: int
    caption: str

    @property
    def numbers(self) -> range:
        """Positions of the columns that hold numbers; words come first."""
        return range(self.num_text_columns, len(self.headers))
