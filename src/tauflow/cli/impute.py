"""``tauflow impute``: missing values of a table, filled."""

from pathlib import Path
from typing import Annotated, Any

import typer

from .feature_table import add_feature_table_options
from .new_rows import OutOption, check_output_file, write_answers
from .shared_options import ModelOption, SeedOption


@add_feature_table_options
def impute(
    table: Annotated[
        Path, typer.Argument(help="Rows with missing values, .csv, .csv.gz or .parquet.")
    ],
    out: OutOption,
    hide: Annotated[
        str,
        typer.Option(help="What to learn from and to score by: single values, or whole rows."),
    ] = "values",
    model: ModelOption = "cfc",
    hidden_size: Annotated[int, typer.Option(min=1, help="Neurons in each direction.")] = 32,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the training data.")] = 50,
    seed: SeedOption = 0,
    *,
    table_options: dict[str, Any],
) -> None:
    """Fill the missing numbers of a table from those before and after them, and of other columns.

    --id is needed. Features are filled, by default all other columns with numbers; static ones are
    not. A fifth of the ids is held out first, to score the imputer on values that it has not seen.
    """
    import numpy as np

    from tauflow._internal.optional_deps import require
    from tauflow._internal.sanitize import format_count
    from tauflow.estimators import SequenceImputer

    from .feature_table import read_feature_table

    check_output_file(out, table, "the rows")
    frame, filled = read_feature_table(table, table_options)
    roles = {name: table_options.get(name) for name in ("id", "time", "static")}
    id, keys = roles["id"], [roles["id"], roles["time"], *(roles["static"] or ())]
    part = frame[[*(name for name in keys if name is not None), *filled]]
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
    answers = frame.assign(**{name: answers[name] for name in filled})
    count = int(frame[filled].isna().to_numpy().sum() - answers[filled].isna().to_numpy().sum())
    more = f", {format_count(count, 'value')} filled"
    write_answers([answers.sort_index()], out, "row", more)
