"""Missing values as inputs: the last observed value and what was observed, against pandas."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from tauflow.batch import SequenceBatch
from tauflow.data import from_table
from tauflow.data.imputation import impute_with_indicators
from tauflow.estimators import SequenceClassifier
from tauflow.models.spec import ModelSpec, build_model
from tauflow.predict import Predictor, load_predictor

FEATURES = ["a", "b", "c"]


def visits(seed=0, people=30, rows=None):
    """Return a table of which a is whole, b has gaps, and c is never measured in some people."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(2, 8, people) if rows is None else np.full(people, rows)
    who = np.repeat(np.arange(people), lengths)
    table = pd.DataFrame(rng.normal(5.0, 2.0, (len(who), 3)), columns=FEATURES)
    table.loc[rng.random(len(who)) < 0.5, "b"] = np.nan
    table.loc[(rng.random(len(who)) < 0.5) | (who % 3 == 0), "c"] = np.nan
    table.insert(0, "who", who)
    table.insert(1, "day", rng.exponential(1.0, len(who)).cumsum())
    return table.assign(died=np.where(who % 2, "no", "yes"))


def expected(table, mean, scale):
    """Return the inputs of each row: scaled, filled, and what was measured of b and c."""
    scaled = (table[FEATURES] - mean) / scale
    filled = scaled.groupby(table["who"]).ffill().fillna(0.0)
    return np.concatenate([filled, table[["b", "c"]].notna()], axis=1)


SAID = {"id": "who", "time": "day", "target": "died"}


@pytest.mark.parametrize("window", [None, 3])
def test_tables_have_the_last_value_of_the_sequence(window):
    table = visits(rows=None if window is None else 2 * window)
    more = {} if window is None else {"window": window}
    data = from_table(table, **SAID, missing="inputs", **more)
    assert data.schema.inputs == (*FEATURES, "b measured", "c measured")
    mean, scale = data.schema.x_mean[:3].numpy(), data.schema.x_scale[:3].numpy()
    table = table.assign(who=table["who"].astype(str))
    for part in ("train", "valid", "test"):
        batch = getattr(data, part)
        assert batch.observed is None
        want = []
        for id_ in dict.fromkeys(data.schema.ids[part]):
            rows = table[table["who"] == id_]
            size = window or len(rows)
            for start in range(0, len(rows), size):
                padded = np.zeros(batch.x.shape[1:])
                piece = expected(rows[start : start + size], mean, scale)
                padded[: len(piece)] = piece
                want.append(padded)
        values_read, want = batch.x.numpy(), np.stack(want)
        values_read, want = (array[array[:, 0, 0].argsort()] for array in (values_read, want))
        np.testing.assert_allclose(values_read, want, atol=1e-5)


def test_a_new_table_is_filled_as_the_one_that_was_trained_on(tmp_path):
    table, new = visits(), visits(1, 9)
    data = from_table(table, **SAID, missing="inputs")
    torch.manual_seed(0)
    model = build_model(ModelSpec("gru", 4), data.card)
    predictor = Predictor.from_data(model, data)
    predictor.save(tmp_path / "one.safetensors")
    again = load_predictor(tmp_path / "one.safetensors")
    mean, scale = data.schema.x_mean[:3].numpy(), data.schema.x_scale[:3].numpy()
    for reader in (predictor, again):
        batch = reader.read_table(new).batch()
        assert batch.observed is None
        rows = np.concatenate([x[:n] for x, n in zip(batch.x, batch.lengths.tolist(), strict=True)])
        np.testing.assert_allclose(rows, expected(new, mean, scale), atol=1e-5)


def test_predictors_of_before_fill_in_the_mean():
    data = from_table(visits(), **SAID, missing="inputs")
    old = replace(data.schema, fill="mean")
    model = build_model(ModelSpec("gru", 4), data.card)
    x = Predictor(model, data.card, old).read_table(visits(1, 9)).batch().x
    measured = x[..., [3, 4]] > 0
    assert not x[..., [1, 2]][~measured].any()
    assert x[..., [1, 2]][measured].all()


@pytest.mark.parametrize("form", ["list", "table"])
def test_estimators_have_the_last_value_of_the_sequence(form):
    table = visits()
    parts = [rows for _, rows in table.groupby("who")]
    X, y = [part[FEATURES] for part in parts], [part["died"].iloc[0] for part in parts]
    settings = {"hidden_size": 4, "epochs": 1, "backend": "reference", "validation_fraction": 0}
    settings |= {"input_limit": None, "ensemble": 1}
    classifier = SequenceClassifier(model="gru", **settings, dtype="float64")
    if form == "table":
        classifier.fit(table[["who", "day", *FEATURES]], y, id="who", time="day")
        rows = classifier._read_rows(table, {}, reset=False)
    else:
        t = [part["day"].to_numpy() for part in parts]
        classifier.fit(X, y, t=t)
        rows = classifier._read_rows(X, {"t": t}, reset=False)
    batch = classifier._to_batch(rows)
    seen = np.concatenate([x[:n] for x, n in zip(batch.x, rows.lengths, strict=True)])
    features = table[FEATURES]
    np.testing.assert_allclose(
        seen, expected(table, features.mean(), features.std(ddof=0)), atol=1e-9
    )


@pytest.mark.parametrize(
    ("fill", "row"), [("last", [0.0, 3.0, 3.0, 5.0, 0.0]), ("mean", [0.0, 3.0, 0.0, 5.0, 0.0])]
)
def test_what_stands_for_a_missing_value(fill, row):
    x = torch.tensor([[[0.0], [3.0], [0.0], [5.0], [0.0]]])
    there = torch.tensor([[False, True, False, True, False]])
    mask = torch.tensor([[True, True, True, True, False]])
    batch = SequenceBatch(x, torch.zeros(1), mask=mask, observed=there.unsqueeze(-1))
    filled = impute_with_indicators(batch, [0], fill=fill)
    assert filled.x[0, :, 0].tolist() == row
    assert filled.x[0, :, 1].tolist() == there[0].float().tolist()
    assert x[0, 2, 0] == 0  # the batch that came in is as it was


def test_no_input_is_constant_in_training_for_values_that_other_parts_lack():
    table = visits()
    ids = table["who"].unique()
    parts = {"train": ids[:-6].tolist(), "valid": ids[-6:-3].tolist(), "test": ids[-3:].tolist()}
    table.loc[table["who"].isin(parts["test"]) & (table["day"] > table["day"].min()), "a"] = np.nan
    options = {**SAID, "features": ["a", "b"], "split": parts, "missing": "inputs"}
    data = from_table(table, **options)
    assert data.schema.inputs == ("a", "b", "b measured")
    assert any(
        "lack values in the validation or test split alone: a." in n for n in data.card.notes
    )
    assert torch.isfinite(data.test.x).all()
