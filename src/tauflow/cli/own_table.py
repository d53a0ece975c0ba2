"""Options that describe a table of the user's own, derived from :class:`TableOptions`."""

import csv
import inspect
import os
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

import typer

from tauflow.data.table.options import (
    AUTO,
    BY_ID,
    BY_TIME,
    DECIMALS,
    DUPLICATES,
    TableOptions,
    told_of_options,
)
from tauflow.data.table.times import UNITS
from tauflow.errors import ArgumentError

if TYPE_CHECKING:
    from tauflow.experiments.run.source import CsvFile

_PANEL = "A table of your own"
_CHOICES = {
    "time_unit": (AUTO, *UNITS),
    "split_by": (BY_ID, BY_TIME),
    "duplicates": DUPLICATES,
    "decimal": DECIMALS,
}
"""What the text of an option may be; of times that are numbers, a unit is any name."""


def takes_table(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command an option for each field of :class:`TableOptions`.

    What was given of them reaches the command's argument ``said``, {name of the field: value}.
    """

    @wraps(command)
    def parsed(**given: Any) -> None:
        texts = {one: given.pop(f"table_{one.name}") for one in fields(TableOptions)}
        command(
            **given, said={one.name: _read(one, v) for one, v in texts.items() if v is not None}
        )

    told = told_of_options()
    keyword = inspect.Parameter.KEYWORD_ONLY
    own = [
        inspect.Parameter(
            f"table_{one.name}", keyword, default=None, annotation=_option(one, told.get(one.name))
        )
        for one in fields(TableOptions)
    ]
    rest = [
        one.replace(kind=keyword)
        for one in inspect.signature(command).parameters.values()
        if one.name != "said"
    ]
    parsed.__signature__ = inspect.Signature([*rest, *own])  # type: ignore[attr-defined]
    return parsed


def _option(one: Field[Any], told: str | None) -> Any:
    """Return the annotation of the option for a field: its type, flags and help."""
    kinds = set(get_args(one.type) or (one.type,)) - {type(None)}
    kind = next((simple for simple in (bool, str, int) if simple in kinds), str)
    flag = "--" + one.name.replace("_", "-")
    if kind is bool and one.default is True:
        flag = f"{flag}/--no-{flag[2:]}"
    help = _shortened(told or "")
    return Annotated[
        kind | None,
        typer.Option(
            *one.metadata.get("flags", (flag,)),
            help=f"{help} {_values(one, help)}".strip(),
            rich_help_panel=_PANEL,
        ),
    ]


def _shortened(told: str) -> str:
    """Return the first sentence that is told of a field, and those on what goes without saying."""
    # Ids of parts can be given in Python alone.
    told = told.partition("; or the ids of each")[0].replace("split_by", "--split-by")
    told = told.replace("``", "").replace('"', "'")
    first, *rest = told.rstrip(".").split(". ")
    kept = [
        first[:1].upper() + first[1:],
        *(s for s in rest if s.startswith(("By def", "Without"))),
    ]
    return ". ".join(kept) + "."


def _values(one: Field[Any], told: str) -> str:
    """Return the choices of a field and its default, as far as it has some that are not told."""
    values = []
    if one.name in _CHOICES:
        values.append(f"one of {' '.join(_CHOICES[one.name])}")
    default = one.default
    if isinstance(default, tuple):
        default = ",".join(map(str, default))
    silent = default in (None, MISSING) or isinstance(default, bool)
    if not silent and "y default" not in told:
        values.append(f"default {default}")
    return f"({'; '.join(values)})" if values else ""


def _read(one: Field[Any], value: Any) -> Any:
    """Return the value of a field that the text of its option stands for."""
    kinds = [kind for kind in (one.type, *get_args(one.type)) if get_origin(kind) is not None]
    items = [get_args(kind) for kind in kinds if issubclass(get_origin(kind), Sequence)]
    if not items:
        return value
    return _numbers(one.name, value) if items[0] == (float,) else _names(one.name, value)


def _numbers(name: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ArgumentError(
            f"--{name} {text!r} is not three numbers. Write for example 0.7,0.15,0.15."
        ) from None


def _names(name: str, text: str) -> tuple[str, ...]:
    """Return the names in a list with commas; one that holds a comma is in quotation marks.

    Raises:
        ArgumentError: a quotation mark is not closed.
    """
    try:
        (row,) = csv.reader([text], skipinitialspace=True, strict=True)
    except csv.Error as error:
        raise ArgumentError(
            f"--{name} {text!r} is not a list of names ({error}). Write for example "
            "'pulse,\"oxygen, blood\"'."
        ) from error
    return tuple(name.strip() for name in row if name.strip())


def one_source(task: str | None, csv: Path | None, said: dict[str, Any]) -> "str | Path | CsvFile":
    """Return the data set, its folder, or the file with what was said of its columns.

    A name of the catalog goes before a file or a folder of that name: ``./name`` is the folder.

    Raises:
        ArgumentError: both or neither are given, or options do not belong to what is.
    """
    from tauflow.data import DATASETS
    from tauflow.data.table.files import is_table_file
    from tauflow.experiments.run.source import CsvFile

    if (task is None) == (csv is None):
        got = "neither" if task is None else f"both {task!r} and --csv {csv}"
        raise ArgumentError(
            f"tauflow run takes a data set or a file of your own, got {got}. 'tauflow data list' "
            "shows the data sets."
        )
    if task is not None and task not in DATASETS and is_table_file(at_home := _expanded(task)):
        csv = at_home
    if csv is None:
        assert task is not None
        if said:
            first = "--" + next(iter(said)).replace("_", "-")
            raise ArgumentError(f"{first} is for a file of your own. Leave it out, or name a file.")
        return Path(task) if task not in DATASETS and Path(task).is_dir() else task
    return CsvFile(csv, TableOptions(**said))


def _expanded(name: str) -> Path:
    return Path(os.path.expanduser(name))
