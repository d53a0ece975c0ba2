"""What a figure of a paper is here: a name, a computation, and how its result is drawn."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tauflow._internal.checks import check_at_least, check_one_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZES = ("full", "small")
"""The published setting, or what the entry says it was cut to; and a quick look in seconds."""

T = TypeVar("T")


class FigureJob:
    """One computation of a figure: its size and seed; records settings and times.

    Args:
        size: one of :data:`SIZES`.
        seed: of everything random.
        results_dir: folder of stored runs, for figures that show them.
    """

    def __init__(
        self, size: str = "full", seed: int = 0, results_dir: str | Path = "results"
    ) -> None:
        self.size = check_one_of(SIZES, size=size)
        self.seed = check_at_least(0, seed=seed)
        self.results_dir = Path(results_dir)
        self.settings: dict[str, Any] = {}
        self.seconds: dict[str, float] = {}

    def choose(self, name: str, *, full: T, small: T) -> T:
        """Return a setting by the size, and note it under its name."""
        value = full if self.size == "full" else small
        self.settings[name] = value
        return value

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """Add the wall time of a block to what took how long."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.add_seconds(what, time.perf_counter() - start)

    def add_seconds(self, what: str, spent: float) -> None:
        """Add to what took how long."""
        self.seconds[what] = self.seconds.get(what, 0.0) + spent


@dataclass(frozen=True)
class FigureTable:
    """Numbers in rows, for a CSV file and for a table in Markdown.

    Args:
        columns: names of the columns, with units.
        rows: texts and numbers.
        shown: positions of the columns that the Markdown table has; all by default.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    shown: Sequence[int] | None = None


@dataclass(frozen=True, eq=False)
class FigureResult:
    """Content of a figure.

    Args:
        plot: makes the picture; it shows ``arrays`` and ``table``, and nothing else.
        arrays: tensors or arrays by name, for an NPZ file.
        table: numbers for a CSV file.
        markdown: whether the table is worth reading, and is written in Markdown too.
        findings: what the figure says, in numbers.
    """

    plot: Callable[[], "Figure"]
    arrays: Mapping[str, Any] = field(default_factory=dict)
    table: FigureTable | None = None
    markdown: bool = False
    findings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PaperFigure:
    """A figure or table of a paper that can be reproduced.

    Args:
        name: as on the command line.
        title: what it shows, in a few words.
        source: paper and number there.
        caption: how to read the picture.
        compute: does the work.
        differences: in what it is not the published one, a sentence each.
        aliases: other names, where papers print a figure twice.
        minutes: of one core that the full size takes, about.
        measures_time: whether its numbers depend on the machine.
        data: data set that it needs, none by default; others are generated.
        table: packaged table whose stored runs it shows, none by default.
    """

    name: str
    title: str
    source: str
    caption: str
    compute: Callable[[FigureJob], FigureResult]
    differences: Sequence[str] = ()
    aliases: Sequence[str] = ()
    minutes: float = 1.0
    measures_time: bool = False
    data: str | None = None
    table: str | None = None
