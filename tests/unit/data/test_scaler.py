"""Means and deviations against exact arithmetic, and what becomes of columns far from zero."""

from fractions import Fraction

import numpy as np
import pandas
import pytest
from own_tables import unpadded
from sklearn import preprocessing

from tauflow.data import from_table
from tauflow.data.scaler import StandardScaler
from tauflow.estimators import SequenceClassifier, SequenceForecaster, SequenceRegressor

DRAWN = np.random.default_rng(0).normal(size=400)
CONSTANTS = {
    "zero": np.zeros(400),
    "a tenth": np.full(400, 0.1),
    "a serial number": np.full(400, 1234567890123456789),
    "nanoseconds": np.full(400, 1700000000123456789),
    "the largest integer": np.full(400, 2**64 - 1, np.uint64),
    **{f"{size:g}": np.full(400, size) for size in (-1e20, 1e30, 3.3e38)},
}
VARYING = {
    "ordinary": 3.0 + 2.0 * DRAWN,
    "milliseconds": 1.7e9 + 1e-3 * DRAWN,
    "1e6": 1e6 + 5e-7 * DRAWN,
    "3e8": 3e8 + 2e-4 * DRAWN,
    "1e12": 1e12 + np.where(DRAWN > 0, 0.5, -0.5),
    "1e20": 1e20 + 1e6 * DRAWN,
    "tiny": 1e-200 * DRAWN,
    "huge": 1e37 * DRAWN,
    "nanoseconds": 1700000000123456789 + (1e6 * DRAWN).astype(np.int64),
    "unsigned": np.uint64(2**64 - 2**30) + (1e6 * np.abs(DRAWN)).astype(np.uint64),
    "from one end to the other": np.array([-(2**63), 2**63 - 1] * 200),
}


def exactly(values, weight=None):
    """Return the mean and the deviation that fractions of integers have, as doubles."""
    weight = [1] * len(values) if weight is None else weight
    pairs = [(Fraction(v), Fraction(w)) for v, w in zip(values.tolist(), weight, strict=True)]
    total = sum(w for _, w in pairs)
    mean = sum(v * w for v, w in pairs) / total
    variance = sum(w * (v - mean) ** 2 for v, w in pairs) / total
    scaled = Fraction(10) ** 600  # so that the root of a tiny number is not one of 0
    root = Fraction(_root(int(variance * scaled)), 10**300)
    return float(mean), float(root)


