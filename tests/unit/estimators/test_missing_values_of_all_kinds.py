"""Masked entries, None, pandas.NA and NaT are missing, as NaN is; and what is no form of X."""

import datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tauflow.errors import ArgumentError, DataError, ShapeError, TimeError
from tauflow.estimators import SequenceClassifier, SequenceForecaster, SequenceRegressor
from tauflow.tabular.cell_values import to_array

RNG = np.random.default_rng(0)
X = RNG.normal(size=(24, 5, 2))
Y = np.arange(24) % 2
HOLE = RNG.random(X.shape) < 0.3
GIVEN = {"model": "gru", "hidden_size": 4, "epochs": 1, "random_state": 0}


def masked(values, mask=HOLE):
    """Return a masked array with NumPy's own fill value below the mask."""
    return np.ma.masked_array(np.where(mask, 1e20, values), mask=mask)


def objects(missing):
    objects_of_x = X.astype(object)
    objects_of_x[HOLE] = missing
    return objects_of_x


FORMS = {
    "masked": masked(X),
    "a list": [masked(x, hole) for x, hole in zip(X, HOLE, strict=True)],
    "a tuple": tuple(masked(x, hole) for x, hole in zip(X, HOLE, strict=True)),
    "integers": np.ma.masked_array(np.where(HOLE, 9, 1), mask=HOLE),
    "None": objects(None),
    "NA": objects(pd.NA),
    "NaT": objects(pd.NaT),
    "lists of None": objects(None).tolist(),
    "a list with NA": list(objects(pd.NA)),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("model", ["gru", "gru-d"])
def test_what_is_missing_in_x_is_as_nan(form, model):
    plain = np.where(HOLE, np.nan, np.ones_like(X) if form == "integers" else X)
    settings = {**GIVEN, "model": model}
    ours = SequenceClassifier(**settings).fit(FORMS[form], Y)
    theirs = SequenceClassifier(**settings).fit(plain, Y)
    np.testing.assert_array_equal(ours._feature_scaler.mean, theirs._feature_scaler.mean)
    np.testing.assert_array_equal(ours.predict_proba(FORMS[form]), theirs.predict_proba(plain))
    assert ours.score(FORMS[form], Y) == theirs.score(plain, Y)


@pytest.mark.parametrize("form", ["masked", "None", "NA"])
def test_what_is_missing_in_rows_of_one_step_and_in_a_series(form):
    two = {"masked": masked(X[:, 0], HOLE[:, 0]), "None": objects(None)[:, 0]}
    two["NA"] = pd.DataFrame(objects(pd.NA)[:, 0])
    plain = np.where(HOLE[:, 0], np.nan, X[:, 0])
    for kind in (SequenceClassifier, SequenceRegressor):
        ours, theirs = kind(**GIVEN).fit(two[form], Y), kind(**GIVEN).fit(plain, Y)
        np.testing.assert_array_equal(ours.predict(two[form]), theirs.predict(plain))
    ours = SequenceForecaster(**GIVEN).fit(two[form])
    theirs = SequenceForecaster(**GIVEN).fit(plain)
    np.testing.assert_array_equal(ours.predict(two[form]), theirs.predict(plain))


@pytest.mark.parametrize(
    ("name", "error"),
    [("t", TimeError), ("dt", TimeError), ("y", ValueError), ("sample_weight", ValueError)],
)
@pytest.mark.parametrize("missing", ["mask", None, pd.NA])
def test_a_missing_time_target_or_weight_is_an_error(name, error, missing):
    values = {"t": np.tile(np.arange(5.0), (24, 1)), "dt": np.ones((24, 5)), "y": Y + 0.5}
    values["sample_weight"] = np.ones(24)
    value = values[name]
    if isinstance(missing, str):
        mask = np.zeros(value.shape, bool)
        mask[3] = True
        values[name] = masked(value, mask)
    else:
        values[name] = value.astype(object)
        values[name][3] = missing
    y = values["y"]
    more = {} if name == "y" else {name: values[name]}
    with pytest.raises(error, match=r"finite|is nan|NaN|'t' is empty"):
        SequenceRegressor(**GIVEN).fit(X, y, **more)
    ours = SequenceRegressor(**GIVEN).fit(X, Y)
    with pytest.raises(error, match=r"finite|is nan|NaN|'t' is empty"):
        ours.score(X, y, **more)


def test_a_missing_class_is_named():
    place = np.arange(24) == 4
    y = np.ma.masked_array(Y, mask=place)
    nullable = pd.Series(Y, dtype="Int64").mask(place)
    texts = np.where(Y > 0, "a", "b").astype(object)
    for missing in (None, np.nan, pd.NA):
        texts[4] = missing
        for targets in (y, nullable, list(y.astype(str)), texts.copy(), texts.tolist()):
            with pytest.raises(DataError, match=r"y\[4\] is (nan|None), expected a class"):
                SequenceClassifier(**GIVEN).fit(X, targets)


def test_a_missing_date_is_named():
    dates = [[datetime.datetime(2024, 1, 1 + k) for k in range(5)] for _ in range(24)]
    dates[2][1] = None
    with pytest.raises(TimeError, match=r"X\[2\], row 1 .* column 't' is empty"):
        SequenceClassifier(**GIVEN).fit(X, Y, t=dates)
    mask = np.zeros((24, 5), bool)
    mask[2, 1] = True
    days = np.ma.masked_array(np.tile(np.arange(5).astype("datetime64[D]"), (24, 1)), mask=mask)
    with pytest.raises(TimeError, match=r"X\[2\], row 1 .* column 't' is empty"):
        SequenceClassifier(**GIVEN).fit(X, Y, t=days)


def test_what_is_not_missing_keeps_its_type():
    for values in (np.arange(3), np.array([1, 2], object), np.array(["a", "nan"])):
        assert to_array(values) is values
    without_mask = np.ma.masked_array([1, 2**62 + 1], mask=False)
    assert to_array(without_mask).tolist() == [1, 2**62 + 1]
    assert to_array(["a", None]).tolist() == ["a", None]


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "uint8", "uint16", "uint64"])
def test_differences_of_short_integers_do_not_wrap(dtype):
    info = np.iinfo(dtype)
    low, high = int(info.min), min(int(info.max), 2**40)
    t = np.tile(np.array([low, low + 1, high - 1, high], dtype), (24, 1))
    exact = np.tile(np.array([0.0, 1.0, high - 1 - low - 1, 1.0]), (24, 1))
    ours = SequenceClassifier(**GIVEN)
    rows = ours.fit(X[:, :4], Y, t=t)._read_rows(X[:, :4], {"t": t}, reset=False)
    np.testing.assert_array_equal(rows.dt.reshape(24, 4), exact)


