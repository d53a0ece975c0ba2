"""Gaps are filled better than by simple ways, and everything that was measured stays."""

import numpy as np
import pandas
import polars
import pytest
from irregular_samples import padded
from sklearn.base import clone

from tauflow.errors import ArgumentError, DataError, UnknownNameError
from tauflow.estimators import SequenceClassifier, SequenceCollection, SequenceImputer
from tauflow.tabular.gaps import carry_forward, hide_values, interpolate
from tauflow.tabular.sequences import Sequences

SMALL = {"model": "gru", "hidden_size": 12, "epochs": 40, "lr": 0.03, "random_state": 0}
SMALL |= {"batch_size": 16, "copies": 4, "validation_fraction": 0}


def waves(count, seed=0, missing=0.25):
    """Return waves of irregular times; the second feature is the first one in another unit."""
    rng = np.random.default_rng(seed)
    X, t = [], []
    for length in rng.integers(6, 14, count):
        times = rng.exponential(0.7, length).cumsum()
        wave = np.sin(times + rng.uniform(0, 6))
        x = np.stack([wave, 500 - 100 * wave], axis=1)
        x[rng.random(x.shape) < missing] = np.nan
        X.append(x)
        t.append(times)
    return X, t


@pytest.fixture(scope="module")
def fitted():
    X, t = waves(60)
    return SequenceImputer(**SMALL).fit(X, t=t)


def test_simple_ways_are_those_of_pandas():
    X, t = waves(20, missing=0.5)
    X[3][:, 0] = np.nan
    rows = Sequences(
        values=np.concatenate(X),
        lengths=np.array([len(x) for x in X]),
        dt=np.concatenate([np.diff(times_of_id, prepend=times_of_id[0]) for times_of_id in t]),
    )
    lines, last = interpolate(rows), carry_forward(rows)
    for start, length, x, times in zip(rows.starts, rows.lengths, X, t, strict=True):
        frame = pandas.DataFrame(x, index=times)
        part = slice(start, start + length)
        expected = frame.interpolate("index", limit_direction="both")
        np.testing.assert_allclose(lines[part], expected, rtol=1e-10)
        np.testing.assert_allclose(last[part], frame.ffill())


def test_hidden_are_measured_values_alone_or_whole_rows():
    X, _ = waves(30)
    rows = Sequences(values=np.concatenate(X), lengths=np.array([len(x) for x in X]))
    there = ~np.isnan(rows.values)
    single = hide_values(rows, 0.3, "values", np.random.default_rng(0))
    whole_rows = hide_values(rows, 0.3, "rows", np.random.default_rng(0))
    for hidden in (single, whole_rows):
        assert not (hidden & ~there).any()
        assert 0.2 < hidden.sum() / there.sum() < 0.4
    assert (whole_rows[whole_rows.any(1)] == there[whole_rows.any(1)]).all()
    assert not (single[single.any(1)] == there[single.any(1)]).all()


def test_what_the_other_feature_tells_beats_interpolation(fitted):
    X, t = waves(60, seed=1)
    errors = fitted.compare(X, t=t)
    assert list(errors) == ["imputer", "linear interpolation", "last value", "mean"]
    ratio = errors["imputer"] / errors["linear interpolation"]
    assert (ratio < 0.8).all()
    assert (errors["linear interpolation"] < errors["last value"]).all()
    assert 50 < errors["mean"][1] < 90  # in the unit of the second feature
    assert fitted.score(X, t=t) > 0.7


def estimate_by_rits(cell, x, dt):
    """Return what one direction estimates, (T, D), by the equations of the paper in NumPy."""
    w = {name: p.detach().double().numpy() for name, p in cell.named_parameters()}
    h = memory = np.zeros(len(w["b_h"]))
    age, estimates = np.zeros(x.shape[1]), []
    for values, step in zip(x, dt, strict=True):
        known, delta = ~np.isnan(values), step + age
        decay_h = np.exp(-np.maximum(w["W_h"] @ delta + w["b_h"], 0))
        decay_x = np.exp(-np.maximum(w["w_x"] * delta + w["b_x"], 0))
        history = w["V"] @ h + w["c"]
        filled = np.where(known, values, history)
        others = (w["U"] - np.diag(np.diag(w["U"]))) @ filled + w["d"]
        beta = 1 / (1 + np.exp(-w["W_beta"] @ np.append(decay_x, known) - w["b_beta"]))
        estimate = beta * others + (1 - beta) * history
        read = np.append(np.where(known, values, estimate), known)
        gates = w["W_lstm"] @ read + w["b_lstm"] + w["R_lstm"] @ (decay_h * h) + w["b_r"]
        i, f, g, o = np.split(gates, 4)
        i, f, o = (1 / (1 + np.exp(-gate)) for gate in (i, f, o))
        memory = f * memory + i * np.tanh(g)
        h, age = o * np.tanh(memory), np.where(known, 0, delta)
        estimates.append(estimate)
    return np.array(estimates)


