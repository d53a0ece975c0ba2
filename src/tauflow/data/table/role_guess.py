"""The roles of a table's columns, with the reasons for each guess."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .column_profile import ColumnProfile
from .notes import make_row_notes
from .schema import Role, Schema
from .sequences import Sequences
from .table import Table
from .times import Times


@dataclass(frozen=True, eq=False)
class RoleGuess:
    """What a table seems to be.

    Args:
        option_values: the options of a :class:`Schema` to give, those that were given among
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
    def schema(self) -> Schema:
        """What to say of the table, with the reasons."""
        dtypes = {one.name: one.holds for one in self.profiles}
        return Schema(**self.option_values, dtypes=dtypes, guesses=self.roles)

    def notes(self) -> tuple[str, ...]:
        """Return how many rows are merged, and how many are out of order."""
        assert self.merged_table is not None
        assert self.sequences is not None
        return make_row_notes(self.merged_table, self.sequences, self.schema)
