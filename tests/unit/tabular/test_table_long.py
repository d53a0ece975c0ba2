"""Tables as people have them: a row per value, text, decimal commas, dates in any form."""

import numpy as np
import pandas
import pytest
import torch
from own_tables import NAN, by_id, changed, transform_table, unpadded, visits, write

from tauflow.data import from_table, read_csv
from tauflow.errors import ArgumentError, DataError, TimeError, UnknownNameError
from tauflow.predict import Predictor
from tauflow.tabular.options import BOOLEAN_LABELS, INTEGER_LABELS, TEXT_LABELS

SAID = {"id": "patient", "time": "hours", "target": "died"}
LONG = {**SAID, "long": ("what", "value")}


def melted(table, seed=0):
    """Return the table with one row per value, in any order, without the missing ones."""
    frame = pandas.DataFrame(table)
    keys = ["patient", "hours", "died"]
    rows = frame.melt(keys, ["a", "b"], "what", "value").dropna(subset="value")
    return rows.sample(frac=1.0, random_state=seed)


def assert_same(data, two):
    for first, second in zip(
        (data.train, data.valid, data.test), (two.train, two.valid, two.test), strict=True
    ):
        assert first.tensors().keys() == second.tensors().keys()
        for name, value in first.tensors().items():
            torch.testing.assert_close(value, second.tensors()[name], rtol=1e-6, atol=1e-6)


def ordered(frame):
    """Return rows in which ids and variables first occur as in the wide table."""
    return frame.sort_values(["what", "patient", "hours"], kind="stable")


@pytest.mark.parametrize("packed", [None, "csv", "parquet"])
def test_a_row_per_value_is_the_wide_table(tmp_path, packed):
    wide = visits(**changed("a", 4, NAN))
    rows = ordered(melted(wide))
    table = rows
    if packed == "csv":
        table = tmp_path / "long.csv"
        rows.to_csv(table, index=False)
    elif packed:
        pytest.importorskip("pyarrow")
        table = tmp_path / "long.parquet"
        rows.to_parquet(table)
    data = from_table(table, **LONG)
    assert data.schema.inputs == ("a", "b")
    assert_same(data, from_table(wide, **SAID))
    _, batch = transform_table(data, rows.drop(columns="died"))
    assert batch.x.shape == (12, 3, 2)
    only_b = rows[rows["what"] == "b"]  # a variable that was not measured is a missing value
    assert not transform_table(data, only_b)[1].observed[..., 0].any()


def test_rows_may_be_in_any_order():
    rows = melted(visits())
    data_read, sorted_rows = (
        unpadded(from_table(rows, **LONG)),
        unpadded(from_table(visits(), **SAID)),
    )
    names = from_table(rows, **LONG).schema.inputs
    for name, values in data_read.items():
        want = sorted_rows[name][:, [("a", "b").index(name) for name in names]]
        assert values == pytest.approx(want, abs=1e-5)


def test_several_values_at_one_time():
    rows = ordered(melted(visits()))
    more = pandas.concat([rows, rows.iloc[[0]].assign(value=7.0)])
    with pytest.raises(DataError, match=r"another value of variable 'a' at the time of row 0"):
        from_table(more, **LONG)
    for how, value in (("mean", 3.5), ("last", 7.0)):
        data = from_table(more, duplicates=how, **LONG)
        assert unpadded(data)["p00"][0, 0] == pytest.approx(value, abs=1e-5)


def test_rows_of_one_time_in_a_wide_table():
    table = visits(hours=[0.0, 0.0, 4.0] * 12, **changed("a", 1, NAN))
    with pytest.raises(TimeError, match=r"the same time as row 0 .*duplicates='mean'"):
        from_table(table, **SAID)
    mean = unpadded(from_table(table, duplicates="mean", **SAID))["p00"]
    assert mean == pytest.approx(np.array([[0.0, 0.5], [2.0, 2.0]]), abs=1e-5)
    last = unpadded(from_table(table, duplicates="last", **SAID))["p01"]
    assert last == pytest.approx(np.array([[4.0, 4.0], [5.0, 0.0]]), abs=1e-5)
    backwards = visits(hours=[1.0, 1.0, 0.5] * 12)
    with pytest.raises(TimeError, match="time runs backwards"):
        from_table(backwards, duplicates="mean", **SAID)


