import pytest
import torch
from tiny_training_task import tiny_model
from torch import nn

from tauflow.batch import SequenceBatch
from tauflow.errors import DtypeError, NonFiniteError, UnknownNameError
from tauflow.training import Recipe, evaluate, train


class Logits(nn.Module):
    """Answers every step with the logits of an epoch, whatever the data."""

    def __init__(self, logits):
        super().__init__()
        self.logits = logits
        self.w = nn.Parameter(torch.zeros(1))
        self.register_buffer("epoch", torch.tensor(-1))

    def forward(self, x, *, dt=None, mask=None):
        if self.training:
            self.epoch += 1
        answer = torch.tensor(self.logits[int(self.epoch)]).expand(*x.shape[:2], 2)
        return self.w * 0 + answer, None


def fit(model, recipe, **changes):
    data = SequenceBatch(torch.zeros(3, 2, 1), torch.tensor([[1, 1], [1, 1], [1, 0]]))
    splits = {"train": data, "valid": data, "test": data, "loss": "cross_entropy"}
    return train(model, recipe=recipe, seed=0, **{**splits, "metric": "accuracy", **changes})


def test_another_metric_than_the_reported_one_may_select():
    # The second epoch is the most accurate, the first the least surprised.
    epochs = [[0.1, 0.0], [0.0, 9.0], [9.0, 0.0]]
    result = fit(Logits(epochs), Recipe(epochs=3))
    assert (result.best_epoch, result.valid) == (2, pytest.approx(5 / 6))
    model = Logits(epochs)
    result = fit(model, Recipe(epochs=3, select_by="cross_entropy"))
    assert (result.best_epoch, result.valid, result.test) == (1, *[pytest.approx(1 / 6)] * 2)
    assert int(model.epoch) == 0
    criteria = [row["criterion"] for row in result.history]
    assert min(criteria) == criteria[0] == pytest.approx(0.727, abs=1e-3)
    assert "criterion" not in fit(Logits(epochs), Recipe(epochs=3)).history[0]


def test_a_run_goes_on_with_its_criterion(tmp_path):
    x = torch.randn(12, 5, 2, generator=torch.Generator().manual_seed(0))
    data = SequenceBatch(x, (x.cumsum(1)[..., 0] > 0).long())
    splits = dict.fromkeys(("train", "valid", "test"), data)
    recipe = Recipe(epochs=6, lr=0.05, select_by="cross_entropy")
    through = fit(tiny_model(outputs=2), recipe, **splits)
    part = tiny_model(outputs=2)
    fit(part, Recipe(epochs=3, lr=0.05, select_by="cross_entropy"), run_dir=tmp_path, **splits)
    description = tmp_path / "run.json"
    description.write_text(description.read_text().replace('"epochs": 3', '"epochs": 6'))
    resumed = tiny_model(outputs=2)
    result = fit(resumed, recipe, run_dir=tmp_path, resume=True, **splits)
    assert (result.best_epoch, result.valid) == (through.best_epoch, through.valid)
    best = min(row["criterion"] for row in result.history)
    assert evaluate(resumed, data, metric="cross_entropy") == pytest.approx(best)


def test_it_must_exist_and_suit_the_targets():
    with pytest.raises(UnknownNameError, match="Did you mean 'cross_entropy'"):
        fit(tiny_model(outputs=2), Recipe(select_by="crossentropy"))
    with pytest.raises(DtypeError, match="mse: the targets of the valid data"):
        fit(tiny_model(outputs=2), Recipe(select_by="mse"))


class Diverging(Logits):
    """Its third epoch is not finite."""

    def forward(self, x, **options):
        answer, _ = super().forward(x, **options)
        return (answer * float("nan") if int(self.epoch) == 2 else answer), None


@pytest.mark.parametrize("count", [1, 2])
def test_a_diverging_run_may_stop_with_its_best_epoch(count, tmp_path):
    good, bad = [0.0, 9.0], [9.0, 0.0]
    epochs = [good, bad, good, good] if count == 1 else [bad, good, good, good]
    with pytest.raises(NonFiniteError, match="epoch 3"):
        fit(Diverging(epochs), Recipe(epochs=4))
    model = Diverging(epochs)
    recipe = Recipe(epochs=4, on_divergence="stop")
    result = fit(model, recipe, run_dir=tmp_path)
    assert (result.best_epoch, result.epochs, len(result.history)) == (count, 2, 2)
    assert (result.valid, int(model.epoch)) == (pytest.approx(5 / 6), count - 1)
    again = fit(Diverging(epochs), recipe, run_dir=tmp_path, resume=True)
    assert (again.best_epoch, again.history) == (result.best_epoch, result.history)


def test_a_run_that_diverges_at_once_has_nothing_to_keep():
    with pytest.raises(NonFiniteError, match="the loss is nan at epoch 1"):
        fit(Logits([[float("nan"), 0.0]]), Recipe(epochs=2, on_divergence="stop"))
