"""Names of solvers as they are now: tables may be added to the catalog at any time."""

from collections.abc import Sequence
from typing import Any

from tauflow.errors import ArgumentError
from tauflow.plugins import load_plugins

from .explicit import TABLEAUS, ButcherTableau


class SolverNames(Sequence[str]):
    """Names of solvers: those of the explicit tables that there are when it is asked, and others.

    Plugins, which may add tables, are imported when a name is missing or all are listed.

    Args:
        before: names that stand before those of tables.
        after: names that stand behind them.
    """

    def __init__(self, before: tuple[str, ...] = (), after: tuple[str, ...] = ()) -> None:
        self._before, self._after = before, after
        TABLEAUS.hold_to(self._refuse_own)

    def __contains__(self, name: object) -> bool:
        if name not in self._present():
            load_plugins()
        return name in self._present()

    def __getitem__(self, index: Any) -> Any:
        load_plugins()
        return self._present()[index]

    def __len__(self) -> int:
        load_plugins()
        return len(self._present())

    def __repr__(self) -> str:
        return repr(tuple(self))

    def _present(self) -> tuple[str, ...]:
        return (*self._before, *TABLEAUS, *self._after)

    def _refuse_own(self, name: str, table: ButcherTableau) -> None:
        """Refuse a table by the name of another solver."""
        if name in (*self._before, *self._after):
            raise ArgumentError(f"there is a solver {name!r} already; choose another name.")
