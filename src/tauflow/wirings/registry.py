"""The registry of wirings, and how one is built from a dictionary."""

import inspect
from collections.abc import Mapping
from typing import Any

from tauflow._internal.checks import find_type_mismatch, format_value
from tauflow._internal.registry import Registry, suggest_name
from tauflow.errors import ArgumentError, WiringError

from .base import AbstractWiring
from .explicit import ExplicitWiring
from .full import FullyConnected
from .ncp import NCP, AutoNCP
from .random import RandomSparse

WIRINGS: Registry[type[AbstractWiring]] = Registry(
    "wiring",
    {
        wiring.kind: wiring
        for wiring in (FullyConnected, RandomSparse, NCP, AutoNCP, ExplicitWiring)
    },
)
"""Every wiring by its ``kind``."""


def _check_wiring_kind(name: str, wiring: type[AbstractWiring]) -> None:
    if not (isinstance(wiring, type) and issubclass(wiring, AbstractWiring)):
        raise ArgumentError(
            f"wiring {name!r} must be a class derived from AbstractWiring, got {wiring!r}. Pass "
            "the class itself."
        )
    kind = getattr(wiring, "kind", None)
    if kind != name:
        raise ArgumentError(
            f"the wiring added as {name!r} has the kind {kind!r}, by which it would be looked for. "
            f"Add it by that, or write kind: ClassVar[str] = {name!r} in the class."
        )


WIRINGS.add_check(_check_wiring_kind)


def wiring_from_dict(description: Mapping[str, Any]) -> AbstractWiring:
    """Build the wiring that :meth:`AbstractWiring.to_dict` described.

    Args:
        description: ``"kind"`` and the arguments of that kind's constructor. Lists become tuples,
            as they were before a file held them, so that the wiring compares and hashes by value.

    Raises:
        UnknownNameError: the kind is not in :data:`WIRINGS`.
        WiringError: the description is no mapping, the kind or an argument is missing, or an
            argument is unknown or of the wrong type.
    """
    if not isinstance(description, Mapping):
        raise WiringError(
            f"a wiring is described by a mapping, got {format_value(description)}. Pass what "
            "to_dict() of "
            "a wiring returned."
        )
    if "kind" not in description:
        raise WiringError(
            f"wiring description {dict(description)!r} has no 'kind'. "
            f"Add one of: {', '.join(sorted(WIRINGS))}."
        )
    arguments = {name: value for name, value in description.items() if name != "kind"}
    wiring = WIRINGS[description["kind"]]
    known = inspect.signature(wiring).parameters
    for name in arguments:
        if name not in known:
            raise WiringError(
                f"wiring {wiring.kind!r} has no argument {name!r}.{suggest_name(name, known)} "
                f"It takes: {', '.join(known)}."
            )
    required = {name for name, argument in known.items() if argument.default is argument.empty}
    if missing := sorted(required - set(arguments)):
        raise WiringError(
            f"wiring {wiring.kind!r} lacks {', '.join(missing)}. Add it to the description."
        )
    if wrong := find_type_mismatch(wiring.__init__, arguments):
        raise WiringError(f"wiring {wiring.kind!r}: {wrong}. Correct the description.")
    built: AbstractWiring = wiring(
        **{name: _to_nested_tuples(value) for name, value in arguments.items()}
    )
    return built


def _to_nested_tuples(value: Any) -> Any:
    return tuple(map(_to_nested_tuples, value)) if isinstance(value, list) else value
