"""Small data sets with every field that a batch can have, to write and to open again."""

import torch

from tauflow.batch import SequenceBatch
from tauflow.data import DatasetCard

CARD = DatasetCard(
    name="sensors",
    title="Sensors",
    task="regress",
    input_size=2,
    target_size=1,
    time_unit="s",
    sizes=(7, 3, 4),
    source="invented",
    licence="none",
    split="none",
    loss="mse",
    metric="mse",
    targets=("level",),
    files={"sensors.csv": "0" * 64},
    notes=("a note", "another"),
)
OPTIONAL = ("dt", "mask", "observed", "y_mask")


def batch(sequences, steps=5, *, without=(), seed=0):
    generator = torch.Generator().manual_seed(seed)

    def probabilities(*shape):
        return torch.rand(shape, generator=generator) < 0.7

    fields = {
        "dt": torch.rand(sequences, steps, generator=generator),
        "mask": probabilities(sequences, steps),
        "observed": probabilities(sequences, steps, 2),
        "y_mask": probabilities(sequences, steps, 1),
    }
    return SequenceBatch(
        torch.randn(sequences, steps, 2, generator=generator),
        torch.randn(sequences, steps, 1, generator=generator),
        **{name: tensor for name, tensor in fields.items() if name not in without},
    )


def parts():
    return {"train": batch(7, seed=1), "valid": batch(3, seed=2), "test": batch(4, seed=3)}


def same(first, other):
    """Whether two batches agree bit by bit, field by field."""
    left, right = first.tensors(), other.tensors()
    return left.keys() == right.keys() and all(
        left[name].dtype == right[name].dtype and torch.equal(left[name], right[name])
        for name in left
    )
