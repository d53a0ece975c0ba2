"""A sequence of weight 3 counts as three of its kind do."""

import pytest
import torch
from tiny_training_task import tiny_model

from tauflow.batch import SequenceBatch
from tauflow.errors import DataError
from tauflow.training import LOSSES, Recipe, train
from tauflow.training.losses import weighted

WEIGHTS = torch.tensor([1, 3, 2, 1])


def targets(kind, steps, generator):
    shape = (4, steps) if steps else (4,)
    if kind == "values":
        return torch.randn(*shape, 2, generator=generator)
    y = torch.randint(2, shape, generator=generator)
    return y.float() if kind == "binary" else y


@pytest.mark.parametrize("marks", [None, "mask", "y_mask", "entries"])
@pytest.mark.parametrize("steps", [0, 5])
@pytest.mark.parametrize(
    ("name", "kind"), [("mse", "values"), ("cross_entropy", "classes"), ("bce", "binary")]
)
def test_whole_weights_repeat_sequences(name, kind, steps, marks):
    generator = torch.Generator().manual_seed(steps)
    y = targets(kind, steps, generator)
    outputs = 1 if kind == "binary" else 2
    prediction = torch.randn(*y.shape[: 2 if steps else 1], outputs, generator=generator)
    given = {}
    if steps and marks == "entries" and kind == "values":
        given["y_mask"] = torch.rand(y.shape, generator=generator) < 0.6
    elif steps and marks in ("mask", "y_mask"):
        given[marks] = torch.rand(4, steps, generator=generator) < 0.6
    batch = SequenceBatch(torch.zeros(4, 5, 1), y, **given)
    several = torch.repeat_interleave(torch.arange(4), WEIGHTS)
    losses = [LOSSES[name]]
    if kind != "values":
        losses += [weighted(LOSSES[name], (1.0, 5.0), by) for by in ("weights", "entries")]
    for loss in losses:
        expected = loss(prediction[several], batch[several])
        once = SequenceBatch(**batch.tensors(), weight=WEIGHTS.float())
        torch.testing.assert_close(loss(prediction, once), expected)


def fit(weight):
    x = torch.randn(4, 5, 2, generator=torch.Generator().manual_seed(0))
    data = SequenceBatch(x, (x[..., 0] > 0).long(), weight=weight)
    recipe = Recipe(epochs=3, lr=0.1, batch_size=20, select="last", shuffle=False)
    model = tiny_model(outputs=2, dropout=0.0)
    several = slice(None) if weight is not None else torch.repeat_interleave(WEIGHTS)
    given = {"loss": "cross_entropy", "metric": "accuracy", "recipe": recipe, "seed": 0}
    return train(model, train=data[several], valid=None, test=None, **given).history[-1]


def test_training_minimises_the_weighted_loss():
    found, expected = fit(WEIGHTS.float()), fit(None)
    assert found["train_loss"] == pytest.approx(expected["train_loss"], rel=1e-5)


@pytest.mark.parametrize("wrong", [0.0, -1.0, float("nan"), float("inf")])
def test_a_weight_that_counts_nothing_is_refused(wrong):
    with pytest.raises(
        DataError, match=f"weight of the train data is {wrong:g} at sequence 2, exp"
    ):
        fit(torch.tensor([1.0, 2.0, wrong, 1.0]))


def test_other_steps_keep_the_weights_of_sequences():
    data = SequenceBatch(torch.zeros(4, 5, 1), torch.zeros(4, 5), weight=WEIGHTS.float())
    for steps in (2, 7):
        assert torch.equal(data.with_steps(steps).weight, WEIGHTS.float())