@pytest.mark.parametrize("long", [False, True])
def test_truth_values_of_one_time_have_a_mean_in_a_file_and_a_frame(tmp_path, long):
    alarm = [True, False, True, False, False, True] * 6
    table = pandas.DataFrame(visits(hours=[0.0, 0.0, 4.0] * 12, a=alarm)).drop(columns="b")
    options = {**SAID, "duplicates": "mean"}
    if long:
        table = table.rename(columns={"a": "value"}).assign(what="a")
        options["long"] = ("what", "value")
    table.to_csv(tmp_path / "visits.csv", index=False)
    file, frame = read_csv(tmp_path / "visits.csv", **options), from_table(table, **options)
    for data in (file, frame):
        assert unpadded(data)["p00"][:, 0].tolist() == pytest.approx([0.5, 1.0])
        assert unpadded(data)["p01"][:, 0].tolist() == pytest.approx([0.0, 1.0], abs=1e-6)
    assert_same(file, frame)


TWICE = {"id": "p", "time": "h", "target": "stage", "features": ["v"], "duplicates": "mean"}


def twice(stages, **more):
    """Return 30 ids of four rows, of which the second and the third have one time."""
    return {"p": np.repeat(np.arange(30), 4), "h": [0, 1, 1, 2] * 30, "v": [0.1] * 120} | {
        "stage": stages,
        **more,
    }


@pytest.mark.parametrize(
    ("classes", "kind"),
    [((0, 1), INTEGER_LABELS), ((False, True), BOOLEAN_LABELS), (("a", "b"), TEXT_LABELS)],
)
def test_duplicates_that_agree_stay_as_they_are(classes, kind):
    stages = [classes[row % 8 > 3] for row in range(120)]
    for stage in (stages, [None, *stages[1:]]):
        for how in ("mean", "last"):
            data = from_table(twice(stage), **{**TWICE, "duplicates": how})
            assert data.schema.task == "classification"
            assert data.schema.outputs == tuple(map(str, classes))
            assert data.schema.kind == kind


@pytest.mark.parametrize(
    "stages", [[0, 0, 2, 1], [0, 0, 1, 1], [True, True, False, True], [*"aaba"]]
)
def test_duplicates_of_classes_have_no_mean(stages):
    table = twice(stages * 30)
    with pytest.raises(
        DataError, match=r"row 2 .* column 'stage' .* at the time of row 1 of p '0'"
    ):
        from_table(table, **TWICE)
    last = from_table(table, **{**TWICE, "duplicates": "last"})
    assert last.schema.outputs == tuple(map(str, sorted(set(stages))))
    if stages[0] == 0:
        mean = from_table(table, task="regression", **TWICE)
        unscaled = mean.schema.unscale(mean.train.y.double())[0].flatten().tolist()
        assert unscaled == pytest.approx([0, stages[2] / 2, 1], abs=1e-6)
    agreed = from_table(twice([stages[0], *[stages[2]] * 3] * 30), **TWICE)
    assert len(transform_table(agreed, table)[0]) == 30  # of a new table no targets are read


@pytest.mark.parametrize("how", ["mean", "last"])
def test_duplicates_of_groups_and_parts_must_agree(how):
    options = {**TWICE, "duplicates": how}
    stages = np.repeat(np.arange(30) % 2, 4)
    with pytest.raises(
        DataError, match=r"'ward' is another value .* of p '0'. Correct one of them"
    ):
        from_table(twice(stages, ward=[1, 1, 2, 1] * 30), group="ward", **options)
    parts = ["train", "train", "test", "train"] * 30
    with pytest.raises(DataError, match="column 'part' is another value of"):
        from_table(twice(stages, part=parts), split_column="part", **options)


@pytest.mark.parametrize(
    ("change", "options", "error", "message"),
    [
        ({"what": "died"}, {}, ArgumentError, "'died' is a variable, and a column too"),
        ({"what": ""}, {}, DataError, "column 'what' is empty, expected a variable"),
        ({"died": "perhaps"}, {}, DataError, "another value of column 'died' at the time of row"),
        ({}, {"long": ["what"]}, ArgumentError, "long must name two columns"),
        ({}, {"duplicates": "mode"}, UnknownNameError, "Choose from: error, mean, last"),
        ({}, {"time": None}, ArgumentError, "long, duplicates and time_format are for a column"),
    ],
)
def test_what_is_no_long_table(change, options, error, message):
    rows = ordered(melted(visits())).reset_index(drop=True)
    for name, value in change.items():
        rows.loc[3, name] = value
    with pytest.raises(error, match=message):
        from_table(rows, **{**LONG, "per_step": False, **options})


