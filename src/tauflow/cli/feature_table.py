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
add_feature_table_options = partial(
    add_table_options,
    only=("id", "time", "features", "static", "sort", "duplicates", *READING_OPTIONS),
)


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

    said = TableOptions(**options)
    if said.id is None and needs_id:
        raise ArgumentError("no column of ids is named. Give it: --id.")
    sheet = read_table(path, said)
    roles = {
        "id": [said.id] if said.id else [],
        "time": [said.time] if said.time else [],
        "static": said.static or (),
    }
    others = [name for names in roles.values() for name in names]
    named = [*(said.features or ()), *more]
    for role, names in {**roles, "feature": named}.items():
        for name in names:
            sheet.check_name(name, role)
    both = next((name for name in named if name in others), None)
    if both is not None:
        raise ArgumentError(
            f"column {both!r} is a feature, and is named as id, time or static too. Name it once."
        )
    found = group_into_sequences(sheet, said.id, said.time, sort=said.sort)
    rest = [name for name in sheet.columns if name not in (*others, *named)]
    numbers = [
        name
        for name in rest
        if sheet.is_mostly_numbers(name) and not sheet.find_missing(name).all()
    ]
    features = list(dict.fromkeys([*(said.features or numbers), *more]))
    for name in features:
        if sheet.is_mostly_numbers(name):
            sheet.numbers(name)
    notes = list(make_row_notes(sheet, found, said))
    unused = [name for name in rest if name not in features]
    if unused and not said.features:
        notes.append(f"Left out, as they hold no numbers: {format_names(unused, 12)}.")
    for note in notes:
        typer.echo(note, err=True)
    return to_pandas(sheet, found.rows), features
