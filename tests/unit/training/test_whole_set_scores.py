"""Scores that are no mean over entries: they need every prediction of a split at once."""

import pytest
import torch
from sklearn import metrics as sk
from test_scores import Echo
from torch import nn

from tauflow.batch import SequenceBatch
from tauflow.errors import ArgumentError, DataError, ShapeError
from tauflow.training import METRICS, Recipe, Score, evaluate, train
from tauflow.training.metrics import evaluate_all

SKLEARN = {
    "auroc": sk.roc_auc_score,
    "f1": lambda y, logit: sk.f1_score(y, logit > 0),
}


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
    found = score(prediction, SequenceBatch(torch.zeros(60, 4, 1), y))
    assert float(found) == pytest.approx(SKLEARN[name](y, logit), abs=1e-7)


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


@pytest.mark.parametrize(("label", "kind"), [(0, "negative"), (1, "positive")])
def test_an_area_needs_both_classes(label, kind):
    data = SequenceBatch(torch.zeros(4, 1, 2), torch.full((4,), label))
    with pytest.raises(DataError, match=f"all 4 are {kind}"):
        METRICS["auroc"](torch.zeros(4, 2), data)
    with pytest.raises(DataError, match=f"^auroc: the targets of the evaluated data .* {kind}"):
        evaluate(Answer(), data, metric="auroc")


@pytest.mark.parametrize("part", ["valid", "test"])
def test_a_part_of_one_class_is_refused_before_training(part):
    class Linear(torch.nn.Linear):
        def forward(self, x, **_):
            pytest.fail("training has begun")

    y = torch.tensor([[0.0, 1.0], [1.0, 0.0]]).unsqueeze(-1)
    both = SequenceBatch(torch.zeros(2, 2, 1), y)
    one = SequenceBatch(both.x, y, y_mask=y > 0)  # what does not count is no negative
    parts = {"train": both, "valid": both, "test": both, part: one}
    recipe = Recipe(epochs=1)
    with pytest.raises(DataError, match=f"targets of the {part} data are all positive, and it"):
        train(Linear(1, 1), **parts, loss="bce", metric="binary_auroc", recipe=recipe)


def test_more_than_two_classes_are_refused():
    data = SequenceBatch(torch.zeros(4, 1, 1), torch.tensor([0, 1, 2, 0]))
    with pytest.raises(
        ShapeError, match=r"f1: prediction has shape \(4, 3\), expected two outputs"
    ):
        METRICS["f1"](torch.zeros(4, 3), data)


def test_a_score_is_of_entries_or_of_all():
    with pytest.raises(ArgumentError, match="give either compare"):
        Score("neither", "values")
    with pytest.raises(ArgumentError, match="for targets that are classes"):
        Score("whole", "values", whole=lambda prediction, y: y.sum())
    with pytest.raises(ArgumentError, match="auroc has no number per entry"):
        METRICS["auroc"].entries(torch.zeros(2, 2), torch.zeros(2))


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
        for metric in ("accuracy", "auroc", "f1"):
            with pytest.raises(DataError, match=match):
                evaluate(Same(), data, metric=metric)
    data = SequenceBatch(x[..., :1], torch.tensor([0.0, 1.0, torch.nan, 1.0]))
    for metric in ("binary_accuracy", "binary_auroc", "binary_f1"):
        with pytest.raises(DataError, match="must lie between 0 and 1"):
            evaluate(Same(), data, metric=metric)
