import os
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tauflow.errors import DataError, DtypeError
from tauflow_papers.datasets.cache import CACHE_VARIABLE, get_cache_folder, load_or_parse
from tauflow_papers.datasets.synthetic.xor import XOR_DENSE


class Builder:
    """Counts how often it is asked."""

    def __init__(self, **arrays) -> None:
        self.arrays = arrays or {"x": np.arange(6.0).reshape(2, 3), "y": np.array([True, False])}
        self.calls = 0

    def __call__(self):
        self.calls += 1
        return self.arrays


@pytest.fixture
def folder(monkeypatch, tmp_path):
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "parsed"))
    return tmp_path / "parsed"


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "source.csv"
    path.write_bytes(b"1,2\n")
    return path


def test_second_call_reads_what_the_first_one_built(folder, source):
    build = Builder()
    first, second = (load_or_parse("toy", [source], 1, build) for _ in range(2))
    assert build.calls == 1
    for arrays in (first, second):
        assert arrays.keys() == build.arrays.keys()
        for name, array in arrays.items():
            assert array.dtype == build.arrays[name].dtype
            assert array.tolist() == build.arrays[name].tolist()
            assert array.flags.writeable
            assert not np.shares_memory(array, build.arrays[name])
    assert [path.name.split("-")[0] for path in folder.iterdir()] == ["toy"]


def test_everything_that_matters_is_in_the_key(folder, source, tmp_path):
    build = Builder()
    other = tmp_path / "other.csv"
    other.write_bytes(source.read_bytes())
    calls = [
        ("toy", [source], 1, {}),
        (XOR_DENSE, [source], 1, {}),
        ("toy", [source], 2, {}),
        ("toy", [source], 1, {"setting": 1}),
        ("toy", [source], 1, {"setting": 2}),
        ("toy", [other], 1, {}),
        ("toy", [source, other], 1, {}),
    ]
    for _ in range(2):
        for card, paths, version, options in calls:
            load_or_parse(card, paths, version, build, **options)
    assert build.calls == len(calls) == len(list(folder.iterdir()))
    source.write_bytes(b"1,3\n")
    load_or_parse("toy", [source], 1, build)
    assert build.calls == len(calls) + 1


def test_files_of_the_same_name_are_told_apart(folder, tmp_path):
    paths = [tmp_path / subject / "walk.csv" for subject in ("anna", "ben")]
    for path in paths:
        path.parent.mkdir()

    def read():
        return {"x": np.array([int(path.read_text()) for path in paths])}

    for texts in (("1", "2"), ("3", "2"), ("2", "3")):
        for path, text in zip(paths, texts, strict=True):
            path.write_text(text)
        assert load_or_parse("toy", paths, 1, read)["x"].tolist() == [int(text) for text in texts]


@given(st.integers(0, 2**32), st.sampled_from(["cut", "flip", "empty", "other"]))
def test_damaged_entry_is_built_again(tmp_path_factory, where, damage):
    folder = tmp_path_factory.mktemp("parsed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CACHE_VARIABLE, str(folder))
        build = Builder()
        load_or_parse("toy", [], 1, build)
        (entry,) = folder.iterdir()
        content = entry.read_bytes()
        # The first 8 bytes say how long the header is; any other byte is flipped, or all is cut.
        at = 8 + where % (len(content) - 8)
        flipped = content[:at] + bytes([content[at] ^ 0x10]) + content[at + 1 :]
        spoiled = {"cut": content[:at], "flip": flipped, "empty": b"", "other": b"<html>" * 9}
        entry.write_bytes(spoiled[damage])
        again = load_or_parse("toy", [], 1, build)
        assert again["x"].tolist() == build.arrays["x"].tolist()
        assert build.calls == 2 or entry.read_bytes() == flipped  # a flip outside what is read
        assert load_or_parse("toy", [], 1, build)["y"].tolist() == [True, False]


def test_failed_build_leaves_nothing(folder, source):
    def build():
        raise DataError("row 3")

    with pytest.raises(DataError, match="row 3"):
        load_or_parse("toy", [source], 1, build)
    assert not folder.exists()


def test_entry_that_cannot_be_written_costs_a_warning_only(monkeypatch, source, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "file"))
    build = Builder()
    with pytest.warns(UserWarning, match=r"could not be kept in .*Set TAUFLOW_CACHE"):
        arrays = load_or_parse("toy", [source], 1, build)
    assert arrays["x"].shape == (2, 3)


def test_two_writers_do_not_mix(folder, source):
    build = Builder(x=np.arange(200_000.0))
    threads = [
        threading.Thread(target=load_or_parse, args=("toy", [source], 1, build)) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(list(folder.iterdir())) == 1
    before = build.calls
    assert load_or_parse("toy", [source], 1, build)["x"][-1] == 199_999
    assert build.calls == before


@pytest.mark.parametrize(
    ("value", "got"),
    [
        (np.array(["a", "b"]), "<U1"),
        (np.array([{}], dtype=object), "object"),
        (np.array(["2020-01-01"], dtype="M8[D]"), "datetime64"),
        ([1, 2], "list"),
    ],
)
def test_what_is_no_number_is_refused(folder, value, got):
    with pytest.raises(DtypeError, match=rf"toy: x cannot be cached: it is {got}"):
        load_or_parse("toy", [], 1, Builder(x=value))
    assert not folder.exists()


@pytest.mark.parametrize(
    "array", [np.zeros((0, 3), np.float32), np.float64([[1, 2], [3, 4]]).T, np.array(7, ">i4")]
)
def test_empty_transposed_and_swapped_arrays_survive(folder, array):
    for _ in range(2):
        back = load_or_parse("toy", [], 1, Builder(x=array))["x"]
        assert back.shape == array.shape
        assert back.tolist() == array.tolist()


def test_folder_is_that_of_the_variable_else_in_the_users_cache(monkeypatch, tmp_path):
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "mine"))
    assert get_cache_folder() == tmp_path / "mine"
    monkeypatch.setattr("pooch.os_cache", lambda project: tmp_path / project)
    for unset in ("", None):
        if unset is None:
            monkeypatch.delenv(CACHE_VARIABLE)
        else:
            monkeypatch.setitem(os.environ, CACHE_VARIABLE, unset)
        assert get_cache_folder() == tmp_path / "tauflow" / "parsed"
