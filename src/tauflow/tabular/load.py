"""From a table to the parts of a task."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from tauflow._internal.checks import check_one_of
from tauflow.batch import SequenceBatch
from tauflow.data.card import TaskData
from tauflow.data.imputation import IMPUTE_STRATEGIES, impute_with_indicators
from tauflow.errors import ArgumentError

from .cell_values import LIKELY_MISSING
from .file_content import resolve_file
from .files import get_table_name, read_table
from .from_frame import check_unique
from .options import INDICATOR_NAME_FORMAT
from .schema_fields import SchemaFields
from .sequences import format_names
from .task import build_task

MISSING_OPTIONS = ("observed", "inputs")


def load_table(
    table: Any, options: SchemaFields, *, missing: str = "observed", name: str | None = None
) -> TaskData:
    """Read a table as :func:`tauflow.data.from_table` does."""
    if not isinstance(missing, str) or missing.lower() in LIKELY_MISSING:
        raise ArgumentError(
            f"missing must be 'observed' or 'inputs', got {missing!r}. Texts that mean a missing "
            "value are na_values=['nil', '-']."
        )
    check_one_of(MISSING_OPTIONS, missing=missing)
    if options.season is not None and not options.is_forecast:
        # Not where options are made, as those of predictors that were saved with one are.
        raise ArgumentError(
            "season is for forecasts, which are compared with seasonal naive ones. Leave it out."
        )
    table_name, source = "table", "a table in memory"
    file = resolve_file(table)
    if isinstance(file, Path):
        table_name, source = get_table_name(file), file.name
    elif file is not None:
        table, source = file, "an open file"
    data = build_task(read_table(table, options), options, name=name or table_name, source=source)
    return add_missing_indicators(data) if missing == "inputs" else data


def add_missing_indicators(data: TaskData) -> TaskData:
    """Return the data for models that do not take ``observed``: missing values are inputs.

    The last value of the sequence stands for a missing one, and a further input, 1 or 0, of each
    feature that has a missing value in the training split says where it was measured: of others it
    would be 1 in all of training. ``observed`` is left out of the batches. Without a missing value
    the data are as they were.

    Raises:
        ArgumentError: the data are not a user's own table.
    """
    if data.schema is None:
        raise ArgumentError(
            f"{data.card.name} is no table of your own. Data sets have options for missing values."
        )
    if data.train.observed is None:
        return data
    parts = [part for part in (data.train, data.valid, data.test) if part is not None]
    missing = torch.stack([_find_missing_features(part) for part in parts])  # training first
    flagged = missing[0].nonzero().flatten()
    silent = (missing.any(dim=0) & ~missing[0]).nonzero().flatten()
    schema, card = data.schema, data.card
    names = [schema.inputs[place] for place in flagged.tolist()]
    count = len(names)
    inputs = (*schema.inputs, *map(INDICATOR_NAME_FORMAT.format, names))
    check_unique("the table, with an input that says where a feature was measured", inputs)
    schema = replace(
        schema,
        inputs=inputs,
        x_mean=torch.cat([schema.x_mean, schema.x_mean.new_zeros(count)]),
        x_scale=torch.cat([schema.x_scale, schema.x_scale.new_ones(count)]),
        fill=IMPUTE_STRATEGIES[0],
        observed=False,
    )
    advice = (
        f"{count} more input{'s say' if count > 1 else ' says'} what was measured of: "
        f"{format_names(names, 12)}. "
        if count
        else ""
    )
    if len(silent):
        advice += (
            "No input says what was measured of features that lack values in the validation or "
            f"test split alone: {format_names([inputs[n] for n in silent.tolist()], 12)}. "
        )
    card = replace(
        card,
        input_size=card.input_size + count,
        notes=(
            *card.notes,
            f"{advice}A missing value is filled in by the last one of its sequence, and by the "
            "mean before the first.",
        ),
    )
    changed = partial(impute_with_indicators, flagged=flagged.tolist())
    train, test = changed(data.train), changed(data.test)
    valid = None if data.valid is None else changed(data.valid)
    return TaskData(card, train, valid, test, schema=schema)


def _find_missing_features(batch: SequenceBatch) -> torch.Tensor:
    """Return which features are missing at a step that is there, (I,)."""
    assert batch.observed is not None
    absent = ~batch.observed
    if batch.mask is not None:
        absent = absent & batch.mask.unsqueeze(-1)
    return absent.flatten(0, 1).any(dim=0)