def test_brits_fills_with_the_mean_of_both_directions():
    X, t = waves(40)
    imputer = SequenceImputer(**{**SMALL, "model": "brits", "epochs": 20}).fit(X, t=t)
    scale = imputer.schema_.input_scaler
    cells = imputer.module_.rnn.cells
    for x, times, filled in zip(X[:3], t, imputer.transform(X[:3], t=t[:3]), strict=False):
        scaled = (x - scale.mean) / scale.scale
        dt = np.diff(times, prepend=times[0]) / imputer.schema_.gap
        back = np.append(dt[:1], dt[1:][::-1])  # before a sample lies the step that was after it
        both = [
            estimate_by_rits(cells[0], scaled, dt),
            estimate_by_rits(cells[1], scaled[::-1], back)[::-1],
        ]
        expected = np.where(np.isnan(x), np.mean(both, 0) * scale.scale + scale.mean, x)
        np.testing.assert_allclose(filled, expected, rtol=1e-3, atol=1e-3)
    errors = imputer.compare(X, t=t)
    assert (errors["imputer"] < 0.8 * errors["mean"]).all()


def test_brits_has_no_other_targets():
    with pytest.raises(ArgumentError, match="model='brits' of SequenceImputer"):
        SequenceClassifier(model="brits", epochs=1).fit(np.zeros((9, 3, 2)), np.arange(9) % 3)


def test_errors_are_in_the_order_of_the_features_of_a_table():
    X, t = waves(20)
    owner = np.repeat(np.arange(20), [len(x) for x in X])
    table = pandas.DataFrame({"who": owner, "when": np.concatenate(t), "ward": owner % 2})
    table["ward"] = np.where(owner % 2, "north", "south")
    table[["a", "b"]] = np.concatenate(X)
    imputer = SequenceImputer(**{**SMALL, "epochs": 1}).fit(table, id="who", time="when")
    assert imputer.feature_names_in_.tolist() == ["ward", "a", "b"]
    for errors in imputer.compare(table).values():
        assert np.isnan(errors[0])
        assert errors[1] < 5 < 20 < errors[2]


def test_the_truth_of_missing_values_is_estimated_and_measured_ones_stay(fitted):
    X, t = waves(40, seed=2, missing=0.0)
    rng = np.random.default_rng(0)
    gappy = [np.where(rng.random(x.shape) < 0.25, np.nan, x) for x in X]
    filled = fitted.transform(gappy, t=t)
    for complete, part, estimate in zip(X, gappy, filled, strict=True):
        there = ~np.isnan(part)
        assert np.array_equal(estimate[there], complete[there])
    errors = np.concatenate(
        [(a - b)[np.isnan(g)[:, 0], 0] for a, b, g in zip(filled, X, gappy, strict=True)]
    )
    assert np.sqrt((errors**2).mean()) < 0.35


def test_every_form_of_x_comes_back_in_its_own(fitted):
    X, t = waves(6, seed=3)
    expected = np.concatenate(fitted.transform(X, t=t))
    padded_x, lengths = padded(X, fill=7.0)
    times, _ = padded(t)
    estimates = fitted.transform(padded_x, t=times, lengths=lengths)
    valid = np.arange(padded_x.shape[1]) < lengths[:, None]
    np.testing.assert_allclose(estimates[valid], expected, rtol=1e-6)
    assert (estimates[~valid] == 7.0).all()
    turned = clone(fitted).set_params(layout="BIT", epochs=1)
    turned.fit(padded_x.swapaxes(1, 2), t=times, lengths=lengths)
    assert turned.transform(padded_x.swapaxes(1, 2), t=times, lengths=lengths).shape == (
        6,
        2,
        padded_x.shape[1],
    )
    several = fitted.transform(SequenceCollection(X, t=t))
    np.testing.assert_allclose(np.concatenate(several), expected, rtol=1e-6)


