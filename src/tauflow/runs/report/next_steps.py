"""How to go on with the model of a run: commands, and what they need."""

import shlex
from collections.abc import Sequence

from tauflow._internal.sanitize import format_count
from tauflow.data.card import TaskData
from tauflow.export.files import PREDICTOR
from tauflow.runs.task import TaskRun
from tauflow.tabular.options import LEAD_TIME_INPUT

_MAX_NAMES = 30
"""How many features are named at most."""


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
    schema, card = data.schema, data.card
    assert schema is not None
    if not card.forecast:
        return "The new table has the columns of this one; the target is not needed."
    features = schema.inputs[: card.target_size // (card.horizon or 1)]
    names = _join_names(schema.targets or features)
    text = f"The new table has the columns of this one, among them {names}, without which nothing "
    text += "can be predicted."
    if not schema.known:
        return text
    count, of = card.horizon or 1, "" if schema.id is None else " of each id"
    columns = _join_names([*filter(None, [schema.time]), *schema.known])
    if count == 1:
        return f"{text} The last row{of} is the one to predict: with {columns}, and {names} empty."
    return (
        f"{text} {'Its' if not of else 'The'} last {format_count(count, 'row')}{of} are those to "
        "predict: with "
        f"{columns}, and {names} empty."
    )


def _join_names(names: Sequence[str]) -> str:
    """Return names as a sentence has them."""
    *first, last = names if len(names) <= _MAX_NAMES else [*names[:_MAX_NAMES], "others"]
    return f"{', '.join(first)} and {last}" if first else last
