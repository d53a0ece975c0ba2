"""Families of real series as forecasting tasks, for the board of the pretrained forecaster.

A family is one source of data; its tasks are variables of it. Of a table of members, 30 % of the
members are forecast from an origin about the middle of each, and the others are known. Of one long
series, the last 30 % of the time is forecast from origins spread over it. Where rows are dropped,
they are those before the origins and of the known members; who keeps none is not forecast.
"""

import io
import os
import tarfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

CONTEXT, AHEAD, MEMBERS_AHEAD = 1000, 24, 8
FEWEST = 3
Series = tuple[np.ndarray, np.ndarray]


class Origin(NamedTuple):
    """Times and values before an origin, and those that are to be forecast."""

    t: np.ndarray
    y: np.ndarray
    q: np.ndarray
    target: np.ndarray


class Task(NamedTuple):
    """One variable.

    Args:
        family: of which it is.
        name: of the variable.
        group: ``"sensors"``, ``"people"`` or ``"other"``.
        known: other members of the table, whole; of one series, what comes before the origins.
        origins: what is forecast.
        is_table: whether ``known`` are other members.
        season: samples of a season of a regular series, or none.
    """

    family: str
    name: str
    group: str
    known: list[Series]
    origins: list[Origin]
    is_table: bool
    season: int | None


def _folder() -> Path:
    return Path(os.environ["TAUFLOW_DATA"])


def _table(name: str, **options: object) -> pd.DataFrame:
    return pd.read_csv(_folder() / f"tables/{name}.csv.gz", **options)


def _hours(moments: pd.Series) -> pd.Series:
    moments = pd.to_datetime(moments)
    return (moments - moments.min()) / pd.Timedelta("1h")


def _series(frame: pd.DataFrame, time: str, value: str, id: str | None = None) -> dict:
    """Return times and values of each id; values at one time are averaged."""
    columns = [*([] if id is None else [id]), time, value]
    frame = frame[columns].copy()
    frame[value] = pd.to_numeric(frame[value], errors="coerce")
    frame = frame.dropna()
    keys = np.zeros(len(frame)) if id is None else frame[id].to_numpy()
    means = frame.groupby([keys, frame[time].to_numpy(float)])[value].mean()
    return {
        key: (part.index.get_level_values(1).to_numpy(), part.to_numpy(float))
        for key, part in means.groupby(level=0)
    }


def _drop(series: Series, share: float, rng: np.random.Generator) -> Series:
    t, y = series
    is_left = rng.random(len(t)) >= share
    return t[is_left], y[is_left]


def split_members(
    label: tuple[str, str, str], series: Mapping, drop: float, limit: int = 200
) -> Task:
    """Return a task of members of a table; ``label`` is family, name and group."""
    rng = np.random.default_rng(0)
    long_enough = [member for member in series.values() if len(member[0]) > FEWEST]
    order, origins = rng.permutation(len(long_enough)), []
    count = int(0.3 * len(order))
    for place in order[:count][:limit]:
        t, y = long_enough[place]
        n = max(FEWEST, min(len(t) - 1, int(len(t) * rng.uniform(0.4, 0.8))))
        before = _drop((t[max(0, n - CONTEXT) : n], y[max(0, n - CONTEXT) : n]), drop, rng)
        if len(before[0]) >= (1 if drop else FEWEST):
            after = slice(n, n + MEMBERS_AHEAD)
            origins.append(Origin(*before, t[after], y[after]))
    known = [_drop(long_enough[place], drop, rng) for place in order[count:]]
    known = [member for member in known if len(member[0]) > 1]
    return Task(*label, known, origins, is_table=True, season=None)


