import math
from dataclasses import replace

import pytest
import torch

from tauflow.batch import SequenceBatch
from tauflow.data.card import TaskData
from tauflow.data.datasets.pendulum import PENDULUM
from tauflow.models.sequence_model import SequenceModel
from tauflow.runs.baselines import score_baselines
from tauflow.runs.report.example_sequences import predict_examples
from tauflow.sequence import GRU
from tauflow_papers.datasets.synthetic.xor import XOR_DENSE
from tauflow_papers.experiments.report.next_step_baselines import score_next_step_baselines

CARD = replace(
    PENDULUM, name="own", input_size=2, target_size=1, targets=(), sizes=(2, 0, 2), forecast=False
)


def data(train, test, **changes):
    return TaskData(replace(CARD, **changes), train, None, test)


def regression(y, **masks):
    y = torch.tensor(y)
    return SequenceBatch(torch.zeros(*y.shape[:2], 2), y.float().unsqueeze(-1), **masks)


def test_only_a_forecast_is_compared_with_persistence():
    batch = regression([[1.0, 3.0], [1.0, 3.0]])
    assert score_baselines(data(batch, batch), "mse") == [("training mean", 1.0)]
    named = score_baselines(data(batch, batch, forecast=True), "mse")
    assert named == [("persistence", 5.0), ("training mean", 1.0)]


@pytest.mark.parametrize("masked", ["mask", "y_mask", "values"])
def test_the_mean_is_of_targets_that_count(masked):
    known = torch.tensor([[True, True], [True, False]])
    test = regression([[0.0, 0.0], [0.0, 0.0]])
    masks = {"y_mask": known.unsqueeze(-1)} if masked == "values" else {masked: known}
    train = regression([[1.0, 2.0], [3.0, 1000.0]], **masks)
    assert score_baselines(data(train, test), "mse") == [("training mean", 4.0)]


def test_baselines_of_one_target_per_sequence():
    x = torch.zeros(3, 2, 2)
    values = SequenceBatch(x, torch.tensor([[1.0], [2.0], [3.0]]))
    scores = score_baselines(data(values, values, per_step=False), "mse")
    assert scores == [("training mean", pytest.approx(2 / 3))]
    train, test = (
        SequenceBatch(x, torch.tensor([2, 0, 2])),
        SequenceBatch(x, torch.tensor([2, 1, 1])),
    )
    changes = {"task": "classify", "target_size": 3, "per_step": False}
    scores = score_baselines(data(train, test, **changes), "accuracy")
    assert scores == [("most frequent class", pytest.approx(1 / 3))]


def test_the_most_frequent_class_is_counted_where_there_is_a_target():
    x, known = torch.zeros(2, 3, 2), torch.tensor([[True, False, False], [True, True, False]])
    batch = SequenceBatch(x, torch.tensor([[1, 0, 0], [1, 0, 0]]), y_mask=known)
    scores = score_baselines(data(batch, batch, task="classify", target_size=2), "accuracy")
    assert scores == [("most frequent class", pytest.approx(2 / 3))]


@pytest.mark.parametrize(
    ("metric", "name", "score"),
    [("f1", "always the positive class", 2 / 3), ("auroc", "the same for all", 0.5)],
)
def test_scores_of_two_classes_have_a_level_of_their_own(metric, name, score):
    batch = SequenceBatch(torch.zeros(4, 2, 2), torch.tensor([1, 0, 0, 1]))
    changes = {"task": "classify", "target_size": 2, "per_step": False}
    assert score_baselines(data(batch, batch, **changes), metric) == [(name, pytest.approx(score))]