@pytest.mark.filterwarnings("ignore::tauflow.errors.ShiftWarning")
def test_tables_are_filled_cell_by_cell():
    X, t = waves(25)
    table = pandas.DataFrame(np.concatenate(X), columns=["a", "b"])
    table["id"] = np.repeat(np.arange(25), [len(x) for x in X])
    table["time"] = np.concatenate(t)
    table["age"] = np.where(table["id"] == 3, np.nan, 50.0 + table["id"])
    table = table.sort_values("time", kind="stable")  # ids interleaved, and another index
    imputer = SequenceImputer(**{**SMALL, "epochs": 2})
    roles = {"id": "id", "time": "time", "static": ["age"]}
    filled = imputer.fit_transform(table, **roles)
    assert list(filled.columns) == list(table.columns)
    assert filled.index.equals(table.index)
    assert filled[["a", "b"]].notna().all().all()
    pandas.testing.assert_series_equal(filled["age"], table["age"])
    there = table[["a", "b"]].notna()
    pandas.testing.assert_frame_equal(filled[["a", "b"]].where(there), table[["a", "b"]])
    single = imputer.transform(table[table["id"] == 4])
    pandas.testing.assert_frame_equal(single, filled[filled["id"] == 4], rtol=1e-5)
    other = imputer.transform(polars.from_pandas(table))
    np.testing.assert_allclose(other["b"].to_numpy(), filled["b"], rtol=1e-6)
    columns = imputer.transform({name: table[name].to_numpy() for name in table})
    np.testing.assert_allclose(columns["b"], filled["b"], rtol=1e-6)
    long = table.melt(["id", "time"], ["a", "b"]).dropna()
    imputer.fit(long, id="id", time="time", long=["variable", "value"])
    for rows in (long, long[long["variable"] == "a"]):
        with pytest.raises(ArgumentError, match="Pivot it to one row per id and time"):
            imputer.transform(rows)


def test_the_network_reads_interpolated_values_and_what_was_measured(fitted):
    X = [np.array([[0.0, 400.0], [np.nan, 500.0], [np.nan, np.nan], [1.5, 450.0]])]
    rows = fitted._read_rows(X, {"t": [np.array([0.0, 1.0, 2.0, 3.0])]}, reset=False)
    x = fitted._to_batch(rows).x[0].double().numpy()
    scaled = fitted._feature_scaler.inverse_transform(x[:, :2])
    expected = [[0.0, 400.0], [0.5, 500.0], [1.0, 475.0], [1.5, 450.0]]
    np.testing.assert_allclose(scaled, expected, rtol=1e-5, atol=1e-6)
    assert x[:, 2:].tolist() == [[1, 1], [0, 1], [0, 0], [1, 1]]


@pytest.mark.parametrize("options", [{"model": "gru-d"}, {"hide": "rows"}, {"window": 5}])
def test_it_learns_with_other_options(options):
    X, t = waves(25)
    imputer = SequenceImputer(**{**SMALL, "epochs": 2, **options}).fit(X, t=t)
    assert all(np.isfinite(x).all() for x in imputer.transform(X, t=t))
    assert imputer.module_.rnn.bidirectional
    assert np.isfinite(imputer.score(X, t=t))


def test_it_can_be_saved(fitted, tmp_path):
    X, t = waves(4, seed=4)
    fitted.save(tmp_path / "imputer.safetensors")
    loaded = SequenceImputer.load(tmp_path / "imputer.safetensors")
    for values, other in zip(fitted.transform(X, t=t), loaded.transform(X, t=t), strict=True):
        assert np.array_equal(values, other)


def test_bad_input_is_named(fitted):
    X, _ = waves(5)
    with pytest.raises(ArgumentError, match="hidden_fraction=0 leaves nothing"):
        SequenceImputer(hidden_fraction=0.0).fit(X)
    with pytest.raises(UnknownNameError, match="hide"):
        SequenceImputer(hide="columns").fit(X)
    with pytest.raises(ArgumentError, match="copies"):
        SequenceImputer(copies=0).fit(X)
    with pytest.raises(DataError, match="too few measured values to hide"):
        SequenceImputer(hidden_fraction=0.001, copies=1, epochs=1).fit([X[0][:2]])
    with pytest.raises(AttributeError, match="call transform"):
        fitted.predict  # noqa: B018
