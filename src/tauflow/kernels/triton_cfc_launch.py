"""Launches of the closed-form kernels that take whole sequences."""

import torch
from torch import Tensor

from .triton_cfc_core import Core, Gradients, Results
from .triton_cfc_plan import PERSISTENT, ROWS
from .triton_cfc_stepped import backward_by_steps, forward_by_steps


def run_forward(core: Core, h: Tensor, results: Results, *, keep: bool) -> None:
    """Run the sequences from states h, (B, N)."""
    if core.way == PERSISTENT:
        _forward_at_once(core, h, results, keep)
    else:
        forward_by_steps(core, h, results, keep=keep)


def run_backward(core: Core, gradients: Gradients) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Run the sequences backwards.

    Returns:
        Gradients of the first state and memory, (B, N), and of rate and amplitude, (..., N).
    """
    if core.way == PERSISTENT:
        return _backward_at_once(core, gradients)
    return backward_by_steps(core, gradients)


def _memory_tensors(core: Core) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return gates, cells, weights and start; some other tensor in place of none."""
    if core.memory is None:
        return (core.dt,) * 4
    return core.memory[:4]


def _forward_at_once(core: Core, h: Tensor, results: Results, keep: bool) -> None:
    from .triton_cfc_forward import cfc_forward

    parameters, (T, B, _) = core.parameters, core.tape.first.shape
    gates, cells, weights, start = _memory_tensors(core)
    cfc_forward[(-(-B // ROWS),)](
        *core.tape,
        core.recurrent,
        *parameters[2:],
        h,
        core.dt,
        core.dt if core.mask is None else core.mask,
        results.out,
        results.last,
        gates,
        cells,
        weights,
        start,
        results.last_c,
        B,
        T,
        core.neurons,
        core.units,
        core.tape.heads.shape[2],
        KEEP=keep,
        **core.layers(),
    )


def _backward_at_once(core: Core, gradients: Gradients) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    from .triton_cfc_backward import cfc_backward

    parameters, (T, B, _), N = core.parameters, core.tape.first.shape, core.neurons
    gates, cells, weights, start = _memory_tensors(core)
    programs = -(-B // ROWS)
    g_h, g_c = torch.empty_like(gradients.last), torch.empty_like(gradients.last_c)
    g_rate, g_amplitude = core.dt.new_empty(2, programs if core.form.pure else 0, N)
    cfc_backward[(programs,)](
        *core.tape,
        core.recurrent,
        parameters.deep,
        parameters.heads,
        parameters.rate,
        parameters.amplitude,
        core.dt,
        core.dt if core.mask is None else core.mask,
        gradients.out,
        gradients.last,
        g_h,
        gradients.dt,
        g_rate,
        g_amplitude,
        *gradients.deltas,
        gates,
        cells,
        weights,
        start,
        gradients.last_c,
        g_c,
        gradients.gates,
        B,
        T,
        N,
        core.units,
        core.tape.heads.shape[2],
        GAPS=len(gradients.dt) > 0,
        **core.layers(),
    )
    return g_h, g_c, g_rate, g_amplitude
