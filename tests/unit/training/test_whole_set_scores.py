"""Scores that are no mean over entries: they need every prediction of a split at once."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn import metrics as sk
from sklearn.calibration import calibration_curve
from test_scores import Echo
from torch import nn

from tauflow.batch import SequenceBatch
from tauflow.errors import ArgumentError, DataError, ShapeError
from tauflow.training import METRICS, Recipe, Score, evaluate, train
from tauflow.training.evaluation_loop import evaluate_all

SKLEARN = {
    "auroc": sk.roc_auc_score,
    "average_precision": sk.average_precision_score,
    "f1": lambda y, logit: sk.f1_score(y, logit > 0),
    "balanced_accuracy": lambda y, logit: sk.balanced_accuracy_score(y, logit > 0),
    "brier": lambda y, logit: sk.brier_score_loss(y, torch.sigmoid(logit)),
    "ece": lambda y, logit: calibration_error(y, logit),
    "log_loss": lambda y, logit: sk.log_loss(y, torch.sigmoid(logit)),
}


def calibration_error(y, logit):
    """Return it by the bins of scikit-learn, of equal width."""
    p = torch.sigmoid(logit).numpy()
    true, predicted = calibration_curve(y, p, n_bins=10)
    counts = np.histogram(p, np.linspace(0, 1, 11))[0]
    return np.average(abs(true - predicted), weights=counts[counts > 0])


def example(seed, *, binary, count=60, ties=False):
    """Return logits, (N, 1) or (N, 2), the score they stand for, and classes."""
    generator = torch.Generator().manual_seed(seed)
    logit = torch.randn(count, generator=generator)
    if ties:
        logit = (2 * logit).round() / 2
    y = (torch.rand(count, generator=generator) < torch.sigmoid(logit)).long()
    if binary:
        return logit[:, None], logit, y.float()
    base = torch.randint(-3, 4, (count,), generator=generator).float()
    return torch.stack([base, base + logit], -1), logit, y


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("name", SKLEARN)
def test_they_equal_scikit_learn(name, binary, ties):
    prediction, logit, y = example(3, binary=binary, ties=ties)
    score = METRICS[f"binary_{name}" if binary else name]
    score_of_batch = score(prediction, SequenceBatch(torch.zeros(60, 4, 1), y))
    assert float(score_of_batch) == pytest.approx(SKLEARN[name](y, logit), abs=1e-7)


class Answer(nn.Module):
    """Answers once per sequence with the first two features of its last step."""

    def forward(self, x, *, dt=None, mask=None):
        return x[:, -1, :2], None


@pytest.mark.parametrize("size", [1, 7, 512])
@pytest.mark.parametrize("name", SKLEARN)
def test_a_whole_split_is_scored_at_once(name, size):
    prediction, logit, y = example(4, binary=False)
    data = SequenceBatch(prediction[:, None].expand(-1, 3, -1), y)
    expected = SKLEARN[name](y, logit)
    assert evaluate(Answer(), data, metric=name, batch_size=size) == pytest.approx(expected)


@pytest.mark.parametrize("name", SKLEARN)
def test_steps_that_do_not_count_are_left_out(name):
    prediction, logit, y = example(5, binary=False)
    mask = torch.rand(12, 5, generator=torch.Generator().manual_seed(0)) < 0.6
    data = SequenceBatch(prediction.view(12, 5, 2), y.view(12, 5), mask=mask)
    chosen = mask.flatten()
    expected = SKLEARN[name](y[chosen], logit[chosen])
    assert float(METRICS[name](prediction.view(12, 5, 2), data)) == pytest.approx(expected)
    assert evaluate(Echo(), data, metric=name, batch_size=5) == pytest.approx(expected)


def test_one_pass_gives_several_metrics():
    prediction, _, y = example(6, binary=False)
    data = SequenceBatch(prediction[:, None], y)
    names = ["auroc", "cross_entropy", "accuracy"]
    together = evaluate_all(Answer(), data, metrics=[METRICS[n] for n in names], batch_size=7)
    assert together == [evaluate(Answer(), data, metric=name) for name in names]


def test_f1_without_positives_is_zero():
    y = torch.zeros(4, dtype=torch.long)
    logits = torch.tensor([[1.0, 0.0]]).expand(4, 2)
    assert float(METRICS["f1"](logits, SequenceBatch(torch.zeros(4, 1, 1), y))) == 0.0


@pytest.mark.parametrize("name", ["auroc", "average_precision"])
@pytest.mark.parametrize(("label", "kind"), [(0, "negative"), (1, "positive")])
def test_an_area_needs_both_classes(name, label, kind):
    data = SequenceBatch(torch.zeros(4, 1, 2), torch.full((4,), label))
    with pytest.raises(DataError, match=f"all 4 are {kind}"):
        METRICS[name](torch.zeros(4, 2), data)
    with pytest.raises(DataError, match=f"^{name}: the targets of the evaluated data .* {kind}"):
        evaluate(Answer(), data, metric=name)


@pytest.mark.parametrize("name", ["auroc", "average_precision"])
def test_areas_of_a_single_logit_have_another_name(name):
    data = SequenceBatch(torch.zeros(2, 1, 1), torch.tensor([0, 1]))
    with pytest.raises(ShapeError, match=f"take binary_{name}"):
        METRICS[name](torch.zeros(2, 1), data)


SEVERAL = {
    "auroc": lambda y, p, **w: sk.roc_auc_score(y, p, multi_class="ovr", **w),
    "average_precision": lambda y, p, **w: sk.average_precision_score(y, p, **w),
    "f1": lambda y, p, **w: sk.f1_score(y, p.argmax(1), average="macro", **w),
    "balanced_accuracy": lambda y, p, **w: sk.balanced_accuracy_score(y, p.argmax(1), **w),
    "brier": lambda y, p, **w: sk.brier_score_loss(y, p, **w),
    "log_loss": lambda y, p, **w: sk.log_loss(y, p, **w),
    "accuracy": lambda y, p, **w: sk.accuracy_score(y, p.argmax(1), **w),
}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("per_step", [False, True])
@pytest.mark.parametrize("name", SEVERAL)
def test_several_classes_equal_scikit_learn(name, per_step, weighted):
    draw = torch.Generator().manual_seed(8)
    y = torch.randint(0, 4, (20, 5) if per_step else (100,), generator=draw)
    logits = torch.randn(*y.shape, 4, generator=draw).round(decimals=1)
    weight = torch.rand(len(y), generator=draw) if weighted else None
    mask = (torch.rand(20, 5, generator=draw) < 0.7) if per_step else None
    batch = SequenceBatch(torch.zeros(*y.shape, 1) if per_step else torch.zeros(100, 3, 1), y)
    value = METRICS[name](logits, replace(batch, weight=weight, mask=mask))
    chosen = torch.ones_like(y, dtype=torch.bool) if mask is None else mask
    options = {}
    if weight is not None:
        each = weight[:, None].expand(y.shape) if per_step else weight
        options = {"sample_weight": each[chosen].numpy()}
    probabilities = logits[chosen].double().softmax(-1).numpy()
    assert float(value) == pytest.approx(SEVERAL[name](y[chosen].numpy(), probabilities, **options))


def test_classes_that_do_not_occur_are_left_out_of_means():
    draw = torch.Generator().manual_seed(9)
    y, logits = torch.randint(0, 3, (60,), generator=draw), torch.randn(60, 5, generator=draw)
    logits[:, 3] = -99.0
    batch = SequenceBatch(torch.zeros(60, 1, 1), y)
    probabilities = logits.softmax(-1).numpy()
    areas = [sk.roc_auc_score(y == k, probabilities[:, k]) for k in range(3)]
    assert float(METRICS["auroc"](logits, batch)) == pytest.approx(sum(areas) / 3)
    f1 = sk.f1_score(y, logits.argmax(1), average="macro")
    assert float(METRICS["f1"](logits, batch)) == pytest.approx(f1)


VALUES = {
    "rmse": sk.root_mean_squared_error,
    "r2": sk.r2_score,
    "mse": sk.mean_squared_error,
    "mae": sk.mean_absolute_error,
}


@pytest.mark.parametrize("offset", [0.0, 1e4])
@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("per_step", [False, True])
@pytest.mark.parametrize("name", VALUES)
def test_values_equal_scikit_learn(name, per_step, outputs, offset):
    draw = torch.Generator().manual_seed(10)
    shape = (20, 5, outputs) if per_step else (100, outputs)
    y = offset + torch.randn(shape, generator=draw, dtype=torch.float64)
    prediction = y + torch.randn(shape, generator=draw, dtype=torch.float64)
    mask = (torch.rand(20, 5, generator=draw) < 0.7) if per_step else None
    x = torch.zeros(*(shape[:2] if per_step else (100, 3)), 1)
    value = METRICS[name](prediction, SequenceBatch(x, y, mask=mask))
    chosen = torch.ones(shape[:-1], dtype=torch.bool) if mask is None else mask
    expected = VALUES[name](y[chosen].numpy(), prediction[chosen].numpy())
    assert float(value) == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize("size", [1, 3, 512])
@pytest.mark.parametrize("name", ["rmse", "r2"])
def test_single_values_that_are_not_known_are_left_out_of_their_output(name, size):
    draw = torch.Generator().manual_seed(11)
    y, x = torch.randn(9, 5, 3, generator=draw), torch.randn(9, 5, 3, generator=draw)
    known = torch.rand(9, 5, 3, generator=draw) < 0.6
    y[~known] = 1e9
    data = SequenceBatch(x, y, y_mask=known, weight=torch.rand(9, generator=draw) + 0.1)
    each = data.weight[:, None, None].expand(9, 5, 3)
    by_output = [
        VALUES[name](y[..., k][seen], x[..., k][seen], sample_weight=each[..., k][seen])
        for k, seen in enumerate(known.unbind(-1))
    ]
    expected = sum(by_output) / 3
    assert evaluate(Echo(), data, metric=name, batch_size=size) == pytest.approx(expected, rel=1e-5)


def test_r2_of_an_output_that_does_not_vary():
    y = torch.tensor([[0.1], [0.1], [0.1]])
    batch = SequenceBatch(torch.zeros(3, 1, 1), y)
    assert float(METRICS["r2"](y.clone(), batch)) == 1.0
    assert float(METRICS["r2"](y + 1, batch)) == 0.0
    assert METRICS["r2"](y * torch.nan, batch).isnan()
    assert METRICS["rmse"](y * torch.nan, batch).isnan()


@pytest.mark.parametrize(
    "name", [name for name, metric in METRICS.items() if metric.supports_weights]
)
def test_several_weightings_at_once_are_those_one_by_one(name):
    draw = torch.Generator().manual_seed(12)
    y = torch.rand(40, generator=draw)
    outputs = 1 if name.startswith("binary") or METRICS[name].target == "values" else 2
    y = y[:, None] if METRICS[name].target == "values" else (y > 0.6).to(torch.long)
    logits = torch.randn(40, outputs, generator=draw)
    weights = torch.randint(0, 3, (5, 40), generator=draw)
    score = METRICS[name].whole
    expected = [float(score(logits, y, weight)) for weight in weights]
    assert score(logits, y, weights).tolist() == pytest.approx(expected)
    several = [torch.repeat_interleave(torch.arange(40), weight) for weight in weights]
    assert expected == pytest.approx([float(score(logits[rows], y[rows])) for rows in several])


@pytest.mark.parametrize("part", ["valid", "test"])
def test_a_part_of_one_class_is_refused_before_training(part):
    class Linear(torch.nn.Linear):
        def forward(self, x, **_):
            pytest.fail("training has begun")

    y = torch.tensor([[0.0, 1.0], [1.0, 0.0]]).unsqueeze(-1)
    both = SequenceBatch(torch.zeros(2, 2, 1), y)
    batch = SequenceBatch(both.x, y, y_mask=y > 0)  # what does not count is no negative
    parts = {"train": both, "valid": both, "test": both, part: batch}
    recipe = Recipe(epochs=1)
    with pytest.raises(DataError, match=f"targets of the {part} data are all positive, and it"):
        train(Linear(1, 1), **parts, loss="bce", metric="binary_auroc", recipe=recipe)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
@pytest.mark.parametrize("name", [name for name in SKLEARN if f"binary_{name}" in METRICS])
def test_labels_of_sequences_that_are_not_known_are_left_out(name, dtype):
    draw = torch.Generator().manual_seed(7)
    logits, y = torch.randn(40, 1, 2, generator=draw), torch.randint(2, (40, 2), generator=draw)
    known = torch.rand(40, 2, generator=draw) < 0.6
    unknown = torch.nan if dtype.is_floating_point else -100
    data = SequenceBatch(logits, y.to(dtype).where(known, unknown), y_mask=known[:, None])
    expected = [SKLEARN[name](y[k, i], logits[k, 0, i]) for i, k in enumerate(known.T)]
    entries = METRICS[f"binary_{name}"].whole is None  # whose mean is of all labels
    weights = known.sum(0).numpy() if entries else None
    score = evaluate(Answer(), data, metric=f"binary_{name}")
    assert score == pytest.approx(np.average(expected, weights=weights))


def test_labels_that_are_not_known_are_no_negatives():
    known = torch.arange(6)[:, None, None] < 3
    data = SequenceBatch(torch.zeros(6, 4, 2), known[:, 0].float(), y_mask=known)
    with pytest.raises(DataError, match="targets of the evaluated data are all positive"):
        evaluate(Answer(), data, metric="binary_auroc")


def test_a_score_is_of_entries_or_of_all():
    with pytest.raises(ArgumentError, match="give either compare"):
        Score("neither", "values")


@pytest.mark.parametrize("name", SKLEARN)
def test_entries_of_a_single_output_that_do_not_count_are_left_out(name):
    prediction, logit, y = example(5, binary=True)
    y_mask = torch.rand(12, 5, 1, generator=torch.Generator().manual_seed(0)) < 0.6
    data = SequenceBatch(prediction.view(12, 5, 1), y.view(12, 5, 1), y_mask=y_mask)
    chosen = y_mask.flatten()
    expected = SKLEARN[name](y[chosen], logit[chosen])
    score = METRICS[f"binary_{name}"]
    assert float(score(prediction.view(12, 5, 1), data)) == pytest.approx(expected)
    assert evaluate(Echo(), data, metric=f"binary_{name}", batch_size=5) == pytest.approx(expected)


def test_targets_that_no_metric_can_count_are_refused():
    class Same(torch.nn.Module):
        def forward(self, x, **_):
            return x[:, 0], None

    x = torch.randn(4, 1, 2)
    for y, match in (([0, 1, 7, 1], "hold the class 7"), ([0, 1, -1, 1], "hold a negative class")):
        data = SequenceBatch(x, torch.tensor(y))
        for metric in ("accuracy", *SKLEARN):
            with pytest.raises(DataError, match=match):
                evaluate(Same(), data, metric=metric)
    data = SequenceBatch(x[..., :1], torch.tensor([0.0, 1.0, torch.nan, 1.0]))
    for metric in ("binary_accuracy", *(f"binary_{name}" for name in SKLEARN)):
        with pytest.raises(DataError, match="must lie between 0 and 1"):
            evaluate(Same(), data, metric=metric)
