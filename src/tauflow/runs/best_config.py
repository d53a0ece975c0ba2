"""The file of the settings that a search found, as ``tauflow run --config`` reads it."""

import json
import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from tauflow._internal.atomic_write import write_atomically
from tauflow.tabular.options import TableOptions
from tauflow.training.defaults import DEFAULT_RECIPE

from .run import CsvFile, Run
from .run_data import RunData

NULL = "null"
"""The text that stands for None, of which TOML has none; ``--set`` reads it so, too."""
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def write_best_config(path: Path, run: Run, run_data: RunData) -> None:
    """Write settings to a file, with all that a run needs to come out the same.

    Args:
        path: of the file.
        run: the settings.
        run_data: its data, as they were read.
    """
    spec, source = run.spec, run.source
    top: dict[str, Any] = {"model": spec.cell, "hidden_size": spec.hidden_size, "seed": run.seed}
    table: dict[str, Any] = {}
    if isinstance(source, CsvFile):
        top = {"csv": str(source.path.absolute()), **top}
        absent = dict.fromkeys(source.absent, "none")
        table = {**_get_changed_table_options(source.table, run_data), **absent}
    else:
        name = source.absolute() if isinstance(source, Path) else source
        top = {"task": str(name), **top}
    if run_data.requested_metrics:
        top["metric"] = list(run_data.requested_metrics)
    usual = DEFAULT_RECIPE.to_dict()
    changed = {k: v for k, v in run.recipe.to_dict().items() if v != usual[k]}
    text = to_toml(top, {"recipe": changed, "options": spec.options, "table": table})
    write_atomically(path, text.encode(errors="replace"))


def _get_changed_table_options(options: TableOptions, run_data: RunData) -> dict[str, Any]:
    """Return what was said of a table's columns."""
    changed = {
        field.name: value
        for field in fields(TableOptions)
        if (value := getattr(options, field.name)) != field.default
    }
    if changed.get("time_unit", "") is None:  # no option of a command says so: by the unit's name
        del changed["time_unit"]
        if options.time is not None and run_data.data.schema is not None:
            changed["time_unit"] = run_data.data.schema.unit
    return {k: v for k, v in changed.items() if v is not None}


def to_toml(top: Mapping[str, Any], tables: Mapping[str, Mapping[str, Any]]) -> str:
    """Write values as TOML.

    Args:
        top: values before all tables.
        tables: by name; empty ones are left out.
    """
    text = _format_lines(top)
    for name, values in tables.items():
        if values:
            key = name if _BARE_KEY.fullmatch(name) else _format_value(name)
            text += f"[{key}]\n{_format_lines(values)}"
    return text


def _format_lines(values: Mapping[str, Any]) -> str:
    return "".join(f"{line}\n" for line in _format_entries(values))


def _format_entries(values: Mapping[str, Any]) -> list[str]:
    return [
        f"{name if _BARE_KEY.fullmatch(name) else _format_value(name)} = {_format_value(value)}"
        for name, value in values.items()
    ]


def _format_value(value: Any) -> str:
    """Return a value as TOML has it, which is as JSON has it but for floats and mappings."""
    if isinstance(value, float):
        return float.__repr__(value)  # NumPy's own one names its type
    if isinstance(value, Mapping):
        return f"{{{', '.join(_format_entries(value))}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_format_value, value))}]"
    text = json.dumps(NULL if value is None else value, ensure_ascii=False, default=str)
    return text.replace("\x7f", "\\u007f")
