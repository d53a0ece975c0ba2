import numpy as np
import pytest
import torch
from sklearn import metrics as sk
from tiny_training_task import Affine, tiny_model
from torch import nn

from tauflow.batch import SequenceBatch
from tauflow.errors import ArgumentError, DataError, DtypeError, ShapeError, UnknownNameError
from tauflow.training import LOSSES, METRICS, Score, evaluate

B, T, C = 6, 5, 3
TARGETS = {
    "mse": "values",
    "mae": "values",
    "huber": "values",
    "cross_entropy": "classes",
    "accuracy": "classes",
    "bce": "binary",
    "binary_accuracy": "binary",
}


class Echo(nn.Module):
    """Predicts its input."""

    def forward(self, x, *, dt=None, mask=None):
        return x, None


class EchoLast(nn.Module):
    """Predicts the input of the last step, once per sequence."""

    def forward(self, x, *, dt=None, mask=None):
        return x[:, -1], None


def example(target, *, per_step=True, seed=0):
    """Return predictions, targets that fit them, and a mask."""
    generator = torch.Generator().manual_seed(seed)
    lead = (B, T) if per_step else (B,)
    outputs = 1 if target == "binary" else C
    prediction = torch.randn(*lead, outputs, generator=generator)
    if target == "values":
        y = torch.randn(*lead, outputs, generator=generator)
    else:
        y = torch.randint(outputs + (target == "binary"), lead, generator=generator)
    valid = torch.rand(B, T, generator=generator) < 0.6
    return prediction, y, valid


def by_sklearn(name, prediction, y):
    """Return a score of flat predictions (N, O), computed by scikit-learn."""
    if name == "mse":
        return sk.mean_squared_error(y, prediction)
    if name == "mae":
        return sk.mean_absolute_error(y, prediction)
    if name == "huber":
        error = np.abs(y - prediction)
        return np.where(error < 1, error**2 / 2, error - 0.5).mean()
    if name == "accuracy":
        return sk.accuracy_score(y, prediction.argmax(-1))
    if name == "binary_accuracy":
        return sk.accuracy_score(y, prediction[:, 0] > 0)
    if name == "bce":
        return sk.log_loss(y, 1 / (1 + np.exp(-prediction[:, 0])), labels=[0, 1])
    probabilities = np.exp(prediction) / np.exp(prediction).sum(-1, keepdims=True)
    return sk.log_loss(y, probabilities, labels=range(C))


@pytest.mark.parametrize("masked", ["mask", "y_mask", "both", "neither"])
@pytest.mark.parametrize(
    ("table", "name"),
    [(table, name) for table in (LOSSES, METRICS) for name in TARGETS if name in table],
)
def test_scores_equal_scikit_learn_over_the_valid_steps(table, name, masked):
    prediction, y, valid = example(TARGETS[name])
    masks = {
        "mask": {"mask": valid},
        "y_mask": {"y_mask": valid},
        "both": {"mask": ~valid, "y_mask": valid},
        "neither": {},
    }[masked]
    chosen = torch.ones_like(valid) if masked == "neither" else valid
    expected = by_sklearn(name, prediction[chosen].double().numpy(), y[chosen].numpy())
    got = table[name](prediction, SequenceBatch(prediction, y, **masks))
    assert got.item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("name", TARGETS)
def test_scores_per_sequence_ignore_the_mask_of_steps(name):
    prediction, y, valid = example(TARGETS[name], per_step=False)
    batch = SequenceBatch(torch.zeros(B, T, 1), y, mask=valid)
    expected = by_sklearn(name, prediction.double().numpy(), y.numpy())
    assert METRICS[name](prediction, batch).item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("name", LOSSES.builtin_names)
def test_what_stands_in_the_padding_changes_neither_loss_nor_gradient(name):
    prediction, y, valid = example(TARGETS[name])
    y = y.masked_fill(~(valid if y.ndim == 2 else valid[..., None]), 0)
    gradients = []
    for filler in (0.0, float("nan")):
        leaf = torch.where(valid[..., None], prediction, filler).requires_grad_()
        loss = LOSSES[name](leaf, SequenceBatch(prediction, y, mask=valid))
        gradients.append(torch.autograd.grad(loss, leaf)[0])
    assert torch.equal(*gradients)
    assert gradients[0].abs().sum() > 0


