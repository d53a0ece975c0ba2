"""Signals that arrive while two threads compute: none is lost, and no number is left out."""

import ctypes
import gc
import inspect
import math
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import CodeType, FrameType

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import tauflow
from tauflow.cells import AbstractCell
from tauflow.data import load_task, write_task

pytest.importorskip("numba")

from tauflow.kernels.cpu import binding
from tauflow.kernels.cpu.jit import kernel

pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs POSIX timers")
SECONDS = 4.0  # that one set of tries takes at most, without --full


@pytest.fixture(autouse=True)
def _two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)
    torch.set_grad_enabled(True)  # an interrupted context manager of torch may leave it off


@pytest.fixture
def _busy_machine() -> Iterator[None]:
    load = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    yield
    load.kill()
    load.wait()


@pytest.fixture(params=["openmp", "python"])
def _pool(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "python":  # as in a forked process
        monkeypatch.setattr(binding, "_get_openmp_team", lambda: None)
    elif binding._get_openmp_team() is None:
        pytest.skip(reason="torch runs on another pool here")


class PureCell(AbstractCell):
    compiled = True

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size)
        self.lin = nn.Linear(input_size + hidden_size, hidden_size)

    def step(self, x: Tensor, h: Tensor, dt: Tensor) -> Tensor:
        target = torch.tanh(self.lin(torch.cat([x, h], 1)))
        return target + (h - target) * torch.exp(-dt)


def built(name: str) -> tauflow.RNN:
    torch.manual_seed(0)
    return tauflow.RNN(PureCell(3, 16)) if name == "pure" else tauflow.build(name, 3, 16)


Call = Callable[[], list[Tensor]]


def a_call(name: str, learns: bool) -> Call:
    """Return a call of a network, which returns outputs and gradients."""
    rnn, x = built(name), torch.randn(8, 20, 3)

    def call() -> list[Tensor]:
        torch.set_grad_enabled(learns)
        y, h = rnn(x)
        if not learns:
            return [y, h]
        return [y, h, *torch.autograd.grad(y.square().sum(), list(rnn.parameters()))]

    for _ in range(2):  # the first compiles, the second links what its plan runs
        call()
    return call


class _Interrupt:
    """Raises KeyboardInterrupt where Python begins to run a function, as a signal handler may."""

    def __init__(self, at: int = -1) -> None:
        self.at = at
        self.begun: list[CodeType] = []

    def __enter__(self) -> "_Interrupt":
        sys.setprofile(self)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        del self.begun[-1:]  # this method

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and not frame.f_code.co_flags & inspect.CO_GENERATOR:
            self.begun.append(frame.f_code)
            if len(self.begun) - 1 == self.at:
                sys.setprofile(None)
                raise KeyboardInterrupt


def firsts_and_lasts(values: Sequence[object]) -> list[int]:
    """Return where each of the values stands first and last."""
    lasts = {value: i for i, value in enumerate(values)}
    firsts = {value: i for i, value in reversed(list(enumerate(values)))}
    return sorted({*firsts.values(), *lasts.values()})


