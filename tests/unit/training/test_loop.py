import itertools
import json
import math

import pytest
import torch
from tiny_training_task import Affine, tiny_model, tiny_splits
from torch import nn
from torch.nn import functional as F

from tauflow.batch import SequenceBatch
from tauflow.errors import ArgumentError, CheckpointError, DataError, NonFiniteError
from tauflow.training import Recipe, evaluate, train

RECIPE = Recipe(lr=0.02, epochs=4, batch_size=8)


def fit(model=None, *, recipe=RECIPE, seed=0, **changes):
    arguments = {**tiny_splits(), "loss": "mse", "metric": "mse", **changes}
    return train(model or tiny_model(), recipe=recipe, seed=seed, **arguments)


class Watched(Affine):
    """Records the inputs of training, one flat tensor per step."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def forward(self, x, **options):
        if self.training:
            self.seen.append(x[:, 0, 0].clone())
        return super().forward(x, **options)


def numbered(count):
    x = torch.arange(float(count)).view(-1, 1, 1)
    return SequenceBatch(x, torch.zeros_like(x))


def watch(recipe, count=10, seed=0):
    """Return which sequences each step of training saw."""
    model = Watched()
    fit(model, recipe=recipe, seed=seed, train=numbered(count), valid=None, test=None)
    return [[int(value) for value in step] for step in model.seen]


def test_training_equals_a_loop_written_out():
    data, recipe = tiny_splits(), Recipe(lr=0.02, epochs=3, batch_size=8, shuffle=False)
    ours, theirs = tiny_model(dropout=0.0), tiny_model(dropout=0.0)
    result = fit(ours, recipe=recipe)
    optimizer = torch.optim.Adam(theirs.parameters(), lr=0.02)
    for row in result.history:
        total = 0.0
        for start in (0, 8, 16):
            batch = data["train"][start : start + 8]
            loss = F.mse_loss(theirs(batch.x)[0], batch.y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch)
        assert row["train_loss"] == pytest.approx(total / 22, rel=1e-6)
        for split in ("valid", "test"):
            expected = F.mse_loss(theirs(data[split].x)[0], data[split].y).item()
            assert row[split] == pytest.approx(expected, rel=1e-5)
    for ours_now, theirs_now in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(ours_now, theirs_now)
    assert result.history[-1]["train_loss"] < 0.9 * result.history[0]["train_loss"]


def test_the_result_sums_up_the_history():
    result = fit()
    valid = [row["valid"] for row in result.history]
    best = min(range(4), key=valid.__getitem__)
    assert result.best_epoch == best + 1
    assert (result.valid, result.test) == (valid[best], result.history[best]["test"])
    assert result.last_test == result.history[-1]["test"]
    assert [row["epoch"] for row in result.history] == [1, 2, 3, 4]
    assert [row["step"] for row in result.history] == [3, 6, 9, 12]
    assert result.seconds == pytest.approx(sum(row["seconds"] for row in result.history))
    assert result.seconds_per_epoch == pytest.approx(result.seconds / 4)
    assert result.parameters == 3 * 4 * (2 + 4) + 2 * 3 * 4 + 4 + 1
    assert json.loads(json.dumps(result.to_dict()))["history"] == list(result.history)


class Steps(nn.Module):
    """Its metric goes through given values, one per epoch, whatever the data."""

    def __init__(self, values):
        super().__init__()
        self.values = values
        self.w = nn.Parameter(torch.zeros(1))
        self.register_buffer("epoch", torch.tensor(-1))

    def forward(self, x, *, dt=None, mask=None):
        if self.training:
            self.epoch += 1
        return self.w * 0 + torch.full_like(x, self.values[int(self.epoch)]), None


@pytest.mark.parametrize(
    ("select", "score_last_epoch", "expected"),
    [("best", True, 4), ("best", False, 2), ("last", True, 4)],
)
def test_selection(select, score_last_epoch, expected):
    recipe = Recipe(epochs=4, select=select, score_last_epoch=score_last_epoch)
    model, data = Steps([3.0, 1.0, 1.0, 0.5]), numbered(3)
    splits = {"train": data, "valid": data, "test": SequenceBatch(data.x, data.y + 1)}
    result = fit(model, recipe=recipe, metric="mae", **splits)
    assert result.best_epoch == expected
    assert int(model.epoch) == expected - 1
    assert result.valid == model.values[expected - 1]
    assert result.test == abs(model.values[expected - 1] - 1)
    assert result.last_test == 0.5


def test_last_means_last_even_if_worse():
    data = numbered(3)
    recipe = Recipe(epochs=3, select="last")
    model = Steps([1.0, 2.0, 3.0])
    result = fit(model, recipe=recipe, train=data, valid=data, test=None)
    assert (result.best_epoch, result.valid, result.test) == (3, 9.0, None)
    assert int(model.epoch) == 2


def test_a_higher_accuracy_is_better():
    x = torch.zeros(2, 1, 1)
    data = SequenceBatch(x, torch.ones(2, 1))
    model = Steps([-1.0, 1.0, -1.0])
    splits = {"train": data, "valid": data, "test": None}
    recipe = Recipe(epochs=3)
    result = fit(model, recipe=recipe, loss="bce", metric="binary_accuracy", **splits)
    assert (result.best_epoch, result.valid) == (2, 1.0)


def test_the_model_returns_with_the_selected_weights_in_evaluation_mode():
    model = tiny_model()
    recipe = Recipe(lr=0.3, epochs=6, batch_size=8)  # so large that later epochs are worse
    result = fit(model, recipe=recipe)
    assert result.best_epoch < 6
    assert not model.training
    for split in ("valid", "test"):
        value = evaluate(model, tiny_splits()[split], metric="mse")
        assert value == getattr(result, split)


def test_every_epoch_sees_every_sequence_once_in_a_new_order():
    steps = watch(Recipe(epochs=2, batch_size=4, select="last"))
    assert [len(step) for step in steps] == [4, 4, 2, 4, 4, 2]
    first, second = (list(itertools.chain(*part)) for part in (steps[:3], steps[3:]))
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second
    assert first != sorted(first)


def test_the_order_follows_from_the_seed():
    recipe = Recipe(epochs=2, batch_size=4, select="last")
    assert watch(recipe, seed=3) == watch(recipe, seed=3) != watch(recipe, seed=4)


def test_without_shuffling_the_order_is_that_of_the_data():
    recipe = Recipe(epochs=2, batch_size=4, shuffle=False, select="last")
    assert watch(recipe) == 2 * [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


@pytest.mark.parametrize("shuffle", [True, False])
def test_drop_last_leaves_out_the_smaller_batch(shuffle):
    recipe = Recipe(epochs=3, batch_size=4, drop_last=True, shuffle=shuffle, select="last")
    assert [len(step) for step in watch(recipe)] == 6 * [4]


def test_a_batch_larger_than_the_data_is_the_whole_data():
    recipe = Recipe(epochs=2, batch_size=99, select="last")
    assert [sorted(step) for step in watch(recipe)] == 2 * [list(range(10))]


def test_the_train_loss_is_the_mean_over_valid_entries_of_the_epoch():
    # Batches with 3, 1 and 2 valid steps: a mean of the three means would differ.
    mask = torch.tensor([[1, 1, 1], [1, 0, 0], [1, 1, 0]], dtype=torch.bool)
    x = torch.arange(1.0, 10.0).view(3, 3, 1)
    data = SequenceBatch(x, torch.zeros(3, 3, 1), mask=mask)
    recipe = Recipe(lr=1e-12, epochs=1, batch_size=1, select="last")
    result = fit(Affine(), recipe=recipe, train=data, valid=None, test=None)
    expected = (0.25 * x[mask].square()).mean().item()
    assert result.history[0]["train_loss"] == pytest.approx(expected, rel=1e-6)


def test_the_schedule_reaches_the_optimizer():
    # Adam with a constant gradient moves by lr at every step, exactly up to eps.
    recipe = Recipe(
        lr=0.5,
        schedule="exponential",
        decay=0.25,
        schedule_interval="step",
        epochs=2,
        batch_size=5,
        select="last",
    )
    model = Affine()
    data = SequenceBatch(torch.zeros(10, 1, 1), torch.zeros(10, 1, 1))
    with torch.no_grad():
        model.b.fill_(100.0)  # far from zero, the gradient 2 b hardly changes
    result = fit(model, recipe=recipe, train=data, valid=None, test=None)
    rates = [0.5 * 0.5**step for step in range(4)]
    assert [row["lr"] for row in result.history] == pytest.approx([rates[1], rates[3]])
    assert model.b.item() == pytest.approx(100 - sum(rates), abs=0.01)


class Calls(Affine):
    def __init__(self):
        super().__init__()
        self.calls = []

    def forward(self, x, **options):
        self.calls.append({key: None if v is None else v.shape for key, v in options.items()})
        return super().forward(x)


@pytest.mark.parametrize("has_observed", [True, False])
def test_the_model_is_called_as_promised(has_observed):
    x = torch.ones(4, 3, 1)
    observed = torch.ones(4, 3, 1, dtype=torch.bool) if has_observed else None
    data = SequenceBatch(x, x, dt=torch.ones(4, 3), observed=observed)
    model = Calls()
    fit(model, recipe=Recipe(epochs=1), train=data, valid=data, test=data)
    expected = {"dt": (4, 3), "mask": None} | ({"observed": (4, 3, 1)} if has_observed else {})
    assert model.calls == 3 * [expected]


def test_the_callers_random_numbers_are_left_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    model = tiny_model()
    torch.manual_seed(5)
    fit(model)
    assert torch.equal(torch.rand(3), expected)


def test_dropout_follows_from_the_seed_alone():
    recipe = Recipe(epochs=2, batch_size=8, shuffle=False)
    histories = []
    for before, seed in ((1, 0), (2, 0), (2, 1)):
        model = tiny_model()
        torch.manual_seed(before)
        result = fit(model, recipe=recipe, seed=seed)
        histories.append([row["train_loss"] for row in result.history])
    assert histories[0] == histories[1] != histories[2]


def test_frozen_parameters_stay_and_do_not_count():
    model = Affine()
    model.w.requires_grad_(False)
    data = tiny_splits()["train"]
    data = SequenceBatch(data.x[..., :1], data.y)
    recipe = Recipe(epochs=1, batch_size=8, select="last")
    result = fit(model, recipe=recipe, train=data, valid=None, test=None)
    assert result.parameters == 1
    assert model.w.item() == 0.5
    assert model.b.item() != 0.0


def test_predictions_once_per_sequence_train_a_classifier():
    splits = {
        name: SequenceBatch(data.x, (data.y[:, -1, 0] > 0).long())
        for name, data in tiny_splits().items()
    }
    model = tiny_model(outputs=2, per_step=False, dropout=0.0)
    recipe = Recipe(lr=0.1, epochs=40, batch_size=8)
    result = fit(model, recipe=recipe, loss="cross_entropy", metric="accuracy", **splits)
    assert result.history[-1]["train_loss"] < 0.1
    assert result.valid >= 0.75


def test_a_progress_bar_is_drawn_only_if_wanted(capsys):
    fit()
    assert capsys.readouterr().err == ""
    fit(progress=True, recipe=Recipe(epochs=3))
    drawn = capsys.readouterr().err
    assert "epoch 3, train_loss " in drawn


class Exploding(Affine):
    """Turns NaN at its third training step."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def forward(self, x, **options):
        self.count += self.training
        return super().forward(x if self.count < 3 or not self.training else x * math.nan)