def test_unknown_variables_of_another_table_are_named():
    rows = ordered(melted(visits()))
    data = from_table(rows, **LONG)
    rows.loc[rows.index[5], "what"] = "lactate"
    with pytest.raises(DataError, match="'lactate', which the table of the training had not"):
        transform_table(data, rows)


WARDS = ["north", None, "south"] * 12


@pytest.mark.parametrize("missing", ["observed", "inputs"])
def test_text_is_one_input_for_each_category(missing):
    data = from_table(visits(ward=WARDS), missing=missing, **SAID)
    assert data.schema.inputs[:4] == ("a", "b", "ward=north", "ward=south")
    assert unpadded(data)["p03"][:, 2:4].tolist() == [[1, 0], [0, 0], [0, 1]]
    assert any("'ward' holds categories: an input for each of them" in n for n in data.card.notes)
    _, batch = transform_table(data, visits(ward=["south"] * 36))
    assert batch.x[0, :, 2:4].tolist() == [[0, 1]] * 3
    few = from_table(visits(ward=["ICU", "INF", "1E999"] * 12), missing=missing, **SAID)
    assert few.schema.inputs[2:5] == ("ward=1E999", "ward=ICU", "ward=INF")
    with pytest.raises(
        DataError, match=r"'E11'.* categories if none of the column reads as a number"
    ):
        from_table(visits(ward=["E11", "0E5", "J45"] * 12), missing=missing, **SAID)
    with pytest.raises(DataError, match=r"row 5 \(counted.*'west', a category that the table of"):
        transform_table(data, visits(**{"ward": [*["north"] * 5, "west", *["north"] * 30]}))


def test_text_with_a_point_is_another_category():
    data = from_table(visits(ward=["v1", "v2", "ward A"] * 12), **SAID)
    for new in ("v1.0", "ward A.0", "v1."):
        with pytest.raises(DataError, match=rf"holds '{new}', a category .* Known are: v1, v2, wa"):
            transform_table(data, visits(ward=[new, "v2", "v1"] * 12))


def test_text_is_kept_by_a_predictor(tmp_path):
    import tauflow

    data = from_table(visits(ward=WARDS), **SAID)
    rnn = tauflow.GRUD(4, 3, return_sequences=False)
    Predictor.from_data(tauflow.SequenceModel(rnn, 2), data).save(tmp_path / "p.safetensors")
    loaded = tauflow.load_predictor(tmp_path / "p.safetensors")
    assert loaded.schema.categories == (("ward", ("north", "south")),)
    assert len(loaded.predict(visits(ward=WARDS))) == 12


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (["12", "high", "14"] * 12, "holds 'high', expected a finite number"),
        (["1,5", "2,5", "3,5"] * 12, "holds '1,5', .*decimal"),
        (["2024-05-31", "2024-06-01", "x"] * 12, "holds '2024-05-31', expected a finite number"),
        ([f"name {row}" for row in range(36)] + [f"n{row}" for row in range(36)], "72 different"),
    ],
)
def test_what_is_no_category(column, message):
    table = (
        visits(note=column[:36])
        if len(column) == 36
        else {
            name: cells * 2 if name != "patient" else [*cells, *(f"q{c}" for c in cells)]
            for name, cells in visits().items()
        }
        | {"note": column}
    )
    with pytest.raises(DataError, match=message):
        from_table(table, **SAID)


def as_categories(frame, column, library):
    if library == "pandas":
        return frame.assign(**{column: frame[column].astype("category")})
    if library == "mapping":
        return {**dict(frame.items()), column: pandas.Categorical(frame[column])}
    if library == "arrow":
        arrow = pytest.importorskip("pyarrow")
        table = arrow.Table.from_pandas(frame, preserve_index=False)
        place = table.column_names.index(column)
        return table.set_column(place, column, table[column].dictionary_encode())
    polars = pytest.importorskip("polars")
    kind = polars.Categorical
    if library == "enum":
        kind = polars.Enum([str(category) for category in sorted(frame[column].dropna().unique())])
    text = polars.col(column).cast(polars.Int64).cast(polars.String)
    return polars.from_pandas(frame).with_columns(text.cast(kind))


