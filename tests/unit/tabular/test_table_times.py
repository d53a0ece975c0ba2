import datetime

import numpy as np
import pandas
import pytest
import torch
from own_tables import by_id, transform_table, visits, write

from tauflow.data import from_table, read_csv
from tauflow.errors import TimeError, UnknownNameError
from tauflow.tabular.times import UNITS

STAMPS = ["2024-02-28T12:00:00", "2024-02-29T00:00:00", "2024-03-01T06:30:00"]
SECONDS = [0.0, 43_200.0, 153_000.0]
SAID = {"id": "patient", "time": "hours", "target": "died", "features": ["a"]}


def gaps(data):
    """Return the gaps of an id in the unit of the table's times."""
    dt = by_id(data)["p05"][1].dt[0].double() * data.schema.gap
    return [float(f"{gap:.7g}") for gap in dt]


def frame_of(stamps):
    return pandas.DataFrame(visits(hours=stamps * 12))


@pytest.mark.parametrize(
    ("unit", "size"),
    [
        *(("ms", 1e-3), ("milliseconds", 1e-3), ("s", 1.0), ("seconds", 1.0), ("min", 60.0)),
        *(("minutes", 60.0), ("h", 3600.0), ("hour", 3600.0), ("hours", 3600.0), (None, 3600.0)),
        *(("d", 86_400.0), ("days", 86_400.0), ("weeks", 604_800.0)),
    ],
)
def test_dates_are_converted_to_any_unit(tmp_path, unit, size):
    want = [0.0, 43_200.0 / size, 109_800.0 / size]
    file = write(tmp_path / "dates.csv", visits(hours=STAMPS * 12))
    data = read_csv(file, time_unit=unit, **SAID)
    assert gaps(data) == pytest.approx(want)
    assert data.card.time_unit in UNITS


@pytest.mark.parametrize(
    "stamps",
    [
        [stamp.replace("T", " ") for stamp in STAMPS],
        [stamp + "Z" for stamp in STAMPS],
        ["2024-02-28T13:00:00+01:00", "2024-02-28T19:00:00-05:00", "2024-03-01T06:30:00Z"],
        [datetime.datetime.fromisoformat(stamp) for stamp in STAMPS],
        np.array(STAMPS, "datetime64[s]").tolist(),
        [np.timedelta64(int(second), "s") for second in SECONDS],
    ],
)
def test_dates_may_be_written_in_many_ways(stamps):
    assert gaps(from_table(visits(hours=stamps * 12), **SAID)) == pytest.approx([0, 12, 30.5])


@pytest.mark.parametrize("resolution", ["s", "ms", "us", "ns"])
def test_dates_of_frames(resolution):
    frame = frame_of(STAMPS)
    frame["hours"] = pandas.to_datetime(frame["hours"]).astype(f"datetime64[{resolution}]")
    assert gaps(from_table(frame, **SAID)) == pytest.approx([0, 12, 30.5])
    frame["hours"] = frame["hours"].dt.tz_localize("Europe/Berlin")
    assert gaps(from_table(frame, **SAID)) == pytest.approx([0, 12, 30.5])


def test_days_alone_are_dates():
    days = [datetime.date(2024, 2, 28), datetime.date(2024, 2, 29), datetime.date(2024, 3, 1)]
    assert gaps(from_table(visits(hours=days * 12), time_unit="days", **SAID)) == [0, 1, 1]
    text = [day.isoformat() for day in days]
    assert gaps(from_table(visits(hours=text * 12), time_unit="days", **SAID)) == [0, 1, 1]


@pytest.mark.parametrize(
    ("times", "form"),
    [
        ([20240530, 20240531, 20240601], "%Y%m%d"),
        ([20240530.0, 20240531.0, 20240601.0], "%Y%m%d"),
        (["20240530", "20240531", "20240601"], "%Y%m%d"),
        ([2024053122, 2024053123, 2024060100], "%Y%m%d%H"),
        ([202405312258, 202405312359, 202406010000], "%Y%m%d%H%M"),
        ([20240531225800, 20240531235959, 20240601000000], "%Y%m%d%H%M%S"),
    ],
)
def test_dates_without_hyphens_are_not_taken_for_numbers(tmp_path, times, form):
    table = visits(hours=times * 12)
    message = (
        rf"row \d.*, column 'hours' holds {str(times[0])[:-1]}.*may be a number, or a date without "
        rf"hyphens.*2024-05-31.*pass time_format='{form}'.*subtract 2024"
    )
    for read, source in ((from_table, table), (read_csv, write(tmp_path / "v.csv", table))):
        with pytest.raises(TimeError, match=message):
            read(source, **SAID)
    dates = pandas.to_datetime([str(int(time)) for time in map(float, times)], format=form)
    want = (np.diff(dates.to_numpy()) / np.timedelta64(1, "D")).tolist()
    data_read = gaps(from_table(visits(hours=[*dates] * 12), time_unit="days", **SAID))
    assert data_read == pytest.approx([0, *want])


