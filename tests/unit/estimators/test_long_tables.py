"""Tables of one variable per row, and values that each id has once, against pandas."""

import numpy as np
import pandas as pd
import pytest
from irregular_samples import SMALL, sequences

from tauflow._internal.tensor_file import read_tensor_file, write_tensor_file
from tauflow.errors import ArgumentError, DataError, ModelFileError, TimeError, UnknownNameError
from tauflow.estimators import (
    SequenceClassifier,
    SequenceForecaster,
    SequenceImputer,
    SequenceRegressor,
    SequenceSurvival,
)
from tauflow.estimators.files import KIND, _to_json_value
from tauflow.estimators.preparation import Preparation

COLUMNS = {"id": "stay", "time": "hours", "long": ("variable", "value"), "static": ("Age",)}
WIDE = {"id": "stay", "time": "hours"}


def long_table(seed=0):
    """Return a table of one variable per row in any order, and a class and a number of each id."""
    X, t, y, number = sequences(missing=0.3, seed=seed)
    rng = np.random.default_rng(seed)
    rows = []
    for stay, (part, times) in enumerate(zip(X, t, strict=True)):
        rows += [
            {"stay": f"s{stay}", "hours": when, "variable": name, "value": value}
            for sample, when in zip(part, times, strict=True)
            for name, value in zip(["HR", "pH"], sample, strict=True)
        ]
        age = np.nan if stay == 3 else float(rng.integers(20, 90))
        rows.append(
            {"stay": f"s{stay}", "hours": times[0], "variable": "Age", "value": age},
        )
    ids = pd.Index([f"s{stay}" for stay in range(len(X))], name="stay")
    table = pd.DataFrame(rows).sample(frac=1, random_state=seed).reset_index(drop=True)
    return table, pd.Series(y, ids), pd.Series(number, ids)


def pivoted(table):
    """Return what pandas makes of it, ids in the order in which they first occur."""
    wide = table.pivot_table(
        index=["stay", "hours"], columns="variable", values="value", dropna=False
    ).reset_index()
    there = table.groupby(["stay", "hours"]).size().rename("n").reset_index()
    wide = there.merge(wide, on=["stay", "hours"]).drop(columns="n")  # not every pair of the two
    wide["Age"] = wide.groupby("stay")["Age"].transform("first")
    order = {stay: place for place, stay in enumerate(table["stay"].unique())}
    return wide.sort_values(
        ["stay", "hours"], key=lambda c: c.map(order) if c.name == "stay" else c
    )


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow"])
@pytest.mark.parametrize("model", ["cfc", "gru-d"])
def test_a_long_table_is_its_pivot(model, kind):
    table, y, number = long_table()
    wide, names = pivoted(table), ["Age", "HR", "pH"]
    for estimator, target in (
        (SequenceClassifier(**SMALL, model=model), y),
        (SequenceRegressor(**SMALL, model=model), number),
    ):
        long = estimator.fit(table, target, **COLUMNS)
        order = [names.index(name) for name in long.feature_names_in_]
        same = wide[["stay", "hours", *long.feature_names_in_]]
        table_of_kind = table
        if kind != "pandas":
            polars = pytest.importorskip("polars")
            table_of_kind = polars.from_pandas(table)
            table_of_kind = table_of_kind.to_arrow() if kind == "arrow" else table_of_kind
        predictions, score = long.predict(table_of_kind), long.score(table_of_kind, target)
        assert sorted(order) == [0, 1, 2]
        expected = type(estimator)(**SMALL, model=model).fit(same, target, **WIDE)
        np.testing.assert_array_equal(predictions, expected.predict(same))
        assert score == expected.score(same, target)


def test_what_is_static_may_stand_in_any_row_of_an_id():
    table, y, _ = long_table()
    wide = pivoted(table)
    once = wide.assign(Age=wide["Age"].where(~wide["stay"].duplicated(keep="last")))
    fitted = SequenceClassifier(**SMALL).fit(once, y, **WIDE, static=["Age"])
    expected = SequenceClassifier(**SMALL).fit(wide, y, **WIDE)
    np.testing.assert_array_equal(fitted.predict_proba(once), expected.predict_proba(wide))
    twice = once.assign(Age=np.arange(len(once), dtype=float))
    with pytest.raises(
        DataError, match=r"same id holds '.*', and the column was said to be static"
    ):
        fitted.predict(twice)
    with pytest.raises(UnknownNameError, match=r"no column 'Age' \(static\)"):
        fitted.predict(once.drop(columns="Age"))


