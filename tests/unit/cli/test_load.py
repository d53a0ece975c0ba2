"""Commands that train use one thread where the machine is busy."""

import os

import pytest
import torch

from tauflow.cli import cpu_load


@pytest.fixture(autouse=True)
def _two_threads(monkeypatch):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_WAIT_POLICY"):
        monkeypatch.delenv(name, raising=False)
    yield
    torch.set_num_threads(before)


def machine(monkeypatch, *, processes: float) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (processes, 0.0, 0.0), raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)


@pytest.mark.parametrize(
    ("processes", "set_to", "threads"), [(15.0, "", 1), (4.0, "", 1), (3.9, "", 2), (15.0, "2", 2)]
)
@pytest.mark.parametrize("command", ["run", "tune"])
def test_a_busy_machine_is_left_to_others(call, monkeypatch, command, processes, set_to, threads):
    machine(monkeypatch, processes=processes)
    monkeypatch.setenv("OMP_NUM_THREADS", set_to)
    output = call(command, "no-such-thing", "--no-such-option", code=2).output
    assert torch.get_num_threads() == threads
    assert (f"load {processes:.0f} on 2 cores: using one thread" in output) == (threads == 1)


def test_threads_that_wait_asleep_are_left_as_they_are(monkeypatch):
    machine(monkeypatch, processes=15.0)
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")
    assert cpu_load.use_one_thread_if_busy() is None
    assert torch.get_num_threads() == 2
    assert cpu_load.describe_load() == "load 15 on 2 cores"


@pytest.mark.thorough
def test_other_commands_leave_threads_alone(call, monkeypatch):
    machine(monkeypatch, processes=15.0)
    call("run", "--help")
    call("models")
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize(
    ("processes", "threads", "advised"),
    [(15.0, 2, True), (3.0, 2, True), (2.0, 2, False), (15.0, 1, False)],
)
def test_doctor_says_what_to_do_on_a_busy_machine(monkeypatch, processes, threads, advised):
    machine(monkeypatch, processes=processes)
    torch.set_num_threads(threads)
    advice = ": set OMP_WAIT_POLICY=passive (the same results) or OMP_NUM_THREADS=1"
    expected = f"load {processes:.0f} on 2 cores" + advice * advised
    assert cpu_load.describe_load() == expected
