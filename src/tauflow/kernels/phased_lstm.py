"""The phased LSTM of its paper over sequences: its gates for all steps at once, the rest traced.

How far gates are open hangs on the time alone, which is counted in double precision. What is left
is a step in single precision, as any cell's.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from tauflow.cells.base import AbstractCell, Precomputed
from tauflow.cells.phased_lstm import PhasedLSTMCell, phased_update, read_clock, split_rounding
from tauflow.cells.precision import to_double

from .engine.kernel_call import KernelCall, KernelFunction
from .engine.requirements import NUMBA, BackendRequirements
from .generated.kernel import REQUIREMENTS as GENERATED
from .generated.kernel import generated_unsupported_reason, run_generated, unmeasured_reason
from .trace.operator import run_traced
from .trace.traced_kernel import PlannedTrace, traced_unsupported_reason


class _ProxyCell(AbstractCell):
    """The step between [h; c] of a phased LSTM whose gates are known, which it reads."""

    paper = PhasedLSTMCell.paper
    state_names = ("h", "c")

    W_h: Tensor

    def __init__(self, hidden_size: int) -> None:
        super().__init__(5 * hidden_size, hidden_size)
        self.register_parameter("W_h", None)

    def precompute(self, x: Tensor, dt: Tensor) -> Precomputed:
        """Return the input's share of the blocks, and k."""
        N = self.hidden_size
        return Precomputed((x[..., : 4 * N], x[..., 4 * N :]), (self.W_h.T,))

    def update(self, h: Tensor, input_projection: Tensor, k: Tensor, W_h_T: Tensor) -> Tensor:
        """Return [h; c] after a new input."""
        return phased_update(h, input_projection, k, W_h_T)


class _ThreadProxies(threading.local):
    """The cells whose traces serve others, of each thread, which sets their weights."""

    def __init__(self) -> None:
        self.cells: WeakKeyDictionary[PhasedLSTMCell, _ProxyCell] = WeakKeyDictionary()


_thread_proxies = _ThreadProxies()


@contextmanager
def _borrow_proxy_cell(cell: PhasedLSTMCell) -> Iterator[_ProxyCell]:
    """Lend the cell whose traces serve another one, with that one's weights of now."""
    opened = _thread_proxies.cells.get(cell)
    if opened is None or opened.hidden_size != cell.hidden_size:
        _thread_proxies.cells[cell] = opened = _ProxyCell(cell.hidden_size)
    # as it is: a plain tensor under torch.func.functional_call, and of a pruned cell
    opened._parameters["W_h"] = cell.W_h
    try:
        yield opened
    finally:
        opened._parameters["W_h"] = None


def phased_lstm_unsupported_reason(call: KernelCall) -> str | None:
    """Return why the compiled loops cannot serve a call of a :class:`PhasedLSTMCell`."""
    return _unsupported_reason(call, NUMBA, traced_unsupported_reason)


def run_phased_lstm(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run a :class:`PhasedLSTMCell` in the form of its paper."""
    return _run(call, run_traced)


class PlannedPhasedLSTM(threading.local):
    """Does the same for calls alike; each thread has its own proxy, and so its own plans."""

    def __init__(self) -> None:
        self._run = PlannedTrace()

    def __call__(self, call: KernelCall) -> tuple[Tensor, Tensor]:
        """Run the cell."""
        return _run(call, self._run)


def phased_unsupported_reason(call: KernelCall) -> str | None:
    """Return why generated kernels cannot serve a call of a :class:`PhasedLSTMCell`."""
    return _unsupported_reason(call, GENERATED, generated_unsupported_reason)


def phased_unmeasured_reason(call: KernelCall) -> str | None:
    """Return why they cannot, or why it is not known whether they are faster than graphs."""
    return _unsupported_reason(call, GENERATED, unmeasured_reason)


def run_phased_generated(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run a :class:`PhasedLSTMCell` in the form of its paper by generated kernels."""
    return _run(call, run_generated)


def _unsupported_reason(
    call: KernelCall, needs: BackendRequirements, limits: Callable[[KernelCall], str | None]
) -> str | None:
    cell = call.cell
    assert isinstance(cell, PhasedLSTMCell)
    if cell.form != "paper":
        return "its own loops are for form='paper'"
    reason = needs.unsupported_reason(replace(call, observed=None))
    if reason is not None:
        return reason
    B, N = len(call.h), cell.hidden_size
    learns = any(tensor.requires_grad for tensor in (call.x, call.dt, *cell.parameters()))
    x = call.x.new_zeros(B, 1, 5 * N).requires_grad_(learns and torch.is_grad_enabled())
    with _borrow_proxy_cell(cell) as opened:
        return limits(
            KernelCall(opened, x, call.h[:, : 2 * N], call.dt[:, :1], observed=call.observed)
        )


def _run(call: KernelCall, run: KernelFunction) -> tuple[Tensor, Tensor]:
    cell, N = call.cell, call.cell.hidden_size
    assert isinstance(cell, PhasedLSTMCell)
    projected, dt = cell.precompute(call.x, call.dt).per_step
    gaps = to_double(dt if call.mask is None else dt.masked_fill(~call.mask.unsqueeze(-1), 0.0))
    start = read_clock(call.h[:, 2 * N :]).unsqueeze(1)
    t = torch.cat([start, gaps], dim=1).cumsum(1)[:, 1:]
    x = torch.cat([projected, cell.time_gate(t)], dim=-1)
    with _borrow_proxy_cell(cell) as opened:
        y, last = run(KernelCall(opened, x, call.h[:, : 2 * N], call.dt, call.mask))
    return y.contiguous(), torch.cat([last, *split_rounding(t[:, -1], last.dtype)], dim=-1)
