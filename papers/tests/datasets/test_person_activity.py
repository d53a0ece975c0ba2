import numpy as np
import pytest
import torch
from person_file import START, made, written
from sklearn.model_selection import train_test_split

from tauflow.data.registry import load_task
from tauflow_papers.datasets.real.person_activity import ACTIVITIES, TAGS, mark_distinct_times


@pytest.fixture(scope="module")
def rows():
    return made()


@pytest.fixture
def load(tmp_path, rows, monkeypatch):
    root = written(tmp_path, rows, monkeypatch)
    return lambda **options: load_task("person-activity", root=root, download=False, **options)


def script_recordings(rows):
    """Read line by line, as the released scripts do, all recordings included."""
    recordings, last = [], None
    for name, tag, ticks, _, x, y, z, label in rows:
        if name != last:
            recordings.append(([], [], [], name))
            last, before = name, ticks - 5_000_000
        one_hot = [float(tag == tag_) for tag_ in TAGS]
        recordings[-1][0].append([*one_hot, float(x), float(y), float(z)])
        recordings[-1][1].append(ACTIVITIES[label])
        recordings[-1][2].append((ticks - before) / 1e6)
        before = ticks
    return recordings


def script_windows(recordings, length, stride):
    cut = [
        [column[start : start + length] for column in recording[:3]]
        for recording in recordings
        for start in range(0, len(recording[0]) - length, stride)
    ]
    return [np.array(column) for column in zip(*cut, strict=True)]


def expect(part, x, y, dt=None):
    np.testing.assert_allclose(part.x, x, rtol=1e-6)
    assert part.y.tolist() == y.tolist()
    if dt is None:
        assert part.dt is None
    else:
        np.testing.assert_allclose(part.dt, dt, rtol=1e-6)


def test_first_setting_step_by_step(load, rows):
    data = load(setting=1)
    x, y, _ = script_windows(script_recordings(rows)[:-1], 32, 16)
    order = np.random.RandomState(27731).permutation(len(x))
    held, tested = int(0.1 * len(x)), int(0.15 * len(x))
    assert data.sizes == data.card.sizes == (len(x) - held - tested, held, tested)
    expect(data.valid, x[order[:held]], y[order[:held]])
    expect(data.test, x[order[held : held + tested]], y[order[held : held + tested]])
    expect(data.train, x[order[held + tested :]], y[order[held + tested :]])
    assert (data.train.x.dtype, data.train.y.dtype) == (torch.float32, torch.int64)


def test_second_setting_step_by_step(load, rows):
    thinned = []
    for x, y, dt, name in script_recordings(rows):
        time = [round(ticks / 1e5) for ticks in np.cumsum([0, *np.rint(np.array(dt[1:]) * 1e6)])]
        keep = [i for i in range(len(x)) if i < 2 or time[i] != time[i - 1]]
        assert len(keep) < len(x)
        thinned.append(([x[i] for i in keep], [y[i] for i in keep], [dt[i] for i in keep], name))
    x, y, _ = script_windows(thinned, 50, 25)
    split = train_test_split(x, y, train_size=0.8, random_state=42, shuffle=True)
    halves = [[half for window in part for half in (window[:25], window[25:])] for part in split]
    x_train, x_test, y_train, y_test = (np.array(part) for part in halves)
    data = load(setting=2)
    held = int(0.1 * len(x_train))
    expect(data.valid, x_train[:held], y_train[:held])
    expect(data.train, x_train[held:], y_train[held:])
    expect(data.test, x_test, y_test)


def test_third_setting_step_by_step(load, rows):
    data = load(setting=3)
    x, y, dt = script_windows(script_recordings(rows)[:-1], 32, 16)
    order = np.random.RandomState(98841).permutation(len(x))
    tested = int(0.2 * len(x))
    assert data.valid is None
    expect(data.test, x[order[:tested]], y[order[:tested]], dt[order[:tested]])
    expect(data.train, x[order[tested:]], y[order[tested:]], dt[order[tested:]])
    assert (data.train.dt == 5.0).sum() + (data.test.dt == 5.0).sum() == 24


@pytest.mark.parametrize("setting", [1, 2, 3])
def test_split_by_subject_keeps_people_apart(load, rows, setting):
    data = load(setting=setting, split="by_subject")
    owner = {np.float32(row[4:7]).tobytes(): row[0][0] for row in rows}
    for part, people in ((data.train, "ABC"), (data.valid, "D"), (data.test, "E")):
        people_in_part = {owner[p.tobytes()] for p in part.x[..., 4:].reshape(-1, 3).numpy()}
        assert people_in_part == set(people)


def test_thinning_by_hand():
    ticks = np.array([0, 10_000, 40_000, 60_000, 140_000, 260_000]) + START
    assert mark_distinct_times(ticks).tolist() == [True, True, False, True, False, True]
