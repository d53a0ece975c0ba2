"""Long sequences cut into windows, with what comes after them to predict; nothing leaks."""

from dataclasses import replace

import numpy as np
import pandas
import pytest
import torch
from own_tables import NAN, transform_table, visits

import tauflow
from tauflow.data import from_table
from tauflow.errors import ArgumentError, DataError, ShiftWarning, TimeError, UnknownNameError
from tauflow.predict import Predictor
from tauflow.runs.baselines import score_baselines
from tauflow.training import METRICS


def series(rows=200, **more):
    """Return one long series whose value is the number of its row."""
    return {"t": [2.0 * row for row in range(rows)], "a": [float(r) for r in range(rows)], **more}


def rows_of(data, part):
    """Return the numbers of the rows of each window of a part, and of those it predicts."""
    batch, info = getattr(data, part), data.schema
    y = batch.y * info.y_scale + info.y_mean
    x = info.unscale_inputs(batch.x.double())[..., 0]
    return x.round().long(), y.double().round().long()


@pytest.mark.parametrize(
    ("window", "horizon", "season", "rows"),
    [(7, None, 8, 8), (8, None, 8, None), (5, 2, 8, 7), (7, 2, 8, None), (1, 8, 8, None)],
)
def test_windows_too_short_to_look_a_season_back_are_told(window, horizon, season, rows):
    data = from_table(series(), time="t", window=window, horizon=horizon, season=season)
    messages = [note for note in data.card.notes if "Warning: nothing is compared with" in note]
    names = [name for name, _ in score_baselines(data, "mse") if "seasonal" in name]
    if rows is None:
        assert (messages, len(names)) == ([], 1)
    else:
        assert f"takes {rows} rows" in messages[0]
        assert f"test split has {window}" in messages[0]
        assert names == []


@pytest.mark.parametrize("stride", [None, 1, 7])
def test_a_window_and_what_it_predicts_are_of_one_part(stride):
    data = from_table(series(), time="t", window=12, stride=stride, horizon=5)
    assert data.card.horizon == 5
    assert data.schema.outputs == ("a +1", "a +2", "a +3", "a +4", "a +5")
    seen = []
    for part, (first, last) in {"train": (0, 140), "valid": (140, 170), "test": (170, 200)}.items():
        x, y = rows_of(data, part)
        assert torch.equal(x.diff(dim=1), torch.ones_like(x[:, 1:]))
        assert torch.equal(y, x[:, -1:] + torch.arange(1, 6))
        assert first <= int(x.min())
        assert int(y.max()) < last
        assert torch.equal(x[:, 0] - first, torch.arange(len(x)) * (stride or 5))
        assert len(x) == (last - first - 17) // (stride or 5) + 1
        seen += x[:, 0].tolist()
    assert len(set(seen)) == len(seen)
    assert data.train.dt[0, :3].tolist() == [0.0, 1.0, 1.0]  # medians of the gap


def test_several_values_are_predicted_at_once():
    table = series(b=[float(row % 7) for row in range(200)], c=[1.0, 2.0] * 100)
    data = from_table(table, time="t", window=10, horizon=3, target=["a", "b"])
    assert data.schema.inputs == ("a", "b", "c")
    assert data.schema.outputs == ("a +1", "b +1", "a +2", "b +2", "a +3", "b +3")
    assert data.schema.unscale(data.train.y.double())[0].tolist() == pytest.approx(
        [10, 3, 11, 4, 12, 5], abs=1e-4
    )


def test_windows_without_a_horizon_hold_every_row():
    data = from_table(series(y=[row / 3 for row in range(200)]), time="t", target="y", window=30)
    assert [len(part) for part in (data.train, data.valid, data.test)] == [5, 1, 1]
    assert data.train.mask.sum(1).tolist() == [30, 30, 30, 30, 20]
    unscaled = data.schema.unscale(data.train.y.double())[data.train.mask].flatten()
    assert unscaled.tolist() == pytest.approx([row / 3 for row in range(140)], abs=1e-4)
    overlapping = from_table(series(), time="t", window=30, stride=20)
    assert len(overlapping.train) == 7  # rows 0 to 138 have a next one: 0, 20, ..., 120


def test_trivial_forecasts_of_a_horizon():
    values = [float(row % 4) for row in range(200)]
    data = from_table(series(a=values), time="t", window=8, horizon=6, season=4, scale=False)
    scores = dict(score_baselines(data, "mse"))
    assert scores["seasonal naive"] == 0
    x, y = data.test.x[:, -1], data.test.y
    assert scores["persistence"] == pytest.approx(float(((y - x) ** 2).mean()))


