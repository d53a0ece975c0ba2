"""Refuse options that a cell does not take, before Python does so in fewer words."""

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from tauflow.errors import OptionError
from tauflow.idioms import in_our_words
from tauflow.registry import nearest

from .base import AbstractCell


def refuse_unknown_options(
    cell: type[AbstractCell], options: Mapping[str, Any], *, others: Iterable[str] = ()
) -> None:
    """Raise :class:`OptionError` for an option that the cell's constructor does not take.

    Args:
        cell: the class.
        options: what a caller gave.
        others: names that the caller itself takes, to be suggested too.
    """
    parameters = inspect.signature(cell.__init__).parameters
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        return  # the cell hands them on, and its own parts check them
    known = [name for name in parameters if name not in ("self", "input_size", "hidden_size")]
    for name in options:
        if name not in known:
            choices = [*known, *others]
            raise OptionError(
                f"{cell.__name__} has no option {name!r}."
                f"{in_our_words(name) or nearest(name, choices)} It takes: {', '.join(choices)}."
            )
