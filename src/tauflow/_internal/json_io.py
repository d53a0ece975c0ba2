"""Parse untrusted JSON: anything invalid raises ``ValueError``."""

import json
from collections.abc import Mapping
from typing import Any

from .sanitize import format_count

MAX_VALUES = 1_000_000
"""How many values there may be, each of which may take 20 times its text in memory."""
MAX_DEPTH = 64
"""How many containers may stand in one another; what tauflow writes has fewer than ten."""


def parse_json(text: str | bytes) -> Any:
    """Return the content of a JSON text.

    Raises:
        ValueError: it is no JSON, not in UTF-8, holds a number of thousands of digits, more than
            :data:`MAX_VALUES` values, or is nested more deeply than :data:`MAX_DEPTH`, which could
            exhaust the stack of whoever walks it. ``json.JSONDecodeError`` of what is no JSON at
            all.
    """
    if isinstance(text, str):
        values = sum(text.count(sign) for sign in ",[{")
    else:
        values = sum(text.count(sign) for sign in b",[{")
    if values > MAX_VALUES:
        raise ValueError(f"it holds more than {format_count(MAX_VALUES, 'value')}")
    try:
        value = json.loads(text)
    except RecursionError as error:
        raise ValueError(f"it is nested more deeply than {MAX_DEPTH} levels") from error
    check_depth(value)
    return value


def check_depth(value: Any) -> None:
    """Raise ``ValueError`` for lists and dictionaries nested more deeply than :data:`MAX_DEPTH`."""
    level: list[Any] = [[value]]
    for _ in range(MAX_DEPTH + 1):
        parts = (item.values() if isinstance(item, dict) else item for item in level)
        level = [inner for part in parts for inner in part if isinstance(inner, dict | list)]
        if not level:
            return
    raise ValueError(f"it is nested more deeply than {MAX_DEPTH} levels")


def to_lists(value: Any) -> Any:
    """Return a value with lists for tuples, in mappings too, as JSON has them."""
    if isinstance(value, Mapping):
        return {name: to_lists(entry) for name, entry in value.items()}
    return list(map(to_lists, value)) if isinstance(value, tuple | list) else value


def to_tuples(value: Any) -> Any:
    """Return a value with tuples for lists, in mappings too."""
    if isinstance(value, Mapping):
        return {name: to_tuples(entry) for name, entry in value.items()}
    return tuple(map(to_tuples, value)) if isinstance(value, list) else value
