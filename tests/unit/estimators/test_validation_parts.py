"""What is kept for validation: weighed as it is in training, and no part of what is learned."""

import numpy as np
import pytest
from irregular_samples import SMALL, sequences
from sklearn.metrics import accuracy_score, mean_squared_error
from sklearn.model_selection import train_test_split

from tauflow.errors import ArgumentError, DataError
from tauflow.estimators import SequenceClassifier, SequenceForecaster, SequenceRegressor


def drawn(y, share, *, stratify):
    """Return which sequences an estimator of random_state=0 trains on, and which it keeps."""
    random = np.random.RandomState(0)
    random.randint(2**31)  # the seed of the network
    classes = y if stratify else None
    parts = train_test_split(
        np.arange(len(y)), test_size=share, random_state=random, stratify=classes
    )
    return [np.sort(part) for part in parts]


def taken(X, which):
    return [X[row] for row in which]


def test_the_best_epoch_is_that_of_the_weighted_validation_part():
    X, t, y, _ = sequences(40)
    weight = np.random.default_rng(0).integers(0, 5, len(X)).astype(float)
    counted = np.flatnonzero(weight)
    X, t, y, weight = taken(X, counted), taken(t, counted), y[counted], weight[counted]
    _, held = drawn(y, 0.4, stratify=True)
    settings = {**SMALL, "epochs": 6, "lr": 0.3}
    fitted = SequenceClassifier(**settings, validation_fraction=0.4).fit(X, y, weight, t=t)
    predictions = fitted.predict(taken(X, held), t=taken(t, held))
    expected = accuracy_score(y[held], predictions, sample_weight=weight[held])
    assert fitted.result_.valid == pytest.approx(expected)
    assert accuracy_score(y[held], predictions) != pytest.approx(expected)


def test_validation_data_may_have_weights_of_which_zeros_do_not_count():
    X, t, _, number = sequences(20)
    weight = np.array([0.0, 1.0, 3.0, 0.5, 2.0])
    validation = {"X": X[15:], "y": number[15:], "t": t[15:], "sample_weight": weight}
    fitted = SequenceRegressor(**SMALL).fit(X[:15], number[:15], t=t[:15], validation=validation)
    error = mean_squared_error(number[15:], fitted.predict(X[15:], t=t[15:]), sample_weight=weight)
    scale = fitted.target_standard_.scale[0]
    assert fitted.result_.valid == pytest.approx(error / scale**2, rel=1e-4)
    with pytest.raises(DataError, match="sample_weight is negative at 0"):
        SequenceRegressor(**SMALL).fit(
            X, number, t=t, validation={**validation, "sample_weight": -weight - 1}
        )
    with pytest.raises(ArgumentError, match="validation holds X, sample_weight, expected X and"):
        SequenceForecaster(**SMALL).fit(X, validation={"X": X, "sample_weight": np.ones(20)})


@pytest.mark.parametrize("weighed", [False, True])
@pytest.mark.parametrize("class_weight", ["balanced", {"up": 3.0, "down": 1.0}])
def test_classes_weigh_what_they_do_in_the_training_part(weighed, class_weight):
    X, t, y, _ = sequences(21)
    weight = np.linspace(0.5, 2, len(X)) if weighed else None
    trained, held = drawn(y, 0.3, stratify=True)
    share = [np.mean(y[part] == "up") for part in (trained, held)]
    assert share[0] != share[1]
    settings = {**SMALL, "class_weight": class_weight}
    model = SequenceClassifier(**settings, validation_fraction=0.3).fit(X, y, weight, t=t)
    train_weight, other = ([None] * 2) if weight is None else (weight[trained], weight[held])
    validation = {"X": taken(X, held), "y": y[held], "t": taken(t, held), "sample_weight": other}
    two = SequenceClassifier(**settings).fit(
        taken(X, trained), y[trained], train_weight, t=taken(t, trained), validation=validation
    )
    np.testing.assert_array_equal(model.predict_proba(X, t=t), two.predict_proba(X, t=t))
    assert model.result_.history[-1]["valid"] == two.result_.history[-1]["valid"]


def test_a_class_that_is_gone_in_what_goes_on_weighs_one():
    X, t, y, _ = sequences(20)
    going = SequenceClassifier(**SMALL, class_weight="balanced", warm_start=True).fit(X, y, t=t)
    ups = np.flatnonzero(y == "up")
    again = going.fit(taken(X, ups), y[ups], t=taken(t, ups))
    assert np.isfinite(again.predict_proba(X, t=t)).all()


@pytest.mark.parametrize("timed", [False, True])
def test_of_one_series_the_late_part_is_kept(timed):
    random = np.random.default_rng(0)
    X = random.normal(size=(200, 2)).cumsum(axis=0)
    gaps = np.concatenate([random.uniform(0.5, 1.5, 150), random.uniform(1, 2, 50)])
    t = {"t": gaps.cumsum()} if timed else {}
    early, late = (
        {name: v[part] for name, v in t.items()} for part in (slice(150), slice(150, 200))
    )
    ahead = {"max_lead_time": 2.5} if timed else {"horizon": 2}
    model = SequenceForecaster(**SMALL, **ahead, window=20, validation_fraction=0.25).fit(X, **t)
    two = SequenceForecaster(**SMALL, **ahead, window=20).fit(
        X[:150], **early, validation={"X": X[150:], **late}
    )
    losses = [
        [(row["train_loss"], row["valid"]) for row in f.result_.history] for f in (model, two)
    ]
    assert losses[0] == losses[1]
    when = {"at": [1.0, 2.5]} if timed else {}
    np.testing.assert_array_equal(model.predict(X, **t, **when), two.predict(X, **t, **when))


def test_what_is_too_little_to_validate_on_is_refused():
    X, t, _, number = sequences(1)
    series = np.arange(20.0)[:, None]
    for share, left in ((0.05, 19), (0.99, 0), (0.91, 1)):
        words = f"of a series of 20 samples leaves {left} to train on and {20 - left} to validate"
        with pytest.raises(DataError, match=words):
            SequenceForecaster(**SMALL, validation_fraction=share).fit(series)
    with pytest.raises(DataError, match="keeps sequences for validation, and X has one"):
        SequenceRegressor(**SMALL, validation_fraction=0.2).fit(X, number, t=t)
    with pytest.raises(ArgumentError, match="leaves nothing to train on"):
        SequenceForecaster(**SMALL, validation_fraction=1.0).fit(series)
