"""Names of options of a table, and the columns that they name."""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from tauflow._internal.registry import suggest_name
from tauflow.errors import OptionError

from .options import TableOptions

LEARNED_ROLES = ("target", "group", "part", "weight")
"""Roles of columns that a table to learn from has, and a table to predict need not have."""


def check_option_names(options: Iterable[str]) -> None:
    """Raise :class:`OptionError` if a table has no such option."""
    known = [field.name for field in fields(TableOptions)]
    wrong = next((name for name in options if name not in known), None)
    if wrong is None:
        return
    if wrong in ("categorical", "categories", "dtype"):
        advice = (
            " A column of text is categorical; so are codes where the dtype says so: "
            "table.astype({'ward': 'category'})."
        )
    else:
        advice = suggest_name(wrong, [*known, "missing"])
    raise OptionError(
        f"a table has no option {wrong!r}.{advice} Options: missing, {', '.join(known)}."
    )


def list_role_columns(options: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the columns of each role, none of which is a feature before it is named as one.

    Args:
        options: fields of :class:`TableOptions`, by name; those that lack name no column.
    """
    target, long = options.get("target") or (), options.get("long") or ()
    single = {"id": "id", "time": "time", "group": "group", "weight": "weight"}
    single["part"] = "split_column"
    names = {
        role: () if options.get(name) is None else (options[name],) for role, name in single.items()
    }
    return {
        "id": names.pop("id"),
        "time": names.pop("time"),
        "target": (target,) if isinstance(target, str) else tuple(target),
        **names,
        "variable": tuple(long[:1]),
        "value": tuple(long[1:]),
        "static": tuple(options.get("static") or ()),
        "known": tuple(options.get("known") or ()),
    }
