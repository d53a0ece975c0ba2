"""Times of arrays and lists against differences that NumPy computes, and places in messages."""

import numpy as np
import pandas
import pytest

from tauflow.errors import DataError, TimeError
from tauflow.tabular.arrays import add_times
from tauflow.tabular.schema import Schema
from tauflow.tabular.sequence_tables import read_frames
from tauflow.tabular.sequences import Sequences

LENGTHS = np.array([3, 1, 4])
PARTS = [np.array([0.0, 2.0, 2.0]), np.array([7.0]), np.array([-3.0, 0.5, 1.0, 9.0])]


def rows(lengths=LENGTHS, **more):
    return Sequences(values=np.zeros((int(sum(lengths)), 1)), lengths=np.asarray(lengths), **more)


def gaps(parts):
    return np.concatenate([np.diff(part, prepend=part[:1]) for part in parts])


def dates(parts):
    return [np.datetime64("2024-02-28", "ms") + (1000 * part).astype("m8[ms]") for part in parts]


FORMS = {
    "numbers": lambda parts: parts,
    "lists": lambda parts: [part.tolist() for part in parts],
    "dates": dates,
    "dates with a zone": lambda parts: [
        pandas.DatetimeIndex(part).tz_localize("Asia/Kolkata") for part in dates(parts)
    ],
    "durations": lambda parts: [part - np.datetime64("2024-01-01") for part in dates(parts)],
}


@pytest.mark.parametrize("form", FORMS)
def test_gaps_are_differences_within_each_sequence(form):
    rows_with_times = add_times(rows(), dt=None, t=FORMS[form](PARTS))
    np.testing.assert_allclose(rows_with_times.dt, gaps(PARTS), rtol=0, atol=1e-12)
    assert rows_with_times.dated is (form not in ("numbers", "lists"))


def test_times_that_run_backwards_are_named_by_sequence_and_row():
    back = [PARTS[0], PARTS[1], PARTS[2][::-1]]
    with pytest.raises(
        TimeError, match=r"^X\[2\], row 1 .* holds 1.0, before 9.0 of row 0 of X\[2"
    ):
        add_times(rows(), dt=None, t=back)
    single = rows([4], steps=4, is_single=True)
    with pytest.raises(TimeError, match=r"^X, row 1 .*, before 9.0 of row 0 of the table"):
        add_times(single, dt=None, t=PARTS[2][::-1])


@pytest.mark.parametrize("wrong", [-1.0, np.nan, np.inf])
def test_a_gap_that_is_none_is_named_by_sequence_and_row(wrong):
    gaps_of_parts = [np.ones(3), np.ones(1), np.array([1.0, 1.0, wrong, 1.0])]
    with pytest.raises(TimeError, match=rf"^X\[2\], row 2 .* column 'dt' holds '{wrong}'"):
        add_times(rows(), dt=gaps_of_parts, t=None)


@pytest.mark.parametrize("start", [1.7e9, np.datetime64("2024-01-01")])
def test_gaps_that_the_type_of_times_cannot_hold_are_refused(start):
    near = np.arange(4) * 0.01
    if isinstance(start, float):  # seconds since 1970 in single precision
        times = [(start + near).astype(np.float32)]
    else:  # nanoseconds, a thousand years apart
        near = np.arange(4).astype("m8[us]")
        times = [np.datetime64("1024-01-01", "us") + near, np.datetime64("2024-01-01", "us") + near]
    cure = "as float64" if isinstance(start, float) else "near each other"
    with pytest.raises(TimeError, match=f"rounding has changed most time steps .*{cure}"):
        add_times(rows([4] * len(times)), dt=None, t=times)


def test_frames_of_a_list_are_read_as_one():
    frames = [
        pandas.DataFrame({"a": [1, 2], "ward": ["n", None]}),
        pandas.DataFrame({"ward": ["s"], "a": [0.5]}),
    ]
    rows_of_frames, schema = read_frames(frames, Schema(), None)
    assert (schema.features, schema.categories) == (("a", "ward"), (("ward", ("n", "s")),))
    np.testing.assert_array_equal(rows_of_frames.values, [[1, 1, 0], [2, 0, 0], [0.5, 0, 1]])
    assert rows_of_frames.lengths.tolist() == [2, 1]
    frames[1]["a"] = "high"
    with pytest.raises(
        DataError, match=r"^X\[1\], row 0 .* column 'a' holds 'high', expected a fini"
    ):
        read_frames(frames, schema, schema.features)
    frames[1]["a"] = pandas.Timestamp("2024-01-01")
    with pytest.raises(DataError, match=r"^X\[1\], column 'a' holds dates"):
        read_frames(frames, schema, schema.features)