def split_time(
    label: tuple[str, str, str],
    series: Series,
    drop: float,
    season: int | None = None,
    limit: int = 60,
) -> Task:
    """Return a task of one long series."""
    rng = np.random.default_rng(0)
    t, y = series
    start = int(0.7 * len(t))
    origins = []
    for n in np.unique(np.linspace(max(start, 30), len(t) - AHEAD, limit).astype(int)):
        before = _drop((t[max(0, n - CONTEXT) : n], y[max(0, n - CONTEXT) : n]), drop, rng)
        if len(before[0]) >= FEWEST:
            origins.append(Origin(*before, t[n : n + AHEAD], y[n : n + AHEAD]))
    if not origins:
        return Task(*label, [], [], is_table=False, season=None)
    usual = np.median([origin.q[-1] - origin.t[-1] for origin in origins])
    origins = [
        origin for origin in origins if origin.q[-1] - origin.t[-1] < 3 * usual
    ]  # not across a hole
    known = [_drop((t[:start], y[:start]), drop, rng)]
    return Task(*label, known, origins, is_table=False, season=None if drop else season)


def _read_people(name: str, id: str, time: str, values: tuple[str, ...], drop: float) -> Iterator:
    frame = _table(name)
    for value in values:
        yield split_members((name, value, "people"), _series(frame, time, value, id), drop)


def read_fev(drop: float) -> Iterator[Task]:
    """Lung function of patients."""
    return _read_people("fev", "ptnum", "days", ("fev",), drop)


def read_pbcseq(drop: float) -> Iterator[Task]:
    """Blood of patients with a liver disease."""
    values = ("bili", "albumin", "alk.phos", "ast", "platelet", "protime")
    return _read_people("pbcseq", "id", "day", values, drop)


def read_wages(drop: float) -> Iterator[Task]:
    """Logarithms of wages over years of experience."""
    return _read_people("wages", "id", "exper", ("lnw",), drop)


def read_framingham(drop: float) -> Iterator[Task]:
    """Three exams of people: two are read, and the third is forecast."""
    frame = _table("framingham")
    for value in ("SYSBP", "TOTCHOL", "BMI"):
        series = _series(frame, "TIME", value, "RANDID")
        members = {key: member for key, member in series.items() if len(member[0]) == 3}
        rng = np.random.default_rng(0)
        order = rng.permutation(list(members))
        past = [_drop((members[k][0][:2], members[k][1][:2]), drop, rng) for k in order[:200]]
        later = [(members[key][0][2:], members[key][1][2:]) for key in order[:200]]
        origins = [
            Origin(*member, *after)
            for member, after in zip(past, later, strict=True)
            if len(member[0])
        ]
        known = [_drop(members[key], drop, rng) for key in order[200:]]
        known = [member for member in known if len(member[0]) > 1]
        yield Task("framingham", value, "people", known, origins, True, None)


def read_nafld(drop: float) -> Iterator[Task]:
    """Laboratory tests of people over years.

    In this source cholesterol has the values of HDL, and the diastolic pressure those of the
    systolic one, so that each of two tasks counts twice.
    """
    frame = _table("nafld_long")
    for name, part in frame.groupby("test"):
        yield split_members(
            ("nafld", str(name), "people"), _series(part, "days", "value", "id"), drop
        )


def read_quinidine(drop: float) -> Iterator[Task]:
    """Levels of a drug in patients."""
    return _read_people("quinidine", "Subject", "time", ("conc",), drop)


def read_toenail(drop: float) -> Iterator[Task]:
    """Whether an infection is bad, by visit."""
    frame = _table("toenail")
    frame["bad"] = (frame["outcome"] != "none or mild") * 1.0
    yield split_members(
        ("toenail", "bad", "people"), _series(frame, "time", "bad", "patientID"), drop
    )


def read_migraine(drop: float) -> Iterator[Task]:
    """Headache, yes or no, by day."""
    frame = _table("migraine")
    frame["yes"] = (frame["headache"] == "yes") * 1.0
    yield split_members(("migraine", "yes", "people"), _series(frame, "time", "yes", "id"), drop)


def read_cdnow(drop: float) -> Iterator[Task]:
    """Money that customers spend at each of their purchases."""
    frame = _table("cdnow")
    frame["day"] = _hours(pd.to_datetime(frame["date"].astype(str))) / 24
    label = ("cdnow", "dollar_value", "people")
    yield split_members(label, _series(frame, "day", "dollar_value", "customer_id"), drop)


