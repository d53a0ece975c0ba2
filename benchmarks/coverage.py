"""How many values intervals of 80 and 95 % hold, of forecasts at any time on real tables.

The tables are gzipped CSV files as R's and Python's packages have them: ``cgm`` (bokeh), ``fev``
(R's msm), ``nyc_weather`` (R's nycflights13), ``pbcseq`` (R's survival) and ``quinidine`` (R's
nlme); and ``household_power_consumption_hourly`` (UCI). A fifth of the ids, another one for each
seed, or the last fifth of each series, is kept to test on. Intervals are calibrated once, on the
fifth before; of series also each week, on the four weeks before it.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tauflow.estimators import SequenceForecaster

LEVELS = (0.8, 0.95)


@dataclass(frozen=True)
class RealTable:
    """A table, and how it is forecast.

    Args:
        id: column of the ids; of a series the column that is made of where its times have gaps.
        time: column of the times.
        longest: lead time.
        options: of the forecaster.
        static: columns with one value per id.
        gap: a longer one ends a piece of a series; ``""`` for tables of many ids.
    """

    id: str
    time: str
    longest: float | str
    options: dict[str, Any]
    static: tuple[str, ...] = ()
    gap: str = ""


TABLES = {
    "cgm": RealTable(
        "piece",
        "datetime",
        "1h",
        {"targets": ["glucose"], "window": 48, "origin_step": 12},
        gap="30min",
    ),
    "nyc_weather": RealTable(
        "piece",
        "time_hour",
        "6h",
        {"targets": ["temp", "humid"], "window": 48, "origin_step": 6},
        gap="6h",
    ),
    "household_power_consumption_hourly": RealTable(
        "piece",
        "datetime",
        "6h",
        {"targets": ["Global_active_power"], "window": 48, "origin_step": 6},
        gap="6h",
    ),
    "fev": RealTable("ptnum", "days", 120.0, {"targets": ["fev"], "origin_step": 2}),
    "pbcseq": RealTable(
        "id",
        "day",
        800.0,
        {"targets": ["bili", "albumin"], "origin_step": 1},
        static=("age", "trt"),
    ),
    "quinidine": RealTable(
        "Subject",
        "time",
        60.0,
        {"targets": ["conc"], "known": ["dose", "interval"], "origin_step": 1},
        static=("Age", "Weight"),
    ),
}
HISTORY, PERIOD = pd.Timedelta("28d"), pd.Timedelta("7d")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("folders", type=Path, nargs="+", help="of the tables")
    parser.add_argument("--tables", nargs="*", choices=TABLES, default=[*TABLES])
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--seeds", type=int, default=5)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Print the coverage of the tables."""
    print("table, target: RMSE, that of the last value, shares in intervals of 80 and 95 %")
    for name in arguments.tables:
        folder = next(
            folder for folder in arguments.folders if (folder / f"{name}.csv.gz").exists()
        )
        measure(name, read(name, folder), arguments.epochs, arguments.seeds)


def measure(name: str, table: pd.DataFrame, epochs: int, seeds: int) -> None:
    """Print the mean coverage of one table over seeds, and its deviation from seed to seed."""
    kind = TABLES[name]
    errors: list[Any] = []
    shares: dict[str, list[Any]] = {}
    for seed in range(seeds):
        train, valid, test = split(table, kind, seed)
        forecaster = fit(kind, train, valid, epochs, seed)
        errors_of_seed = forecaster.compare(test)
        errors.append([errors_of_seed["forecaster"], errors_of_seed["last value"]])
        once = forecaster.measure_coverage(test, LEVELS)
        shares.setdefault("calibrated once", []).append([once[level] for level in LEVELS])
        if kind.gap:
            weekly = measure_weekly(forecaster, pd.concat([valid, test]), kind, test)
            shares.setdefault("each week", []).append(weekly)
    mean = np.mean(errors, 0)
    for place, target in enumerate(kind.options["targets"]):
        print(f"{name}, {target}: {mean[0, place]:.4g}, {mean[1, place]:.4g}", flush=True)
        for way, shares_of_seeds in shares.items():
            percentages = 100 * np.array(shares_of_seeds)[..., place]  # (seeds, levels)
            spread = percentages.std(0, ddof=1) if seeds > 1 else np.full(len(LEVELS), np.nan)
            texts = [
                f"{m:.1f} ± {s:.1f} %" for m, s in zip(percentages.mean(0), spread, strict=True)
            ]
            print(f"    {way}:", ", ".join(texts), flush=True)


