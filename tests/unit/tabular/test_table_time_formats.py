"""Times as they are written: elapsed ones, dates in any form, and which form is guessed."""

import datetime

import numpy as np
import pandas
import pytest
from own_tables import by_id, transform_table, visits, write

from tauflow.data import from_table, read_csv
from tauflow.errors import TimeError
from tauflow.tabular.time_formats import infer_time_formats

SAID = {"id": "patient", "time": "hours", "target": "died", "time_unit": "hours"}


def gaps(data):
    """Return the gaps of all ids, in the unit asked for."""
    gaps_of_ids = [piece.dt[0, :steps] for _, (_, piece, steps) in sorted(by_id(data).items())]
    return np.concatenate(gaps_of_ids)


def timed(*three):
    """Return visits with the same three times for each id."""
    return visits(hours=[*three] * 12)


@pytest.mark.parametrize(
    ("written", "hours"),
    [
        (["00:07", "24:37", "48:00"], [7 / 60, 24 + 37 / 60, 48]),
        (["0:00:30", "1:00:00.5", "107:05:00,25"], [1 / 120, 1 + 0.5 / 3600, 107 + 300.25 / 3600]),
        (["-12:30", "-0:15", "+3:00"], [-12.5, -0.25, 3]),
        (["-1 day, 23:30:00", "0 days 00:15:00", "10 days 01:00"], [-0.5, 0.25, 241]),
        (["-1 days +23:30:00", "0 days", "1 day"], [-0.5, 0, 24]),
    ],
)
@pytest.mark.parametrize("of", ["file", "mapping"])
def test_elapsed_times(tmp_path, written, hours, of):
    table = timed(*written)
    table = write(tmp_path / "v.csv", table) if of == "file" else table
    data = from_table(table, time_format="elapsed", **SAID)
    right = np.tile(np.diff(hours, prepend=hours[0]), 12)
    np.testing.assert_allclose(gaps(data), right, rtol=1e-6)
    batch = transform_table(data, table)[1]
    np.testing.assert_allclose(batch.dt.numpy().ravel(), right, rtol=1e-6)
    minutes = from_table(table, time_format="elapsed", **{**SAID, "time_unit": "minutes"})
    np.testing.assert_allclose(gaps(minutes), 60 * right, rtol=1e-6)


def test_what_pandas_writes_of_durations_is_read_again(tmp_path):
    spans = pandas.to_timedelta([-90, 12.5, 4000.000001], unit="min")
    frame = pandas.DataFrame(timed(*spans))
    frame.to_csv(tmp_path / "v.csv", index=False)
    data = read_csv(tmp_path / "v.csv", time_format="elapsed", **SAID)
    np.testing.assert_allclose(gaps(data), gaps(from_table(frame, **SAID)))
    assert gaps(from_table(frame, time_format="elapsed", **SAID)).shape == (36,)


@pytest.mark.parametrize(
    "cell", ["24:60", "1:2", "12", "x", "1:00:61", "1 day 24:00:00:00", "5 PM"]
)
def test_what_is_no_elapsed_time(cell):
    with pytest.raises(TimeError, match=r"row 4 .*expected an elapsed time in hours .* 24:37"):
        from_table(
            visits(hours=["0:00", "1:00", "2:00", "0:00", cell, "2:00"] * 6),
            time_format="elapsed",
            **SAID,
        )


@pytest.mark.parametrize(
    ("written", "form"),
    [
        (["00:07", "24:37", "48:00"], "elapsed"),
        (["0:00:30", "1:00:00.5", "107:05:00"], "elapsed"),
        (["10.03.2004", "13.03.2004", "01.04.2004"], "%d.%m.%Y"),
        (["03/10/2004 1:05 PM", "03/13/2004 1:05 AM", "04/01/2004 12:00 PM"], "%m/%d/%Y %I:%M %p"),
        (["10-Mar-2004", "11-May-2004", "01-Jun-2004"], "%d-%b-%Y"),
        (["March 3, 2004", "May 1, 2004", "May 11, 2004"], "%B %d, %Y"),
        (["30-01-2021", "31-01-2021", "01-02-2021"], "%d-%m-%Y"),
        ([19970131, 19970201, 19970301], "%Y%m%d"),
        (["200403101800", "200403101900", "200403310000"], "%Y%m%d%H%M"),
    ],
)
@pytest.mark.parametrize("of", ["file", "frame"])
def test_the_form_is_guessed_and_named_and_works(tmp_path, written, form, of):
    assert infer_time_formats(written) == (form,)
    table = pandas.DataFrame(timed(*written))
    if of == "file":
        table = write(tmp_path / "v.csv", timed(*written))
    with pytest.raises(TimeError) as error:
        from_table(table, **SAID)
    assert f"pass time_format={form!r} (--time-format " in str(error.value)
    data = from_table(table, time_format=form, **SAID)
    if form == "elapsed":
        return
    moments = pandas.to_datetime(pandas.Series(written).astype(str), format=form)
    hours = (moments.diff().fillna(pandas.Timedelta(0)) / pandas.Timedelta(1, "h")).to_numpy()
    np.testing.assert_allclose(gaps(data), np.tile(hours, 12), rtol=1e-6)