def read_physionet(drop: float) -> Iterator[Task]:
    """Vital signs and laboratory values of the first two days in intensive care."""
    rows = []
    with tarfile.open(_folder() / "physionet2012/set-a.tar.xz") as archive:
        for number, member in enumerate(archive):
            if number > 1000:
                break
            if member.isfile():
                part = pd.read_csv(io.BytesIO(archive.extractfile(member).read()))
                rows.append(part.assign(record=number))
    frame = pd.concat(rows)
    clock = frame["Time"].str.split(":", expand=True).astype(float)
    frame["hours"] = clock[0] + clock[1] / 60
    frame = frame[(frame["hours"] > 0) & (frame["Value"] >= 0)]
    for name in ("HR", "Temp", "NIMAP", "MAP", "GCS", "Urine", "pH", "K", "Glucose", "Creatinine"):
        part = _series(frame[frame["Parameter"] == name], "hours", "Value", "record")
        yield split_members(("physionet", name, "people"), part, drop)


def _read_sensor(
    label: str,
    frame: pd.DataFrame,
    time: str,
    values: tuple[str, ...],
    drop: float,
    season: int | None,
) -> Iterator[Task]:
    for value in values:
        series = next(iter(_series(frame, time, value).values()))
        yield split_time((label, value, "sensors"), series, drop, season)


def read_power(drop: float) -> Iterator[Task]:
    """Power of a household by the hour."""
    path = "household_power_hourly/household_power_consumption_hourly.csv.gz"
    frame = pd.read_csv(_folder() / path)
    frame["hours"] = _hours(frame["datetime"])
    values = ("Global_active_power", "Voltage", "Sub_metering_3")
    return _read_sensor("power", frame, "hours", values, drop, 24)


def read_weather(drop: float) -> Iterator[Task]:
    """Weather at an airport by the hour."""
    frame = _table("nyc_weather")
    frame = frame[frame["origin"] == "JFK"].copy()
    frame["hours"] = _hours(frame["time_hour"])
    values = ("temp", "humid", "wind_speed", "pressure")
    return _read_sensor("weather", frame, "hours", values, drop, 24)


def read_traffic(drop: float) -> Iterator[Task]:
    """Cars on a motorway by the hour."""
    frame = pd.read_csv(_folder() / "metro_traffic/Metro_Interstate_Traffic_Volume.csv.gz")
    frame["hours"] = _hours(frame["date_time"])
    return _read_sensor("traffic", frame, "hours", ("traffic_volume",), drop, 24)


def read_cgm(drop: float) -> Iterator[Task]:
    """Blood glucose of one person every five minutes."""
    frame = _table("cgm")
    frame["hours"] = _hours(frame["datetime"])
    return _read_sensor("cgm", frame, "hours", ("glucose",), drop, 288)


def read_dengue(drop: float) -> Iterator[Task]:
    """Weather and cases of dengue by the day in one district."""
    frame = _table("dengue_jakarta", na_values=["-"])
    frame = frame[frame["REG"] == frame["REG"].iloc[0]].copy()
    frame["days"] = _hours(pd.to_datetime(frame["DATE"], dayfirst=True)) / 24
    return _read_sensor("dengue", frame, "days", ("TAVG", "RH_AVG", "CASES"), drop, 365)


def read_occupancy(drop: float) -> Iterator[Task]:
    """Air of an office by the minute."""
    names = ["row", "date", "Temperature", "Humidity", "Light", "CO2", "ratio", "label"]
    path = _folder() / "occupancy/datatest2.txt"
    frame = pd.read_csv(path, skiprows=1, header=None, names=names)
    frame["hours"] = _hours(frame["date"])
    return _read_sensor("occupancy", frame, "hours", ("Temperature", "Humidity", "CO2"), drop, None)


def read_ozone(drop: float) -> Iterator[Task]:
    """Wind, temperature and humidity of a city by the day."""
    frame = pd.read_csv(_folder() / "ozone/eighthr.data", header=None, na_values="?")
    frame["days"] = _hours(pd.to_datetime(frame[0])) / 24
    frame = frame.rename(columns={26: "wind", 52: "temperature", 54: "humidity"})
    return _read_sensor("ozone", frame, "days", ("wind", "temperature", "humidity"), drop, 365)