def test_a_pixel_that_is_not_finite_names_the_step():
    images = torch.zeros(2, 3, 1, 4, 4)
    images[1, 2, 0, 3, 0] = torch.nan
    data = SequenceBatch(images, torch.zeros(2, 3, 1))
    with pytest.raises(DataError, match="x of the train data is not finite at sequence 1, step 2"):
        fit(Affine(), recipe=Recipe(epochs=1, select="last"), train=data, valid=None, test=None)


def test_a_loss_that_is_not_finite_names_the_place_and_keeps_the_history(tmp_path):
    data = numbered(6)
    recipe = Recipe(epochs=9, batch_size=3)
    with pytest.raises(
        NonFiniteError,
        match=r"loss is nan at epoch 2, step 3, batch 1 of sequences (\d, ){3}with .* finite: none",
    ):
        fit(Exploding(), recipe=recipe, train=data, valid=data, test=None, run_dir=tmp_path)
    rows = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [(row["epoch"], row["step"]) for row in rows] == [(1, 2)]


class BadState(Affine):
    """Says itself that its state is not finite, as solvers do."""

    def forward(self, x, **options):
        raise NonFiniteError("the state of row 1 is not finite after step 2.")


def test_a_state_that_is_not_finite_is_named_with_its_batch():
    data = numbered(4)
    with pytest.raises(
        NonFiniteError,
        match=r"^the state of row 1 is not finite after step 2\. In training, that is epoch 1, "
        r"step 1, batch 1 of sequences (\d, ){2}with lr=",
    ):
        fit(BadState(), recipe=Recipe(batch_size=2), train=data, valid=data, test=None)