def test_scalar_targets_need_no_output_axis():
    prediction, y, _ = example("values")
    flat = SequenceBatch(prediction, y[..., 0])
    column = SequenceBatch(prediction, y[..., :1])
    assert LOSSES["mse"](prediction[..., :1], flat) == LOSSES["mse"](prediction[..., :1], column)


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("size", [1, 4, 6, 100])
def test_evaluation_is_exact_whatever_the_batch_size(name, size):
    prediction, y, valid = example(TARGETS[name], seed=3)
    valid[0] = False  # a whole batch of one without any target
    data = SequenceBatch(prediction, y, mask=valid)
    expected = by_sklearn(name, prediction[valid].double().numpy(), y[valid].numpy())
    assert evaluate(Echo(), data, metric=name, batch_size=size) == pytest.approx(expected, rel=1e-6)


def test_evaluation_switches_dropout_off_and_every_mode_back():
    model = tiny_model(dropout=0.9).train()
    model.rnn.eval()
    x = torch.randn(B, T, 2)
    data = SequenceBatch(x, x[..., :1])
    values = {evaluate(model, data, metric="mse") for _ in range(3)}
    assert len(values) == 1
    assert model.training
    assert model.dropout.training
    assert not model.rnn.training


def test_only_errors_are_better_when_lower():
    lower = {name for name in METRICS.builtin_names if not METRICS[name].higher_is_better}
    assert lower == {
        *("mse", "rmse", "mae", "huber", "cross_entropy", "bce", "brier", "binary_brier"),
        *("log_loss", "binary_log_loss", "ece", "binary_ece", "rank_error"),
    }


def test_unknown_names_suggest_the_nearest():
    with pytest.raises(
        UnknownNameError, match=r"unknown metric 'acuracy'\. Did you mean 'accuracy'"
    ):
        METRICS["acuracy"]
    with pytest.raises(UnknownNameError, match=r"unknown loss 'mes'\. Did you mean 'mse'"):
        LOSSES["mes"]


def test_nothing_valid_is_an_error():
    prediction, y, _ = example("values")
    data = SequenceBatch(prediction, y, mask=torch.zeros(B, T, dtype=torch.bool))
    with pytest.raises(DataError, match="mse: no entry of this batch is valid"):
        LOSSES["mse"](prediction, data)
    with pytest.raises(DataError, match="mse: the data have no valid entry: there are 6 sequences"):
        evaluate(Echo(), data, metric="mse")
    with pytest.raises(DataError, match="there are 0 sequences"):
        evaluate(Echo(), data[:0], metric="mse")


@pytest.mark.parametrize(
    ("name", "prediction", "y", "error", "message"),
    [
        ("mse", (B, T, C), torch.zeros(B, T), ShapeError, "y has shape .* fits predictions"),
        ("mse", (B, T, 1), torch.zeros(B, 1, T), ShapeError, "y has shape"),
        ("mse", (B, 1), torch.zeros(B, B), ShapeError, "y has shape"),
        ("mse", (B, T + 1, 1), torch.zeros(B, T), ShapeError, "prediction has shape"),
        ("mse", (B,), torch.zeros(B), ShapeError, "prediction has shape"),
        ("cross_entropy", (B, T, C), torch.zeros(B, T, C).long(), ShapeError, "y has shape"),
        ("bce", (B, T, 2), torch.zeros(B, T), ShapeError, "y has shape .* fits predictions"),
        ("mse", (B, 1), torch.zeros(B).double(), DtypeError, "y has dtype torch.float64"),
        (
            "cross_entropy",
            (B, C),
            torch.full((B,), C),
            DataError,
            "classes 3 to 3, expected 0 to 2",
        ),
    ],
)
def test_misfits_are_refused(name, prediction, y, error, message):
    with pytest.raises(error, match=message):
        LOSSES[name](torch.zeros(prediction), SequenceBatch(torch.zeros(B, T, 1), y))


def test_a_mask_of_targets_per_step_contradicts_a_prediction_per_sequence():
    batch = SequenceBatch(
        torch.zeros(B, T, 1), torch.zeros(B), y_mask=torch.ones(B, T, dtype=torch.bool)
    )
    with pytest.raises(ArgumentError, match="y_mask marks single steps"):
        evaluate(EchoLast(), batch, metric="mse")


