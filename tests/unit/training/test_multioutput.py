"""Loss and metrics of several targets, against equations in double precision and scikit-learn."""

import numpy as np
import pytest
import torch
from scipy.special import expit, softmax
from sklearn.metrics import (
    accuracy_score,
    cohen_kappa_score,
    mean_absolute_error,
    r2_score,
    roc_auc_score,
)

from tauflow import SequenceBatch
from tauflow._internal.targets import TargetSpec, count_outputs
from tauflow.data import DatasetCard
from tauflow.data.card import card_from_dict, card_to_dict
from tauflow.errors import ArgumentError, DataError, UnknownNameError
from tauflow.training import METRICS
from tauflow.training.multioutput import (
    is_higher_better,
    list_metrics,
    list_shown_metrics,
    make_multioutput_loss,
)

SPECS = (
    TargetSpec("died", "class", ("no", "yes")),
    TargetSpec("unit", "class", ("a", "b", "c")),
    TargetSpec("grade", "ordinal", ("low", "mid", "high", "top")),
    TargetSpec("days"),
)
CARD = DatasetCard(
    **{"name": "n", "title": "n", "task": "multioutput", "input_size": 1, "target_size": 8},
    **{"time_unit": "h", "sizes": (1, 1, 1), "source": "", "licence": "", "split": ""},
    **{"loss": "multioutput", "metric": "multioutput", "target_specs": SPECS, "per_step": False},
)


def example(count=200, missing=0.3, seed=0):
    rng = np.random.default_rng(seed)
    outputs = rng.normal(size=(count, count_outputs(SPECS)))
    y = np.stack([*(rng.integers(0, k, count) for k in (2, 3, 4)), rng.normal(size=count)], axis=1)
    known = rng.random(y.shape) > missing
    known[:, 3] |= ~known.any(1)
    return outputs, y, known


def to_batch(y, known, **more):
    y, known = torch.from_numpy(np.where(known, y, 0.0)), torch.from_numpy(known)
    return SequenceBatch(torch.zeros(len(y), 5, 1).double(), y, y_mask=known[:, None], **more)


def cumulative(outputs):
    """Return the probabilities of four ordered classes by differences of sigmoids."""
    thresholds = np.cumsum(np.concatenate([outputs[:, :1], np.log1p(np.exp(outputs[:, 1:]))], 1), 1)
    below = np.concatenate([np.zeros((len(outputs), 1)), expit(thresholds)], 1)
    return np.diff(np.concatenate([below, np.ones((len(outputs), 1))], 1), axis=1)


def probabilities(outputs):
    yes = expit(outputs[:, 0])
    return np.stack([1 - yes, yes], 1), softmax(outputs[:, 1:4], 1), cumulative(outputs[:, 4:7])


def test_ordered_classes_are_differences_of_cumulative_probabilities():
    outputs = example()[0][:, 4:7]
    found = SPECS[2].compute_log_probabilities(torch.from_numpy(outputs))
    np.testing.assert_allclose(found.exp(), cumulative(outputs), rtol=1e-10)
    far = torch.tensor([[-800.0, 3.0, 3.0], [800.0, -50.0, 2.0], [0.0, -90.0, -90.0]])
    assert SPECS[2].compute_log_probabilities(far).isfinite().all()


@pytest.mark.parametrize("spec", SPECS[:3], ids=lambda spec: spec.name)
def test_outputs_follow_from_probabilities(spec):
    outputs = 3 * torch.randn(50, spec.size, dtype=torch.float64)
    logs = spec.compute_log_probabilities(outputs)
    again = spec.compute_log_probabilities(spec.compute_outputs(logs))
    torch.testing.assert_close(again, logs)
    rare = torch.tensor([[0.0, -800.0, -800.0, -1.0]])[:, : len(spec.classes)].log_softmax(-1)
    assert spec.compute_outputs(rare).isfinite().all()


def test_an_ordered_target_of_two_classes_is_a_binary_one():
    logits = torch.randn(7, 1, dtype=torch.float64)
    ordinal = TargetSpec("x", "ordinal", ("a", "b")).compute_log_probabilities(-logits)
    binary = TargetSpec("x", "class", ("a", "b")).compute_log_probabilities(logits)
    torch.testing.assert_close(ordinal, binary)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_loss_is_the_mean_over_the_targets_that_are_known(weighted):
    outputs, y, known = example()
    weight = np.random.default_rng(1).uniform(0.5, 2, len(y))
    chosen = [p[range(len(y)), y[:, k].astype(int)] for k, p in enumerate(probabilities(outputs))]
    errors = np.stack([*-np.log(chosen), (outputs[:, 7] - y[:, 3]) ** 2], axis=1)
    each = known * (weight[:, None] if weighted else 1.0)
    batch = to_batch(y, known, **({"weight": torch.from_numpy(weight)} if weighted else {}))
    found = make_multioutput_loss(SPECS)(torch.from_numpy(outputs), batch)
    np.testing.assert_allclose(found, (errors * each).sum() / each.sum(), rtol=1e-10)


