"""CSV tables that were damaged: refused by row and column, or sequences that a model can take."""

import csv
import gzip
import io
import random
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from guard import MIB
from mutate import ABSURD, mutate_bytes
from survive import seeds, survives

from tauflow.data import from_table, read_csv
from tauflow.errors import DataError, TauflowError

PARTS = range(4)
_CELLS = (
    *("", "NA", "nan", "-inf", "1e308", "-1e308", "1e39", "1e-320", "0x10", "1_000", "١٢", "1,5"),
    *("9" * 400, "0001-01-01", "9999-12-31T23:59:59.999999", "1677-01-01T00:00:00.000000001"),
    *("2262-04-12T00:00:00.000000001", "2024-02-29T23:59:60", "2024-05-31T12:00:00+23:59"),
    *("0001-01-01T00:00:00+14:00", "9999-12-31T23:00:00-14:00", "20240531", "1e9", "-0.0"),
    *("TRUE", "false", "p00", '"', "\x1b[31m", "1717158600000000001", "9007199254740993"),
)


def columns(kind, rng):
    """Return a header and rows of a table whose times are numbers, whole ones, or dates."""
    times = {
        "numbers": lambda step: f"{0.5 * step:g}",
        "whole": lambda step: str(1_717_158_600 + 60 * step),
        "nanoseconds": lambda step: str(1_717_158_600_000_000_000 + 1_000 * step),
        "dates": lambda step: f"2024-05-31T12:{step:02d}:00",
        "fine dates": lambda step: f"2024-05-31T12:00:{step:02d}.000000001",
        "offsets": lambda step: f"2024-05-31T12:{step:02d}:00+02:00",
    }[kind]
    rows = [
        [f"p{person:02d}", times(step), f"{rng.gauss(0, 1):.3g}", f"{step % 3}", "yn"[person % 2]]
        for person in range(8)
        for step in range(3)
    ]
    return [["id", "time", "a", "b", "died"], *rows]


KINDS = ("numbers", "whole", "nanoseconds", "dates", "fine dates", "offsets")


@cache
def table(kind):
    return columns(kind, random.Random(0))


def written(rows):
    file = io.StringIO()
    csv.writer(file).writerows(rows)
    return file.getvalue().encode("utf-8", "replace")


def options(rng):
    """Return arguments of ``read_csv`` that fit the whole table."""
    target = rng.choice(("died", "b", "a", None))
    features = [name for name in ("a", "b") if name != target]
    chosen = {"id": "id", "time": "time", "target": target, "features": features}
    if rng.randrange(5) == 0:
        chosen["time"] = None
    if rng.randrange(3) == 0:
        chosen |= {"missing": "inputs"}
    if rng.randrange(3) == 0 and chosen["time"]:
        chosen |= {"sort": True, "time_unit": rng.choice(("seconds", "days"))}
    if rng.randrange(6) == 0:
        chosen |= {"split_by": "time", "split": (1, 0, 1)}
    return chosen


def usable(data):
    """Check what every reader of a batch relies on."""
    for batch in (data.train, data.valid, data.test):
        if batch is None:
            continue
        assert batch.x.isfinite().all(), "bad x"
        if batch.y.is_floating_point():
            assert batch.y.isfinite().all(), "bad y"
        if batch.dt is not None:
            assert batch.dt.isfinite().all(), "bad dt"
            assert (batch.dt >= 0).all(), "dt runs backwards"
            inside = batch.dt[:, 1:] if batch.mask is None else batch.dt[:, 1:][batch.mask[:, 1:]]
            assert (inside > 0).all(), "two rows at one time"
        assert len(batch) > 0
        assert torch.is_tensor(data.schema.x_scale)
        assert data.schema.x_scale.isfinite().all(), "bad scale"
    return data


def survives_reading(data, folder, chosen, what):
    path = folder / "damaged.csv"
    path.write_bytes(data)
    return survives(lambda: usable(read_csv(path, **chosen)), what)


@pytest.mark.parametrize("part", PARTS)
def test_damaged_bytes(part, tries, tmp_path):
    refused = 0
    for seed in seeds(part, tries("tables, bytes", few=40, full=6000)):
        rng = random.Random(seed)
        kind, chosen = rng.choice(KINDS), options(rng)
        data = mutate_bytes(written(table(kind)), rng)
        what = f"table of {kind}, bytes, {chosen}, seed {seed}"
        refused += isinstance(survives_reading(data, tmp_path, chosen, what), TauflowError)
    assert refused > 10


@pytest.mark.parametrize("part", PARTS)
def test_absurd_cells(part, tries, tmp_path):
    refused = 0
    for seed in seeds(part, tries("tables, cells", few=40, full=7000)):
        rng = random.Random(seed)
        kind, chosen = rng.choice(KINDS), options(rng)
        rows = [list(row) for row in table(kind)]
        for _ in range(rng.randint(1, 4)):
            row = rng.choice(rows[1:] if rng.randrange(8) else rows)
            if not row:
                continue
            match rng.randrange(10):
                case 0:
                    rows[rng.randrange(1, len(rows))] = list(rng.choice(rows[1:]))
                case 1:
                    del row[rng.randrange(len(row))]
                case 2:
                    row[rng.randrange(len(row))] = str(rng.choice(ABSURD))
                case 3:
                    place = rng.randrange(1, min(map(len, rows[1:])) or 2)
                    cell = rng.choice(_CELLS)  # a whole column of it, where one would be refused
                    for other in rows[1:]:
                        if place < len(other):
                            other[place] = cell
                case _:
                    row[rng.randrange(len(row))] = rng.choice(_CELLS)
        what = f"table of {kind}, cells, {chosen}, seed {seed}"
        result = survives_reading(written(rows), tmp_path, chosen, what)
        refused += isinstance(result, TauflowError)
    assert refused > 10


@pytest.mark.parametrize("packed", ["gzip", "Parquet"])
def test_a_small_file_that_unpacks_to_a_large_one_is_refused(packed, tmp_path):
    path = tmp_path / "bomb"
    if packed == "gzip":
        row = b"p0,0.0,0.00000000000000000000000,0,y\n"
        path.write_bytes(gzip.compress(b"id,time,a,b,died\n" + row * 2_000_000, 9))
    else:
        zeros = pa.chunked_array([pa.array(np.zeros(1 << 16))] * 128)
        pq.write_table(pa.table({"id": zeros, "a": zeros}), path)
    assert path.stat().st_size < 300_000
    outcome = survives(lambda: read_csv(path, id="id", target="a"), packed, memory=160 * MIB)
    assert isinstance(outcome, DataError)
    assert "unpacked takes more than" in str(outcome)


@pytest.mark.parametrize(
    "metadata", [b"{", b"\xff", b"[1]", b"null", b'{"index_columns": 3}', b"[" * 100_000]
)
def test_what_pandas_noted_in_a_parquet_file_may_be_damaged(metadata, tmp_path):
    rows = table("numbers")
    frame = {name: [row[place] for row in rows[1:]] for place, name in enumerate(rows[0])}
    frame |= {name: list(map(float, frame[name])) for name in ("time", "a", "b")}
    finished = pa.table(frame)
    pq.write_table(finished.replace_schema_metadata({b"pandas": metadata}), tmp_path / "it.parquet")
    damaged = read_csv(tmp_path / "it.parquet", id="id", time="time", target="died")
    assert torch.equal(
        damaged.train.x, from_table(finished, id="id", time="time", target="died").train.x
    )