class BadGradient(Affine):
    """Its loss is finite, but the gradient of w is not: the slope of a root at zero."""

    def forward(self, x, **options):
        return torch.sqrt((self.w - 0.5).abs() * 0) + super().forward(x)[0], None


def test_bad_parameters_are_named():
    data = numbered(6)
    changes = {"train": data, "valid": None, "test": None}
    named = r"finite: w\. Lower lr"
    with pytest.raises(NonFiniteError, match=r"loss is nan at epoch 1, step 2.*" + named):
        fit(BadGradient(), recipe=Recipe(epochs=2, batch_size=3, select="last"), **changes)
    with pytest.raises(NonFiniteError, match=r"parameters are not finite after epoch 1.*" + named):
        fit(BadGradient(), recipe=Recipe(epochs=1, batch_size=6, select="last"), **changes)


def test_a_metric_that_is_not_finite_is_refused():
    data = numbered(2)
    infinite = SequenceBatch(data.x * 3e38, data.y)
    with pytest.raises(NonFiniteError, match="mse on the valid data is inf after epoch 1"):
        fit(Affine(), recipe=Recipe(epochs=1), train=data, valid=infinite, test=None)


def test_arguments_that_contradict_each_other_are_refused():
    with pytest.raises(ArgumentError, match="select='best' needs validation data, but valid is No"):
        fit(valid=None)
    with pytest.raises(ArgumentError, match="resume=True needs a run_dir"):
        fit(resume=True)
    with pytest.raises(ArgumentError, match="seed must be at least 0, got -1"):
        fit(seed=-1)
    with pytest.raises(ArgumentError, match="nothing to train"):
        fit(tiny_model().requires_grad_(False))
    with pytest.raises(ArgumentError, match="no module of the model lists"):
        fit(recipe=Recipe(l2=1e-3))


@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_an_empty_split_is_refused(split):
    with pytest.raises(DataError, match=f"the {split} split has no sequences"):
        fit(**{split: tiny_splits()[split][:0]})


def test_drop_last_without_one_full_batch_is_refused():
    with pytest.raises(DataError, match="there are 22 training sequences and batch_size=23"):
        fit(recipe=Recipe(batch_size=23, drop_last=True))


def test_a_directory_with_another_run_is_refused(tmp_path):
    fit(run_dir=tmp_path)
    with pytest.raises(CheckpointError, match=r"holds a run already \(run.json\)"):
        fit(run_dir=tmp_path)
