"""A named collection whose look-ups suggest the nearest name."""

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from tauflow.errors import ArgumentError, UnknownNameError

from .plugins import describe_plugin_problems, load_plugins

V = TypeVar("V")


_MAX_NAME_LENGTH = 100


def suggest_name(name: object, known: Iterable[str]) -> str:
    """Return ``" Did you mean 'x'?"`` for the known name closest to ``name``, or ``""``.

    To what is no text, or too long to be a name, none is close.
    """
    if not isinstance(name, str) or len(name) > _MAX_NAME_LENGTH:
        return ""
    close = difflib.get_close_matches(name.lower(), list(known), n=1, cutoff=0.5)
    return f" Did you mean {close[0]!r}?" if close else ""


class Registry(Mapping[str, V]):
    """A registry: a mapping from names to entries of one kind.

    Plugins may add to it, see :mod:`tauflow._internal.plugins`: they are imported when a name is
    missing here, or the names are listed, for the first time.

    Args:
        kind: what an entry is, in the singular, for messages ("model", "data set").
        entries: the first entries.
        plugins: whether a plugin may be what adds a missing name; not where every step of a
            network asks whether a name is there.
    """

    def __init__(
        self, kind: str, entries: Mapping[str, V] | None = None, *, plugins: bool = True
    ) -> None:
        self.kind = kind
        self.builtin_names = tuple(entries or ())
        """Names of the first entries: those of the package that has the registry."""
        self._entries: dict[str, V] = dict(entries or {})
        self._checks: list[Callable[[str, V], None]] = []
        self._plugins = plugins

    def add(self, name: str, entry: V) -> V:
        """Add an entry under a name that is not taken yet, and return the entry.

        Raises:
            ArgumentError: the name is taken or no text, or the entry is of another kind, as the
                checks say that :meth:`add_check` added.
        """
        if not isinstance(name, str):
            raise ArgumentError(f"the name of a {self.kind} must be a str, got {name!r}.")
        for check in self._checks:
            check(name, entry)
        if name in self._entries:  # by now: a check that asks another registry may load a plugin
            raise ArgumentError(f"{self.kind} {name!r} is registered already; choose another name.")
        self._entries[name] = entry
        return entry

    def add_check(self, check: Callable[[str, V], None]) -> None:
        """Call ``check(name, entry)``, which raises what is wrong, before an entry is added."""
        self._checks.append(check)

    def find_name(self, entry: object) -> str | None:
        """Return the first name of an entry; plugins are imported only where it has none yet."""
        for entries in (self._entries, self):
            for name, known in entries.items():
                if known == entry:
                    return name
        return None

    def __getitem__(self, name: str) -> V:
        if name not in self:
            raise UnknownNameError(
                f"unknown {self.kind} {name!r}.{suggest_name(name, self._entries)} "
                f"Known: {', '.join(sorted(self._entries))}.{describe_plugin_problems()}"
            )
        return self._entries[name]

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str):
            return False  # a list cannot even be looked up
        if name not in self._entries:
            self._load_missing()
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        self._load_missing()
        return iter(self._entries)

    def __len__(self) -> int:
        self._load_missing()
        return len(self._entries)

    def _load_missing(self) -> None:
        if self._plugins:
            load_plugins()


def make_entry_check(kind: type[Any]) -> Callable[[str, Any], None]:
    """Return a check that entries are of a class, and are added under their own ``name``."""

    def check(name: str, entry: Any) -> None:
        if not isinstance(entry, kind):
            raise ArgumentError(f"{name!r} must be a {kind.__name__}, got {entry!r}. Build one.")
        if entry.name != name:
            raise ArgumentError(
                f"the {kind.__name__} added as {name!r} has the name {entry.name!r}. Give both the "
                "same one."
            )

    return check
