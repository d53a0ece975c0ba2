"""Tell any model what was measured: as inputs of their own."""

from dataclasses import replace

import torch

from tauflow.batch import SequenceBatch
from tauflow.data.card import TaskData
from tauflow.errors import ArgumentError

from .info import MEASURED
from .sequences import some


def with_mask_inputs(data: TaskData) -> TaskData:
    """Return the data with an input more, 1 or 0, for each feature that has a missing value.

    ``observed`` is left out of the batches. Without a missing value the data are as they were.

    Raises:
        ArgumentError: the data are not a user's own table.
    """
    if data.table is None:
        raise ArgumentError(
            f"{data.card.name} is no table of your own. Data sets have options for missing values."
        )
    if data.train.observed is None:
        return data
    parts = [part for part in (data.train, data.valid, data.test) if part is not None]
    gaps = torch.stack([_has_gaps(part) for part in parts]).any(dim=0)
    columns = gaps.nonzero().flatten()
    info, card = data.table, data.card
    names = [info.inputs[column] for column in columns.tolist()]
    count = len(names)
    info = replace(
        info,
        inputs=(*info.inputs, *map(MEASURED.format, names)),
        x_mean=torch.cat([info.x_mean, info.x_mean.new_zeros(count)]),
        x_scale=torch.cat([info.x_scale, info.x_scale.new_ones(count)]),
    )
    note = f"{count} more input{'s say' if count > 1 else ' says'} what was measured of: "
    card = replace(
        card,
        input_size=card.input_size + count,
        notes=(*card.notes, note + some(names, 12) + "."),
    )
    train, test = _appended(data.train, columns), _appended(data.test, columns)
    valid = None if data.valid is None else _appended(data.valid, columns)
    return TaskData(card, train, valid, test, table=info)


def _has_gaps(part: SequenceBatch) -> torch.Tensor:
    """Return which features are missing at a step that is there, (I,)."""
    assert part.observed is not None
    absent = ~part.observed
    if part.mask is not None:
        absent = absent & part.mask.unsqueeze(-1)
    return absent.flatten(0, 1).any(dim=0)


def _appended(part: SequenceBatch, columns: torch.Tensor) -> SequenceBatch:
    assert part.observed is not None
    measured = part.observed[..., columns].to(part.x.dtype)
    return replace(part, x=torch.cat([part.x, measured], dim=-1), observed=None)