def fit(
    kind: RealTable, train: pd.DataFrame, valid: pd.DataFrame, epochs: int, seed: int
) -> SequenceForecaster:
    """Return a forecaster of a table, calibrated on the validation part."""
    forecaster: SequenceForecaster = SequenceForecaster(
        model="gru",
        hidden_size=32 if kind.gap else 16,
        max_lead_time=kind.longest,
        epochs=epochs,
        lr=0.01,
        batch_size=64 if kind.gap else 32,
        recipe={"schedule": "one_cycle"},
        intervals="quantile",
        random_state=seed,
        **kind.options,
    )
    roles: dict[str, Any] = {"id": kind.id, "time": kind.time, "static": kind.static or None}
    forecaster.fit(train, validation={"X": valid, **roles}, **roles)
    return forecaster


def measure_weekly(
    forecaster: SequenceForecaster, rows: pd.DataFrame, kind: RealTable, test: pd.DataFrame
) -> Any:
    """Return coverage, (levels, targets), of weeks before which intervals are calibrated again."""
    times = rows[kind.time]
    total, count = np.zeros((len(LEVELS), len(kind.options["targets"]))), 0
    for start in pd.date_range(test[kind.time].min(), test[kind.time].max(), freq=PERIOD):
        before = rows[(times >= start - HISTORY) & (times < start)]
        week = rows[(times >= start - PERIOD) & (times < start + PERIOD)]
        size = int((week[kind.time] >= start).sum())
        shares = forecaster.recalibrate(before).measure_coverage(week, LEVELS, since=start)
        total = total + size * np.array([shares[level] for level in LEVELS])
        count += size
    return total / count


def read(name: str, folder: Path) -> pd.DataFrame:
    """Return the columns of a table that are read."""
    table = pd.read_csv(folder / f"{name}.csv.gz", na_values="nil")
    if name == "cgm":
        table = table.drop_duplicates("datetime").sort_values("datetime")
        return table.assign(series="sensor")
    if name == "nyc_weather":
        columns = ["temp", "dewp", "humid", "wind_speed", "pressure", "precip", "time_hour"]
        table = table[["origin", *columns]].rename(columns={"origin": "series"})
        return table.drop_duplicates(["series", "time_hour"])
    if name == "household_power_consumption_hourly":
        table = table[table["Voltage"] > 12_000]  # hours with missing minutes are sums of fewer
        meters = [f"Sub_metering_{n}" for n in (1, 2, 3)]
        return table[["datetime", "Global_active_power", *meters]].assign(series="house")
    if name == "pbcseq":
        table = table.select_dtypes("number").drop(columns=["futime", "status"])
        skewed = ["bili", "ast", "chol", "alk.phos"]
        return table.assign(**{column: np.log(table[column]) for column in skewed})
    if name == "quinidine":
        table = table[["Subject", "time", "conc", "dose", "interval", "Age", "Weight"]]
        table[["Age", "Weight"]] = table.groupby("Subject")[["Age", "Weight"]].transform("first")
        return table.groupby(["Subject", "time"], as_index=False).mean()
    table = table[table["fev"] < 999]  # which stands for death
    return table.sort_values(["ptnum", "days"]).drop_duplicates(["ptnum", "days"])


def split(table: pd.DataFrame, kind: RealTable, seed: int) -> list[pd.DataFrame]:
    """Return 60, 20 and 20 % of the ids, or of the rows of each series in the order of time."""
    if not kind.gap:
        ids = np.random.default_rng(seed).permutation(table[kind.id].unique())
        cuts = np.split(ids, [int(0.6 * len(ids)), int(0.8 * len(ids))])
        return [table[table[kind.id].isin(cut)] for cut in cuts]
    times = pd.to_datetime(table[kind.time])
    starts = times.groupby(table["series"]).diff() > pd.Timedelta(kind.gap)
    table = table.assign(**{kind.time: times, kind.id: starts.cumsum()})
    table[kind.id] = table["series"].astype(str) + " " + table[kind.id].astype(str)
    rank = table.groupby("series").cumcount() / table.groupby("series")[kind.time].transform("size")
    parts = [
        table[(first <= rank) & (rank < last)] for first, last in ((0, 0.6), (0.6, 0.8), (0.8, 2))
    ]
    return [part.drop(columns="series") for part in parts]
