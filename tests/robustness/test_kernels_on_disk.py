"""Compiled kernels on a disk that damages them, and written by several processes, some killed."""

import logging
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("numba")

import cached_kernel
from cached_kernel import fresh, right

from tauflow.kernels.cpu import cache as kernel_cache


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr(kernel_cache.config, "CACHE_DIR", str(tmp_path))
    kernel_cache.get_cache_folder.cache_clear()
    kernel_cache._warn_once.cache_clear()
    yield kernel_cache.get_cache_folder()
    kernel_cache.get_cache_folder.cache_clear()


def entry(folder: Path) -> Path:
    (file,) = folder.iterdir()
    return file


DAMAGE = {
    "empty": lambda place, content: place.write_bytes(b""),
    "truncated": lambda place, content: place.write_bytes(content[: len(content) // 2]),
    "zeroed": lambda place, content: place.write_bytes(bytes(len(content))),
    "text": lambda place, content: place.write_text("not found\n"),
    "other pickle": lambda place, content: place.write_bytes(b"N."),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_kernel_is_compiled_again(kind, folder, caplog):
    assert right(fresh())
    place = entry(folder)
    DAMAGE[kind](place, place.read_bytes())
    with caplog.at_level(logging.WARNING, logger="tauflow"):
        again = fresh()
        assert right(again)
    assert not again.stats.cache_hits
    (record,) = caplog.records
    assert f"{place} cannot be used" in record.getMessage()
    caplog.clear()
    third = fresh()
    assert right(third)
    assert third.stats.cache_hits
    assert not caplog.records


def program(folder: Path) -> subprocess.Popen[str]:
    """Start a process that compiles, or takes what is there."""
    return subprocess.Popen(
        [sys.executable, cached_kernel.__file__],
        env={**os.environ, "NUMBA_CACHE_DIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.thorough
def test_several_processes_on_an_empty_cache(tmp_path, tries):
    for number in range(tries("races on an empty kernel cache", few=1, full=5)):
        folder = tmp_path / str(number)
        running = [program(folder) for _ in range(3)]
        messages = [process.communicate(timeout=300)[1] for process in running]
        assert [process.returncode for process in running] == [0, 0, 0], messages
        assert messages == ["", "", ""]
        assert len(list(next(folder.iterdir()).iterdir())) == 1


@pytest.mark.thorough
def test_processes_killed_while_they_compile(tmp_path, tries):
    random_ = random.Random(0)
    for number in range(tries("kills while compiling", few=1, full=12)):
        folder = tmp_path / str(number)
        killed = program(folder)
        killed.stdout.readline()  # it begins to compile
        time.sleep(random_.uniform(0, 0.6))
        killed.send_signal(signal.SIGKILL)
        killed.communicate()
        after = program(folder)
        _, message = after.communicate(timeout=300)
        assert (after.returncode, message) == (0, ""), f"try {number}: {message}"


_NUMBERS_OF_A_RUN = """
import hashlib, torch, tauflow
for name in ("ltc", "lrc"):
    torch.manual_seed(0)
    rnn = tauflow.build(name, 5, 16)
    loss = rnn(torch.randn(8, 20, 5), dt=torch.rand(8, 20))[0].square().mean()
    for part in torch.autograd.grad(loss, list(rnn.parameters())):
        print(name, hashlib.sha256(part.numpy().tobytes()).hexdigest())
"""


@pytest.mark.thorough
def test_kernels_compute_the_same_in_the_process_that_compiles_them(tmp_path):
    """Or a run that begins without a cache could not be resumed bit for bit."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", _NUMBERS_OF_A_RUN]
    compiled, cached = (
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    )
    assert compiled.count("ltc") > 5
    assert cached == compiled
