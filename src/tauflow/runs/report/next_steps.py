"""How to go on with the model of a run: commands, and what they need."""

import shlex

from tauflow._internal.sanitize import format_count
from tauflow.data.card import TaskData
from tauflow.export.files import PREDICTOR
from tauflow.runs.task import TaskRun
from tauflow.tabular.options import LEAD_TIME_INPUT


def make_predict_command(run: TaskRun) -> str:
    """Return the command that uses the model of a run on another table; nothing if none can.

    Of a forecast with uneven time steps, the next row is looked for as far ahead as rows are on
    average.
    """
    schema = run.data.schema
    if schema is None or not (run.directory / PREDICTOR).is_file():
        return ""
    words = ["tauflow", "predict", str(run.directory)]
    words += ["--csv", "new.csv", "--out", "predictions.csv"]
    if LEAD_TIME_INPUT in schema.inputs and not schema.known:
        words += ["--lead-time", f"{schema.ahead:.4g}"]
    return shlex.join(words)


def make_commands(run: TaskRun) -> list[str]:
    """Return the commands that use and explain the model of a run, as far as there are any."""
    command = make_predict_command(run)
    if not command:
        return []
    explain = ["tauflow", "explain", str(run.directory), "--csv", "new.csv", "--summary"]
    return [command, shlex.join(explain)]


def describe_needed_columns(data: TaskData) -> str:
    """Return what a table must hold for the model to predict from it."""
    schema = data.schema
    assert schema is not None
    if not data.card.forecast:
        return "The new table has the columns of this one; the target is not needed."
    text = "The new table has the columns of this one, with what is forecast."
    if not schema.known:
        return text
    rows = data.card.horizon or 1
    last = "last row" if rows == 1 else f"last {format_count(rows, 'row')}"
    return (
        f"{text} Give the time and {', '.join(schema.known)} in the {last}"
        f"{'' if schema.id is None else ' of each id'}, with the targets empty."
    )
