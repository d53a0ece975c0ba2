"""Options that describe a table of the user's own, derived from :class:`TableOptions`."""

import csv
import inspect
import os
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

import typer

from tauflow.errors import ArgumentError
from tauflow.tabular.options import (
    AUTO,
    BY_ID,
    BY_TIME,
    DECIMALS,
    DUPLICATES,
    READ_OPTIONS,
    TableOptions,
    parse_option_docs,
)
from tauflow.tabular.times import UNITS

from .shared_options import format_cells

if TYPE_CHECKING:
    from tauflow.runs.run import CsvFile

_PANEL = "A table of your own"
_CHOICES = {
    "time_unit": (AUTO, *UNITS),
    "split_by": (BY_ID, BY_TIME),
    "duplicates": DUPLICATES,
    "decimal": DECIMALS,
}
"""What the text of an option may be; of times that are numbers, a unit is any name."""
_OPTIONAL_ROLES = ("id", "time", "long", "target")
"""Roles of which ``none`` says that no column has them, unless one is called so."""


def add_table_options(
    command: Callable[..., None], *, only: Collection[str] | None = None
) -> Callable[..., None]:
    """Give a command an option for each field of :class:`TableOptions`.

    The options that were given reach the argument ``table_options``, {name of the field: value}.

    Args:
        command: the command.
        only: names of the fields that it has an option for; by default all.
    """
    offered = [field for field in fields(TableOptions) if only is None or field.name in only]

    @wraps(command)
    def parsed(**kwargs: Any) -> None:
        texts = {field: kwargs.pop(f"table_{field.name}") for field in offered}
        command(
            **kwargs,
            table_options={
                field.name: _parse_value(field, v) for field, v in texts.items() if v is not None
            },
        )

    descriptions = parse_option_docs()
    keyword = inspect.Parameter.KEYWORD_ONLY
    added = [
        inspect.Parameter(
            f"table_{field.name}",
            keyword,
            default=None,
            annotation=_make_option(field, descriptions.get(field.name)),
        )
        for field in offered
    ]
    rest = [
        parameter.replace(kind=keyword)
        for parameter in inspect.signature(command).parameters.values()
        if parameter.name != "table_options"
    ]
    parsed.__signature__ = inspect.Signature([*rest, *added])  # type: ignore[attr-defined]
    return parsed


def _make_option(field: Field[Any], description: str | None) -> Any:
    """Return the annotation of the option for a field: its type, flags and help."""
    kind = _get_option_type(field)
    help = _shorten_help(description or "")
    return Annotated[
        kind | None,
        typer.Option(
            *_get_flags(field),
            help=f"{help} {_format_choices(field, help)}".strip(),
            rich_help_panel=_PANEL,
        ),
    ]


def _get_option_type(field: Field[Any]) -> type:
    """Return the type of the option for a field."""
    kinds = set(get_args(field.type) or (field.type,)) - {type(None)}
    return next((simple for simple in (bool, str, int) if simple in kinds), str)


def _get_flags(field: Field[Any]) -> tuple[str, ...]:
    """Return the flags of the option for a field."""
    flag = "--" + field.name.replace("_", "-")
    if _get_option_type(field) is bool and field.default is True:
        flag = f"{flag}/--no-{flag[2:]}"
    flags: tuple[str, ...] = field.metadata.get("flags", (flag,))
    return flags


def _shorten_help(description: str) -> str:
    """Return the first sentence that is told of a field, and those on what goes without saying."""
    # Ids of parts can be given in Python alone.
    description = description.partition("; or the ids of each")[0].replace("split_by", "--split-by")
    description = description.replace("``", "").replace('"', "'")
    first, *rest = description.rstrip(".").split(". ")
    sentences = [
        first[:1].upper() + first[1:],
        *(s for s in rest if s.startswith(("By def", "The def", "Without"))),
    ]
    return ". ".join(sentences) + "."


def _format_choices(field: Field[Any], help_text: str) -> str:
    """Return the choices of a field and its default, as far as it has some that are not told."""
    values = []
    if field.name in _CHOICES:
        values.append(f"one of {' '.join(_CHOICES[field.name])}")
    default = field.default
    if isinstance(default, tuple):
        default = ",".join(map(str, default))
    silent = default in (None, MISSING) or isinstance(default, bool)
    if not silent and "default" not in help_text.lower():
        values.append(f"default {default}")
    return f"({'; '.join(values)})" if values else ""


