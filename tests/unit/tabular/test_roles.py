"""Suggested roles against tables that were made with known ones."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas
import pytest

from tauflow.errors import DataError, UnknownNameError
from tauflow.tabular.describe import describe_table
from tauflow.tabular.load import load_table
from tauflow.tabular.schema import Schema

HOURS = pandas.date_range("2024-01-01", periods=200, freq="h")


@dataclass
class Known:
    """A table, and the roles that its columns have."""

    frame: pandas.DataFrame
    id: str | None
    time: str | None
    long: tuple[str, str] | None = None
    target: str | None = None


def walk(count, seed=0):
    return np.random.default_rng(seed).normal(size=count).cumsum()


def ids(count, rows):
    return np.repeat(np.arange(count), rows)


def shuffled(frame):
    return frame.sample(frac=1, random_state=3)


def sites(**columns):
    frame = pandas.DataFrame(
        {"site": np.repeat(["A", "B", "C"], 200), "time": np.tile(HOURS, 3), "temp": walk(600)}
    )
    return frame.assign(**columns)


def numbered_sites(name="site"):
    return sites(site=np.repeat([1, 2, 3], 200)).rename(columns={"site": name})


def patients(name="pat", **columns):
    rng = np.random.default_rng(1)
    frame = pandas.DataFrame(
        {
            name: ids(50, 6),
            "sex": np.repeat(rng.choice(["m", "f"], 50), 6),
            "day": np.tile([0, 1, 3, 8, 20, 50], 50),
            "crp": rng.integers(1, 300, 300),
        }
    )
    return frame.assign(**columns)


def dated(since, **columns):
    """Return stays with a date that is the same in all rows of each."""
    frame = pandas.DataFrame(
        {
            "patient": ids(40, 5),
            since: np.repeat(pandas.date_range("1950", periods=40, freq="90D"), 5),
            "pulse": walk(200),
        }
    )
    return frame.assign(**columns)


def long(**names):
    rng = np.random.default_rng(2)
    rows = [
        (stay, hour * (1 + stay % 3), name, 60 + rng.normal())
        for stay in range(40)
        for hour in range(8)
        for name in ("HR", "Temp")
        if name == "HR" or hour % 3 == 0
    ]
    frame = pandas.DataFrame(rows, columns=["stay", "hours", "parameter", "value"])
    return frame.rename(columns=names)


def panel():
    countries = [f"c{k}" for k in range(25)]
    return pandas.DataFrame(
        {
            "country": np.repeat(countries, 30),
            "year": np.tile(np.arange(1990, 2020), 25),
            "gdp": walk(750),
            "population": np.random.default_rng(0).integers(1_000_000, 90_000_000, 750),
        }
    )


def events():
    rng = np.random.default_rng(3)
    times = pandas.Timestamp("2024") + pandas.to_timedelta(np.sort(rng.uniform(0, 1e6, 3000)), "s")
    return pandas.DataFrame(
        {"user_id": rng.integers(0, 60, 3000), "timestamp": times, "amount": walk(3000)}
    )


def series(**columns):
    return pandas.DataFrame({"timestamp": HOURS, "power": walk(200)}).assign(**columns)


def numbered(name, rows, **columns):
    frame = pandas.DataFrame({name: ids(30, rows), "v": walk(30 * rows)})
    return frame.assign(**columns)


RNG = np.random.default_rng(4)
LABEL = np.repeat(np.arange(30) % 2, 6)
STEPS = np.tile(np.arange(6.0), 30)
KNOWN = {
    "text sites": Known(sites(), "site", "time"),
    "sites in the order of time": Known(sites().sort_values(["time", "site"]), "site", "time"),
    "numbered sites": Known(numbered_sites(), "site", "time"),
    "numbered, without a name": Known(numbered_sites("q7"), "q7", "time"),
    "a count beside them": Known(
        numbered_sites("q7").assign(n=RNG.integers(0, 20000, 600)).sort_values("time"), "q7", "time"
    ),
    "rows with numbers": Known(sites(ID=np.arange(1, 601)), "site", "time"),
    "date of birth": Known(
        dated(
            "birth_date",
            visit_date=np.tile(pandas.date_range("2024", periods=5, freq="30D"), 40),
            died=np.repeat(np.arange(40) % 2, 5),
        ),
        *("patient", "visit_date"),
        target="died",
    ),
    "date of admission": Known(
        dated("admitted", hours=np.tile(np.arange(5.0) * 1.5, 40)), "patient", "hours"
    ),
    "date of randomisation": Known(
        dated("randomisation_date", days=np.tile([0, 7, 15, 28, 60], 40)), "patient", "days"
    ),
    "countries": Known(panel(), "country", "year"),
    "countries by year": Known(panel().sort_values("year"), "country", "year"),
    "sex": Known(patients(), "pat", "day"),
    "sex, no names": Known(patients("k1"), "k1", "day"),
    "sex, no names, shuffled": Known(shuffled(patients("k1")), "k1", "day"),
    "large numbers": Known(
        patients(pat=np.repeat(RNG.choice(90000, 50, replace=False), 6)), "pat", "day"
    ),
    "numbers like measurements": Known(
        patients("no", no=np.repeat(RNG.choice(250, 50, replace=False), 6)), "no", "day"
    ),
    "floats": Known(numbered("id", 6, id=ids(30, 6) * 1.0, t=STEPS), "id", "t"),
    "zero-padded": Known(
        numbered("id", 6, id=[f"{k:03d}" for k in ids(30, 6)], t=STEPS), "id", "t"
    ),
    "shuffled": Known(shuffled(numbered("id", 6, t=STEPS, y=LABEL)), "id", "t", target="y"),
    "latest first": Known(numbered("id", 6, t=STEPS)[::-1], "id", "t"),
    "negative days": Known(numbered("subj", 6, rel=STEPS - 3.0), "subj", "rel"),
    "rises, odd name": Known(
        numbered("person", 6, exper=RNG.exponential(size=(30, 6)).cumsum(1).ravel()),
        *("person", "exper"),
    ),
    "few": Known(
        pandas.DataFrame(
            {
                "name": np.repeat(["ann", "bob"], 300),
                "minute": np.tile(np.arange(300), 2),
                "hr": walk(600),
            }
        ),
        *("name", "minute"),
    ),
    "events": Known(events(), "user_id", "timestamp"),
    "pupils of schools": Known(
        pandas.DataFrame(
            {
                "school": np.repeat(np.arange(1224, 1384), 45),
                "ses": walk(7200),
                "mach": walk(7200, 1),
                "meanses": np.repeat(walk(160, 2), 45),
            }
        ),
        *("school", None),
    ),
    "no times": Known(numbered("series", 6, label=LABEL), "series", None, target="label"),
    "long": Known(
        long().assign(died=lambda f: f.stay % 2),
        *("stay", "hours", ("parameter", "value"), "died"),
    ),
    "long, odd names": Known(
        long(stay="k", hours="since", parameter="of", value="n"), "k", "since", ("of", "n")
    ),
    "long, shuffled": Known(shuffled(long()), "stay", "hours", ("parameter", "value")),
    "long, with units": Known(
        long().assign(unit=lambda f: f.parameter.map({"HR": "bpm", "Temp": "C"})),
        *("stay", "hours", ("parameter", "value")),
    ),
    "long, no id": Known(
        pandas.DataFrame(
            {
                "time": np.repeat(HOURS, 3),
                "variable": np.tile(["a", "b", "c"], 200),
                "value": walk(600),
            }
        ),
        *(None, "time", ("variable", "value")),
    ),
    "series": Known(series(level=RNG.integers(0, 5, 200)), None, "timestamp"),
    "series, shuffled": Known(shuffled(series()), None, "timestamp"),
    "series, weather": Known(
        series(weather_id=np.arange(200) % 5, weather=np.array([*"ababa"] * 40)), None, "timestamp"
    ),
    "series, phases": Known(
        series(timestamp=np.arange(200) * 1.5, phase=np.repeat([1, 2], 100)), None, "timestamp"
    ),
    "series, rows twice": Known(
        pandas.concat([series(), series()[::25]]).sort_values("timestamp"), None, "timestamp"
    ),
    "series, no times": Known(pandas.DataFrame({"a": walk(300), "b": walk(300, 1)}), None, None),
    "elapsed": Known(
        numbered("stay", 6, Time=[f"{h:02d}:07" for h in range(0, 30, 5)] * 30), "stay", "Time"
    ),
    "dates without hyphens": Known(
        numbered("stay", 6, date=[20240128, 20240129, 20240131, 20240201, 20240204, 20240301] * 30),
        *("stay", "date"),
    ),
    "height before age": Known(  # both rise in each tree
        pandas.DataFrame(
            {
                "height": np.tile([4.5, 10.9, 28.7, 41.7, 52.7, 60.9], 30) + np.repeat(walk(30), 6),
                "age": np.tile([3, 5, 10, 15, 20, 25], 30),
                "seed": np.repeat(np.arange(300, 330), 6),
            }
        ),
        *("seed", "age"),
    ),
}


def roles_of(table: Any, **options: Any) -> tuple[Any, ...]:
    options = describe_table(table, options).options
    return tuple(options.get(role) for role in ("id", "time", "long", "target"))


@pytest.mark.parametrize("name", KNOWN)
def test_roles_are_those_that_the_table_was_made_with(name):
    known = KNOWN[name]
    target = None if known.target is None else (known.target,)
    assert roles_of(known.frame) == (known.id, known.time, known.long, target)
    load_table(known.frame, Schema(**describe_table(known.frame, {}).options))  # it can be read so


@pytest.mark.parametrize("name", ["long, with units", "zero-padded", "elapsed", "date of birth"])
def test_a_file_has_the_roles_of_its_frame(tmp_path, name):
    known = KNOWN[name]
    known.frame.to_csv(tmp_path / "t.csv", index=False)
    assert roles_of(tmp_path / "t.csv") == roles_of(known.frame)


@pytest.mark.parametrize("names", ["kept", "changed"])
@pytest.mark.parametrize("name", ["text sites", "sex", "floats", "countries by year"])
def test_contents_decide_and_not_names(name, names):
    known = KNOWN[name]
    new = (
        {column: f"c{place}" for place, column in enumerate(known.frame)}
        if names == "changed"
        else {}
    )
    frame = known.frame.rename(columns=new)
    options = describe_table(frame, {}).options
    assert options["id"] == new.get(known.id, known.id)
    if known.time in ("day", "time"):  # rises in the order of the rows, or holds dates
        assert options["time"] == new.get(known.time, known.time)


def test_what_is_given_is_kept():
    frame = patients()
    assert roles_of(frame, id=None, time="day")[:2] == (None, "day")
    assert roles_of(frame, id="sex", time="day")[0] == "sex"
    assert roles_of(frame, target="crp")[3] == "crp"
    assert roles_of(frame, target=None, long=None)[2:] == (None, None)
    with pytest.raises(UnknownNameError, match=r"no column 'patt' \(id\). Did you mean 'pat'"):
        describe_table(frame, {"id": "patt"})


def test_other_columns():
    frame = patients(
        date=pandas.Timestamp("2024") + pandas.to_timedelta(patients()["day"], "D"),
        born=np.repeat(pandas.date_range("1960", periods=50), 6),
        note=[f"note {k}" for k in range(300)],
        empty=np.nan,
        row=np.arange(300),
    ).drop(columns="day")
    frame["year"], frame["day"] = frame["date"].dt.year, frame["date"].dt.day
    guess = describe_table(frame, {})
    roles = {name: role.name for name, role in guess.roles.items()}
    left = dict.fromkeys(("born", "note", "empty", "row"), "left out")
    assert roles == {
        **{"pat": "id", "date": "time", "sex": "static", "crp": "feature"},
        **{"year": "known", "day": "known", **left},
    }
    assert "300 different texts" in guess.roles["note"].reason
    assert set(guess.options["features"]) == {"sex", "crp", "year", "day"}
    assert guess.options["static"] == ("sex",)
    assert guess.options["known"] == ("year", "day")
    # With a target nothing is known ahead: the values of a row are all that counts.
    assert "known" not in describe_table(frame, {"target": "crp"}).options


def test_a_value_that_comes_late_is_not_static():
    frame = patients(outcome_day=np.tile([np.nan] * 5 + [1.0], 50))
    assert describe_table(frame, {}).options["static"] == ("sex",)


def test_constants_are_no_targets():
    assert roles_of(patients(label=1, status=np.repeat([0, 1], 150)))[3] == ("status",)
    assert roles_of(patients(died=0))[3] is None


def test_counts_of_rows():
    frame = pandas.concat([patients(), patients()[:10]])
    guess = describe_table(shuffled(frame), {})
    assert (guess.lengths.tolist(), len(guess.gaps)) == ([6] * 50, 250)
    assert guess.options["duplicates"] == "mean"
    once = shuffled(frame).drop_duplicates(["pat", "day"])
    assert describe_table(once, {}).options["sort"] is True


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (numbered("id", 6, when=["long ago", "now", "soon", "a", "b", "c"] * 30), "'when' holds"),
        (
            series(date=HOURS.strftime("%Y-%m-%d"), clock=HOURS.strftime("%H:%M")).drop(
                columns="timestamp"
            ),
            "spread over the columns",
        ),
    ],
)
def test_times_that_cannot_be_read_are_named(frame, message):
    assert message in describe_table(frame, {}).problem
    assert describe_table(frame, {"time": None, "long": None}).problem is None


def calendar(freq, rows, *units, start="2023-05-01", **columns):
    """Return rows of even times of which there are only parts, such as the month."""
    times = pandas.date_range(start, periods=rows, freq=freq)
    parts = {unit: getattr(times, unit.lower()) for unit in units}
    return pandas.DataFrame({"ozone": walk(rows), **columns, **parts}), times


STATIONS = np.repeat(["A", "B", "C"], 153)
SPREAD = {
    "month and day": calendar("D", 153, "Month", "Day"),
    "year, month and day": calendar("D", 800, "year", "month", "day"),
    "day and hour": calendar("h", 600, "day", "hour"),
    "month, day and hour": calendar("h", 3000, "month", "day", "hour"),
    "year and month": calendar("MS", 240, "year", "month"),
}


@pytest.mark.parametrize("name", SPREAD)
def test_times_that_are_spread_over_columns_are_named(name):
    frame, times = SPREAD[name]
    guess = describe_table(frame, {})
    parts = ", ".join(repr(column) for column in frame.columns[1:])
    assert f"spread over the columns {parts}. Join" in guess.problem
    again = describe_table(frame.assign(time=times), {})
    assert (again.problem, again.options["time"]) == (None, "time")


@pytest.mark.parametrize(
    "frame",
    [
        pandas.concat([calendar("D", 153, "Month", "Day")[0]] * 3).assign(station=STATIONS),
        calendar("D", 365, "month", "day", start="2024-01-01")[0].assign(
            month=pandas.date_range("2024-01-01", periods=365).strftime("%b")
        ),
        pandas.DataFrame(
            {"date": HOURS.strftime("%Y-%m-%d"), "hr": HOURS.hour, "count": walk(200)}
        ),
    ],
    ids=["stations", "names of months", "date and hour"],
)
def test_spread_times_of_other_kinds_are_named(frame):
    guess = describe_table(frame, {})
    assert "the time is spread over the columns" in guess.problem
    assert guess.options.get("id") in (None, "station")
    assert describe_table(frame, {"id": None, "time": None}).problem is None


def test_parts_of_a_date_beside_the_time_are_not_a_spread_time():
    born = np.repeat(RNG.integers(1930, 2000, 50), 6)
    for frame in (
        patients(birth_year=born, month=np.repeat(RNG.integers(1, 13, 50), 6)),
        sites(month=np.tile(HOURS.month, 3), hour=np.tile(HOURS.hour, 3)),
        patients("id", hour=RNG.integers(0, 24, 300)),
    ):
        assert describe_table(frame, {}).problem is None
        assert describe_table(frame, {}).options["time"] in ("day", "time")


def test_missing_markers_and_formats_are_found():
    frame = series(power=["-" if k % 9 == 0 else f"{k}.5" for k in range(200)])
    frame["timestamp"] = HOURS.strftime("%d.%m.%Y %H:%M")
    guess = describe_table(frame, {})
    assert guess.options["na_values"] == ("-",)
    assert guess.options["time_format"] == "%d.%m.%Y %H:%M"
    assert guess.roles["power"].name == "feature"


@pytest.mark.parametrize(("freq", "lead_time"), [("h", "24h"), ("D", "7 days"), ("5min", None)])
def test_a_lead_time_is_for_series_with_even_gaps_of_an_hour_or_a_day(freq, lead_time):
    times = pandas.date_range("2020", periods=3000, freq=freq)
    guess = describe_table(pandas.DataFrame({"at": times, "load": walk(3000)}), {})
    assert guess.lead_time == lead_time
    guess_frame = pandas.DataFrame({"at": times, "load": walk(3000)})
    load_table(guess_frame, Schema(**guess.options))
    holes = guess_frame.drop(index=range(50, 2950, 20))
    assert describe_table(holes, {}).lead_time is None


def test_few_long_sequences_are_cut_by_time():
    options = describe_table(sites(), {}).options
    assert (options["split_by"], options["window"]) == ("time", 100)
    assert "split_by" not in describe_table(patients(), {}).options


@pytest.mark.parametrize(
    ("written", "form"),
    [
        ("%d-%b-%y", "%d-%b-%y"),
        ("%d.%m.%y %H:%M", "%d.%m.%y %H:%M"),
        ("%m/%d/%Y %I:%M %p", "%m/%d/%Y %I:%M %p"),
    ],
)
def test_forms_of_local_dates_are_found(written, form):
    times = pandas.date_range("2024-03-05 01:00", periods=200, freq="25h")
    description = describe_table(
        pandas.DataFrame({"when": times.strftime(written), "a": walk(200)}), {}
    )
    assert (description.problem, description.options["time_format"]) == (None, form)


@pytest.mark.parametrize("clock", ["%H:%M", "%H:%M:%S", "%I:%M %p"])
def test_a_date_and_a_time_of_day_are_to_be_joined(clock):
    times = pandas.date_range("2024-03-05 01:00", periods=200, freq="13h")
    frame = pandas.DataFrame(
        {
            "date": times.strftime("%Y-%m-%d"),
            "time": times.strftime(clock),
            "kind": np.where(np.arange(200) % 3, "a", "b"),
            "price": walk(200),
        }
    )
    problem = describe_table(frame, {}).problem
    assert "spread over the columns 'date', 'time'" in problem
    joined = pandas.to_datetime(frame["date"].astype(str) + " " + frame["time"].astype(str))
    assert "frame['date'].astype(str) + ' ' + frame['time'].astype(str)" in problem
    assert (joined == times).all()


NIGHTS = pandas.Timestamp("2024-03-01 20:00") + pandas.to_timedelta(np.arange(6) * 90, "min")


def nights(**columns):
    """Return rows of people who are observed over midnight, each at the same times."""
    columns = {name: np.tile(values, 12) for name, values in columns.items()}
    return pandas.DataFrame({"subject": ids(12, 6), **columns, "pulse": walk(72)})


@pytest.mark.parametrize(
    ("frame", "names"),
    [
        (
            nights(**{unit: getattr(NIGHTS, unit) for unit in ("year", "month", "day", "hour")}),
            "'year', 'month', 'day', 'hour'",
        ),
        (
            nights(date=NIGHTS.strftime("%m/%d/%Y"), clock=NIGHTS.strftime("%I:%M %p")),
            "'date', 'clock'",
        ),
    ],
    ids=["parts", "clock"],
)
def test_hours_that_turn_back_within_an_id_are_no_time(frame, names):
    description = describe_table(frame, {})
    assert f"spread over the columns {names}" in description.problem
    assert not {"time", "sort", "time_format"} & description.options.keys()


def test_hours_and_minutes_that_never_turn_back_within_an_id_have_elapsed():
    elapsed = [f"{minute // 60:02d}:{minute % 60:02d}" for minute in np.arange(6) * 90 + 7]
    options = describe_table(nights(time=elapsed), {}).options
    assert (options["time"], options["time_format"]) == ("time", "elapsed")
    description = describe_table(nights(time=elapsed), {})
    np.testing.assert_allclose(description.gaps, 1.5)
    over_midnight = describe_table(nights(time=NIGHTS.strftime("%H:%M")), {})
    assert over_midnight.roles["time"].reason == "holds times of day"


def test_what_is_called_id_is_the_id_in_any_order():
    frame = patients("id").sort_values("crp", ignore_index=True)
    description = describe_table(frame, {})
    assert (description.options["id"], description.options["time"]) == ("id", "day")
    assert any("not next to each other" in hint for hint in description.hints)


def test_one_row_for_each_id_is_no_sequence():
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame(
        {"person": rng.permutation(1000) + 5000, "date": HOURS[rng.integers(0, 200, 1000)]}
    ).assign(weight=rng.normal(size=1000))
    assert "one row per id is no sequence" in describe_table(frame, {}).problem


def test_a_long_table_needs_no_id():
    months = pandas.date_range("2000", periods=120, freq="MS")
    frame = pandas.DataFrame({"date": months, "cpi": walk(120), "jobs": 1e6 + walk(120)})
    frame = frame.melt("date").assign(unit=np.repeat(["percent", "people"], 120))
    description = describe_table(frame, {})
    assert description.options["long"] == ("variable", "value")
    assert "id" not in description.options
    assert load_table(frame, Schema(**description.options)).schema.inputs[:2] == ("cpi", "jobs")


def test_row_numbers_and_other_numbers_of_the_id_are_left_out():
    frame = patients(record=np.repeat(np.arange(50) * 37 + 90210, 6))
    frame.insert(0, "sno.", np.arange(1, 301))
    roles = describe_table(frame, {}).roles
    assert {name for name, role in roles.items() if role.name == "left out"} == {"sno.", "record"}


def test_codes_that_may_mean_missing_are_pointed_out():
    height = np.where(np.arange(300) % 11, 170.0 + np.arange(300) % 9, -1)
    hints = describe_table(patients(height=height, crp=np.arange(300) % 7 + 20), {}).hints
    assert hints == ["-1 in 'height' may mean that a value is missing: --missing=-1 says so."]


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_ordered_categories_keep_their_order(library):
    order, grades = ["low", "mid", "high"], np.array(["mid", "high", "low"])[ids(60, 3) % 3]
    table = {"id": ids(60, 3), "t": np.tile(range(3), 60), "a": walk(180)}
    if library == "pandas":
        grade = pandas.Categorical(grades, order, ordered=True)
        frame = pandas.DataFrame(table).assign(grade=grade)
    else:
        polars = pytest.importorskip("polars")
        frame = polars.DataFrame(table).with_columns(
            grade=polars.Series(grades.tolist(), dtype=polars.Enum(order))
        )
    data = load_table(frame, Schema(id="id", time="t", target="grade"))
    assert data.schema.outputs == tuple(order)


def test_seconds_beside_milliseconds_are_pointed_out():
    seconds = 1.7e9 + np.arange(200.0)
    frame = pandas.DataFrame({"t": np.where(np.arange(200) < 150, seconds, 1e3 * seconds)})
    (hint,) = describe_table(frame.assign(a=walk(200)), {}).hints
    assert "'t' holds 1700000000 and 1700000199000: seconds beside milliseconds?" in hint
    assert describe_table(pandas.DataFrame({"t": seconds, "a": walk(200)}), {}).hints == []


def test_what_is_called_id_is_the_id_of_a_table_sorted_by_visit():
    frame = patients("id", visit=np.tile(range(6), 50)).sort_values(["visit", "crp"])
    options = describe_table(frame.drop(columns="day"), {}).options
    assert (options["id"], options["time"]) == ("id", "visit")


def test_dates_beside_hours_are_joined_as_texts():
    times = pandas.date_range("2024-03-05", periods=200, freq="7h")
    frame = pandas.DataFrame(
        {"day": times.strftime("%d/%m/%Y"), "hour": times.hour, "a": walk(200)}
    )
    problem = describe_table(frame, {}).problem
    assert "frame['day'].astype(str) + ' ' + frame['hour'].astype(str)" in problem


def test_rows_without_an_id_are_said_to_have_none():
    frame = patients("id").astype({"id": object})
    frame.loc[[7, 70], "id"] = None
    description = describe_table(frame, {})
    assert (description.options["id"], description.options["time"]) == ("id", "day")
    with pytest.raises(DataError, match="is empty, expected an id"):
        load_table(frame, Schema(**description.options))


def test_a_day_that_differs_between_patients_at_one_time_is_not_known_ahead():
    frame = sites(day=np.concatenate([np.arange(200) // 24 + start for start in (1, 4, 9)]))
    assert describe_table(frame, {}).roles["day"].name == "feature"
    same = sites(day=np.tile(HOURS.day, 3))
    assert describe_table(same, {}).roles["day"].name == "known"