def _read_recordings(
    label: str, recordings: list[np.ndarray], columns: tuple[int, ...], drop: float
) -> Iterator[Task]:
    """Yield tasks of channels of recordings with one row per time step."""
    for column in columns:
        series = {
            place: (np.arange(len(recording), dtype=float), recording[:, column].astype(float))
            for place, recording in enumerate(recordings)
        }
        yield split_members((label, f"channel {column}", "other"), series, drop, limit=60)


def read_gesture(drop: float) -> Iterator[Task]:
    """Hands of people who tell stories, 30 times a second: the end of each recording."""
    files = sorted((_folder() / "gesture_phase").glob("*_raw.csv"))
    frames = [pd.read_csv(file) for file in files]
    for column in ("lhy", "rhx", "hx"):
        for place, frame in enumerate(frames[:3]):
            series = (frame.index.to_numpy(float), frame[column].to_numpy(float))
            label = ("gesture", f"{column} {place}", "other")
            yield split_time(label, series, drop, None, limit=30)


def read_characters(drop: float) -> Iterator[Task]:
    """Speed and force of a pen."""
    stored = np.load(_folder() / "character_trajectories/character_trajectories.npz")
    parts = zip(stored["X"], stored["length"], strict=True)
    return _read_recordings("characters", [x[:n] for x, n in parts], (0, 1, 2), drop)


def read_cheetah(drop: float) -> Iterator[Task]:
    """Joints of a simulated animal."""
    files = sorted((_folder() / "half_cheetah").glob("*.npy"))
    return _read_recordings("cheetah", [np.load(file) for file in files], (0, 4, 12), drop)


def read_walker(drop: float) -> Iterator[Task]:
    """Joints of a simulated walker."""
    files = sorted((_folder() / "walker2d").glob("rollout_*.npy"))
    return _read_recordings("walker", [np.load(file) for file in files], (0, 3, 12), drop)


def read_storms(drop: float) -> Iterator[Task]:
    """Tracks, wind and pressure of storms every six hours."""
    frame = _table("storms")
    frame["storm"] = frame["name"] + frame["year"].astype(str)
    frame["hours"] = _hours(pd.to_datetime(frame[["year", "month", "day", "hour"]]))
    for value in ("wind", "pressure", "lat", "long"):
        yield split_members(
            ("storms", value, "other"), _series(frame, "hours", value, "storm"), drop
        )


def read_economics(drop: float) -> Iterator[Task]:
    """Five monthly series of the economy."""
    frame = _table("economics_long")
    frame["days"] = _hours(frame["date"]) / 24
    for name, part in frame.groupby("variable"):
        series = next(iter(_series(part, "days", "value").values()))
        yield split_time(("economics", str(name), "other"), series, drop, 12)


def read_pizza(drop: float) -> Iterator[Task]:
    """Pizzas sold by the hour, when the shop was open."""
    frame = _table("pizzaplace")
    moments = pd.to_datetime(frame["date"] + " " + frame["time"])
    sold = frame["price"].groupby(moments.dt.floor("h")).count()
    hours = (sold.index - sold.index[0]) / pd.Timedelta("1h")
    label = ("pizza", "hourly pizzas", "other")
    yield split_time(label, (hours.to_numpy(float), sold.to_numpy(float)), drop, None)


FAMILIES: dict[str, Callable[[float], Iterator[Task]]] = {
    "cdnow": read_cdnow,
    "cgm": read_cgm,
    "characters": read_characters,
    "cheetah": read_cheetah,
    "dengue": read_dengue,
    "economics": read_economics,
    "fev": read_fev,
    "framingham": read_framingham,
    "gesture": read_gesture,
    "migraine": read_migraine,
    "nafld": read_nafld,
    "occupancy": read_occupancy,
    "ozone": read_ozone,
    "pbcseq": read_pbcseq,
    "physionet": read_physionet,
    "pizza": read_pizza,
    "power": read_power,
    "quinidine": read_quinidine,
    "storms": read_storms,
    "toenail": read_toenail,
    "traffic": read_traffic,
    "wages": read_wages,
    "walker": read_walker,
    "weather": read_weather,
}
"""Readers of the tasks of each family, given the share of rows that are dropped."""