@pytest.mark.parametrize(
    "times",
    [
        [20240530, 20240531, 20240532],  # no such day
        [20241330, 20241331, 20241401],  # no such month
        [18991230, 18991231, 19000101],  # too early for most
        [20240530, 20240531, 20240531.5],
        [0, 20240530, 20240531],
        [1717113600, 1717113601, 1717113602],  # seconds since 1970
    ],
)
def test_numbers_that_are_no_dates_stay_numbers(times):
    want = [0, *np.diff(times)]
    assert gaps(from_table(visits(hours=times * 12), **SAID)) == pytest.approx(want)


@pytest.mark.parametrize("written", [int, str, np.int64])
def test_whole_numbers_of_nanoseconds_keep_their_digits(written):
    late = [written(1_700_000_000_000_000_000 + step) for step in (0, 100, 1100)]
    assert gaps(from_table(visits(hours=late * 12), **SAID)) == [0, 100, 1000]


def test_dates_keep_their_nanoseconds():
    stamps = [f"2024-02-28T12:00:00.{digits}" for digits in ("000000000", "0000015", "000004000")]
    for ending in ("", "Z", "+02:00"):
        data = from_table(
            visits(hours=[stamp + ending for stamp in stamps] * 12), time_unit="ms", **SAID
        )
        assert gaps(data) == pytest.approx([0, 1.5e-3, 2.5e-3], rel=1e-6)
    frame = frame_of(stamps)
    frame["hours"] = pandas.to_datetime(frame["hours"]).dt.tz_localize("Europe/Berlin")
    assert gaps(from_table(frame, time_unit="ms", **SAID)) == pytest.approx([0, 1.5e-3, 2.5e-3])


def test_dates_finer_than_nanoseconds_are_refused():
    stamps = [STAMPS[0], STAMPS[1] + ".0000000001", STAMPS[2]]
    with pytest.raises(TimeError, match=r"row 1 .*holds '2024-02-29T.*with nine decimals at most"):
        from_table(visits(hours=stamps * 12), **SAID)


def test_small_gaps_survive_large_times():
    late = [1.7e9, 1.7e9 + 0.25, 1.7e9 + 0.5]
    assert gaps(from_table(visits(hours=late * 12), **SAID)) == [0, 0.25, 0.25]


@pytest.mark.parametrize(
    ("column", "unit", "name"),
    [
        ("hours", None, "hours"),
        ("time_min", None, "minutes"),
        ("t", None, "unit of 't'"),
        ("t", "frames", "frames"),
    ],
)
def test_numbers_keep_their_unit(column, unit, name):
    table = visits()
    table[column] = table.pop("hours")
    data = from_table(table, time_unit=unit, **{**SAID, "time": column})
    assert data.card.time_unit == name
    assert gaps(data) == [0, 1.5, 2.5]


@pytest.mark.parametrize(
    ("time", "message"),
    [
        (None, r"row 5, column 'hours' is empty, expected a number, or a date"),
        ("later", r"row 5, column 'hours' holds 'later', expected a number, as in the first row"),
        ("inf", r"row 5, column 'hours' holds 'inf', expected a finite number"),
        (
            1.0,
            r"row 5, column 'hours' holds 1.0, before 4.0 of row 4 of patient 'p00': time runs "
            r"backwards. Sort the rows by time, or pass sort=True \(--sort\)",
        ),
        (4.0, r"row 5, column 'hours' holds 4.0, the same time as row 4 of patient 'p00'"),
    ],
)
def test_wrong_times_are_refused_by_row_and_column(tmp_path, time, message):
    table = visits()
    table = {name: [*cells[:3], cells[2], *cells[3:]] for name, cells in table.items()}
    table["hours"][3] = time
    with pytest.raises(TimeError, match=f"^.*visits.csv, {message}"):
        read_csv(write(tmp_path / "visits.csv", table), **SAID)


@pytest.mark.parametrize(
    ("stamp", "message"),
    [
        ("2024-13-01", "holds '2024-13-01', expected a number, or a date such as 2024-05-31"),
        ("13.01.2024", r"holds '13.01.2024', .* time_format='%d.%m.%Y' \(--time-format\)"),
        ("13 Jan 2024 14:30", r"holds '13 Jan 2024 14:30', .* time_format="),
        (
            "1,5",
            r"holds '1,5', .* decimals with a point\. Or pass decimal=',' \(--decimal\)\.$",
        ),
        ("2024-02-29T00:00:00Z", "expected an offset from UTC in either every date"),
    ],
)
def test_wrong_dates_are_refused(stamp, message):
    table = visits(hours=[STAMPS[0], stamp, STAMPS[2]] * 12)
    with pytest.raises(TimeError, match=rf"the table, row 1 \(counted from 0\), .*{message}"):
        from_table(table, **SAID)


