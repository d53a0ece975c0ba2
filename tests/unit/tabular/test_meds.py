"""Records of MEDS become tables with a column for each code."""

import numpy as np
import pandas as pd
import pytest

from tauflow.data import from_table, read_meds
from tauflow.errors import ArgumentError, DataError, UnknownNameError
from tauflow.estimators import SequenceHawkes

DAYS = [None, None, "2024-01-02", "2024-01-01", "2024-01-02", None, "2024-03-01", "2024-03-02"]
RECORDS = pd.DataFrame(
    {
        "subject_id": [1, 1, 1, 1, 1, 2, 2, 2],
        "time": pd.to_datetime(DAYS),
        "code": ["SEX//F", "HEIGHT", "K", "ADMIT", "NA", "HEIGHT", "K", "K"],
        "numeric_value": [None, 1.7, 4.1, None, 140.0, 1.8, 3.9, None],
        "text_value": "x",
    }
)
EXPECTED = pd.DataFrame(
    {
        "subject_id": [1, 1, 2, 2],
        "time": pd.to_datetime(["2024-01-01", "2024-01-02", "2024-03-01", "2024-03-02"]),
        "SEX//F": [1.0, 1.0, 0.0, 0.0],
        "HEIGHT": [1.7, 1.7, 1.8, 1.8],
        "K": [np.nan, 4.1, 3.9, np.nan],
        "ADMIT": [1.0, 0.0, 0.0, 0.0],
        "NA": [np.nan, 140.0, np.nan, np.nan],
        "K happened": [0.0, 0.0, 0.0, 1.0],
    }
)


@pytest.mark.parametrize("kind", ["pandas", "file", "folder", "polars", "arrow"])
def test_numbers_events_and_static_records(kind, tmp_path):
    source = RECORDS
    if kind in ("file", "folder"):
        RECORDS.to_parquet(tmp_path / "0.parquet")
        source = tmp_path if kind == "folder" else tmp_path / "0.parquet"
    elif kind == "polars":
        source = pytest.importorskip("polars").from_pandas(RECORDS)
    elif kind == "arrow":
        source = pytest.importorskip("pyarrow").Table.from_pandas(RECORDS)
    frame = read_meds(source)
    pd.testing.assert_frame_equal(frame, EXPECTED, check_dtype=False)
    assert frame.attrs["static"] == ["SEX//F", "HEIGHT"]


def test_codes_are_chosen_by_name():
    frame = read_meds(RECORDS, codes=["K", "HEIGHT"])
    expected = EXPECTED[["subject_id", "time", "HEIGHT", "K", "K happened"]].drop(index=0)
    pd.testing.assert_frame_equal(frame, expected.reset_index(drop=True), check_dtype=False)
    with pytest.raises(UnknownNameError, match=r"the code 'X'\. Codes: ADMIT, HEIGHT"):
        read_meds(RECORDS, codes=["X"])
    with pytest.raises(ArgumentError, match=r"codes= is empty\. Codes: "):
        read_meds(RECORDS, codes=[])


def test_static_events_of_others_did_not_happen():
    frame = read_meds(RECORDS.drop(index=5))  # subject 2 has no static record
    expected = EXPECTED.assign(HEIGHT=[1.7, 1.7, np.nan, np.nan])
    pd.testing.assert_frame_equal(frame, expected, check_dtype=False)


def test_several_numbers_at_one_time():
    twice = pd.concat([RECORDS, RECORDS[2:3].assign(numeric_value=5.1)])
    with pytest.raises(DataError, match="subject 1 has several numbers of 'K' at 2024-01-02"):
        read_meds(twice)
    assert read_meds(twice, duplicates="mean")["K"][1] == pytest.approx(4.6)
    assert read_meds(twice, duplicates="last")["K"][1] == 5.1
    happened = pd.concat([RECORDS, RECORDS[3:4]])
    pd.testing.assert_frame_equal(read_meds(happened), EXPECTED, check_dtype=False)


@pytest.mark.parametrize(
    ("records", "error", "message"),
    [
        (RECORDS.drop(columns="code"), ArgumentError, "these lack code"),
        (RECORDS.assign(code=None), DataError, "record 0 .* has no code"),
        (RECORDS.assign(time=pd.NaT), DataError, "no record has a time"),
        (RECORDS.assign(numeric_value="high"), DataError, "is to hold numbers"),
        (RECORDS.replace("ADMIT", "time"), DataError, "the code 'time' is the name of another"),
        (RECORDS.replace("ADMIT", "K happened"), DataError, "the code 'K happened' is the name"),
        (RECORDS.assign(code="K", numeric_value=None), DataError, "with a time and without one"),
        (
            pd.DataFrame(
                {
                    "subject_id": range(1001),
                    "time": range(1001),
                    "code": [f"c{n}" for n in range(1001)],
                    "numeric_value": 1.0,
                }
            ),
            DataError,
            r"1,001 codes, each of which would be a column\. Name at most 1000",
        ),
    ],
)
def test_what_is_no_table_is_refused(records, error, message):
    with pytest.raises(error, match=message):
        read_meds(records)


def test_who_has_no_time_is_left_out_aloud():
    more = pd.DataFrame({"subject_id": [7], "time": [pd.NaT], "code": ["HEIGHT"]})
    with pytest.warns(UserWarning, match="1 subject without a record that has a time: 7"):
        frame = read_meds(pd.concat([RECORDS, more.assign(numeric_value=1.9)]))
    pd.testing.assert_frame_equal(frame, EXPECTED, check_dtype=False)


def test_the_table_is_read_by_from_table_and_records_by_hawkes():
    rng = np.random.default_rng(0)
    records = pd.DataFrame(
        {
            "subject_id": np.repeat(np.arange(20), 10),
            "time": np.tile(np.arange(10.0), 20),
            "code": rng.choice(["K", "ADMIT"], 200),
            "numeric_value": rng.normal(size=200),
        }
    )
    records.loc[records["code"] == "ADMIT", "numeric_value"] = None
    age = pd.DataFrame({"subject_id": range(20), "time": np.nan, "code": "AGE"})
    table = read_meds(pd.concat([age.assign(numeric_value=rng.normal(size=20)), records]))
    data = from_table(table, id="subject_id", time="time", static=table.attrs["static"])
    assert set(data.schema.inputs[:3]) == {"K", "ADMIT", "AGE"}
    options = {"id": "subject_id", "time": "time", "type": "code", "start": 0.0, "end": 10.0}
    hawkes = SequenceHawkes(hidden_size=2, epochs=1, random_state=0)
    hawkes.fit(records, **options, ids=range(22))
    assert hawkes.predict_time(records, ids=range(23), start=0.0, now=10.0).shape == (23,)
