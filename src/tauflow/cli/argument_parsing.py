"""Read arguments: ``key=value``, and names between commas."""

import json
from typing import Any

from tauflow.errors import ArgumentError

_EXAMPLES = {
    "--option": "backbone_layers=2",
    "--set": "recipe.lr=0.01",
    "--vary": "recipe.lr=[0.001,0.01]",
}


def parse_key_values(texts: list[str], *, option: str = "--option") -> dict[str, Any]:
    """Return what the ``key=value`` texts of an option give.

    Values are read as JSON (numbers, true, false, null, lists); anything else is a string.

    Raises:
        ArgumentError: a text has no ``=``.
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
