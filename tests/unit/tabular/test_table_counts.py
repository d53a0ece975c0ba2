"""Notes count the rows that ``duplicates`` merges and ``sort`` moves, against pandas."""

import numpy as np
import pandas
import pytest

from tauflow.data import from_table


def doses(**columns):
    """Return 30 ids of six rows, of which three repeat a time."""
    frame = pandas.DataFrame(
        {
            "id": np.repeat(np.arange(30), 6),
            "t": np.tile([0.0, 0, 1, 1, 1, 2], 30),
            "a": np.arange(180.0),
            "y": np.repeat(np.arange(30) % 2, 6),
        }
    )
    return frame.assign(**columns)


def notes_with(data, word):
    return [note for note in data.card.notes if word in note]


@pytest.mark.parametrize("how", ["mean", "last"])
def test_merged_rows_are_counted(how):
    frame = doses()
    expected = int(frame.duplicated(["id", "t"]).sum())
    assert expected == 90
    data = from_table(frame, id="id", time="t", target="y", duplicates=how)
    assert notes_with(data, "Merged") == [
        f"Merged: 90 of 180 rows, with the same id and time as an earlier one (duplicates={how!r})."
    ]
    once = frame.drop_duplicates(["id", "t"])
    assert not notes_with(from_table(once, id="id", time="t", target="y", duplicates=how), "Merged")


def test_merged_rows_of_a_single_series_are_counted():
    times = np.sort(np.random.default_rng(0).integers(0, 300, 400))
    frame = pandas.DataFrame({"t": times, "v": np.sin(times / 9)})
    (note,) = notes_with(from_table(frame, time="t", duplicates="mean"), "Merged")
    assert note.startswith(
        f"Merged: {frame.duplicated('t').sum()} of 400 rows, with the same time as an earlier one"
    )


@pytest.mark.parametrize("how", ["mean", "last"])
def test_merged_values_of_a_long_table_are_counted(how):
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame(
        {
            "id": rng.integers(0, 30, 900),
            "t": rng.integers(0, 6, 900),
            "name": rng.choice(["a", "b"], 900),
            "value": rng.normal(size=900),
        }
    )
    frame.loc[::50, "value"] = np.nan  # without a value there is nothing to merge
    there = frame.dropna()
    expected = int(there.duplicated(["id", "t", "name"]).sum())
    data = from_table(frame, id="id", time="t", long=["name", "value"], duplicates=how)
    assert notes_with(data, "Merged") == [
        f"Merged: {expected} of {len(there)} values, with the same id, time and variable as an "
        f"earlier one (duplicates={how!r})."
    ]


@pytest.mark.parametrize("id", ["id", None])
def test_rows_out_of_order_are_counted(id):
    frame = doses(t=np.arange(180.0)).sample(frac=1, random_state=0)
    steps = frame.groupby("id")["t"].diff() if id else frame["t"].diff()
    target = "y" if id else "a"
    data = from_table(frame, id=id, time="t", target=target, sort=True)
    (note,) = notes_with(data, "sort=True")
    assert f" {(steps < 0).sum()} of 180 rows came earlier than the row before" in note
    assert (" of the same id" in note) == bool(id)
    in_order = from_table(frame.sort_values("t"), id=id, time="t", target=target, sort=True)
    assert not notes_with(in_order, "sort=True")