@pytest.mark.parametrize(
    ("written", "forms"),
    [
        (["01.02.2004", "03.04.2004", "05.06.2004"], ("%d.%m.%Y", "%m.%d.%Y")),
        (["01/02/2004 10:00", "03/02/2004 10:00"], ("%d/%m/%Y %H:%M", "%m/%d/%Y %H:%M")),
    ],
)
def test_where_the_order_is_open_none_is_taken(written, forms):
    assert infer_time_formats(written) == forms
    three = (written * 2)[:3]
    with pytest.raises(TimeError) as error:
        from_table(timed(*three), **SAID)
    assert f"of the form {' or '.join(map(repr, forms))}; say which" in str(error.value)


@pytest.mark.parametrize(
    "cells",
    [
        ["2024-05-31", "2024-06-01"],
        ["2024-05-31T18:00:00+02:00"],
        ["a", "b"],
        ["1", "2"],
        [1.5, 20240531.0],
        [20240531, 20240532],
        ["2004/03/10 18:00", "2004/03/10 19:00"],
        ["01-02-03", "04-05-06"],
        ["2004/03/10", "10.03.2004"],
        ["10.03.2004", "10.03.2004 18:00"],
        ["May", "June"],
        [None, ""],
        [],
    ],
)
def test_no_form_is_made_up(cells):
    assert infer_time_formats(cells) == ()


@pytest.mark.parametrize(
    "make",
    [
        lambda hours: datetime.timedelta(hours=hours),
        lambda hours: pandas.Timedelta(hours, "h"),
        lambda hours: np.timedelta64(int(hours * 3600), "s"),
        lambda hours: np.datetime64("2024-03-01T00:00:00") + np.timedelta64(int(hours * 3600), "s"),
        lambda hours: pandas.Period("2024-03-01 00:00", "30min") + int(2 * hours),
        lambda hours: datetime.datetime(2024, 3, 1) + datetime.timedelta(hours=hours),
    ],
)
@pytest.mark.parametrize("of", ["frame", "mapping"])
def test_object_cells_that_are_times(make, of):
    cells = np.empty(36, object)
    cells[:] = [make(hours) for hours in visits()["hours"]]
    table = pandas.DataFrame(visits()).assign(hours=cells) if of == "frame" else visits(hours=cells)
    data = from_table(table, **SAID)
    np.testing.assert_allclose(gaps(data), np.tile([0, 1.5, 2.5], 12), rtol=1e-6)
    cells[4] = None
    with pytest.raises(TimeError, match=r"row 4 .* is empty"):
        from_table({**visits(), "hours": cells}, **SAID)


@pytest.mark.parametrize("unit", ["ns", "us", "s"])
def test_dates_further_apart_than_nanoseconds_can_count(unit):
    moments = np.array(["1680-01-01", "1990-01-01", "2260-01-01"], f"datetime64[{unit}]")
    days = np.diff(moments.astype("datetime64[D]")).astype(float)
    data = from_table(visits(hours=np.tile(moments, 12)), **{**SAID, "time_unit": "days"})
    np.testing.assert_allclose(gaps(data), np.tile([0, *days], 12), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint64"])
def test_whole_times_near_the_limits_of_their_type(dtype):
    least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    times = np.array([least, most // 2, most], dtype)
    data = from_table(visits(hours=np.tile(times, 12)), **{**SAID, "time_unit": None})
    right = np.diff([float(int(time) - int(least)) for time in times], prepend=0.0)
    np.testing.assert_allclose(gaps(data), np.tile(right, 12), rtol=1e-6)
