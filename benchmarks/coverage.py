"""How many values intervals of 80 and 95 % hold, of forecasts at any time on real tables.

The tables are gzipped CSV files as R's and Python's packages have them: ``cgm`` (bokeh), ``fev``
(R's msm), ``nyc_weather`` (R's nycflights13) and ``quinidine`` (R's nlme). A fifth of the ids, or
the last fifth of each series, is kept to test on.
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
    "fev": RealTable("ptnum", "days", 120.0, {"targets": ["fev"], "origin_step": 2}),
    "quinidine": RealTable(
        "Subject",
        "time",
        60.0,
        {"targets": ["conc"], "known": ["dose", "interval"], "origin_step": 1},
        static=("Age", "Weight"),
    ),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("folder", type=Path, help="of the tables")
    parser.add_argument("--tables", nargs="*", choices=TABLES, default=[*TABLES])
    parser.add_argument("--epochs", type=int, default=15)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Print the coverage of the tables."""
    print("table, target: RMSE, that of the last value, shares in intervals of 80 and 95 %")
    for name in arguments.tables:
        measure(name, arguments.folder, arguments.epochs)


def measure(name: str, folder: Path, epochs: int) -> None:
    """Print the coverage of one table."""
    kind = TABLES[name]
    train, valid, test = split(read(name, folder), kind)
    forecaster = SequenceForecaster(
        model="gru",
        hidden_size=32 if kind.gap else 16,
        max_lead_time=kind.longest,
        epochs=epochs,
        lr=0.01,
        batch_size=64 if kind.gap else 32,
        recipe={"schedule": "one_cycle"},
        intervals="quantile",
        random_state=0,
        **kind.options,
    )
    roles: dict[str, Any] = {"id": kind.id, "time": kind.time, "static": kind.static or None}
    forecaster.fit(train, validation={"X": valid, **roles}, **roles)
    errors = forecaster.compare(test)
    shares = forecaster.measure_coverage(test, LEVELS)
    for place, target in enumerate(kind.options["targets"]):
        told = [f"{errors[one][place]:.4g}" for one in ("forecaster", "last value")]
        told += [f"{100 * shares[level][place]:.1f} %" for level in LEVELS]
        print(f"{name}, {target}:", ", ".join(told), flush=True)


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
    if name == "quinidine":
        table = table[["Subject", "time", "conc", "dose", "interval", "Age", "Weight"]]
        table[["Age", "Weight"]] = table.groupby("Subject")[["Age", "Weight"]].transform("first")
        return table.groupby(["Subject", "time"], as_index=False).mean()
    table = table[table["fev"] < 999]  # which stands for death
    return table.sort_values(["ptnum", "days"]).drop_duplicates(["ptnum", "days"])


def split(table: pd.DataFrame, kind: RealTable) -> list[pd.DataFrame]:
    """Return 60, 20 and 20 % of the ids, or of the rows of each series in the order of time."""
    if not kind.gap:
        ids = np.random.default_rng(0).permutation(table[kind.id].unique())
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