def test_a_predictor_answers_from_the_last_window(tmp_path):
    data = from_table(
        series(who=["x"] * 200), id="who", time="t", split_by="time", window=12, horizon=2
    )
    new = series(40, who=["x"] * 20 + ["y"] * 20)
    ids, batch = transform_table(data, new)
    assert ids == ("x", "y")
    x = data.schema.unscale_inputs(batch.x.double())[..., 0]
    assert x[1].round().tolist() == list(range(28, 40))
    model = tauflow.SequenceModel(tauflow.GRU(1, 3, return_sequences=False), 2)
    predicted = Predictor.from_data(model, data).predict(new)
    assert list(predicted.columns) == ["who", "t", "t +1", "t +2", "a +1", "a +2"]
    assert predicted["t"].tolist() == [38.0, 78.0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stride": 2}, "stride is for windows"),
        ({"horizon": 2}, "horizon is for windows"),
        ({"window": 0}, "window must be at least 1"),
        (
            {"window": 5, "horizon": 2, "task": "regression", "target": "a"},
            "horizon is for forecast",
        ),
    ],
)
def test_options_that_contradict_each_other(options, message):
    with pytest.raises(ArgumentError, match=message):
        from_table(series(), time="t", **options)


def test_sequences_that_are_too_short():
    with pytest.raises(DataError, match=r"no id has the \d+ rows that it takes to cut it by time"):
        from_table(series(20), time="t", window=10, horizon=2)
    with pytest.raises(DataError, match="no sequence of the train part has the 3 rows of a window"):
        from_table(visits(), id="patient", time="hours", features=["a"], window=3, horizon=1)
    gone = series(a=[NAN if row >= 175 else 1.0 * row for row in range(200)])
    with pytest.raises(DataError, match="no window of a part has a value to predict in the 4 rows"):
        from_table(gone, time="t", window=5, horizon=4)


def test_a_single_training_sequence_is_said_aloud():
    notes = from_table(series(400), time="t").card.notes
    assert any(
        "1 training sequence of 279 rows: one update per epoch. Set window=" in n for n in notes
    )
    assert not any(
        "one update" in n for n in from_table(series(400), time="t", window=9).card.notes
    )


def test_each_forecast_of_a_horizon_says_its_time():
    table = series()
    data = from_table(table, time="t", window=12, horizon=3)
    model = tauflow.SequenceModel(tauflow.Elman(1, 2, return_sequences=False), 3)
    with pytest.warns(ShiftWarning, match="'a': last value outside the range of the training"):
        predicted = Predictor.from_data(model, data).predict(table)
    assert list(predicted) == ["t", "t +1", "t +2", "t +3", "a +1", "a +2", "a +3"]
    assert predicted.iloc[0, :4].tolist() == [398.0, 400.0, 402.0, 404.0]
    dates = [f"2024-05-{1 + row // 24:02d}T{row % 24:02d}:00:00" for row in range(200)]
    data = from_table({**table, "t": dates}, time="t", window=12, horizon=2)
    model = tauflow.SequenceModel(tauflow.Elman(1, 2, return_sequences=False), 2)
    with pytest.warns(ShiftWarning, match="'a': last value outside"):
        predicted = Predictor.from_data(model, data).predict({**table, "t": dates})
    assert predicted.iloc[0, :3].tolist() == [
        "2024-05-09T07:00:00",
        "2024-05-09T08:00:00",
        "2024-05-09T09:00:00",
    ]


def test_a_season_may_be_a_span_of_time():
    values = [float(row % 4) for row in range(200)]
    options = {"window": 8, "horizon": 6, "scale": False, "time_unit": "minutes"}
    data = from_table(series(a=values), time="t", season="8 min", **options)
    assert data.card.season == 4
    assert dict(score_baselines(data, "mse"))["seasonal naive"] == 0
    assert from_table(series(a=values), time="t", season="4", **options).card.season == 4


@pytest.mark.parametrize(
    ("season", "more", "words"),
    [
        ("9 min", {}, "4.5 times the median time step"),
        ("8 moons", {}, "season holds '8 moons', expected a span of time"),
        ("often", {}, "expected a span of time"),
        ("8 min", {"time_unit": "auto"}, "nothing says what times are counted in"),
        ("8 min", {"time": None, "time_unit": "auto"}, "Name the column of times"),
    ],
)
def test_seasons_that_are_none(season, more, words):
    table = {"t": series()["t"], "a": series()["a"]}
    options = {"time": "t", "time_unit": "minutes", "window": 8, "horizon": 6, **more}
    with pytest.raises((ArgumentError, TimeError, UnknownNameError), match=words):
        from_table(table, season=season, **options)


