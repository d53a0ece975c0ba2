"""Slices of a batch on several threads, whatever pool there is."""

import os
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("numba")

from tauflow.kernels.cpu import binding as numba_threads
from tauflow.kernels.cpu import cache as kernel_cache
from tauflow.kernels.cpu import jit
from tauflow.kernels.cpu.binding import count_slices, parallel_for
from tauflow.kernels.cpu.jit import digest_sources, kernel, log_compilation
from tauflow.kernels.cpu.math import sigmoid


@kernel
def mark(index, low, high, slices, values):
    for row in range(low, high):
        slices[row] = index
        values[row] += sigmoid(np.float32(row))


@kernel
def fail(index, low, high, values):
    if index == 1:
        raise ValueError("slice 1 is wrong")


@pytest.fixture(autouse=True)
def _restore_threads():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture(params=["openmp", "python"])
def _pool(request, monkeypatch):
    if request.param == "python":
        monkeypatch.setattr(numba_threads, "_get_openmp_team", lambda: None)
    elif numba_threads._get_openmp_team() is None:
        pytest.skip(reason="torch runs on another pool here")


def marked(count: int) -> np.ndarray:
    slices, values = np.full(count, -1), np.zeros(count, np.float32)
    parallel_for(mark, count, slices, values)
    expected = 1 / (1 + np.exp(-np.arange(count, dtype=np.float64)))
    np.testing.assert_allclose(values, expected, rtol=3e-7)  # every row once
    return slices


@pytest.mark.usefixtures("_pool")
@pytest.mark.parametrize("threads", [1, 2, 3, 5])
@pytest.mark.parametrize("count", [1, 2, 3, 64])
def test_every_sequence_lies_in_one_slice(threads, count):
    torch.set_num_threads(threads)
    slices = marked(count)
    assert (np.diff(slices) >= 0).all()
    assert set(slices) == set(range(count_slices(count)))
    assert count_slices(count) == min(threads, count)


@pytest.mark.usefixtures("_pool")
def test_an_error_in_a_slice_reaches_the_caller():
    torch.set_num_threads(3)
    for _ in range(2):  # compiled by the first
        with pytest.raises(ValueError, match="slice 1 is wrong"):
            parallel_for(fail, 3, np.zeros(1))
    marked(7)


@pytest.mark.usefixtures("_pool")
def test_python_threads_may_call_at_once():
    torch.set_num_threads(2)
    errors = []

    def work():
        try:
            for count in range(1, 40):
                marked(count)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


@pytest.mark.usefixtures("_pool")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_runs_on_threads_of_its_own():
    torch.set_num_threads(2)
    marked(9)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of any such fork
        child = os.fork()
    if child == 0:
        status = 1
        try:
            marked(9)
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    marked(9)


def test_compilation_is_announced_once(caplog, tmp_path, monkeypatch):
    monkeypatch.setattr(kernel_cache, "get_cache_folder", lambda: tmp_path)

    @kernel
    def double(values):
        values *= 2

    with caplog.at_level("INFO", logger="tauflow"):
        log_compilation("test", double)
        double(np.ones(2, np.float32))
        log_compilation("test", double)
    (record,) = caplog.records
    assert "compiling the test kernels once, some 5 to 10 seconds" in record.message
    assert record.levelname == "WARNING"  # which is shown where logging is not set up


def test_a_cache_that_cannot_be_written_is_no_error(monkeypatch, caplog):
    monkeypatch.setattr(kernel_cache, "get_cache_folder", lambda: None)

    @kernel
    def triple(values):
        values *= 3

    with caplog.at_level("INFO", logger="tauflow"):
        log_compilation("test", triple)
    assert "no folder to keep them" in caplog.text
    values = np.ones(2, np.float32)
    triple(values)
    assert (values == 3).all()


def test_the_cache_knows_every_file_that_kernels_are_made_of(tmp_path):
    folders = [tmp_path / name for name in ("own", "cpu", "engine", "other")]
    for folder in folders:
        folder.mkdir()
        (folder / "a.py").write_text("x = 1\n")
    digests = {digest_sources(*folders)}
    for folder in folders:
        (folder / "a.py").write_text("x = 2\n")
        digest_sources.cache_clear()
        digests.add(digest_sources(*folders))
    assert len(digests) == 1 + len(folders)
    digest_sources.cache_clear()


def test_a_kernel_is_named_by_its_folder_and_those_it_calls():
    def quadruple(x):
        return 4 * x

    kernels = Path(jit.__file__).parents[1]
    shared = Path(__file__).parent, kernels / "cpu", kernels / "engine"
    assert digest_sources(*shared) in kernel(quadruple)._cache._sources
    called = kernel(source_folders=("ode",))(quadruple)._cache._sources
    assert digest_sources(*shared, kernels / "ode") in called