def _root(number):
    guess = 1 << ((number.bit_length() + 1) // 2)
    while (better := (guess + number // guess) // 2) < guess:
        guess = better
    return guess


@pytest.mark.parametrize("name", VARYING)
@pytest.mark.parametrize("weighted", [False, True])
def test_mean_and_deviation_are_those_of_exact_arithmetic(name, weighted):
    values = VARYING[name]
    weight = np.random.default_rng(1).integers(0, 5, 400).astype(float) if weighted else None
    mean, deviation = exactly(values, weight)
    scaler = StandardScaler.fit([values], weight)
    assert abs(scaler.mean[0] - mean) <= np.spacing(max(abs(mean), deviation))
    assert abs(scaler.scale[0] - deviation) <= 4 * np.spacing(deviation)
    scaled = scaler.transform_columns(0, [values])[0]
    assert np.sqrt(
        np.average((scaled - np.average(scaled, weights=weight)) ** 2, weights=weight)
    ) == (pytest.approx(1.0, rel=1e-12))


def test_ordinary_columns_are_scaled_as_by_scikit_learn():
    values = np.stack([3.0 + 2.0 * DRAWN, DRAWN**3, np.where(DRAWN > 0, np.nan, DRAWN)], 1)
    theirs, ours = preprocessing.StandardScaler().fit(values), StandardScaler.fit(values.T)
    np.testing.assert_allclose(ours.mean, theirs.mean_, rtol=1e-14)
    np.testing.assert_allclose(ours.scale, theirs.scale_, rtol=1e-14)
    np.testing.assert_allclose(
        ours.transform(values), theirs.transform(values), rtol=1e-12, atol=1e-14
    )
    np.testing.assert_allclose(
        ours.inverse_transform(ours.transform(values)), values, rtol=1e-14, atol=1e-15
    )


@pytest.mark.parametrize("name", CONSTANTS)
def test_a_constant_column_is_exactly_0(name):
    column = CONSTANTS[name]
    assert (
        StandardScaler.fit([column], 0.1 + np.arange(400))
        .transform_columns(0, [column])[0]
        .tolist()
        == [0.0] * 400
    )
    table = table_with(column)
    data = from_table(table, id="id", time="t", target="y")
    assert data.schema.inputs == ("a", "c")
    assert all(not part.x[..., 1].any() for part in (data.train, data.valid, data.test))
    assert float(data.schema.x_scale[1]) == 0.0
    (note,) = [note for note in data.card.notes if note.startswith("Constant")]
    assert note.endswith(": c.")
    np.testing.assert_array_equal(unpadded(data)["0"][:, 1], column[:5].astype(float))
    X = np.stack([DRAWN, column.astype(float)], -1).reshape(80, 5, 2)
    fitted = classifier().fit(X, np.arange(80) % 2, sample_weight=0.3 + np.arange(80) % 3)
    assert not fitted._to_batch(fitted._read_rows(X, {}, reset=False)).x[..., 1].any()


@pytest.mark.parametrize("name", [name for name in VARYING if name not in ("tiny", "huge")])
def test_a_column_that_varies_has_deviation_1(name):
    column = VARYING[name]
    data = from_table(table_with(column), id="id", time="t", target="y")
    x = data.train.x[..., 1].double().numpy()
    assert x.std() == pytest.approx(1.0, rel=1e-5)
    training_rows = column.reshape(80, 5)[[int(who) for who in data.schema.ids["train"]]].ravel()
    first = int(training_rows[0])
    centred = np.array([float(Fraction(v) - first) for v in training_rows.tolist()])
    wanted = (centred - centred.mean()) / centred.std()
    # The mean is a double: of nanoseconds a multiple of 256, near 1e20 of 16384.
    np.testing.assert_allclose(x.ravel(), wanted, atol=1e-2 if name == "1e20" else 2e-3)


def table_with(column):
    return pandas.DataFrame(
        {
            "id": np.repeat(np.arange(80), 5),
            "t": np.tile(np.arange(5.0), 80),
            "a": DRAWN,
            "c": column,
            "y": np.repeat(np.arange(80) % 2, 5),
        }
    )


def classifier(**options):
    return SequenceClassifier(model="gru", hidden_size=2, epochs=1, random_state=0, **options)


@pytest.mark.parametrize("offset", [1e6, 3e8, 1e12])
def test_targets_far_from_zero_have_deviation_1(offset):
    scale = offset * 1e-9
    y = offset + scale * DRAWN[:80]
    table = table_with(DRAWN).assign(y=np.repeat(y, 5))
    data = from_table(table, id="id", time="t", target="y", task="regression")
    assert float(data.train.y.std(correction=0)) == pytest.approx(1.0, rel=1e-5)
    X = DRAWN.reshape(80, 5, 1)
    regressor = SequenceRegressor(model="gru", hidden_size=2, epochs=1, random_state=0)
    standard = regressor.fit(X, y, sample_weight=1 + np.arange(80.0)).target_standard_
    mean, deviation = exactly(y, (1 + np.arange(80)).tolist())
    assert standard.mean[0] == pytest.approx(mean, rel=1e-15)
    assert standard.scale[0] == pytest.approx(deviation, rel=1e-12)


def test_targets_that_are_constant_are_0_and_predicted_in_their_unit():
    X = DRAWN.reshape(80, 5, 1)
    series = np.concatenate([X, np.full_like(X, 7e15)], -1)
    forecaster = SequenceForecaster(model="gru", hidden_size=2, epochs=1, random_state=0)
    forecast = forecaster.fit(series).predict(series)[:, 0, 1]
    assert np.isfinite(forecast).all()
    assert np.abs(forecast - 7e15).max() < 10
    regressor = SequenceRegressor(model="gru", hidden_size=2, epochs=1, random_state=0)
    assert np.abs(regressor.fit(X, np.full(80, 3.0)).predict(X) - 3.0).max() < 10


@pytest.mark.parametrize("model", ["gru", "gru-d", "cfc", "ltc"])
@pytest.mark.parametrize("impute", ["mean", "last"])
def test_values_of_a_feature_never_measured_do_not_move_answers(model, impute):
    X = DRAWN.reshape(40, 5, 2).copy()
    X[..., 1] = np.nan
    y = np.arange(40) % 2
    fitted = SequenceClassifier(model=model, hidden_size=4, epochs=2, random_state=0, impute=impute)
    with pytest.warns(UserWarning, match="nothing is learned: 1. Values of them are ignored"):
        fitted.fit(X, y)
    before = fitted.predict_proba(X)
    other = X.copy()
    other[..., 1] = 5000.0
    with pytest.warns(UserWarning, match="ignored of features .* or never measured, .*: 1"):
        assert np.array_equal(fitted.predict_proba(other), before)
    other[3:, :, 1] = np.nan
    with pytest.warns(UserWarning, match="never measured"):
        assert np.array_equal(fitted.predict_proba(other), before)


def test_a_feature_that_only_the_validation_part_measured_is_one_never_measured():
    X = DRAWN.reshape(40, 5, 2).copy()
    y = np.arange(40) % 2
    X[:30, :, 1] = np.nan
    fitted = SequenceClassifier(model="gru-d", hidden_size=4, epochs=2, random_state=0)
    with pytest.warns(UserWarning, match="nothing is learned"):
        fitted.fit(X[:30], y[:30], validation=(X[30:], y[30:]))
    other = X[30:].copy()
    other[..., 1] *= 1e3
    with pytest.warns(UserWarning, match="never measured"):
        assert np.array_equal(fitted.predict_proba(other), fitted.predict_proba(X[30:]))


@pytest.mark.parametrize("constant", [0.0, 7.5, 1e30])
def test_other_values_of_a_constant_feature_do_not_move_answers(constant):
    X = DRAWN.reshape(40, 5, 2).copy()
    X[..., 1] = constant
    fitted = classifier().fit(X, np.arange(40) % 2)
    other = X.copy()
    other[..., 1] = 4.0
    with pytest.warns(UserWarning, match="constant, or never measured, in training: 1"):
        assert np.array_equal(fitted.predict_proba(other), fitted.predict_proba(X))


def test_what_cannot_be_forecast_is_named():
    X = DRAWN.reshape(40, 5, 2).copy()
    X[..., 1] = np.nan
    forecaster = SequenceForecaster(model="gru", hidden_size=2, epochs=1)
    with (
        pytest.warns(UserWarning, match="nothing is learned"),
        pytest.raises(ValueError, match="feature 1 has no value in the training split"),
    ):
        forecaster.fit(X)


def test_a_standard_that_an_earlier_version_saved_is_read_and_used_as_it_was(tmp_path):
    X = DRAWN.reshape(40, 5, 2).copy()
    X[..., 1] = 7.5
    fitted = classifier().fit(X, np.arange(40) % 2)
    # As 1 stood for the deviation of constants, and 0 and 1 for what was never measured.
    fitted.schema_.x_scale[1] = 1.0
    fitted.save(tmp_path / "e.safetensors")
    loaded = SequenceClassifier.load(tmp_path / "e.safetensors")
    other = X.copy()
    other[..., 1] = 4.0
    assert np.array_equal(loaded.predict_proba(other), fitted.predict_proba(other))
    assert not np.array_equal(loaded.predict_proba(other), loaded.predict_proba(X))


def test_pickles_name_a_class_that_is_still_there():
    from tauflow.estimators import preparation

    assert preparation.StandardScaler is StandardScaler


def test_many_columns_together_are_as_each_alone():
    rng = np.random.default_rng(0)
    columns = [rng.normal(10.0**k, 1.0, 37) for k in range(-8, 12)]
    columns += [np.full(37, 5.5), np.where(rng.random(37) < 0.3, np.nan, 1e8), np.arange(37)]
    columns += [rng.normal(size=12), np.arange(37) % 2 == 0, np.full(37, np.nan), columns[3]]
    together = StandardScaler.fit(columns)
    alone = [StandardScaler.fit([column]) for column in columns]
    weighted = [StandardScaler.fit([column], np.ones(len(column))) for column in columns]
    for name in ("mean", "scale"):
        expected = np.concatenate([getattr(scaler, name) for scaler in alone])
        np.testing.assert_array_equal(getattr(together, name), expected)
        by_itself = np.concatenate([getattr(scaler, name) for scaler in weighted])
        np.testing.assert_array_equal(getattr(together, name), by_itself)
    full = [place for place, column in enumerate(columns) if len(column) == 37]
    some = StandardScaler(together.mean[full], together.scale[full])
    scaled = some.transform_columns(0, [columns[place] for place in full])
    for place, row in zip(full, scaled, strict=True):
        scaler = alone[place]
        np.testing.assert_array_equal(row, scaler.transform_columns(0, [columns[place]])[0])