@pytest.mark.parametrize("more", [{}, {"task": "regression"}, {"window": 8, "stride": 4}])
def test_a_season_is_of_forecasts(more):
    options = {"time": "t", "target": "a", "season": 4, **more}
    with pytest.raises(ArgumentError, match=r"season is for forecasts, .* Leave it out"):
        from_table({**series(), "b": series()["a"]}, **options)


@pytest.mark.parametrize("place", [0, 39])
@pytest.mark.parametrize("target", ["class", "number"])
def test_every_window_of_an_id_has_its_one_target(place, target):
    ids, rows = 12, 40
    value = ["a", "b"] if target == "class" else [1.5, 2.5]
    nothing = None if target == "class" else NAN
    table = {
        "id": [f"p{number}" for number in range(ids) for _ in range(rows)],
        "t": [float(row) for _ in range(ids) for row in range(rows)],
        "x": [float(row) for row in range(ids * rows)],
        "y": [value[number % 2] for number in range(ids) for _ in range(rows)],
    }
    once = [cell if row % rows == place else nothing for row, cell in enumerate(table["y"])]
    options = {"id": "id", "time": "t", "target": "y", "window": 10}
    complete, first = from_table(table, **options), from_table({**table, "y": once}, **options)
    assert [len(part) for part in (complete.train, complete.valid, complete.test)] == [32, 8, 8]
    assert complete.card.sizes == first.card.sizes
    assert torch.equal(complete.train.y, first.train.y)
    assert torch.equal(complete.train.x, first.train.x)


def test_windows_without_a_target_in_any_row_are_told():
    y = [row / 3 if row < 35 or row > 59 else NAN for row in range(200)]
    data = from_table(series(y=y), time="t", target="y", window=10)
    assert len(data.train) == 12
    assert any("Left out: 2 windows without a target in any row." in n for n in data.card.notes)


@pytest.mark.parametrize("window", [1, 2, 8])
def test_rows_to_predict_are_median_gaps_away_for_any_window(window):
    when = pandas.date_range("2024-01-01", periods=200, freq="15min")
    table = pandas.DataFrame({"when": when, "a": torch.rand(200).numpy()})
    data = from_table(table, time="when", window=window, horizon=3, season="24h")
    assert data.card.season == 96
    model = tauflow.SequenceModel(
        tauflow.Elman(data.card.input_size, 4, return_sequences=False), data.card.target_size
    )
    predicted = Predictor.from_data(model, data).predict(table)
    ahead = [predicted[f"when +{step}"][0] - when[-1] for step in (1, 2, 3)]
    assert ahead == [pandas.Timedelta("15min") * step for step in (1, 2, 3)]


@pytest.mark.parametrize("stride", [None, 1, 2, 5])
@pytest.mark.parametrize("split_by", ["id", "time"])
def test_targets_are_scaled_by_rows_whatever_the_stride(stride, split_by):
    random = np.random.default_rng(0)
    sizes = random.integers(12, 30, 18)
    table = pandas.DataFrame(
        {
            "id": np.repeat([f"s{number:02d}" for number in range(18)], sizes),
            "t": np.concatenate([np.arange(float(size)) for size in sizes]),
            "a": random.normal(10, 2, sizes.sum()),
        }
    )
    table["y"] = table["a"] ** 2
    options = {"id": "id", "time": "t", "target": "y", "split_by": split_by}
    data = from_table(table, window=3, stride=stride, **options)
    if split_by == "id":
        rows = table[table["id"].isin(data.schema.ids["train"])]
    else:
        complete = from_table(table, **options)
        counts = dict(
            zip(complete.schema.ids["train"], complete.train.lengths.tolist(), strict=True)
        )
        place = table.groupby("id").cumcount()
        rows = table[place < table["id"].map(counts)]
    for name, mean, scale in (
        ("y", data.schema.y_mean, data.schema.y_scale),
        ("a", data.schema.x_mean, data.schema.x_scale),
    ):
        assert float(mean) == pytest.approx(rows[name].mean(), rel=1e-12)
        assert float(scale) == pytest.approx(rows[name].std(ddof=0), rel=1e-12)


