"""Training leaves out what is padding in a whole batch, and nothing changes by it."""

from dataclasses import replace

import pytest
import torch
from tiny_training_task import TinyModel
from torch import nn
from torch.nn import functional as F

from tauflow import LSTM, CfC, SequenceBatch, SequenceModel
from tauflow.models import AbstractWholeModel, Transformer
from tauflow.training import Recipe, evaluate, train

LENGTHS = [3, 1, 9, 2, 4, 2, 5, 3]


def data(per_step):
    generator = torch.Generator().manual_seed(3)
    size, steps = len(LENGTHS), 12
    y = torch.randn((size, steps, 1) if per_step else (size, 1), generator=generator)
    return SequenceBatch(
        x=torch.randn(size, steps, 2, generator=generator),
        y=y,
        dt=torch.rand(size, steps, generator=generator),
        mask=torch.arange(steps) < torch.tensor(LENGTHS)[:, None],
    )


def seen_lengths(model):
    """Return the list of the lengths of the sequences that a model is called with."""
    seen = []
    model.register_forward_pre_hook(lambda _, args: seen.append(args[0].shape[1]))
    return seen


def body(name, *, per_step):
    torch.manual_seed(0)
    if name == "transformer":
        return Transformer(2, 8, return_sequences=per_step, heads=2, dropout=0.0)
    return {"cfc": CfC, "lstm": LSTM}[name](2, 5, return_sequences=per_step)


def fit(model, splits):
    return train(
        model,
        train=splits,
        valid=splits,
        loss="mse",
        metric="mse",
        recipe=Recipe(epochs=3, batch_size=2, optimizer="sgd", lr=0.05),
        seed=0,
        progress=False,
    )


@pytest.mark.parametrize("per_step", [False, True])
@pytest.mark.parametrize("name", ["cfc", "lstm", "transformer"])
def test_it_changes_nothing(name, per_step, monkeypatch):
    results = []
    for skips in (True, False):
        model = SequenceModel(body(name, per_step=per_step), 1)
        monkeypatch.setattr(SequenceModel, "ignores_padding", skips)
        seen = seen_lengths(model)
        fit(model, data(per_step))
        results.append(model.state_dict())
        assert (min(seen) < 9 and max(seen) == 9) if skips else set(seen) == {12}
    torch.testing.assert_close(*results, atol=1e-5, rtol=1e-4)


def test_other_models_get_whole_batches():
    model = TinyModel(per_step=False, dropout=0.0)
    seen = seen_lengths(model)
    fit(model, data(per_step=False))
    assert set(seen) == {12}


def test_other_models_may_say_so():
    class Own(TinyModel):
        ignores_padding = True

    model = Own()
    seen = seen_lengths(model)
    evaluate(model, data(per_step=True), metric="mse", batch_size=2)
    assert seen == [3, 9, 4, 5]


class Flat(AbstractWholeModel):
    """A body that needs sequences of one length."""

    ignores_padding = False

    def __init__(self):
        super().__init__()
        self.input_size, self.output_size = 2, 4
        self.dense = nn.Linear(12 * 2, 4)

    def forward(self, x, hx=None, *, dt=None, mask=None):
        return self.dense(x.flatten(1)), None


def test_the_body_decides_for_its_model():
    model = SequenceModel(Flat(), 1)
    assert not model.ignores_padding
    seen = seen_lengths(model)
    fit(model, data(per_step=False))
    assert set(seen) == {12}


def test_a_curriculum_takes_targets_per_sequence_for_what_they_are():
    splits = data(per_step=False)
    splits = replace(splits, y=torch.rand(len(LENGTHS), 3))  # as many as some batches have steps
    model = SequenceModel(body("lstm", per_step=False), 3)
    recipe = Recipe(epochs=2, batch_size=2, curriculum=(2,), curriculum_epochs=1, select="last")
    seen = seen_lengths(model)
    train(model, train=splits, recipe=recipe, progress=False)
    assert {2, 9} <= set(seen)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("part", ["model", "body"])
def test_what_is_compiled_gets_one_length(part):
    model = SequenceModel(body("lstm", per_step=False), 1)
    part = model.rnn if part == "body" else model
    nn.Module.compile(part, backend="eager")
    seen = seen_lengths(model)
    evaluate(model, data(per_step=False), metric="mse", batch_size=2)
    assert set(seen) == {12}


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.float32])
def test_as_many_labels_of_a_sequence_as_there_are_steps_stay(dtype):
    split = replace(data(per_step=False), y=torch.rand(len(LENGTHS), 12).gt(0.5).to(dtype))

    def loss(prediction, y):
        return F.binary_cross_entropy_with_logits(prediction, y.float())

    model = SequenceModel(body("lstm", per_step=False), 12)
    recipe = Recipe(epochs=1, batch_size=2, optimizer="sgd", lr=1e-12)
    result = train(model, train=split, valid=split, loss=loss, recipe=recipe, progress=False)
    expected = loss(model(split.x, dt=split.dt, mask=split.mask)[0], split.y).item()
    assert result.history[0]["train_loss"] == pytest.approx(expected, rel=1e-5)
    assert result.valid == pytest.approx(expected, rel=1e-5)


def test_classes_per_step_are_cut_for_a_loss_of_classes():
    split = data(per_step=True)
    split = replace(split, y=split.y[..., 0].gt(0).long())
    model = SequenceModel(body("lstm", per_step=True), 2)
    seen = seen_lengths(model)
    recipe = Recipe(epochs=1, batch_size=2, select="last")
    loss = nn.CrossEntropyLoss(label_smoothing=0.1)
    train(model, train=split, loss=loss, recipe=recipe, progress=False)
    assert max(seen) == 9
