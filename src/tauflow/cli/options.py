"""Read arguments: ``key=value``, spans of time, and what a table is."""

import csv
import json
import shlex
from pathlib import Path
from typing import Any

from tauflow.data import DATASETS, TableOptions
from tauflow.errors import ArgumentError
from tauflow.experiments.run.task import CsvFile
from tauflow.experiments.run.timespan import seconds_in

_EXAMPLES = {"--option": "backbone_layers=2", "--vary": "recipe.lr=[0.001,0.01]"}


def key_values(texts: list[str], *, option: str = "--option") -> dict[str, Any]:
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
        options[key] = _value(value.strip())
    return options


def _value(text: str) -> Any:
    words = {"True": True, "False": False, "None": None}
    if text in words:
        return words[text]
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def seconds_or_none(text: str | None) -> float | None:
    """Return the seconds of a time span such as ``"30min"``, if one is given.

    Raises:
        ArgumentError: the text is not a time span.
    """
    return None if text is None else seconds_in(text)


def table_options(**given: Any) -> dict[str, Any]:
    """Return what options of ``tauflow run`` say of a table, without those that were not given.

    Raises:
        ArgumentError: ``split`` is not a list of numbers.
    """
    said = {name: value for name, value in given.items() if value is not None}
    if "features" in said:
        said["features"] = _names(said["features"])
    if "split" in said:
        try:
            said["split"] = tuple(float(part) for part in said["split"].split(","))
        except ValueError:
            raise ArgumentError(
                f"--split {said['split']!r} is not three numbers. Write for example 0.7,0.15,0.15."
            ) from None
    return said


def _names(text: str) -> tuple[str, ...]:
    """Return the names in a list with commas; one that holds a comma is in quotation marks.

    Raises:
        ArgumentError: a quotation mark is not closed.
    """
    try:
        (row,) = csv.reader([text], skipinitialspace=True, strict=True)
    except csv.Error as error:
        raise ArgumentError(
            f"--features {text!r} is not a list of names ({error}). Write for example "
            "'pulse,\"oxygen, blood\"'."
        ) from error
    return tuple(name.strip() for name in row if name.strip())


def _shell(*words: str) -> str:
    return shlex.join(("tauflow", "run", *words))


def one_source(task: str | None, csv: Path | None, said: dict[str, Any]) -> str | Path | CsvFile:
    """Return the data set, its folder, or the file with what was said of its columns.

    A name of the catalog goes before a folder of that name: ``./name`` is the folder.

    Raises:
        ArgumentError: both or neither are given, or options do not belong to what is.
    """
    if (task is None) == (csv is None):
        got = "neither" if task is None else f"both {task!r} and --csv {csv}"
        raise ArgumentError(
            f"tauflow run takes a data set or --csv with a file of your own, got {got}. "
            "'tauflow data list' shows the data sets."
        )
    if task is not None:
        if task not in DATASETS and (Path(task).is_file() or Path(task).suffix == ".csv"):
            raise ArgumentError(
                f"{task!r} is a file, not a data set. Give it with --csv, and the column that says "
                f"to which sequence a row belongs with --id: {_shell('--csv', task)} --id patient "
                "--time hours --target died"
            )
        if said:
            first = "--" + next(iter(said)).replace("_", "-")
            raise ArgumentError(f"{first} is for a file of your own. Leave it out, or give --csv.")
        return Path(task) if task not in DATASETS and Path(task).is_dir() else task
    assert csv is not None
    if "id" not in said:
        raise ArgumentError(
            "--csv needs --id, the column that says to which sequence a row belongs. For example: "
            "tauflow run --csv visits.csv --id patient --time hours --target died"
        )
    columns = {name: value for name, value in said.items() if name != "delimiter"}
    return CsvFile(csv, TableOptions(**columns), said.get("delimiter", ","))