@pytest.mark.parametrize("horizon", [1, 3, 8])
def test_every_window_that_is_left_out_is_counted(horizon):
    values = np.sin(np.arange(2000) / 5)
    values[np.arange(2000) % 400 < 60] = np.nan
    data = from_table(
        {"t": np.arange(2000.0), "v": values}, time="t", window=24, horizon=horizon, stride=1
    )
    dropped, missing, total = 0, 0, 0
    for first, last in ((0, 1400), (1400, 1700), (1700, 2000)):
        part = np.isnan(values[first:last])
        after = np.stack([part[e : e + horizon] for e in range(24, len(part) - horizon + 1)])
        empty = after.all(1)
        dropped += int(empty.sum())
        missing += int(after[~empty].sum())
        total += after[~empty].size
    notes = " ".join(data.card.notes)
    assert f"Left out: {dropped} windows without a value to predict." in notes
    text = f"{missing:,} of {total:,} values to predict are missing and do not count."
    assert (text in notes) == (horizon > 1)


def table_with_holes():
    """Return a table of two values, of which a fifth is missing."""
    random = np.random.default_rng(0)
    table = {"t": np.arange(600.0)}
    for name in "ab":
        table[name] = np.where(random.random(600) < 0.2, np.nan, random.normal(5, 2, 600))
    return table


@pytest.mark.parametrize("horizon", [1, 6, 12])  # 12 rows are as many as a window has
def test_missing_values_of_a_horizon_do_not_count(horizon):
    table = table_with_holes()
    data = from_table(table, time="t", window=12, horizon=horizon, stride=1)
    batch, info = data.test, data.schema
    both = np.stack([table["a"], table["b"]], 1)[510:]
    truth = np.stack([both[e : e + horizon].ravel() for e in range(12, len(both) - horizon + 1)])
    truth = truth[~np.isnan(truth).all(1)]
    assert np.array_equal(batch.sequence_target_mask.numpy(), ~np.isnan(truth))
    predicted = torch.from_numpy(np.random.default_rng(1).normal(size=truth.shape)).float()
    error = info.unscale(predicted.double()).numpy() - truth
    scaled = error / info.y_scale.numpy()
    weight = torch.rand(len(batch)) + 0.5
    each = np.broadcast_to(weight.numpy()[:, None], truth.shape)
    expected = {
        "mse": np.nanmean(scaled**2),
        "mae": np.nanmean(np.abs(scaled)),
        "r2": np.nanmean(
            [
                1 - np.nansum(e**2) / np.nansum((y - np.nanmean(y)) ** 2)
                for e, y in zip(error.T, truth.T, strict=True)
            ]
        ),
    }
    for name, value in expected.items():
        assert float(METRICS[name](predicted, batch)) == pytest.approx(value, rel=1e-4), name
    weighted = replace(batch, weight=weight)
    value = np.average((scaled**2)[~np.isnan(truth)], weights=each[~np.isnan(truth)])
    assert float(METRICS["mse"](predicted, weighted)) == pytest.approx(value, rel=1e-4)
    assert batch.with_steps(5).y_mask.shape == batch.y_mask.shape


def test_missing_values_of_a_horizon_have_no_gradient():
    batch = from_table(table_with_holes(), time="t", window=12, horizon=6, stride=1).train
    predicted = torch.zeros(batch.y.shape, requires_grad=True)
    METRICS["mse"](predicted, batch).backward()
    assert torch.equal(predicted.grad != 0, batch.sequence_target_mask)


def test_a_fifth_of_missing_values_leaves_windows_to_train_on():
    data = from_table(table_with_holes(), time="t", window=12, horizon=24, missing="inputs")
    assert len(data.train) == (420 - 36) // 24 + 1
    mean = data.train.y[:, 0][data.train.sequence_target_mask[:, 0]].mean()
    constant = (data.test.y - mean)[data.test.sequence_target_mask].square().mean()
    scores = dict(score_baselines(data, "mse"))
    assert scores["training mean"] == pytest.approx(float(constant), rel=0.2)
    model = tauflow.SequenceModel(
        tauflow.GRU(data.card.input_size, 8, return_sequences=False), data.card.target_size
    )
    result = tauflow.train(
        model, train=data, recipe=tauflow.Recipe(epochs=3, batch_size=4), progress=False
    )
    assert np.isfinite([row["train_loss"] for row in result.history]).all()


def test_a_horizon_without_a_validation_part():
    table = {"id": ["x"] * 18 + ["y"] * 18, "t": [*range(18)] * 2, "a": [r**0.5 for r in range(36)]}
    options = {"split_by": "time", "split": (1, 0, 1), "window": 4, "horizon": 2}
    data = from_table(table, id="id", time="t", **options)
    assert data.valid is None
    assert data.train.y.shape[1:] == data.test.y.shape[1:] == (2,)
    y = data.schema.unscale(data.test.y.double())
    assert y[0].tolist() == pytest.approx([13**0.5, 14**0.5], rel=1e-5)
