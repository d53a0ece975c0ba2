"""Pieces of C that floats and integers share: constants, places of lanes, loops."""

import textwrap
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from .step_graph import Array

_WIDTH = 100


class StepCode(NamedTuple):
    """Pieces of C of a step, and bytes.

    Args:
        constants: arrays that are the same at every step.
        body: of the function.
        flash: bytes of the constants.
        work: bytes of the arrays in the body.
        helpers: functions that the body calls.
    """

    constants: str
    body: str
    flash: int
    work: int
    helpers: str = ""


class Constants:
    """Arrays of a program that are the same at every step, each once."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self._names: dict[tuple[str, bytes], str] = {}
        self.lines: list[str] = []
        self.size = 0

    def add(self, c_type: str, values: Array, show: Callable[[Any], str] = str) -> str:
        """Return the name of an array of values."""
        values = np.ascontiguousarray(values).ravel()
        key = (c_type, values.tobytes())
        if key not in self._names:
            name = f"{self.prefix}_{len(self._names)}"
            self._names[key] = name
            entries = ", ".join(map(show, values.tolist()))
            text = f"static const {c_type} {name}[{len(values)}] = {{{entries}}};"
            self.lines.append(wrap(text))
            self.size += len(values) * C_SIZES[c_type]
        return self._names[key]

    def add_places(self, index: Array) -> str:
        """Return the name of an array of places."""
        small = next(t for t, most in _PLACES if index.max(initial=0) <= most)
        return self.add(small, index)


C_SIZES = {
    **{"double": 8, "float": 4, "int32_t": 4},
    **{"int16_t": 2, "uint16_t": 2, "int8_t": 1, "uint8_t": 1},
}
_PLACES = (("uint8_t", 255), ("uint16_t", 65535), ("int32_t", 2**31 - 1))


def wrap(text: str, indent: str = "    ") -> str:
    """Return a statement on lines of at most 100 characters."""
    return textwrap.fill(
        text, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def find_pattern(index: Array) -> tuple[int, int, int, int] | None:
    """Return (first, outer, inner, width) of places first + outer (i / width) + inner (i % width).

    ``None`` if they are not regular; width is 0 where one step serves all.
    """
    first, count = int(index[0]), len(index)
    steps = np.diff(index)
    if count == 1 or (steps == steps[0]).all():
        return first, 0, int(steps[0]) if count > 1 else 0, 0
    width = int(np.flatnonzero(steps != steps[0])[0]) + 1
    if count % width:
        return None
    table = index.reshape(-1, width)
    inner = int(steps[0]) if width > 1 else 0
    outer = int(table[1, 0]) - first
    fits = first + outer * np.arange(count // width)[:, None] + inner * np.arange(width)
    return (first, outer, inner, width) if (fits == table).all() else None


def show_place(
    index: Array, constants: Constants, *, variable: str = "i", width: int = 0, offset: int = 0
) -> str:
    """Return the place that lane ``variable`` reads, as C; ``r`` and ``c`` are its row and column.

    Args:
        index: the places.
        constants: where a list of places goes that are not regular.
        variable: of the lane.
        width: columns of the loop, or 0.
        offset: added to all.
    """
    pattern = find_pattern(index)
    if pattern is None or pattern[3] not in (0, width):
        table = f"{constants.add_places(index)}[{variable}]"
        return table if not offset else f"{offset} + {table}"
    first, outer, inner, is_grid = pattern
    terms = [(outer, "r"), (inner, "c")] if is_grid else [(inner, variable)]
    shown = [name if step == 1 else f"{step} * {name}" for step, name in terms if step]
    if first + offset or not shown:
        shown.insert(0, str(first + offset))
    return " + ".join(shown)


def find_width(indices: Iterable[Array | None]) -> int:
    """Return how many columns a loop has whose lanes are rows and columns, or 0.

    Args:
        indices: the places that its statements read and write.
    """
    patterns = (find_pattern(index) for index in indices if index is not None)
    return next((pattern[3] for pattern in patterns if pattern and pattern[3]), 0)


class Printer:
    """Lines of C with their indentation."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 1

    def put(self, text: str) -> None:
        """Add a line; braces at its ends change the depth."""
        self.depth -= text.startswith("}")
        indent = "    " * self.depth
        self.lines.append(wrap(indent + text, indent + "    "))
        self.depth += text.endswith("{")

    def open_loop(self, count: int, width: int) -> int:
        """Begin a loop over lanes; return how many braces end it."""
        if count == 1:
            return 0
        if width:
            self.put(f"for (i = r = 0; r < {count // width}; r++) {{")
            self.put(f"for (c = 0; c < {width}; c++, i++) {{")
            return 2
        self.put(f"for (i = 0; i < {count}; i++) {{")
        return 1

    def close(self, braces: int) -> None:
        """End loops."""
        for _ in range(braces):
            self.put("}")
