"""Every catalogued model, cells and whole ones, trains for an epoch on generated data."""

import math
from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import nn

from tauflow import SequenceBatch, SequenceModel
from tauflow.cells.registry import MODELS
from tauflow.data.card import DatasetCard, TaskData
from tauflow.data.registry import load_task
from tauflow.models import WHOLE_MODELS
from tauflow.models.spec import ModelSpec, build_model, set_horizon
from tauflow.training import Recipe, train

RECIPE = Recipe(lr=0.01, epochs=1, batch_size=8, select="last")
SMALL = {
    "ip-net": {"reference_points": 5, "horizon": 1.0},
    "seft": {"latent_size": 8},
    "mtan-full": {"encoder_size": 6, "embedding_size": 8, "reference_points": 5},
    "latent-ode-rnn": {"encoder_size": 6, "units": 6},
    "latent-ode-ode": {"encoder_size": 6, "units": 6, "encoder_steps": 8},
    "rnn-vae": {"encoder_size": 6, "units": 6},
}
WHOLE = [
    name
    for name, entry in WHOLE_MODELS.items()
    if not (entry.model.takes_images or entry.model.answers_queries)
]
WITH_LABELS = [name for name in WHOLE if not WHOLE_MODELS[name].model.estimates_inputs]
EVERY_STEP = [*MODELS, *(name for name in WHOLE if WHOLE_MODELS[name].model.has_per_step_output)]


def with_holes(data: SequenceBatch) -> SequenceBatch:
    """Put NaN where nothing was measured."""
    observed = torch.rand(data.x.shape, generator=torch.Generator().manual_seed(0)) > 0.3
    return replace(data, x=data.x.masked_fill(~observed, torch.nan), observed=observed)


@cache
def pendulum(*, holes: bool) -> TaskData:
    """Values at every step."""
    task = load_task("pendulum", sizes=(16, 8, 8), steps=8)
    if not holes:
        return task
    assert task.valid is not None
    return TaskData(task.card, *map(with_holes, (task.train, task.valid, task.test)))


@cache
def parity(*, holes: bool) -> TaskData:
    """A label per sequence, and padding; a second feature says zero where the first says one."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(2, 32, (24, 1), generator=generator)
    mask = torch.arange(32) < lengths
    bits = torch.randint(0, 2, (24, 32), generator=generator) * mask
    data = SequenceBatch(
        torch.stack([bits, 1 - bits], dim=-1).float(),
        (bits.sum(1, keepdim=True) % 2).float(),
        dt=torch.randint(1, 5, (24, 32), generator=generator) * mask / 32,
        mask=mask,
    )
    data = with_holes(data) if holes else data
    card = DatasetCard(
        name="parity",
        title="Parity of bits",
        task="binary",
        input_size=2,
        target_size=1,
        time_unit="32 bits",
        sizes=(16, 0, 8),
        source="made here",
        licence="none",
        split="the first 16",
        loss="bce",
        metric="binary_accuracy",
        per_step=False,
    )
    return TaskData(card, data[:16], None, data[16:])


def takes_holes(name: str) -> bool:
    if name in WHOLE_MODELS:
        return WHOLE_MODELS[name].model.uses_observed
    return MODELS[name].build(1, 2).uses_observed


def built(name: str, data: TaskData) -> nn.Module:
    if name.startswith("latent-ode"):
        pytest.importorskip("torchode", reason="the adaptive solvers need the extra 'ode'")
    # Compiling the fused kernels would take a minute; tests/parity trains through those.
    options = {"backend": "reference"} if name in MODELS else SMALL.get(name, {})
    torch.manual_seed(0)
    spec = set_horizon(ModelSpec(name, 8, options=options), lambda: data.train)
    return build_model(spec, data.card)


def trains(model: nn.Module, data: TaskData) -> None:
    """Train for an epoch: all is finite, and every parameter moves."""
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    splits = {"train": data.train, "valid": data.valid, "test": data.test}
    names = {"loss": data.card.loss, "metric": data.card.metric}
    result = train(model, **splits, **names, recipe=RECIPE, seed=0)
    row = result.history[-1]
    assert row["step"] == 2
    assert math.isfinite(row["train_loss"])
    assert math.isfinite(row["test"])
    still = [n for n, p in model.named_parameters() if torch.equal(p, before[n])]
    assert still == []


@pytest.mark.parametrize("name", EVERY_STEP)
def test_values_at_every_step(name):
    data = pendulum(holes=takes_holes(name))
    trains(built(name, data), data)


@pytest.mark.parametrize("name", [*MODELS, *WITH_LABELS])
def test_a_label_per_sequence_with_padding_and_holes(name):
    data = parity(holes=takes_holes(name))
    trains(built(name, data), data)


@pytest.mark.parametrize("per_step", [True, False])
def test_images(per_step):
    """Outer products of the pendulum's features; one target per sequence is its last."""
    data = pendulum(holes=False)

    def pictures(split: SequenceBatch) -> SequenceBatch:
        x = (split.x.unsqueeze(-1) * split.x.unsqueeze(-2)).unsqueeze(2)
        return replace(split, x=x, y=split.y if per_step else split.y[:, -1])

    parts = [pictures(split) for split in (data.train, data.valid, data.test)]
    torch.manual_seed(0)
    options = {"features": 6, "layers": ((2, 3, 1),), "return_sequences": per_step}
    body = WHOLE_MODELS["convolutional"].build((1, 5, 5), 4, **options)
    trains(SequenceModel(body, data.card.target_size), TaskData(data.card, *parts))


def test_every_model_of_the_catalogs_is_tried():
    # what answers queries is trained on those, see tests/unit/models/test_t_patch_gnn.py
    assert {*WHOLE, "convolutional", "t-patchgnn", "grafiti"} == set(WHOLE_MODELS)
