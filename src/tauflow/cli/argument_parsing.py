"""Read arguments: ``key=value``, names between commas, and spans of time."""

import json
from typing import Any

from tauflow.errors import ArgumentError
from tauflow.runs.time_limits import parse_duration

_EXAMPLES = {
    "--option": "backbone_layers=2",
    "--set": "recipe.lr=0.01",
    "--vary": "recipe.lr=[0.001,0.01]",
}


def parse_key_values(texts: list[str], *, option: str = "--option") -> dict[str, Any]:
    """Return what the ``key=value`` texts of an option give.

    Values are read as JSON (numbers, true, false, null, lists); anything else is a string.

    Raises:
        ArgumentError: a text has no ``=``, or a key comes twice.
    """
    options: dict[str, Any] = {}
    for text in texts:
        key, sign, value = text.partition("=")
        key = key.strip().replace("-", "_")
        if not sign or not key:
            raise ArgumentError(
                f"{option} {text!r} is not of the form key=value. Write for example "
                f"{option} {_EXAMPLES[option]}."
            )
        if key in options:
            raise ArgumentError(f"{option} {key} is given twice. Leave one of them out.")
        options[key] = _parse_value(value.strip())
    return options


def _parse_value(text: str) -> Any:
    words = {"True": True, "False": False, "None": None}
    if text in words:
        return words[text]
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        return text


def split_names(text: str) -> list[str]:
    """Return the names that stand between commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def split_all_names(texts: list[str] | None) -> list[str]:
    """Return the names that stand between the commas of an option that may be repeated."""
    return [name for text in texts or [] for name in split_names(text)]


def parse_optional_seconds(text: str | None) -> float | None:
    """Return the seconds of a time span such as ``"30min"``, if one is given.

    Raises:
        ArgumentError: the text is not a time span.
    """
    return None if text is None else parse_duration(text)
