"""The file of the settings that a search found, as ``tauflow run --config`` reads it."""

import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tauflow.data.table.options import TableOptions
from tauflow.models.specified import ModelSpec
from tauflow.tensorfile import write_atomically
from tauflow.training.defaults import RECIPE
from tauflow.training.recipe import Recipe

from .source import CsvFile, Source

NULL = "null"
"""The text that stands for None, of which TOML has none; ``--set`` reads it so, too."""
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_ESCAPED = re.compile(r'["\\\x00-\x1f\x7f]')


def write_best(
    path: Path,
    source: str | Path | CsvFile,
    found: Source,
    spec: ModelSpec,
    recipe: Recipe,
    seed: int,
) -> None:
    """Write settings to a file, with all that a run needs to come out the same.

    Args:
        path: of the file.
        source: the data, as a caller named them.
        found: the same as they were read.
        spec: the model.
        recipe: how to train it.
        seed: of weights, shuffling and dropout.
    """
    top: dict[str, Any] = {"model": spec.cell, "hidden_size": spec.hidden_size, "seed": seed}
    table: dict[str, Any] = {}
    if isinstance(source, CsvFile):
        top = {"csv": str(source.path.absolute()), **top}
        absent = dict.fromkeys(source.absent, "none")
        table = {**_of_table(source.table, found), **absent}
    else:
        name = source.absolute() if isinstance(source, Path) else source
        top = {"task": str(name), **top}
    if found.asked:
        top["metric"] = list(found.asked)
    usual = RECIPE.to_dict()
    changed = {k: v for k, v in recipe.to_dict().items() if v != usual[k]}
    text = toml_of(top, {"recipe": changed, "options": spec.options, "table": table})
    write_atomically(path, text.encode(errors="replace"))


def _of_table(options: TableOptions, found: Source) -> dict[str, Any]:
    """Return what was said of a table's columns."""
    usual = asdict(TableOptions())
    said = {k: v for k, v in asdict(options).items() if v != usual[k]}
    if said.get("time_unit", "") is None:  # no option of a command says so: by the unit's name
        del said["time_unit"]
        if options.time is not None and found.data.table is not None:
            said["time_unit"] = found.data.table.unit
    return {k: v for k, v in said.items() if v is not None}


def toml_of(top: Mapping[str, Any], tables: Mapping[str, Mapping[str, Any]]) -> str:
    """Write values as TOML.

    Args:
        top: values before all tables.
        tables: by name; empty ones are left out.
    """
    text = _lines(top)
    for name, values in tables.items():
        if values:
            text += f"[{_key(name)}]\n{_lines(values)}"
    return text


def _lines(values: Mapping[str, Any]) -> str:
    return "".join(f"{_key(name)} = {_value(value)}\n" for name, value in values.items())


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _text(name)


def _value(value: Any) -> str:
    if value is None:
        return _text(NULL)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        return float.__repr__(value)  # NumPy's own one names its type
    if isinstance(value, Mapping):
        inner = (f"{_key(name)} = {_value(one)}" for name, one in value.items())
        return f"{{{', '.join(inner)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    return _text(str(value))


def _text(text: str) -> str:
    def escaped(sign: re.Match[str]) -> str:
        return f"\\{sign[0]}" if sign[0] in '"\\' else f"\\u{ord(sign[0]):04x}"

    return f'"{_ESCAPED.sub(escaped, text)}"'