KINDS = {"arrays": X, "a list": list(X)}


@pytest.mark.parametrize("kind", KINDS)
def test_one_sequence_without_its_axis_is_an_error_with_the_cure(kind):
    t = np.tile(np.arange(5.0), (24, 1))
    for estimator in (SequenceClassifier(**GIVEN), SequenceRegressor(**GIVEN)):
        estimator.fit(KINDS[kind], Y, t=t if kind == "arrays" else list(t))
        for call in (
            lambda e=estimator: e.predict(X[0], t=t[0]),
            lambda e=estimator: e.score(X[0], Y[:5], t=t[0]),
            lambda e=estimator: e.predict(pd.DataFrame(X[0])),
        ):
            with pytest.raises(ShapeError, match=r"Give X\[None\] if it is one sequence"):
                call()
        assert estimator.predict(X[0][None], t=t[:1]).shape == (1,)
    with pytest.raises(ShapeError, match=r"X\[0\]\[None\]"):
        SequenceClassifier(**GIVEN).fit(X, Y).predict_proba(X[0])


def test_it_stays_known_in_a_file_and_where_steps_are_single(tmp_path):
    SequenceClassifier(**GIVEN).fit(X, Y).save(tmp_path / "e.safetensors")
    loaded = SequenceClassifier.load(tmp_path / "e.safetensors")
    with pytest.raises(ShapeError, match="several steps"):
        loaded.predict(X[0])
    del loaded._one_step  # as of a file of an earlier version
    assert loaded.predict(X[0]).shape == (5,)
    single = SequenceClassifier(**GIVEN).fit(X[:, :1], Y)
    np.testing.assert_array_equal(single.predict(X[:, 0]), single.predict(X[:, :1]))
    again = SequenceClassifier(**GIVEN).fit(X, Y).fit(X[:, 0], Y)
    assert again.predict(X[0]).shape == (5,)


@pytest.mark.parametrize(
    ("x", "error", "match"),
    [
        ([np.ones(3 + i % 2) for i in range(24)], ValueError, "sequence"),
        ({"a": np.ones(24), "b": np.ones(24)}, ArgumentError, "X is a mapping"),
        ("a,b\n1,2\n", ArgumentError, "X is a str, expected an array.*read_csv"),
        (Path("a.csv"), ArgumentError, "X is a PosixPath"),
        (type("Styler", (), {"data": X})(), ArgumentError, "X is a Styler"),
        ({i: np.ones((3, 2)) for i in range(24)}, ArgumentError, r"list\(X.values\(\)\)"),
        (pd.DataFrame({"a": [np.ones(3) for _ in range(24)]}), ValueError, "sequence"),
    ],
)
def test_forms_of_x_that_are_none_are_named_with_the_cure(x, error, match):
    for kind in (SequenceClassifier, SequenceForecaster):
        with pytest.raises(error, match=match):
            kind(**GIVEN).fit(x, Y)


def test_classes_of_mixed_types_are_named():
    y = np.array([1, "a"] * 12, object)
    for targets in (y, list(y), pd.Series(y), [1.0, "a", True] * 8):
        with pytest.raises(DataError, match=r"y holds 'a' and (1|True), which is no text"):
            SequenceClassifier(**GIVEN).fit(X, targets)