@pytest.mark.parametrize("first", ["1600-01-01T00:00:00", "0001-01-01"])
def test_dates_far_from_1970_do_not_wrap_around_beside_nanoseconds(first):
    stamps = [first, "2024-01-02T00:00:00.000000001", "2024-01-03T00:00:00"]
    with pytest.raises(TimeError, match=r"row \d .*expected a number, or a date"):
        from_table(frame_of(stamps), **SAID)
    assert gaps(from_table(frame_of([first, *stamps[2:], "2025-01-01"]), **SAID))[1] > 0


@pytest.mark.parametrize("times", [[0.0, 1.0, 1e39], [-3e38, 0.0, 3e38], [0.0, 1e-50, 1.0]])
def test_gaps_that_single_precision_cannot_hold_are_refused(tmp_path, times):
    wide = [2 * t for t in times] if times[0] else times
    file = write(tmp_path / "wide.csv", visits(hours=wide * 12))
    with pytest.raises(
        TimeError, match=r"column 'hours' holds .* after row \d+ of the same id, a time step"
    ):
        read_csv(file, **SAID)


def test_units_that_are_none():
    with pytest.raises(UnknownNameError, match=r"'hour_s' is unknown\. Did you mean 'hours'"):
        from_table(frame_of(STAMPS), time_unit="hour_s", **SAID)


def test_rows_are_sorted_on_request_alone():
    table = {name: list(cells) for name, cells in visits().items()}
    backwards = {name: cells[::-1] for name, cells in table.items()}
    data, want = from_table(backwards, sort=True, **SAID), from_table(table, **SAID)
    assert data.schema.ids["train"] == want.schema.ids["train"][::-1]
    for name, (part, piece, steps) in by_id(want).items():
        part_again, again, steps_again = by_id(data)[name]
        assert (part_again, steps_again) == (part, steps)
        torch.testing.assert_close(again.x, piece.x)
        assert again.dt.tolist() == piece.dt.tolist()


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_by_default_the_median_gap_is_1_whatever_times_are_counted_in(scale):
    hours = scale * np.array([0.0, 1.0, 5.0, 5.5] * 9)
    data = from_table(visits(hours=hours, patient=np.repeat(np.arange(9), 4)), **SAID)
    assert data.card.time_unit == ("hours" if scale == 1 else f"{scale:g} hours")
    assert data.train.dt[0].tolist() == pytest.approx([0.0, 1.0, 4.0, 0.5])
    assert "the median of the training split" in " ".join(data.card.notes)
    new = {"patient": [1, 1], "hours": [0.0, 3 * scale], "a": [1.0, 2.0]}
    assert transform_table(data, new)[1].dt.tolist() == [[0.0, pytest.approx(3.0)]]


def test_the_unit_of_dates_is_their_median_gap_too():
    data = from_table(visits(hours=["2024-01-01", "2024-01-03", "2024-01-05"] * 12), **SAID)
    assert data.card.time_unit == "48 hours"
    assert data.train.dt[0].tolist() == [0.0, 1.0, 1.0]


def unix(dtype, seconds=(0, 60, 180)):
    return (1.7e9 + np.tile(seconds, 12)).astype(dtype)


@pytest.mark.parametrize("kind", [np.asarray, pandas.Series, list])
def test_a_column_too_coarse_for_its_gaps_is_refused(kind):
    """Before rounding makes times of different rows look equal, or out of order."""
    with pytest.raises(
        TimeError,
        match=r"^the table, row 1 \(counted from 0\), column 'hours': times of patient '\w+' have "
        r"dtype float32, in which numbers near 1\.7e\+09 lie 128 apart: .* Give the column as "
        r"float64, integers or dates from the start",
    ):
        from_table(visits(hours=kind(unix(np.float32))), **SAID)


@pytest.mark.parametrize("dtype", [np.float64, np.int64])
def test_a_column_that_holds_its_times_exactly_is_not(dtype):
    assert gaps(from_table(visits(hours=unix(dtype)), **SAID)) == [0, 60, 120]


def test_small_numbers_of_single_precision_are_fine():
    hours = np.tile([0.1, 0.2, 30.7], 12).astype(np.float32)
    data = from_table(visits(hours=hours), **SAID)
    assert gaps(data) == pytest.approx([0, 0.1, 30.5])
    coarse = pandas.DataFrame(visits(hours=unix(np.float32)))
    with pytest.raises(TimeError, match="lie 128 apart"):
        transform_table(data, coarse)


def test_a_file_with_more_digits_than_double_precision_has_is_refused(tmp_path):
    stamps = [f"1700000000.{digits:07d}" for digits in (0, 3, 9)] * 12
    file = write(tmp_path / "stamps.csv", visits(hours=stamps))
    with pytest.raises(TimeError, match=r"float64, in which numbers .* lie 2\.38419e-07 apart"):
        read_csv(file, **SAID)


def test_whole_numbers_too_far_apart_for_any_type_are_refused(tmp_path):
    file = write(tmp_path / "wide.csv", visits(hours=["-1" + "0" * 308, "0", "1" + "0" * 308] * 12))
    with pytest.raises(TimeError, match=r"row 4, column 'hours' holds '1000.*expected a number"):
        read_csv(file, **SAID)
