"""Tables are read by a schema: text is a category, and what was learned can be printed."""

import numpy as np
import pandas as pd
import polars
import pytest
from irregular_samples import SMALL, sequences

from tauflow.data import Schema, from_table
from tauflow.errors import DataError, UnknownNameError
from tauflow.estimators import (
    SequenceClassifier,
    SequenceCollection,
    SequenceForecaster,
    SequenceImputer,
    SequenceRegressor,
)

ROLES = {"id": "who", "time": "at"}


def table(count=24):
    """Return rows with a ward, in text, missing in some, and the numbers that stand for it."""
    X, t, y, number = sequences(count, missing=0.2)
    frame = pd.DataFrame(np.concatenate(X), columns=["a", "b"]).assign(
        who=np.repeat(np.arange(count), [len(x) for x in X]), at=np.concatenate(t)
    )
    rng = np.random.default_rng(0)
    ward = rng.choice(["north", "south", "west", None], len(frame))
    coded = frame.assign(**{f"ward={name}": ward == name for name in ("north", "south", "west")})
    return frame.assign(ward=ward), coded.astype(float), y, number


@pytest.mark.parametrize("model", ["cfc", "gru-d"])
def test_text_is_a_category_with_an_input_for_each(model):
    frame, coded, y, _ = table()
    fitted = SequenceClassifier(**SMALL, model=model).fit(frame, y, **ROLES)
    assert fitted.feature_names_in_.tolist() == ["a", "b", "ward"]
    rows = fitted._read_rows(frame, {}, reset=False)
    names = ["a", "b", "ward=north", "ward=south", "ward=west"]
    np.testing.assert_array_equal(rows.values, coded[names])
    x = fitted._to_batch(rows).x[..., 2:5]
    seen = np.concatenate([values[:n] for values, n in zip(x, rows.lengths, strict=True)])
    np.testing.assert_array_equal(seen, coded[names[2:]])  # not scaled
    expected = fitted.predict_proba(frame)
    for other in (polars.from_pandas(frame), frame.assign(ward=frame["ward"].astype("category"))):
        np.testing.assert_array_equal(fitted.predict_proba(other), expected)
    parts = [part.drop(columns=["who", "at"]) for _, part in frame.groupby("who")]
    listed = SequenceClassifier(**SMALL, model=model).fit(parts, y)
    np.testing.assert_array_equal(listed._read_rows(parts, {}, reset=False).values, coded[names])
    with pytest.raises(DataError, match=r"holds 'east', a category that the table of the training"):
        fitted.predict(frame.assign(ward="east"))
    with pytest.raises(DataError, match=r"X\[3\], row 0 .* column 'ward' holds 'east', a category"):
        listed.predict([*parts[:3], parts[3].assign(ward="east")])


def test_inputs_are_those_of_tables():
    frame, _, y, _ = table()
    labels = frame.assign(y=np.repeat(y, frame.groupby("who").size()))
    plain = {"validation_fraction": 0, "input_limit": None, "model": "cfc"}
    fitted = SequenceClassifier(**SMALL, **plain).fit(labels, "y", **ROLES)
    split = {"train": list(range(22)), "valid": [22], "test": [23]}
    inside = SequenceClassifier(**SMALL, **plain)
    inside.fit(labels[labels["who"] < 22], "y", **ROLES)
    data = from_table(labels, **ROLES, target="y", split=split, missing="inputs")
    assert set(data.schema.inputs) == set(inside.schema_.inputs) == set(fitted.schema_.inputs)
    batch = inside._to_batch(inside._read_rows(labels[labels["who"] < 22], {}, reset=False))
    steps = data.train.x.shape[1]
    np.testing.assert_allclose(batch.x[:, :steps], data.train.x, rtol=0, atol=1e-6)
    np.testing.assert_allclose(batch.dt[:, :steps], data.train.dt, rtol=1e-6)


def test_collections_have_categories_of_their_own(tmp_path):
    frame, _, _, number = table()
    X = SequenceCollection(frame, **ROLES)
    fitted = SequenceRegressor(**SMALL).fit(X, number)
    expected = SequenceRegressor(**SMALL).fit(frame, number, **ROLES).predict(frame)
    np.testing.assert_array_equal(fitted.predict(X), expected)
    few = frame["ward"] != "west"
    part = SequenceCollection(frame[few], **ROLES)
    np.testing.assert_array_equal(fitted.predict(part), fitted.predict(frame[few]))
    small = SequenceRegressor(**SMALL).fit(part, number[part.ids])
    with pytest.raises(DataError, match="column 'ward' holds 'west', a category that"):
        small.predict(X)
    with pytest.raises(UnknownNameError, match="feature"):
        fitted.predict(SequenceCollection(frame.drop(columns="ward"), **ROLES))
    fitted.save(tmp_path / "it.safetensors")
    loaded = SequenceRegressor.load(tmp_path / "it.safetensors")
    np.testing.assert_array_equal(loaded.predict(frame), expected)
    assert loaded.schema_ == fitted.schema_


def test_categories_are_neither_forecast_nor_filled():
    frame, _, _, _ = table()
    model = SequenceForecaster(**SMALL).fit(frame, **ROLES)
    assert model.predict(frame).shape == (24, 1, 2)
    with pytest.raises(UnknownNameError, match="targets"):
        SequenceForecaster(**SMALL, targets="ward").fit(frame, **ROLES)
    imputer = SequenceImputer(model="gru", hidden_size=2, epochs=1, random_state=0)
    filled = imputer.fit(frame, **ROLES).transform(frame)
    assert filled[["a", "b"]].notna().all(axis=None)
    pd.testing.assert_series_equal(filled["ward"], frame["ward"])


def test_a_schema_says_how_x_is_read():
    frame, _, y, _ = table()
    schema = SequenceClassifier(**SMALL).fit(frame, y, **ROLES).schema_
    assert isinstance(schema, Schema)
    text = str(schema)
    assert "ward  feature  text" in text
    assert "categories north, south, west" in text
    assert "Times: numbers in unit of 'at'; a time step of 1 is" in text
    assert "Split" not in text
    X, t, y, _ = sequences()
    schema = SequenceClassifier(**SMALL).fit(X, y, t=t).schema_
    assert schema.features == ("0", "1")
    assert "mean" in str(schema)
