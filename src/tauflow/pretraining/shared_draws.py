"""Random parameters of the members of generated tables, which are alike."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]

_LIKENESS = (1.0, 0.97, 0.85, 0.5, 0.0)
_LIKENESS_SHARES = (0.35, 0.2, 0.2, 0.15, 0.1)


class SharedDraws:
    """Draw one parameter for each series, where series of one table are alike.

    Each call draws for each table how alike its members are in this parameter: the same, similar,
    or independent of each other. The distribution over all series is the one that is asked for,
    whatever the likeness, so that tables of one member are plain series.

    Args:
        rng: where all numbers come from.
        tables: number of tables.
        members: series of each; the series of a table follow each other.
    """

    def __init__(self, rng: np.random.Generator, tables: int, members: int) -> None:
        self.rng, self.tables, self.members = rng, tables, members

    def __len__(self) -> int:
        return self.tables * self.members

    def _likeness(self, same: bool) -> Floats:
        if same or self.members == 1:
            return np.ones((self.tables, 1, 1))
        return self.rng.choice(_LIKENESS, (self.tables, 1, 1), p=_LIKENESS_SHARES)

    def normal(self, size: int = 1, *, same: bool = False) -> Floats:
        """Return standard normal numbers, (B, size); ``same`` for all members of a table."""
        likeness = self._likeness(same)
        table = self.rng.standard_normal((self.tables, 1, size))
        member = self.rng.standard_normal((self.tables, self.members, size))
        mixed = np.sqrt(likeness) * table + np.sqrt(1 - likeness) * member
        return mixed.reshape(len(self), size)

    def uniform(
        self, low: Any = 0.0, high: Any = 1.0, size: int = 1, *, same: bool = False
    ) -> Floats:
        """Return uniform numbers, (B, size), between bounds that go with (B, size)."""
        apart = 2 * (1 - self._likeness(same))
        member = self.rng.random((self.tables, self.members, size))
        table = self.rng.random((self.tables, 1, size))
        # What leaves [0, 1] is mirrored back, which keeps the distribution uniform.
        moved = (table + apart * (member - 0.5)).reshape(len(self), size)
        share = 1 - np.abs(1 - np.abs(moved) % 2)
        values: Floats = low + (high - low) * share
        return values

    def log_uniform(self, low: Any, high: Any, size: int = 1, *, same: bool = False) -> Floats:
        """Return numbers whose logarithms are uniform; ``high`` is ``low`` where it is below."""
        values: Floats = np.exp(
            self.uniform(np.log(low), np.log(np.maximum(high, low)), size, same=same)
        )
        return values

    def choice(
        self, values: Sequence[float], p: Sequence[float] | None = None, *, same: bool = True
    ) -> Floats:
        """Return one of the values for each series, (B, 1), by default the same in a table."""
        shares = np.full(len(values), 1 / len(values)) if p is None else np.asarray(p) / np.sum(p)
        place = np.searchsorted(np.cumsum(shares)[:-1], self.uniform(same=same), "right")
        return np.asarray(values)[place]

    def chance(self, p: Any, *, same: bool = True) -> NDArray[np.bool_]:
        """Return whether something happens, (B, 1), by default to all of a table."""
        happens: NDArray[np.bool_] = self.uniform(same=same) < p
        return happens

    def select(self, rows: NDArray[np.intp]) -> "SharedDraws":
        """Return draws for some of the tables, all of whose series are in ``rows``."""
        return SharedDraws(self.rng, len(rows) // self.members, self.members)
