"""Answers hold the times of a table as it has them, with their zone, whatever it is kept in."""

import pandas
import pytest
import torch

import tauflow
from tauflow.data import from_table
from tauflow.errors import TimeError
from tauflow.predict import Predictor

polars, arrow = pytest.importorskip("polars"), pytest.importorskip("pyarrow")
KINDS = {
    "pandas": lambda frame, folder: frame,
    "polars": lambda frame, folder: polars.from_pandas(frame),
    "arrow": lambda frame, folder: arrow.Table.from_pandas(frame),
    "pandas of arrow": lambda frame, folder: frame.convert_dtypes(dtype_backend="pyarrow"),
    "parquet": lambda frame, folder: (frame.to_parquet(folder / "t.parquet"), folder / "t.parquet")[
        1
    ],
}


def visits(zone):
    """Hours around the night in which clocks in Berlin go from two to three."""
    when = pandas.date_range("2024-03-30T20:00", periods=12, freq="h", tz="UTC").tz_convert(zone)
    frame = pandas.DataFrame({"patient": [f"p{row // 12:02d}" for row in range(144)]})
    return frame.assign(when=[*when] * 12, a=[float(row % 7) for row in range(144)])


def predictor(frame, **options):
    data = from_table(
        frame, id="patient", time="when", features=["a"], time_unit="hours", **options
    )
    torch.manual_seed(0)
    rnn = tauflow.GRU(data.card.input_size, 3, return_sequences=data.card.per_step)
    return Predictor.from_data(tauflow.SequenceModel(rnn, data.card.target_size), data)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("zone", ["Europe/Berlin", "+02:00", "UTC", None])
def test_answers_join_their_table(kind, zone, tmp_path):
    frame = visits(zone)
    trained = predictor(frame)
    predictions = trained.predict(KINDS[kind](frame, tmp_path))
    joined = frame.merge(predictions.astype({"when": frame["when"].dtype}), on=["patient", "when"])
    assert len(joined) == len(predictions) == 144
    assert [str(time) for time in predictions["when"]] == [str(time) for time in frame["when"]]
    later = predictions["when"] + pandas.Timedelta("1h")
    assert [str(time) for time in predictions["when predicted"]] == [str(time) for time in later]


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_a_horizon_are_told_in_the_zone_of_the_table(kind, tmp_path):
    frame = visits("Europe/Berlin")
    night = frame[frame["when"] < "2024-03-31T02:00+01:00"]
    predictions = (
        predictor(frame, window=3, horizon=2).predict(KINDS[kind](night, tmp_path)).iloc[0]
    )
    assert str(predictions["when +1"]) == "2024-03-31 03:00:00+02:00"
    assert str(predictions["when +2"]) == "2024-03-31 04:00:00+02:00"


def test_long_tables_and_forms_of_dates_keep_their_zone():
    frame = visits("Europe/Berlin")
    long = frame.melt(["patient", "when"], ["a"])
    options = {"id": "patient", "time": "when", "long": ["variable", "value"]}
    data = from_table(long, **options)
    rnn = tauflow.GRU(data.card.input_size, 3)
    predictions = Predictor.from_data(tauflow.SequenceModel(rnn, 1), data).predict(
        polars.from_pandas(long)
    )
    assert [str(time) for time in predictions["when"]] == [str(time) for time in frame["when"]]
    form = "%d.%m.%Y %H:%M %z"
    texts = frame.assign(when=frame["when"].dt.strftime(form))
    predictions = predictor(texts, time_format=form).predict(texts)
    assert predictions["when"].tolist() == frame["when"].tolist()  # the same moments, said in UTC
    assert str(predictions["when"].dtype.tz) == "UTC"


def test_a_message_says_that_a_time_is_in_utc():
    frame = visits("Europe/Berlin")
    trained = predictor(frame)
    with pytest.raises(TimeError, match=r"holds 2024-03-30T20:\S* UTC, before 2024-03-31T07:\S* U"):
        trained.predict(polars.from_pandas(frame.iloc[[11, 0]]))


@pytest.mark.parametrize(("zone", "other"), [("UTC", None), (None, "UTC")])
def test_dates_with_and_without_a_zone_are_not_mixed(zone, other, tmp_path):
    trained = predictor(visits(zone))
    trained.save(tmp_path / "model")
    for model in (trained, tauflow.load_predictor(tmp_path / "model")):
        with pytest.raises(TimeError, match="the dates of the training table have"):
            model.predict(visits(other))
        assert len(model.predict(visits("Asia/Tokyo" if zone else None))) == 144