def test_targets_and_weights_of_long_tables():
    table, y, number = long_table()
    weight = number**2 + 0.1
    expected = SequenceClassifier(**SMALL).fit(table, y, weight, **COLUMNS)
    answers, score = expected.predict_proba(table), expected.score(table, y, weight)
    in_rows = table.assign(died=y[table["stay"]].to_numpy())
    of_rows = weight[table["stay"]].to_numpy()
    first = ~in_rows["stay"].duplicated()
    in_one_row = in_rows.assign(died=in_rows["died"].where(first, None))
    static = {**COLUMNS, "static": ("Age", "died")}
    for features, options in ((in_rows, COLUMNS), (in_one_row, COLUMNS), (in_one_row, static)):
        fitted = SequenceClassifier(**SMALL).fit(features, "died", of_rows, **options)
        assert set(fitted.feature_names_in_) == {"Age", "HR", "pH"}
        np.testing.assert_array_equal(fitted.predict_proba(table), answers)
        assert fitted.score(features, "died", of_rows) == score
    fitted = SequenceClassifier(**SMALL).fit(table, in_rows["died"], of_rows, **COLUMNS)
    np.testing.assert_array_equal(fitted.predict_proba(table), answers)
    of_others = in_one_row["stay"] != in_one_row["stay"].iloc[0]
    in_one_row["died"] = in_one_row["died"].where(of_others, None)
    with pytest.raises(DataError, match="y has no value for the id"):
        SequenceClassifier(**SMALL).fit(in_one_row, "died", **COLUMNS)
    with pytest.raises(DataError, match="y has two values for one sequence: that of row"):
        SequenceClassifier(**SMALL).fit(table, table["variable"].rename("y"), **COLUMNS)


def test_a_target_may_be_a_variable():
    table, _, number = long_table()
    ends = table.groupby("stay")["hours"].max()
    labels = pd.DataFrame(
        {"stay": ends.index, "hours": ends, "variable": "score", "value": number[ends.index]}
    )
    both = pd.concat([table, labels], ignore_index=True)
    static = {**COLUMNS, "static": ("Age", "score")}
    fitted = SequenceRegressor(**SMALL).fit(both, "score", **static)
    expected = SequenceRegressor(**SMALL).fit(table, number, **COLUMNS)
    np.testing.assert_array_equal(fitted.predict(table), expected.predict(table))


@pytest.mark.filterwarnings("ignore::tauflow.errors.ShiftWarning")
def test_variables_at_predict():
    table, y, _ = long_table()
    fitted = SequenceClassifier(**SMALL, model="gru-d").fit(table, y, **COLUMNS)
    with pytest.raises(DataError, match=r"holds the variable 'Lactate', which .* Known are: "):
        fitted.predict(table.replace({"variable": {"pH": "Lactate"}}))
    lacking = table[table["variable"] != "pH"]
    empty = table.assign(value=table["value"].where(table["variable"] != "pH"))
    pd.testing.assert_index_equal(
        lacking.groupby(["stay", "hours"]).size().index,
        empty.groupby(["stay", "hours"]).size().index,
    )
    again = {stay: place for place, stay in enumerate(lacking["stay"].unique())}
    order = [again[stay] for stay in empty["stay"].unique()]
    probabilities = fitted.predict_proba(lacking)[order]
    np.testing.assert_allclose(probabilities, fitted.predict_proba(empty), rtol=0, atol=1e-6)


@pytest.mark.parametrize("how", ["mean", "last"])
def test_several_values_at_one_time(how):
    table, y, _ = long_table()
    table = table.dropna()
    more = table[table["variable"] == "HR"].assign(value=lambda rows: rows["value"] + 2.0)
    both = pd.concat([table, more], ignore_index=True)
    with pytest.raises(DataError, match="another value of variable 'HR' at the time of row"):
        SequenceClassifier(**SMALL).fit(both, y, **COLUMNS)
    summed = table.assign(
        value=table["value"] + (table["variable"] == "HR") * (1.0 if how == "mean" else 2.0)
    )
    fitted = SequenceClassifier(**SMALL).fit(both, y, **COLUMNS, duplicates=how)
    expected = SequenceClassifier(**SMALL).fit(summed, y, **COLUMNS)
    np.testing.assert_allclose(
        fitted.predict_proba(both), expected.predict_proba(summed), rtol=0, atol=1e-6
    )


@pytest.mark.parametrize(
    "kind", [SequenceClassifier, SequenceForecaster, SequenceImputer, SequenceSurvival]
)
def test_a_repeated_time_is_cured_as_the_error_says(kind):
    table, y, _ = long_table()
    wide = pivoted(table)
    both = pd.concat([wide, wide.iloc[[5]]]).sort_values(["stay", "hours"])
    targets = {SequenceClassifier: [y]}.get(kind, [])
    if kind is SequenceSurvival:
        ends = wide.groupby("stay")["hours"].max() + 1.0
        targets = [ends[y.index], y == y.iloc[0]]
    settings = {**SMALL, "epochs": 1}
    with pytest.raises(TimeError, match="or pass duplicates='mean' or 'last'") as refused:
        kind(**settings).fit(both, *targets, **WIDE)
    assert "--" not in str(refused.value)
    fitted = kind(**settings).fit(both, *targets, **WIDE, duplicates="last")
    answer = "transform" if kind is SequenceImputer else "predict"
    plain = kind(**settings).fit(wide, *targets, **WIDE)
    with pytest.raises(TimeError, match="or pass duplicates='mean' or 'last'"):
        getattr(plain, answer)(both)
    assert len(getattr(fitted, answer)(wide)) == len(getattr(plain, answer)(wide))


