import os

import pytest
import torch


@pytest.fixture(autouse=True)
def _two_threads(monkeypatch):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("processes", "threads"), [(15.0, 1), (3.9, 2)])
def test_reproduce_leaves_a_busy_machine_to_others(call, monkeypatch, processes, threads):
    monkeypatch.setattr(os, "getloadavg", lambda: (processes, 0.0, 0.0), raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "")
    output = call("reproduce", "no-such-thing", "--no-such-option", code=2).output
    assert torch.get_num_threads() == threads
    assert (f"load {processes:.0f} on 2 cores: using one thread" in output) == (threads == 1)