def test_what_goes_on_straight_is_exact_on_a_line_and_looking_ahead_is_told():
    """x = t and y = t + 1, at times 0, 1, 3: the line is known from the second sample on."""
    t = torch.tensor([[0.0, 1.0, 3.0]])
    x = torch.stack((t, torch.zeros(1, 3)), dim=-1)
    batch = SequenceBatch(x, t.unsqueeze(-1) + 1, dt=torch.tensor([[1.0, 1.0, 2.0]]))
    scores = score_next_step_baselines(data(batch, batch, forecast=True), "mse")
    assert scores == [
        ("the last change again", pytest.approx(1 / 3)),
        ("next input, looks ahead", pytest.approx((0 + 1 + 1) / 3)),
        ("interpolation, looks ahead", pytest.approx(1 / 3)),
    ]
    even = SequenceBatch(x, t.unsqueeze(-1) + 1)
    named = dict(score_next_step_baselines(data(even, even, forecast=True), "mse"))
    assert named == {"the last change again": pytest.approx((1 + 0 + 1) / 3)}


def test_samples_show_a_gap_where_the_truth_is_not_known():
    known = torch.tensor([[True, False, True]]).unsqueeze(-1)
    batch = regression([[5.0, 0.0, 7.0]], y_mask=known)
    (shown,) = predict_examples(SequenceModel(GRU(2, 3), 1), data(batch, batch))
    assert shown.truth[0][::2] == [5.0, 7.0]
    assert shown.truth[0][1] != shown.truth[0][1]
    assert all(value == value for value in shown.predicted[0])


@pytest.mark.parametrize("numbers", [1, 1 << 22])
def test_baselines_do_not_hang_on_the_pieces_they_are_made_of(monkeypatch, numbers):
    monkeypatch.setattr("tauflow.batch._MAX_ELEMENTS", numbers)
    known = torch.tensor([[True, True], [True, False]])
    train = regression([[1.0, 2.0], [3.0, 1000.0]], y_mask=known)
    test = regression([[0.0, 0.0], [0.0, 0.0]])
    assert score_baselines(data(train, test), "mse") == [("training mean", 4.0)]
    classes = SequenceBatch(torch.zeros(3, 2, 2), torch.tensor([1, 2, 2]))
    changes = {"task": "classify", "target_size": 3, "per_step": False}
    scores = score_baselines(data(classes, classes, **changes), "accuracy")
    assert scores == [("most frequent class", pytest.approx(2 / 3))]


@pytest.mark.parametrize("per_step", [True, False])
def test_one_value_needs_no_axis_of_its_own(per_step):
    y = torch.tensor([[1.0, 3.0], [1.0, 3.0]]) if per_step else torch.tensor([1.0, 3.0])
    batch = SequenceBatch(torch.zeros(2, 2, 2), y)
    scores = score_baselines(data(batch, batch, per_step=per_step), "mse")
    assert scores == [("training mean", 1.0)]


class FirstInput(torch.nn.Module):
    """Predicts the first input."""

    def forward(self, x, **_):
        return x[..., :1], None


@pytest.mark.parametrize("axes", ["no axis", "an axis"])
def test_samples_of_one_target_and_of_sequences_without_a_valid_step(axes):
    x = torch.arange(12.0).reshape(3, 2, 2)
    y = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    mask = torch.tensor([[False, False], [True, True], [True, False]])
    known = torch.tensor([[True, True], [True, False], [True, True]])
    test = SequenceBatch(x, y if axes == "no axis" else y.unsqueeze(-1), mask=mask, y_mask=known)
    full, cut = predict_examples(FirstInput(), data(test, test))
    assert (full.number, full.time, full.predicted) == (1, [0.0, 1.0], [[4.0, 6.0]])
    assert full.truth == [[3.0, pytest.approx(math.nan, nan_ok=True)]]
    assert (cut.number, cut.time, cut.truth, cut.predicted) == (2, [0.0], [[5.0]], [[8.0]])


def test_a_trivial_answer_is_the_best_that_is_always_the_same():
    y = (torch.arange(40) % 4 == 0).float().unsqueeze(1)
    part = SequenceBatch(torch.zeros(40, 3, 1), y)
    data = TaskData(replace(XOR_DENSE, sizes=(40, 0, 40)), part, None, part)
    assert score_baselines(data, "binary_f1") == [("always the positive class", pytest.approx(0.4))]
    assert score_baselines(data, "binary_auroc") == [("the same for all", 0.5)]
    assert score_baselines(data, "binary_accuracy") == [("most frequent class", 0.75)]
