"""A fit that fails leaves an estimator as it was, and what it was given stays the caller's."""

import numpy as np
import pytest
import torch
from irregular_samples import SMALL, sequences
from sklearn.exceptions import NotFittedError

from tauflow.errors import ArgumentError
from tauflow.estimators import SequenceClassifier, SequenceForecaster, SequenceRegressor

KINDS = [SequenceClassifier, SequenceRegressor, SequenceForecaster]


def failing(row):
    """Stop like a user who presses Ctrl-C after the second epoch."""
    if row["epoch"] == 2:
        raise KeyboardInterrupt


FAILURES = {
    "before the network": ({"device": "tpu9"}, ArgumentError),
    "at the network": ({"options": {"num_layers": 0}}, ArgumentError),
    "in training": ({"callbacks": [failing]}, KeyboardInterrupt),
}


def targets_of(kind, y, number):
    return number if kind is SequenceRegressor else y


def fail(estimator, changes, error, X, y, t):
    """Let a fit with changed parameters fail, and set them back."""
    was = {name: getattr(estimator, name) for name in changes}
    with pytest.raises(error):
        estimator.set_params(**changes).fit(X, y, t=t)
    estimator.set_params(**was)


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_first_fit_that_fails_leaves_it_unfitted(kind, failure):
    X, t, y, number = sequences()
    estimator = kind(**SMALL)
    fresh = dict(vars(estimator))
    fail(estimator, *FAILURES[failure], X, targets_of(kind, y, number), t)
    assert vars(estimator) == fresh
    with pytest.raises(NotFittedError):
        estimator.predict(X, t=t)


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_later_fit_that_fails_leaves_the_one_before(kind, failure):
    X, t, y, number = sequences()
    estimator = kind(**SMALL).fit(X, targets_of(kind, y, number), t=t)
    fitted, before = dict(vars(estimator)), estimator.predict(X, t=t)
    wider = [np.concatenate([x, x], axis=1) for x in X]
    others = targets_of(kind, np.where(y == "up", "left", "right"), 100 * number + 3)
    fail(estimator, *FAILURES[failure], wider, others, [60 * times_of_id for times_of_id in t])
    assert vars(estimator) == fitted
    np.testing.assert_array_equal(estimator.predict(X, t=t), before)


@pytest.mark.filterwarnings("ignore:the training loss rose")
@pytest.mark.parametrize("kind", KINDS)
def test_going_on_that_fails_leaves_the_weights(kind):
    X, t, y, number = sequences()
    y = targets_of(kind, y, number)
    estimator = kind(**SMALL, warm_start=True).fit(X, y, t=t)
    module, before = estimator.module_, estimator.predict(X, t=t)
    weights = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    fail(estimator, {"callbacks": [failing], "lr": 0.5}, KeyboardInterrupt, X, y, t)
    assert estimator.module_ is module
    assert all(torch.equal(module.state_dict()[name], w) for name, w in weights.items())
    np.testing.assert_array_equal(estimator.predict(X, t=t), before)
    estimator.fit(X, y, t=t)
    assert not all(torch.equal(estimator.module_.state_dict()[n], w) for n, w in weights.items())


def test_a_forecaster_answers_as_it_was_fitted():
    X, t, *_ = sequences()
    forecaster = SequenceForecaster(**SMALL, horizon=2).fit(X, t=t)
    before, score = forecaster.predict(X, t=t), forecaster.score(X, t=t)
    with pytest.raises(ArgumentError, match="tpu9"):
        forecaster.set_params(horizon=3, device="tpu9").fit(X, t=t)
    forecaster.set_params(device="cpu")
    np.testing.assert_array_equal(forecaster.predict(X, t=t), before)
    assert forecaster.score(X, t=t) == score
    assert forecaster.fit(X, t=t).predict(X, t=t).shape == (len(X), 3, 2)


@pytest.mark.parametrize(
    ("options", "edit"),
    [
        ({"num_layers": 1}, lambda options: options.update(num_layers=2)),
        (
            {"wiring": {"kind": "fully-connected", "units": 6}},
            lambda options: options["wiring"].update(units=7),
        ),
        (
            {"wiring": {"kind": "explicit", "recurrent": np.eye(6, dtype=int)}},
            lambda options: options["wiring"]["recurrent"].fill(1),
        ),
    ],
)
def test_going_on_sees_options_that_were_edited_in_place(options, edit):
    X, t, y, _ = sequences(8)
    if "recurrent" in (wiring := options.get("wiring", {})):
        wiring["sensory"] = np.ones((2, 6), dtype=int)
    small = {**SMALL, "epochs": 1, "model": "ltc", "warm_start": True}
    estimator = SequenceClassifier(**small, options=options).fit(X, y, t=t)
    estimator.fit(X, y, t=t)
    edit(options)
    assert estimator.get_params()["options"] is options
    with pytest.raises(ArgumentError, match=r"before, whose options was \{"):
        estimator.fit(X, y, t=t)


def test_going_on_takes_a_mask_of_targets():
    X, t, *_ = sequences(8)
    mask = np.array([True, False])
    forecaster = SequenceForecaster(**SMALL, targets=mask, warm_start=True).fit(X, t=t)
    forecaster.fit(X, t=t)
    mask[:] = [False, True]
    with pytest.raises(ArgumentError, match="whose targets was"):
        forecaster.fit(X, t=t)
