"""``tauflow impute``: missing values of a table, filled."""

from pathlib import Path
from typing import Annotated, Any

import typer

from .new_rows import OutOption, check_output_file, write_answers


def impute(
    table: Annotated[
        Path, typer.Argument(help="Rows with missing values, .csv, .csv.gz or .parquet.")
    ],
    id: Annotated[str, typer.Option("--id", help="Column that says whose row it is.")],
    out: OutOption,
    time: Annotated[
        str | None, typer.Option("--time", help="Column of times, numbers or dates.")
    ] = None,
    static: Annotated[
        str | None, typer.Option(help="Columns with one value per id, with commas; not filled.")
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(help="Columns to fill, with commas; by default all others with numbers."),
    ] = None,
    hide: Annotated[
        str,
        typer.Option(help="What to learn from and to score by: single values, or whole rows."),
    ] = "values",
    model: Annotated[str, typer.Option(help="A model; see 'tauflow models'.")] = "cfc",
    hidden_size: Annotated[int, typer.Option(min=1, help="Neurons in each direction.")] = 32,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the training data.")] = 50,
    seed: Annotated[int, typer.Option(min=0, help="Of the weights and of what is held out.")] = 0,
    delimiter: Annotated[str, typer.Option(help="Column separator of a CSV file.")] = ",",
    decimal: Annotated[str, typer.Option(help="Decimal sign of a CSV file.")] = ".",
) -> None:
    """Fill the missing numbers of a table from those before and after them, and of other columns.

    A fifth of the ids is held out first, to score the imputer on values that it has not seen.
    """
    import numpy as np

    from tauflow._internal.optional_deps import require
    from tauflow._internal.sanitize import format_count
    from tauflow.data.table.files import read_frame
    from tauflow.data.table.options import TableOptions
    from tauflow.estimators import SequenceImputer

    from .argument_parsing import split_names

    check_output_file(out, table, "the rows")
    said: dict[str, Any] = {"id": id, "time": time}
    frame = read_frame(table, TableOptions(**said, delimiter=delimiter, decimal=decimal))
    constant = split_names(static or "")
    filled = split_names(features or "") or [
        name for name in frame.select_dtypes("number").columns if name not in (id, time, *constant)
    ]
    part = frame[[id, *([] if time is None else [time]), *filled, *constant]]
    roles: dict[str, Any] = {**said, "static": constant or None}
    imputer = SequenceImputer(
        model=model, hidden_size=hidden_size, epochs=epochs, random_state=seed, hide=hide
    )
    ids = frame[id].drop_duplicates().to_numpy()
    held = np.random.default_rng(seed).permutation(ids)[: len(ids) // 5]
    if len(held):
        is_held = part[id].isin(held)
        errors = imputer.fit(part[~is_held], **roles).compare(part[is_held])
        names = list(imputer.feature_names_in_)
        scores = require("pandas", extra="tables").DataFrame(errors, index=names).dropna()
        text = scores.to_string(float_format="{:.4g}".format)
        held_out = format_count(len(held), "id")
        typer.echo(f"RMSE on hidden values of {held_out} not trained on:\n{text}", err=True)
    answers = imputer.fit(part, **roles).transform(part)
    count = int(frame[filled].isna().to_numpy().sum())
    more = f", {format_count(count, 'value')} filled"
    write_answers([frame.assign(**{name: answers[name] for name in filled})], out, "row", more)