@pytest.mark.parametrize("library", ["pandas", "mapping", "polars", "enum", "arrow"])
def test_codes_of_a_categorical_column_are_categories(library):
    pytest.importorskip("narwhals")
    codes = [(4, 1, 10)[row // 3 % 3] for row in range(36)]
    frame = pandas.DataFrame(visits(ward=codes))
    data = from_table(as_categories(frame, "ward", library), **SAID)
    inputs = ("a", "b", "ward=1", "ward=10", "ward=4")
    assert data.schema.inputs == inputs
    assert unpadded(data)["p01"][0].tolist()[2:] == [1, 0, 0]
    assert from_table(frame, **SAID).schema.inputs == ("a", "b", "ward")
    absent = frame.assign(ward=frame["ward"].astype("Int64").mask(frame.index == 3))
    data_read = from_table(as_categories(absent, "ward", library), **SAID)
    assert data_read.schema.inputs == inputs
    assert unpadded(data_read)["p01"][0].tolist()[2:] == [0, 0, 0]
    for ward in (frame["ward"], absent["ward"].astype(float)):  # however they come the next time
        new = transform_table(data, frame.assign(ward=ward))[1]
        assert new.x[:, 1].equal(transform_table(data, frame)[1].x[:, 1])


@pytest.mark.parametrize("library", ["pandas", "enum"])
def test_a_categorical_target_is_of_classes(library):
    frame = pandas.DataFrame(visits(stage=[row % 30 for row in range(36)]))
    options = {"id": "patient", "time": "hours", "target": "stage", "split_by": "time"}
    options |= {"features": ["a"], "split": (1, 0, 1)}
    assert from_table(frame, **options).schema.task == "regression"
    with pytest.raises(
        DataError, match="the test split holds classes of 'stage' that the training"
    ):
        from_table(as_categories(frame, "stage", library), **options)
    few = as_categories(frame.assign(stage=[row % 3 for row in range(36)]), "stage", library)
    info = from_table(few, **{**options, "split_by": "id"}).schema
    assert (info.task, info.outputs) == ("classification", ("0", "1", "2"))
    kind = "whole numbers" if library == "pandas" else "texts"
    assert info.kind == kind
    twice = as_categories(frame.assign(hours=1.0, a=0.0), "stage", library)
    with pytest.raises(DataError, match=r"Classes have no mean"):
        from_table(twice, **options, duplicates="mean")
    patient = np.arange(60) // 3
    many = pandas.DataFrame({"patient": patient, "died": patient % 2, "code": range(60)})
    with pytest.raises(DataError, match=r"60 different texts.* or convert it to numbers"):
        from_table(as_categories(many, "code", library), id="patient", target="died")


def test_text_cannot_be_forecast():
    with pytest.raises(ArgumentError, match="forecast is of numbers, and 'ward' holds text"):
        from_table(visits(ward=WARDS), id="patient", target="ward", task="next-step")
    data = from_table(visits(ward=["n", "s", "n"] * 12), id="patient", features=["ward", "a"])
    assert data.schema.outputs == ("a",)
    assert data.schema.inputs[:3] == ("a", "ward=n", "ward=s")


def test_decimal_commas(tmp_path):
    b, hours = [row % 5 for row in range(36)], ["0,0", "1,5", "4,0"] * 12
    cells = [str(row / 4).replace(".", ",") for row in range(36)]
    file = write(tmp_path / "v.csv", visits(a=cells, hours=hours, b=b), ";")
    options = {**SAID, "delimiter": ";", "decimal": ","}
    data = read_csv(file, **options)
    assert_same(data, from_table(visits(a=[row / 4 for row in range(36)]), **SAID))
    assert torch.equal(transform_table(data, file)[1].x[0], by_id(data)["p00"][1].x[0])
    file.write_text(file.read_text("utf-8").replace("8,75", "1.008"), "utf-8")
    with pytest.raises(
        DataError, match=r"row 37, column 'a' holds '1\.008'.*, a number with a point"
    ):
        read_csv(file, **options)
    with pytest.raises(UnknownNameError, match="Choose from"):
        from_table(visits(), **SAID, decimal="'")


def test_dates_in_another_form():
    dates = ["31.12.2024 23:30", "01.01.2025 01:00", "01.01.2025 03:30"] * 12
    data = from_table(visits(hours=dates), time_format="%d.%m.%Y %H:%M", time_unit="h", **SAID)
    assert data.train.dt[0].tolist() == [0.0, 1.5, 2.5]
    compact = from_table(
        visits(hours=[20240131, 20240201, 20240203] * 12),
        time_format="%Y%m%d",
        time_unit="days",
        **SAID,
    )
    assert compact.train.dt[0].tolist() == [0.0, 1.0, 2.0]
    zoned = ["2024-03-31 01:30 +0100", "2024-03-31 03:30 +0200", "2024-03-31 05:00 +0200"] * 12
    form = {"time_format": "%Y-%m-%d %H:%M %z", "time_unit": "h"}
    assert from_table(visits(hours=zoned), **form, **SAID).train.dt[0].tolist() == [0.0, 1.0, 1.5]
    named = [f"2024-03-31 0{hour}:00 UTC" for hour in (1, 2, 4)] * 12
    options = {**form, "time_format": "%Y-%m-%d %H:%M %Z"}
    assert from_table(visits(hours=named), **options, **SAID).train.dt[0].tolist() == [
        0.0,
        1.0,
        2.0,
    ]
    odd = [f"{text}%Z" for text in dates]
    data = from_table(visits(hours=odd), time_format="%d.%m.%Y %H:%M%%Z", time_unit="h", **SAID)
    assert data.train.dt[0].tolist() == [0.0, 1.5, 2.5]
    with pytest.raises(TimeError, match="holds '2025-01-01', expected a date in the form '%d"):
        from_table(visits(hours=[*dates[:-1], "2025-01-01"]), time_format="%d.%m.%Y %H:%M", **SAID)


@pytest.mark.parametrize(
    ("form", "dates"),
    [
        ("%H.%M", ["08.10", "08.45", "13.30"]),
        ("%Y.%m", ["2023.09", "2023.10", "2024.10"]),
        ("%d%m%Y", ["01032024", "15032024", "20042024"]),
        ("%H%M", ["0115", "0130", "1010"]),
    ],
)
def test_dates_that_look_like_numbers_keep_their_zeros_in_a_file(tmp_path, form, dates):
    moments = pandas.to_datetime(dates, format=form)
    gaps = (moments[1:] - moments[:-1]) / pandas.Timedelta("1h")
    options = {"time_format": form, "time_unit": "h", **SAID}
    data = read_csv(write(tmp_path / "visits.csv", visits(hours=dates * 12)), **options)
    assert data.train.dt[0].tolist() == pytest.approx([0.0, *gaps])
    numbers = [float(date) if "." in date else int(date) for date in dates]
    with pytest.raises(TimeError, match=r"expected a date in .*numbers with all of its digits"):
        from_table(visits(hours=numbers * 12), **options)


def test_static_columns_are_given_to_every_step():
    age = [40.0 + row // 3 if row % 3 == 1 else NAN for row in range(36)]
    sex = [None if row % 3 else "fm"[row // 3 % 2] for row in range(36)]
    data = from_table(visits(age=age, sex=sex), static=["age", "sex"], **SAID)
    assert data.schema.inputs == ("a", "b", "age", "sex=f", "sex=m")
    assert data.train.observed is None
    assert unpadded(data)["p01"][:, 2:] == pytest.approx(np.array([[41, 0, 1]] * 3), abs=1e-4)
    ahead = from_table(visits(age=age), id="patient", features=["age", "a"], static=["age"])
    assert ahead.schema.outputs == ("a",)
    with pytest.raises(DataError, match=r"row 2 .*'41.0', but row 1 of the same id holds '40.0'"):
        from_table(visits(age=[*age[:2], 41.0, *age[3:]]), static=["age"], **SAID)
    with pytest.raises(ArgumentError, match="'age' is static, so that it does not change"):
        from_table(visits(age=age), id="patient", target="age", task="next-step", static=["age"])


@pytest.mark.parametrize("options", [{"target": "died"}, {"task": "next-step"}])
def test_static_columns_are_features_or_something_else(options):
    table = visits(age=[40.0] * 36, ward=["w" if row % 3 == 0 else None for row in range(36)])
    options = {"id": "patient", "features": ["a"], **options}
    with pytest.raises(ArgumentError, match=r"static: column 'age' is no feature\. Name it"):
        from_table(table, static=["age"], **options)
    with pytest.raises(UnknownNameError, match=r"no column 'Age' \(static\)"):
        from_table(table, static=["Age"], **options)
    table["ward"] = [f"{row // 3 % 6}" if row % 3 == 0 else None for row in range(36)]
    data = from_table(table, group="ward", static=["ward"], **options)
    assert data.schema.inputs[0] == "a"


def test_a_table_without_ids_is_one_sequence_cut_by_time():
    table = {"t": range(40), "a": [row % 7 for row in range(40)], "y": [r / 9 for r in range(40)]}
    data = from_table(table, time="t", target="y")
    assert [len(data.schema.ids[part]) for part in data.schema.ids] == [1, 1, 1]
    assert data.train.x.shape == (1, 28, 1)
    ids, batch = transform_table(data, table)
    assert (ids, tuple(batch.x.shape)) == (("all rows",), (1, 40, 1))
    with pytest.raises(TimeError, match=r"runs backwards.*name the column that tells them apart"):
        from_table({**table, "t": [*range(20), *range(20)]}, time="t", target="y")


def test_several_targets():
    table = visits(level=[row / 7 for row in range(36)], dose=[row**0.5 for row in range(36)])
    options = {**SAID, "features": ["a", "b"], "target": ["level", "dose"]}
    data = from_table(table, **options)
    assert data.schema.outputs == ("level", "dose")
    assert data.train.y.shape == (8, 3, 2)
    who = data.schema.ids["train"][0]
    want = [(table["level"][r], table["dose"][r]) for r in range(36) if table["patient"][r] == who]
    unscaled = data.schema.unscale(data.train.y[0].double())
    assert unscaled.numpy() == pytest.approx(np.array(want), abs=1e-5)
    ahead = from_table(table, **{**options, "features": ["a", "level", "dose"]}, task="next-step")
    assert ahead.schema.inputs[:3] == ("level", "dose", "a")
    with pytest.raises(ArgumentError, match="'level' holds 36 classes, and each of several"):
        from_table(table, **options, task="classification")
    with pytest.raises(DataError, match="column 'dose' is empty in every row"):
        from_table({**table, "dose": [None] * 36}, **options)


def test_an_id_with_some_of_its_targets_counts_with_those():
    level, dose = ([row // 3 + 0.5 for row in range(36)] for _ in range(2))
    options = {**SAID, "features": ["a", "b"], "target": ["level", "dose"]}
    assert from_table(visits(level=level, dose=dose), **options).train.y.shape == (8, 2)
    first_missing = [None if row < 3 else value for row, value in enumerate(level)]
    complete = from_table(
        visits(level=first_missing, dose=first_missing), **options
    )  # an id without any is left out
    assert sum(len(part) for part in complete.schema.ids.values()) == 11
    names = [f"p{number:02}" for number in range(12)]
    split = {"train": names[:2], "test": names[2:]}
    data = from_table(visits(level=level, dose=first_missing), **options, split=split)
    assert data.train.y_mask.tolist() == [[[True, False]], [[True, True]]]
    assert data.schema.unscale(data.train.y)[1].tolist() == [1.5, 1.5]
    assert "1 of 24 targets are missing and do not count." in data.card.notes


def test_columns_that_nobody_uses_may_differ_from_row_to_row():
    long = melted(visits())
    noted = long.assign(nurse=[f"n{row}" for row in range(len(long))])
    with pytest.raises(DataError, match="another value of column 'nurse'"):
        from_table(noted, **LONG)
    data = from_table(noted, **LONG, features=["a", "b"])
    assert_same(data, from_table(long, **LONG, features=["a", "b"]))
    odd = noted.assign(died=["yes", "no"] * (len(long) // 2))
    ids, batch = transform_table(data, odd)
    expected_ids, expected = transform_table(data, long)
    assert ids == expected_ids
    assert torch.equal(batch.x, expected.x)
