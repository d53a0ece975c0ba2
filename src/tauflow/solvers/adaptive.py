"""Adaptive Runge-Kutta solvers, with separate steps for every sample of a batch.

The steps are torchode's, as torchdiffeq gives one step size and one success to a whole batch.

Steps, error control and counts of a sample depend on that sample alone, so that a batch gives what
its rows give one by one, to rounding: a matrix product of another batch size may round otherwise,
and where that tips an error estimate across the tolerance, to the tolerance. The field is called
for all samples until the last one is done; the work is that of the sample with the most steps.

All methods are explicit (the library has no implicit ones). The loop looks at values, so these
functions neither compile into one graph nor run under ``vmap``.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from tauflow._internal.checks import (
    check_at_least,
    check_bool,
    check_floating_point,
    check_one_of,
    check_same_device,
    check_within,
    is_readable,
    shape_error,
)
from tauflow.errors import ArgumentError, DtypeError, TimeError

from .adjoint import BacksolveAdjoint, check_adjoint_parameters
from .torchode_loop import METHODS, SolverSettings, SolverStatistics, solve

ADAPTIVE_METHODS: tuple[str, ...] = tuple(METHODS)
"""Names accepted by :func:`integrate_adaptive` and :func:`integrate_path`."""

_STATISTICS_LISTS: ContextVar[tuple[list[SolverStatistics], ...]] = ContextVar(
    "counted", default=()
)


@contextmanager
def solver_statistics() -> Iterator[list[SolverStatistics]]:
    """Collect the statistics of all adaptive solves in a ``with`` block, in order.

    The solves of this thread alone; those that find gradients are not among them. For example::

        with solver_statistics() as solves:
            y, h = tauflow.CTRNN(3, 8, solver="dopri5")(x, dt=dt)
        print(sum(solve.evaluations for solve in solves))

    Yields:
        A list that grows, one entry for each solve: with a cell, for each sample of the sequences.
    """
    solves: list[SolverStatistics] = []
    token = _STATISTICS_LISTS.set((*_STATISTICS_LISTS.get(), solves))
    try:
        yield solves
    finally:
        _STATISTICS_LISTS.reset(token)


def _append_statistics(statistics: SolverStatistics) -> SolverStatistics:
    if torch._C._current_graph_task_id() != -1:  # a backward pass that takes steps once more
        return statistics
    for solves in _STATISTICS_LISTS.get():
        solves.append(statistics)
    return statistics


def integrate_adaptive(
    field: Callable[[Tensor], Tensor],
    h: Float[Tensor, "B S"],
    dt: Float[Tensor, "B 1"],
    *,
    method: str = "dopri5",
    rtol: float = 1e-3,
    atol: float = 1e-4,
    max_steps: int = 1000,
    adjoint: bool = False,
    parameters: Sequence[Tensor] = (),
) -> tuple[Float[Tensor, "B S"], SolverStatistics]:
    """Integrate the autonomous flow ``dh/dt = field(h)`` over the time step of each sample.

    Gradients reach ``h``, ``dt`` and whatever the field is made of. By default they run through the
    steps taken, with the step sizes held; with ``adjoint=True`` a second solve runs backwards,
    whose memory does not grow with the number of steps, and whose accuracy is that of the
    tolerances. Flows that contract strongly may fail there, as they expand backwards. Gradients
    taken with ``create_graph=True`` always run through the steps.

    Args:
        field: the vector field, mapping (B, S) to (B, S), each row to its own.
        h: state at the start.
        dt: length of the time step of each sample, 0 or more, in the unit of the field. A sample
            with a time step of zero stays exactly where it is, even where the field is infinite;
            gradients of what the field is made of are then not finite.
        method: one of :data:`ADAPTIVE_METHODS`.
        rtol: error allowed in a step, relative to the state.
        atol: error allowed in a step, in the unit of the state. The root mean square over a
            sample's components of ``error / (atol + rtol * |h|)`` is kept below 1.
        max_steps: steps that a sample may try, rejected ones included.
        adjoint: whether to find gradients by a backward solve.
        parameters: with ``adjoint``, every tensor apart from ``h`` that the field depends on and
            that needs a gradient, or what it was computed from, not both; the direct way finds them
            by itself.

    Returns:
        The state at the end of the time steps, and the counts of evaluations and steps.

    Raises:
        SolverError: a sample did not reach the end of its time step.
        ArgumentError: the field depends on a tensor that ``parameters`` lacks, or holds together
            with one that it was computed from.
    """
    where = "integrate_adaptive"
    settings = _check_settings(where, method, rtol, atol, max_steps)
    _check_times(where, h, "dt", dt, (h.shape[0], 1), "(B, 1)")
    if not check_bool(adjoint=adjoint):
        end, statistics = solve(field, h, dt, settings)
        return end, _append_statistics(statistics)
    parameters = tuple({id(p): p for p in parameters}.values())  # each once
    check_adjoint_parameters(field, h, parameters, where)
    end, statistics = BacksolveAdjoint.apply(  # type: ignore[no-untyped-call]  # torch types it as Any
        field, settings, h, dt, *parameters
    )
    return end, _append_statistics(statistics)


def integrate_path(
    field: Callable[[Tensor], Tensor],
    h: Float[Tensor, "B S"],
    t: Float[Tensor, "B T"],
    *,
    method: str = "dopri5",
    rtol: float = 1e-3,
    atol: float = 1e-4,
    max_steps: int = 1000,
) -> tuple[Float[Tensor, "B T S"], SolverStatistics]:
    """Integrate ``dh/dt = field(h)`` and return the states at the times of each sample.

    One solve runs from 0 to the last time; states in between are interpolated within its steps (to
    order 4, or 3 with ``bosh3`` and ``adaptive_heun``), so that dense times cost nothing extra.
    Gradients reach ``h``, ``t`` and whatever the field is made of, through the steps taken.

    Args:
        field: the vector field, mapping (B, S) to (B, S), each row to its own.
        h: state at time 0.
        t: times, 0 or more, not decreasing along a row.
        method: one of :data:`ADAPTIVE_METHODS`.
        rtol: error allowed in a step, relative to the state.
        atol: error allowed in a step, in the unit of the state.
        max_steps: steps that a sample may try, rejected ones included.

    Returns:
        The states at the times, and the counts of evaluations and steps.

    Raises:
        SolverError: a sample did not reach its last time.
    """
    where = "integrate_path"
    settings = _check_settings(where, method, rtol, atol, max_steps)
    expected = (h.shape[0], max(1, t.shape[-1]) if t.ndim else 1)
    _check_times(where, h, "t", t, expected, "(B, T) with T >= 1")
    last = t[:, -1:]
    fractions = t / torch.where(last > 0, last, torch.ones_like(last))
    path, statistics = solve(field, h, last, settings, fractions=fractions)
    if t.requires_grad and torch.is_grad_enabled():
        # The solve copies h to the time 0, where the path moves with t too, as the field says.
        leaving = h.unsqueeze(1) + t.unsqueeze(-1) * field(h).unsqueeze(1)
        path = torch.where((t == 0).unsqueeze(-1), leaving, path)
        statistics = replace(statistics, evaluations=statistics.evaluations + 1)
    return path, _append_statistics(statistics)


def _check_settings(
    where: str, method: str, rtol: float, atol: float, steps: int
) -> SolverSettings:
    check_one_of(ADAPTIVE_METHODS, method=method)
    check_within(0.0, math.inf, rtol=rtol)
    if not check_within(0.0, math.inf, atol=atol) > 0:
        raise ArgumentError(
            "atol must be greater than 0: a state that passes through zero has no relative error. "
            "Choose one far below the states' scale, e.g. 1e-9."
        )
    return SolverSettings(where, method, rtol, atol, check_at_least(1, max_steps=steps))


def check_elapsed(where: str, name: str, times: Float[Tensor, "B T"]) -> None:
    """Raise unless times begin at 0 or later and run forwards, where values may be looked at.

    Raises:
        TimeError: one is negative or not finite, or comes before the one to the left of it.
    """
    if not is_readable(times):
        return
    bad = ~(times.isfinite() & (times >= 0))
    if bool(bad.any()):
        row, column = bad.nonzero()[0].tolist()
        raise TimeError(
            f"{where}: {name} is {float(times[row, column]):g} in sample {row}; expected finite "
            "numbers of 0 or more."
        )
    if bool((times.diff(dim=1) < 0).any()):
        raise TimeError(f"{where}: {name} runs backwards within a row. Sort the times of each row.")


def _check_times(
    where: str, h: Tensor, name: str, times: Tensor, expected: tuple[int, int], symbols: str
) -> None:
    check_floating_point(where, h=h)
    check_floating_point(where, **{name: times})
    if h.ndim != 2:
        raise shape_error(where, "h", h, "(B, S)", "One row per sample.")
    if tuple(times.shape) != expected:
        advice = "One row per sample; for one length for all, expand it."
        raise shape_error(where, name, times, f"{symbols} = {expected}", advice)
    if times.dtype != h.dtype:
        raise DtypeError(
            f"{where}: {name} has dtype {times.dtype}, but h has {h.dtype}. "
            f"Convert it with {name}.to(h.dtype)."
        )
    check_same_device(where, h, **{name: times})
    check_elapsed(where, name, times)
