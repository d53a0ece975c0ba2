"""Losses and metrics as PyTorch users have them: names, functions, modules, or nothing at all."""

from contextlib import nullcontext
from dataclasses import dataclass

import pytest
import torch
from tiny_training_task import tiny_model, tiny_splits
from torch import nn
from torch.nn import functional as F

from tauflow.batch import SequenceBatch
from tauflow.errors import ArgumentError, CheckpointError
from tauflow.training import Recipe, Score, evaluate, train
from tauflow.training.losses import LOSSES
from tauflow.training.objectives import Objectives, check_loss_is_mean, resolve_metric

RECIPE = Recipe(lr=0.02, epochs=2, batch_size=8)


def splits(kind):
    """The tiny task with targets of a kind, and a mask that leaves out the last steps of some."""
    mask = torch.arange(5) < torch.tensor([[5], [3]])
    splits_of_kind = {}
    for name, data in tiny_splits().items():
        y = data.y if kind == "values" else (data.y[..., 0] > 0)
        y = {"values": y, "classes": y.long(), "binary": y.float()}[kind]
        splits_of_kind[name] = SequenceBatch(data.x, y, mask=mask.repeat(len(data) // 2, 1))
    return splits_of_kind


def fit(kind, loss, *, run_dir=None, resume=False, **changes):
    model = tiny_model(outputs=2 if kind == "classes" else 1, dropout=0.0)
    options = {"recipe": RECIPE, "run_dir": run_dir, "resume": resume, **changes}
    result = train(model, **splits(kind), loss=loss, **options)
    return result, model.state_dict()


def same(result, other):
    assert result[1].keys() == other[1].keys()
    assert all(torch.equal(result[1][k], other[1][k]) for k in result[1])
    rows = [[{**row, "seconds": 0} for row in run[0].history] for run in (result, other)]
    assert rows[0] == rows[1]


@pytest.mark.parametrize(
    ("kind", "name", "module", "function"),
    [
        ("classes", "cross_entropy", nn.CrossEntropyLoss(), F.cross_entropy),
        ("values", "mse", nn.MSELoss(), F.mse_loss),
        ("values", "mae", nn.L1Loss(), F.l1_loss),
        ("values", "huber", nn.HuberLoss(), F.huber_loss),
        ("binary", "bce", nn.BCEWithLogitsLoss(), F.binary_cross_entropy_with_logits),
    ],
)
def test_a_loss_of_torch_is_the_named_one_bit_for_bit(kind, name, module, function):
    named = fit(kind, name)
    same(named, fit(kind, module))
    same(named, fit(kind, function))


def test_without_a_word_the_targets_choose():
    same(fit("values", "auto"), fit("values", "mse", metric="mse"))
    same(fit("classes", "auto"), fit("classes", "cross_entropy", metric="accuracy"))
    same(fit("binary", "bce"), fit("binary", "bce", metric="binary_accuracy"))
    same(fit("values", "huber"), fit("values", "huber", metric="huber"))


def test_nothing_but_data_is_needed():
    data = splits("values")["train"]
    result = train(tiny_model(), train=data, recipe=Recipe(epochs=1, select="last"))
    assert result.valid is None
    default = train(tiny_model(), train=data[:2], callbacks=[lambda row: None])
    assert (default.epochs, default.best_epoch) == (100, 100)


def test_a_function_is_given_the_entries_that_count():
    seen = []

    def loss(prediction, y):
        seen.append((tuple(prediction.shape), tuple(y.shape)))
        return F.cross_entropy(prediction, y, label_smoothing=0.1)

    with_function = fit("classes", loss, metric="accuracy")
    assert seen[0] == ((32, 2), (32,))  # 8 sequences, of 5 and 3 steps in turns, shuffled or not
    module = nn.CrossEntropyLoss(label_smoothing=0.1)
    same(with_function, fit("classes", module, metric="accuracy"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool])
def test_targets_of_single_outputs_have_the_shape_of_predictions(dtype):
    """Or (N, 1) meets (N,), and a mean over N times N pairs is learned from."""
    prediction, y = torch.randn(2, 5, 1), torch.rand(2, 5) < 0.5
    batch = SequenceBatch(
        torch.zeros(2, 5, 1), y.to(dtype), mask=torch.arange(5) < torch.full((2, 1), 4)
    )

    def focal(logits, y):
        likely = torch.where(y > 0.5, logits, -logits).sigmoid()
        return (-((1 - likely) ** 2) * likely.log()).mean()

    value = resolve_metric("loss", focal, LOSSES)(prediction, batch)
    torch.testing.assert_close(value, focal(prediction[:, :4, 0], y[:, :4].float()))


def test_classes_of_a_single_output_stay_classes():
    batch = SequenceBatch(torch.zeros(2, 5, 1), torch.zeros(2, 5, dtype=torch.int64))
    loss = resolve_metric("loss", nn.CrossEntropyLoss(label_smoothing=0.1), LOSSES)
    assert loss(torch.randn(2, 5, 1), batch) == 0.0


def test_options_of_a_torch_loss_count():
    plain, smoothed = (
        fit("classes", nn.CrossEntropyLoss(label_smoothing=amount), metric="accuracy")[0]
        for amount in (0.0, 0.5)
    )
    assert plain.history[0]["train_loss"] != smoothed.history[0]["train_loss"]


def test_a_metric_may_be_a_function_of_the_whole_split():
    def spread(prediction, y):
        return (prediction - y).abs().max()

    result, weights = fit("values", "mse", metric=spread)
    data = splits("values")["test"]
    model = tiny_model(dropout=0.0)
    model.load_state_dict(weights)
    prediction = model(data.x)[0]
    expected = (prediction - data.y)[data.mask].abs().max().item()
    assert result.test == pytest.approx(expected)
    assert evaluate(model, data, metric=spread, batch_size=3) == result.test
    best = min(row["valid"] for row in result.history)
    assert result.valid == best


def test_a_metric_that_grows_says_so():
    def likeness(prediction, y):
        return -F.mse_loss(prediction, y).item()

    likeness.higher_is_better = True
    result, _ = fit("values", "mse", metric=likeness, recipe=Recipe(lr=1.0, epochs=4, batch_size=8))
    assert result.valid == max(row["valid"] for row in result.history)


def test_a_loss_without_a_name_is_asked_for_again(tmp_path):
    def smooth_error(prediction, y):
        return F.smooth_l1_loss(prediction, y)

    first = fit("values", smooth_error, run_dir=tmp_path)
    assert "smooth_error" in (tmp_path / "run.json").read_text(encoding="utf-8")
    with pytest.raises(
        CheckpointError, match=r"holds another run: loss was 'callable .*smooth_error', is 'mse'"
    ):
        fit("values", "mse", run_dir=tmp_path, resume=True)
    same(first, fit("values", smooth_error, run_dir=tmp_path, resume=True))


class Adapting(nn.Module):
    """Divides errors by a running mean of them."""

    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.ones(()))

    def forward(self, prediction, y):
        error = F.mse_loss(prediction, y)
        self.scale.mul_(0.5).add_(0.5 * error.detach())
        return error / self.scale


def test_what_a_loss_remembers_is_kept(tmp_path):
    def power_cut(row):
        if row["epoch"] == 1:
            raise KeyboardInterrupt

    in_peace = fit("values", Adapting(), metric="mse")
    with pytest.raises(KeyboardInterrupt):
        fit("values", Adapting(), metric="mse", run_dir=tmp_path, callbacks=[power_cut])
    again = Adapting()
    same(in_peace, fit("values", again, metric="mse", run_dir=tmp_path, resume=True))
    assert again.scale != 1


def test_a_score_of_ones_own_needs_no_name():
    cubic = Score("cubic", "values", lambda prediction, y: (prediction - y).abs() ** 3)
    result, _ = fit("values", cubic, metric="mae")
    assert result.history[-1]["train_loss"] != result.history[-1]["valid"]


def test_processes_share_no_loss_that_may_be_no_mean():
    data = splits("values")["train"]
    for loss, refused in ((nn.SmoothL1Loss(), True), (nn.MSELoss(), False)):
        measures = Objectives.from_arguments(loss, "mse", RECIPE, data, None)
        expected = pytest.raises(ArgumentError, match=r"SmoothL1Loss.* may be no mean over them")
        with expected if refused else nullcontext():
            check_loss_is_mean(measures.loss, data, RECIPE, several_processes=True)


def test_what_is_no_number_is_refused():
    with pytest.raises(ArgumentError, match=r"loss=.*returned a Tensor of shape \(\d+, 1\).*mean"):
        fit("values", lambda prediction, y: (prediction - y) ** 2)
    with pytest.raises(ArgumentError, match="returned a float, expected one number, a tensor"):
        fit("values", lambda prediction, y: 1.0)


@pytest.mark.parametrize("changes", [{}, {"accumulate": 2}, {"l2": 0.1}], ids=str)
def test_what_has_no_gradient_is_refused(changes):
    def share_of_errors(prediction, y):
        return ((prediction > 0) != (y > 0)).float().mean()

    model, recipe = tiny_model(), Recipe(epochs=1, batch_size=8, **changes)
    model.l2_parameters = lambda: list(model.parameters())[:1]
    with pytest.raises(ArgumentError, match=r"loss=.*share_of_errors does not follow from the par"):
        train(model, **splits("values"), loss=share_of_errors, recipe=recipe)


class Weighing(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, prediction, y):
        return self.weight * F.mse_loss(prediction, y)


def test_parameters_of_a_loss_are_not_forgotten_in_silence():
    with pytest.raises(ArgumentError, match=r"Weighing has parameters.*requires_grad_\(False\)"):
        fit("values", Weighing())
    fit("values", Weighing().requires_grad_(False))


def test_accumulate_adds_up_means_over_entries_alone():
    recipe = Recipe(epochs=1, batch_size=2, accumulate=2, select="last")
    with pytest.raises(ArgumentError, match="MSELoss is no mean over them: it has reduction='sum'"):
        fit("values", nn.MSELoss(reduction="sum"), recipe=recipe)
    fit("values", nn.MSELoss(reduction="sum"), recipe=Recipe(epochs=1, select="last"))


@pytest.mark.parametrize(
    "options",
    [{"label_smoothing": 0.1}, {"weight": torch.tensor([1.0, 9.0])}, {"ignore_index": 0}],
    ids=str,
)
def test_a_mean_of_pytorchs_may_accumulate(options):
    """Each part counts by what it was divided by, as in the mean of the whole batch."""
    settings = {"optimizer": "sgd", "epochs": 2, "shuffle": False, "select": "last"}
    loss = nn.CrossEntropyLoss(**options)
    run_of_large = fit("classes", loss, recipe=Recipe(batch_size=4, **settings))
    parts = fit("classes", loss, recipe=Recipe(batch_size=2, accumulate=2, **settings))
    for name in run_of_large[1]:
        torch.testing.assert_close(run_of_large[1][name], parts[1][name])


def test_a_function_may_lack_a_hash():
    @dataclass
    class Error:
        power: float = 2.0

        def __call__(self, prediction, y):
            return (prediction - y).abs().pow(self.power).mean()

    data = tiny_splits()
    recipe = Recipe(epochs=1, batch_size=8)
    result = train(tiny_model(dropout=0.0), **data, loss=Error(), metric=Error(), recipe=recipe)
    named = train(tiny_model(dropout=0.0), **data, loss="mse", metric="mse", recipe=recipe)
    assert result.test == pytest.approx(named.test)
