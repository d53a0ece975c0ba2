"""Names of solvers, which include tableaus registered later."""

from collections.abc import Sequence
from typing import Any

from tauflow._internal.plugins import load_plugins
from tauflow.errors import ArgumentError

from .explicit import TABLEAUS, ButcherTableau


class SolverNames(Sequence[str]):
    """Names of solvers: of all registered tableaus, and others.

    Plugins, which may add tables, are imported when a name is missing or all are listed.

    Args:
        leading: names that stand before those of tables.
        trailing: names that stand behind them.
    """

    def __init__(self, leading: tuple[str, ...] = (), trailing: tuple[str, ...] = ()) -> None:
        self._leading, self._trailing = leading, trailing
        TABLEAUS.add_check(self._check_new_table)

    def __contains__(self, name: object) -> bool:
        if name not in self._current_names():
            load_plugins()
        return name in self._current_names()

    def __getitem__(self, index: Any) -> Any:
        load_plugins()
        return self._current_names()[index]

    def __len__(self) -> int:
        load_plugins()
        return len(self._current_names())

    def __repr__(self) -> str:
        return repr(tuple(self))

    def _current_names(self) -> tuple[str, ...]:
        return (*self._leading, *TABLEAUS, *self._trailing)

    def _check_new_table(self, name: str, table: ButcherTableau) -> None:
        """Refuse a table by the name of another solver."""
        if name in (*self._leading, *self._trailing):
            raise ArgumentError(f"there is a solver {name!r} already; choose another name.")
