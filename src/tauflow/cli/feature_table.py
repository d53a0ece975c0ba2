"""Tables of features for the commands that fit an estimator to them."""

from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tauflow.errors import ArgumentError

from .table_options import add_table_options

if TYPE_CHECKING:
    from pandas import DataFrame
READING_OPTIONS = ("time_format", "delimiter", "decimal", "na_values")
"""How the cells of a file are read."""
FEATURE_OPTIONS = ("id", "time", "features", "static", "sort", "duplicates", *READING_OPTIONS)
"""What is said of their columns and rows."""
add_feature_table_options = partial(add_table_options, only=FEATURE_OPTIONS)


def read_feature_table(
    path: Path, options: Mapping[str, Any], more: Collection[str] = (), *, needs_id: bool = True
) -> tuple["DataFrame", list[str]]:
    """Return the rows of a file, in the order of the times of each id, and the features.

    The index of the rows numbers them as in the file. Features are those that are named, or all
    columns that hold numbers and have no other role. Notes say what was left out or changed.

    Args:
        path: the file.
        options: fields of :class:`tauflow.tabular.options.TableOptions`.
        more: columns that are features in any case.
        needs_id: whether there has to be a column of ids.

    Raises:
        ArgumentError: no column of ids is named, or a column has two roles.
        TauflowError: the file cannot be read so, or a feature has text among its numbers.
    """
    from tauflow.tabular.files import read_table, to_pandas
    from tauflow.tabular.grouping import group_into_sequences, make_row_notes
    from tauflow.tabular.options import TableOptions
    from tauflow.tabular.sequences import format_names

    table_options = TableOptions(**options)
    if table_options.id is None and needs_id:
        raise ArgumentError("no column of ids is named. Give it: --id.")
    table = read_table(path, table_options)
    roles = {
        "id": [table_options.id] if table_options.id else [],
        "time": [table_options.time] if table_options.time else [],
        "static": table_options.static or (),
    }
    others = [name for names in roles.values() for name in names]
    named = [*(table_options.features or ()), *more]
    for role, names in {**roles, "feature": named}.items():
        for name in names:
            table.check_name(name, role)
    both = next((name for name in named if name in others), None)
    if both is not None:
        raise ArgumentError(
            f"column {both!r} is a feature, and is named as id, time or static too. Name it once."
        )
    sequences = group_into_sequences(
        table, table_options.id, table_options.time, sort=table_options.sort
    )
    rest = [name for name in table.columns if name not in (*others, *named)]
    numbers = [
        name
        for name in rest
        if table.is_mostly_numbers(name) and not table.find_missing(name).all()
    ]
    features = list(dict.fromkeys([*(table_options.features or numbers), *more]))
    for name in features:
        if table.is_mostly_numbers(name):
            table.numbers(name)
    notes = list(make_row_notes(table, sequences, table_options))
    unused = [name for name in rest if name not in features]
    if unused and not table_options.features:
        notes.append(f"Left out, as they hold no numbers: {format_names(unused, 12)}.")
    for note in notes:
        typer.echo(note, err=True)
    return to_pandas(table, sequences.rows), features
