"""Raise a clear error for options that a cell does not take."""

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from tauflow._internal.init_args import suggest_argument
from tauflow._internal.registry import suggest_name
from tauflow.errors import OptionError

from .base import AbstractCell


def check_option_names(
    cell: type[AbstractCell], options: Mapping[str, Any], *, extra_names: Iterable[str] = ()
) -> None:
    """Raise :class:`OptionError` for an option that the cell's constructor does not take.

    Args:
        cell: the class.
        options: what a caller gave.
        extra_names: names that the caller itself takes, to be suggested too.
    """
    parameters = inspect.signature(cell.__init__).parameters
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        return  # the cell hands them on, and its own parts check them
    known = [name for name in parameters if name not in ("self", "input_size", "hidden_size")]
    for name in options:
        if name not in known:
            choices = [*known, *extra_names]
            raise OptionError(
                f"{cell.__name__} has no option {name!r}."
                f"{suggest_argument(name) or suggest_name(name, choices)} It takes: "
                f"{', '.join(choices)}."
            )
