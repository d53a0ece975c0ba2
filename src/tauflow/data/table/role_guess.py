"""The roles of a table's columns, with the reasons for each guess."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .column_profile import (
    ColumnProfile,
)
from .notes import make_row_notes
from .options import TableOptions
from .sequences import Sequences
from .table import Table
from .times import Times


@dataclass(frozen=True)
class Role:
    """What a column is for.

    Args:
        name: id, time, variable, value, target, feature, static, known, or left out.
        reason: why.
    """

    name: str
    reason: str = ""


@dataclass(frozen=True, eq=False)
class RoleGuess:
    """What a table seems to be.

    Args:
        option_values: the fields of :class:`TableOptions` to give, those that were given among
            them.
        roles: what each column is for.
        profiles: what each column holds.
        table: the table as it is.
        merged_table: with one row for each time of each id; ``None`` if there is a problem.
        sequences: rows of each id; ``None`` if there is a problem.
        times: of the rows.
        problem: why the table cannot be read so.
    """

    option_values: Mapping[str, Any]
    roles: Mapping[str, Role]
    profiles: Sequence[ColumnProfile]
    table: Table = field(repr=False)
    merged_table: Table | None = field(default=None, repr=False)
    sequences: Sequences | None = None
    times: Times | None = None
    problem: str | None = None

    @property
    def options(self) -> TableOptions:
        """What to say of the table."""
        return TableOptions(**self.option_values)

    def reasons(self) -> tuple[str, ...]:
        """Return why columns have roles other than that of a feature, a line for each role."""
        lines = []
        names = dict.fromkeys(role.name for role in self.roles.values() if role.name != "feature")
        for role in names:
            found = {n: one.reason for n, one in self.roles.items() if one.name == role}
            same = len(set(found.values())) == 1
            each = [repr(n) if same else f"{n!r} ({why})" for n, why in found.items()]
            why = f" ({next(iter(found.values()))})" if same and any(found.values()) else ""
            lines.append(f"{role[:1].upper()}{role[1:]}: {', '.join(each)}{why}.")
        return tuple(lines)

    def notes(self) -> tuple[str, ...]:
        """Return how many rows are merged, and how many are out of order."""
        assert self.merged_table is not None
        assert self.sequences is not None
        return make_row_notes(self.merged_table, self.sequences, self.options)