def _parse_value(field: Field[Any], value: Any) -> Any:
    """Return the value of a field that the text of its option stands for."""
    kinds = [kind for kind in (field.type, *get_args(field.type)) if get_origin(kind) is not None]
    items = [get_args(kind) for kind in kinds if issubclass(get_origin(kind), Sequence)]
    if not items:
        return value
    return (
        _parse_numbers(field.name, value)
        if items[0] == (float,)
        else parse_names(field.name, value)
    )


def _parse_numbers(name: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ArgumentError(
            f"--{name} {text!r} is not three numbers. Write for example 0.7,0.15,0.15."
        ) from None


def parse_names(name: str, text: str) -> tuple[str, ...]:
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


def resolve_source(
    task: str | None, csv: Path | None, table_options: dict[str, Any]
) -> "str | Path | CsvFile":
    """Return the data set, its folder, or the file with what was said of its columns.

    A name of the catalog goes before a file or a folder of that name: ``./name`` is the folder.

    Raises:
        ArgumentError: both or neither are given, or options do not belong to what is.
    """
    from tauflow.data import DATASETS
    from tauflow.tabular.files import is_table_file

    if (task is None) == (csv is None):
        got = "neither" if task is None else f"both {task!r} and --csv {csv}"
        raise ArgumentError(
            f"tauflow run takes a data set or a file of your own, got {got}. 'tauflow data list' "
            "shows the data sets."
        )
    at_home = Path(os.path.expanduser(task or ""))
    # What has a suffix is no name of a data set, which plugins would be asked for.
    if task and is_table_file(at_home) and (at_home.suffix or task not in DATASETS):
        csv = at_home
    if csv is None:
        assert task is not None
        if table_options:
            first = "--" + next(iter(table_options)).replace("_", "-")
            raise ArgumentError(f"{first} is for a file of your own. Leave it out, or name a file.")
        return Path(task) if task not in DATASETS and Path(task).is_dir() else task
    return _resolve_roles(csv, table_options)


def _resolve_roles(path: Path, table_options: dict[str, Any]) -> "CsvFile":
    """Return a file with the roles of its columns.

    Raises:
        ArgumentError: nothing says which column is the id, or the time.
    """
    from tauflow.runs.run import CsvFile

    roles, absent = resolve_none_roles(path, table_options)
    if path.is_file() and not {"id", "time"} & roles.keys():
        raise ArgumentError(_explain_roles(path, roles))
    options = {name: value for name, value in roles.items() if value is not None}
    return CsvFile(path, TableOptions(**options), absent=absent)


def _explain_roles(path: Path, roles: dict[str, Any]) -> str:
    """Return what the columns of a file seem to be, and what to say of them."""
    from tauflow.tabular.describe import describe_table

    description = describe_table(path, roles)
    rows = [
        (name, column.profile.holds, column.role.name)
        for name, column in description.columns.items()
    ]
    widths = [max(len(row[place]) for row in rows) for place in range(2)]
    lines = [
        f"  {name:<{widths[0]}}  {holds:<{widths[1]}}  {role}".rstrip()
        for name, holds, role in rows
    ]
    words = shlex.join(format_cli_options(description.options))
    end = f"The columns look like this: {words}"
    if description.problem is not None:
        end = f"They cannot be read as they seem to be: {description.problem}"
    return "\n".join(
        [
            f"nothing says which column of {path} is the id or the time of a row (--id, --time; "
            "none if no column is). It holds:",
            *lines,
            end,
        ]
    )


def resolve_none_roles(
    path: Path, table_options: dict[str, Any]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return what was given of a table, with ``None`` for roles that no column has; and these."""
    from tauflow.tabular.files import read_table

    texts = {role: table_options.get(role) for role in _OPTIONAL_ROLES}
    none = [role for role, text in texts.items() if text in ("none", ("none",))]
    if none:
        reading: dict[str, Any] = {
            name: table_options[name] for name in READ_OPTIONS & table_options.keys()
        }
        none = none if "none" not in read_table(path, TableOptions(**reading)).columns else []
    return {**table_options, **dict.fromkeys(none)}, tuple(none)


def format_cli_options(table_options: Mapping[str, Any]) -> list[str]:
    """Return the words of a command line for what is said of a table."""
    words = []
    for field in fields(TableOptions):
        if field.name not in table_options:
            continue
        value, flag = table_options[field.name], _get_flags(field)[-1]
        if isinstance(value, bool):
            yes, _, no = flag.partition("/")
            words += [yes] if value else [no]
        else:
            text = format_cells(value) if isinstance(value, tuple | list) else str(value)
            words += [f"{flag}={text}"] if text.startswith("-") else [flag, text]
    return words