def test_texts_of_missing_values_and_dates_are_cured_as_the_error_says():
    table, y, _ = long_table()
    wide = pivoted(table)
    odd = wide.astype({"HR": object})
    odd.iloc[7, odd.columns.get_loc("HR")] = "nil"
    with pytest.raises(DataError, match=r"table\.replace\('nil', None\)"):
        SequenceClassifier(**SMALL).fit(odd, y, **WIDE)
    SequenceClassifier(**SMALL).fit(odd.replace("nil", None), y, **WIDE)
    dates = pd.Timestamp("2024-01-20") + pd.to_timedelta(wide["hours"], unit="h").dt.floor("s")
    written = wide.assign(hours=dates.dt.strftime("%d.%m.%Y %H:%M:%S"))
    with pytest.raises(TimeError, match=r"pandas\.to_datetime\(\.\.\., format='%d\.%m\.%Y"):
        SequenceClassifier(**SMALL).fit(written, y, **WIDE)


def test_a_forecaster_does_not_forecast_what_is_static(tmp_path):
    table, _, _ = long_table()
    wide = pivoted(table)
    model = SequenceForecaster(**SMALL).fit(table, **COLUMNS)
    names = model.feature_names_in_.tolist()
    assert {names[n] for n in model.target_features_} == {"HR", "pH"}
    same = wide[["stay", "hours", *names]]
    targets = [name for name in names if name != "Age"]
    expected = SequenceForecaster(**SMALL, targets=targets).fit(same, **WIDE)
    np.testing.assert_array_equal(model.predict(table), expected.predict(same))
    model.save(tmp_path / "forecaster.safetensors")
    loaded = SequenceForecaster.load(tmp_path / "forecaster.safetensors")
    np.testing.assert_array_equal(loaded.predict(table), model.predict(table))


def test_estimators_saved_by_earlier_versions_know_id_and_time(tmp_path):
    table, y, _ = long_table()
    wide = pivoted(table)
    settings = {**SMALL, "model": "cfc", "input_limit": None}
    fitted = SequenceClassifier(**settings).fit(wide, y, **WIDE)
    expected = fitted.predict_proba(wide)
    schema, path = fitted.schema_, tmp_path / "old.safetensors"
    preparation = Preparation(
        *(fitted._feature_scaler, schema.fill, schema.observed, np.arange(3), schema.gap, False, 0)
    )
    fitted.save(path)
    tensors, metadata = read_tensor_file(path, KIND, error=ModelFileError, advice="")
    del metadata["learned"]["schema_"]  # for which they had
    metadata["learned"]["_columns"] = {"tuple": ["stay", "hours"]}
    metadata["learned"]["preparation_"] = _to_json_value("", preparation)
    write_tensor_file(path, KIND, tensors, metadata)
    loaded = SequenceClassifier.load(path)
    np.testing.assert_array_equal(loaded.predict_proba(wide), expected)
    assert loaded.schema_.inputs == schema.inputs


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({**COLUMNS, "id": None}, "is for a table with ids; give id= too"),
        ({**COLUMNS, "time": None}, "Name it as time"),
        ({**COLUMNS, "long": "variable"}, "long must be a list of column names"),
        ({**COLUMNS, "long": ("variable",)}, "long must name two columns"),
        ({**COLUMNS, "static": "Age"}, "static must be a list of column names"),
        ({**COLUMNS, "static": ("Weight",)}, r"no column 'Weight' \(static\)"),
        ({**COLUMNS, "long": ("variable", "valve")}, r"no column 'valve' \(long\).* 'value'"),
        ({**COLUMNS, "duplicates": "first"}, "duplicates"),
        ({**COLUMNS, "t": [[0.0]]}, "t is for arrays; a table has a column of times"),
    ],
)
def test_contradictions_are_errors(options, message):
    table, y, _ = long_table()
    with pytest.raises((ArgumentError, UnknownNameError), match=message):
        SequenceClassifier(**SMALL).fit(table, y, **options)
    X, _, y, _ = sequences()
    with pytest.raises(ArgumentError, match="id='stay' names a column of a table, and X is a list"):
        SequenceClassifier(**SMALL).fit(X, y, **COLUMNS)
