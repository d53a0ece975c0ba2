"""Small tables that a report begins with."""

from typing import NamedTuple


class Front(NamedTuple):
    """A small table of the first screen."""

    title: str
    headers: tuple[str, ...]
    rows: list[tuple[str, ...]]
    words: int
    caption: str

    @property
    def numbers(self) -> range:
        """Positions of the columns that hold numbers; words come first."""
        return range(self.words, len(self.headers))