@pytest.fixture
def _no_collection():
    """Keep finalizers of other tests from running in between, which would be counted as calls."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.sampled(12)
@pytest.mark.usefixtures("_pool", "_no_collection")
@pytest.mark.parametrize(
    ("name", "learns"), [("cfc", True), ("ltc", True), ("gru", True), ("pure", False)]
)
def test_an_interrupt_arrives_wherever_it_comes_in(request, name, learns):
    """And the next call is as before."""
    call = a_call(name, learns)
    with _Interrupt() as interrupt:
        expected = call()
    everywhere = range(len(interrupt.begun))
    full = request.config.getoption("--full")
    for at in everywhere if full else firsts_and_lasts(interrupt.begun):
        where = f"an interrupt at the beginning of {interrupt.begun[at].co_name}"
        result = None
        with suppress(KeyboardInterrupt), _Interrupt(at):
            result = call()
        assert result is None, f"{where} was lost"
        assert all(map(torch.equal, call(), expected)), f"the call after {where} is wrong"


@pytest.mark.sampled(9)
@pytest.mark.parametrize(("name", "learns"), [("cfc", False), ("cfc", True), ("ltc", True)])
def test_a_signal_arrives_or_the_result_is_right(request, tries, name, learns):
    call = a_call(name, learns)
    fired, armed = 0, False

    def handle(*_: object) -> None:
        nonlocal fired
        if armed:
            fired += 1
            raise KeyboardInterrupt

    expected, times = call(), []
    for _ in range(20):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    rng, left = random.Random(0), tries("signals", few=100, full=400)
    lost = wrong = 0
    seconds = math.inf if request.config.getoption("--full") else SECONDS
    before, deadline = signal.signal(signal.SIGALRM, handle), time.monotonic() + seconds
    try:
        while left and time.monotonic() < deadline:
            left, earlier = left - 1, fired
            try:
                armed = True
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-6, min(times)))
                result = call()
                armed = False
            except KeyboardInterrupt:
                armed = False
                continue
            lost += fired > earlier
            wrong += not all(map(torch.equal, result, expected))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert fired, "calls end before they can be interrupted"
    assert (lost, wrong) == (0, 0)


@kernel
def visit(index, low, high, visits):
    for row in range(low, high):
        visits[row] += 1


TASK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
START = ctypes.CFUNCTYPE(None, TASK, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
NUMBER = ctypes.CFUNCTYPE(ctypes.c_int)


@pytest.mark.parametrize("rank", [0, 1, 5])
def test_slices_that_no_thread_computed_are_an_error(monkeypatch, rank):
    """A team of one thread, of whatever rank, which for rank 0 has to do all slices."""
    functions = START(lambda task, data, *_: task(data)), NUMBER(lambda: rank), NUMBER(lambda: 1)
    addresses = [ctypes.cast(function, ctypes.c_void_p).value for function in functions]
    monkeypatch.setattr(binding, "_get_openmp_team", lambda: binding.OpenMPTeam(*addresses))
    visits = np.zeros(7, np.int64)
    if rank:
        with pytest.raises(RuntimeError, match=f"{min(rank, 3)} of 3 slices .* not computed"):
            binding.parallel_for(visit, 7, visits, slices=3)
    else:
        binding.parallel_for(visit, 7, visits, slices=3)
    first = 7 * min(rank, 3) // 3
    assert visits.tolist() == [0] * first + [1] * (7 - first)


@pytest.mark.thorough
@pytest.mark.skipif(not Path("/proc").exists(), reason="needs processes as Linux has them")
@pytest.mark.usefixtures("_busy_machine")
def test_a_run_on_two_threads_ends_at_an_interrupt(tmp_path, tries):
    data = load_task("pendulum", sizes=(48, 6, 6), steps=20)
    parts = {"train": data.train, "valid": data.valid, "test": data.test}
    write_task(tmp_path / "task", data.card, **parts)
    rng = random.Random(0)
    for number in range(tries("interrupts of run", few=1, full=10)):
        command = ["run", str(tmp_path / "task"), "--model", "cfc", "--epochs", "100000"]
        with (tmp_path / f"{number}.txt").open("w+b") as output:
            run = subprocess.Popen(
                [sys.executable, "-c", "from tauflow.cli.main import main; main()", *command],
                stdout=output,
                stderr=output,
                cwd=tmp_path,
                env={**os.environ, "OMP_NUM_THREADS": "2"},
            )
            log = None
            while log is None and run.poll() is None:  # the first epoch
                time.sleep(0.1)
                log = next(tmp_path.glob("runs/*/*/log.jsonl"), None)
            time.sleep(rng.uniform(0.0, 1.0))
            run.send_signal(signal.SIGINT)
            code = None
            with suppress(subprocess.TimeoutExpired):
                code = run.wait(30)
            run.kill()
            run.wait()
        assert code == 130, (tmp_path / f"{number}.txt").read_text()
        log.unlink()