@pytest.mark.parametrize(
    ("name", "y", "error", "message"),
    [
        ("mse", torch.zeros(2, 3).long(), DtypeError, "expected a floating-point one"),
        ("mse", torch.full((2, 3), float("nan")), DataError, "train data are not all finite"),
        ("cross_entropy", torch.zeros(2, 3), DtypeError, "expected integer classes"),
        ("cross_entropy", torch.full((2, 3), -1), DataError, "hold a negative class"),
        ("bce", torch.full((2, 3), 2), DataError, "must lie between 0 and 1"),
    ],
)
def test_unfit_targets_are_refused_unless_masked(name, y, error, message):
    x = torch.zeros(2, 3, 1)
    with pytest.raises(error, match=message):
        LOSSES[name].check_targets("train", SequenceBatch(x, y))
    if error is DataError:
        nowhere = torch.zeros(2, 3, dtype=torch.bool)
        LOSSES[name].check_targets("train", SequenceBatch(x, y, y_mask=nowhere))


@pytest.mark.parametrize("name", ["mse", "mae"])
def test_values_are_masked_one_by_one(name):
    prediction, y, _ = example("values")
    known = torch.rand(B, T, C, generator=torch.Generator().manual_seed(1)) < 0.5
    batch = SequenceBatch(prediction, y.masked_fill(~known, torch.nan), y_mask=known)
    expected = by_sklearn(name, prediction[known].unsqueeze(-1), y[known].unsqueeze(-1))
    assert float(METRICS[name](prediction, batch)) == pytest.approx(expected, rel=1e-5)
    assert evaluate(Echo(), batch, metric=name, batch_size=4) == pytest.approx(expected, rel=1e-5)
    assert METRICS[name].compute_with_divisor(prediction, batch)[1] == int(known.sum())
    METRICS[name].check_targets("train", batch)


def test_a_score_of_ones_own_can_be_registered(monkeypatch):
    monkeypatch.setattr(METRICS, "_entries", dict(METRICS))  # for this test only
    cubic = Score("cubic", "values", lambda prediction, y: (prediction - y).abs() ** 3)
    METRICS.add("test-cubic", cubic)
    data = SequenceBatch(torch.full((2, 3, 1), 6.0), torch.ones(2, 3, 1))
    assert evaluate(Affine(), data, metric="test-cubic") == pytest.approx(8.0)


@pytest.mark.parametrize(
    "name", [name for name, metric in METRICS.items() if metric.target != "values"]
)
def test_a_prediction_that_is_not_a_number_is_no_right_answer(name):
    outputs = 1 if METRICS[name].target == "binary" else 2
    x = torch.randn(B, T, outputs, generator=torch.Generator().manual_seed(1))
    y = torch.arange(B * T).reshape(B, T) % 2
    y = y.float() if outputs == 1 else y
    batch = SequenceBatch(x, y)
    assert np.isfinite(evaluate(Echo(), batch, metric=name))
    x[2, 3, -1] = torch.nan
    assert np.isnan(evaluate(Echo(), SequenceBatch(x, y), metric=name, batch_size=2))


def test_targets_in_the_padding_are_refused():
    x = torch.zeros(2, 6, 1)
    mask = torch.arange(6) < torch.tensor([[6], [2]])
    y = torch.zeros(2, 6, 1)
    y[mask] = 1.0
    known = torch.isfinite(y[..., 0])  # true in the padding, which holds zeros

    class Zero(torch.nn.Module):
        def forward(self, x, **_):
            return torch.zeros_like(x), None

    match = r"count at steps that mask leaves out, first at sequence 1, step 2.*y_mask & mask"
    for wrong in (known, known.unsqueeze(-1)):
        with pytest.raises(DataError, match=match):
            evaluate(Zero(), SequenceBatch(x, y, mask=mask, y_mask=wrong), metric="mse")
        with pytest.raises(DataError, match=match):
            METRICS["mse"].check_targets("training", SequenceBatch(x, y, mask=mask, y_mask=wrong))
    right = SequenceBatch(x, y, mask=mask, y_mask=known & mask)
    assert evaluate(Zero(), right, metric="mse") == 1.0