def test_a_missing_target_has_no_gradient_and_others_have_the_right_one():
    outputs, y, known = example(6)
    known[0] = [True, False, False, True]
    prediction = torch.from_numpy(outputs).requires_grad_()
    score = make_multioutput_loss(SPECS)
    score(prediction, to_batch(y, known)).backward()
    assert (prediction.grad[0] != 0).tolist() == [True, *[False] * 6, True]
    assert torch.autograd.gradcheck(lambda p: score(p, to_batch(y, known)), prediction)


def test_a_batch_without_any_target_is_refused():
    outputs, y, known = example(4)
    with pytest.raises(DataError, match=r"no entry of this batch is valid"):
        make_multioutput_loss(SPECS)(torch.from_numpy(outputs), to_batch(y, known & False))


def test_targets_per_step_count_where_they_are_known():
    outputs, y, known = example(24)
    steps = SequenceBatch(
        torch.zeros(4, 6, 1).double(),
        torch.from_numpy(y).view(4, 6, 4),
        y_mask=torch.from_numpy(known).view(4, 6, 4),
    )
    score = make_multioutput_loss(SPECS)
    per_step = score(torch.from_numpy(outputs).view(4, 6, 8), steps)
    torch.testing.assert_close(per_step, score(torch.from_numpy(outputs), to_batch(y, known)))


def expected_metrics(outputs, y, known, weight):
    truth = {s.name: y[known[:, k], k] for k, s in enumerate(SPECS)}
    w = {s.name: weight[known[:, k]] for k, s in enumerate(SPECS)}
    died, unit, grade = (p[known[:, k]] for k, p in enumerate(probabilities(outputs)))
    days, more = outputs[known[:, 3], 7], {n: {"sample_weight": one} for n, one in w.items()}
    kappa = cohen_kappa_score(truth["grade"], grade.argmax(1), weights="quadratic", **more["grade"])
    return {
        "auroc of died": roc_auc_score(truth["died"], died[:, 1], **more["died"]),
        "accuracy of unit": accuracy_score(truth["unit"], unit.argmax(1), **more["unit"]),
        "kappa of grade": kappa,
        "rank_error of grade": mean_absolute_error(
            truth["grade"], grade.argmax(1), **more["grade"]
        ),
        "r2 of days": r2_score(truth["days"], days, **more["days"]),
        "mae of days": mean_absolute_error(truth["days"], days, **more["days"]),
    }


def test_metrics_of_each_target_are_those_of_scikit_learn():
    outputs, y, known = example()
    weight = np.random.default_rng(2).uniform(0.5, 2, len(y))
    metrics, batch = list_metrics(CARD), to_batch(y, known)
    masked = torch.from_numpy(np.where(known, y, np.nan))
    for name, value in expected_metrics(outputs, y, known, np.ones(len(y))).items():
        found = metrics[name](torch.from_numpy(outputs), batch)
        np.testing.assert_allclose(found, value, rtol=1e-9, err_msg=name)
    for name, value in expected_metrics(outputs, y, known, weight).items():
        whole = metrics[name].whole
        several = torch.from_numpy(np.stack([weight, np.ones(len(y))]))
        found = whole(torch.from_numpy(outputs), masked, several)
        np.testing.assert_allclose(found[0], value, rtol=1e-9, err_msg=name)
        torch.testing.assert_close(
            found[1], whole(torch.from_numpy(outputs), masked).double(), check_dtype=False
        )


def test_a_metric_without_a_target_is_the_mean_over_those_that_have_it():
    outputs, y, known = example()
    metrics, pair = list_metrics(CARD), (torch.from_numpy(outputs), to_batch(y, known))
    each = [metrics[f"accuracy of {name}"](*pair) for name in ("died", "unit", "grade")]
    torch.testing.assert_close(metrics["accuracy"](*pair), torch.stack(each).mean())
    assert "accuracy of days" not in metrics
    with pytest.raises(UnknownNameError, match="accuracy of unit"):
        metrics["accuracy of units"]


def test_shown_metrics_exist_and_leave_out_areas_of_one_class():
    _, y, known = example()
    shown = list_shown_metrics(CARD, [to_batch(y, known)])
    assert set(shown) <= set(list_metrics(CARD))
    assert {"auroc of died", "kappa of grade", "rmse of days"} <= set(shown)
    y[:, 0] = 1
    shown = list_shown_metrics(CARD, [to_batch(y, known)])
    assert not any(name.startswith("auroc") for name in shown)
    assert is_higher_better("kappa of grade")
    assert not is_higher_better("rmse of days")


def test_kappa_of_classes_is_that_of_scikit_learn():
    logits, y = torch.randn(50, 4), torch.randint(0, 4, (50,))
    found = METRICS["kappa"](logits, SequenceBatch(torch.zeros(50, 1, 1), y))
    expected = cohen_kappa_score(y, logits.argmax(1), weights="quadratic")
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_cards_keep_the_targets_in_files_and_refuse_other_sizes():
    assert card_from_dict(card_to_dict(CARD)) == CARD
    with pytest.raises(ArgumentError, match=r"8 outputs, and target_size is 9"):
        card_from_dict({**card_to_dict(CARD), "target_size": 9})
