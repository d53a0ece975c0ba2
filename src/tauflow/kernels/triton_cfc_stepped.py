"""Closed-form cells step by step: matrix products of torch, and one launch for what is between.

Everything is allocated before the first step and nothing waits for the device, so that a sequence
can be captured as a CUDA graph.
"""

import torch
from torch import Tensor

from .triton_cfc_core import Core, Gradients, Results
from .triton_ltc_plan import options

_ELEMENTS = 1024
_NEURONS = 256


def forward_by_steps(core: Core, h: Tensor, results: Results) -> None:
    """Run the sequences from states h, (B, N)."""
    from .triton_steps import heads_forward, layer_forward, memory_forward

    (T, B, _), N = core.tape.first.shape, core.neurons
    tape, parameters, memory = core.tape, core.parameters, core.memory
    state = h.to(torch.float32, copy=True)
    operand = state if tape.first.dtype is torch.float32 else state.to(tape.first.dtype)
    source, cell = operand, None
    if memory is not None:
        cell = memory.start.to(torch.float32, copy=True)
        source = operand.new_empty(B, core.recurrent.shape[1])
    mask = core.dt if core.mask is None else core.mask
    closed, outer = core.closed_form(), core.backbone()
    columns = -(-N // _NEURONS)

    def activated(values: Tensor, layer: int, t: int) -> Tensor:
        slopes = tape.slopes[layer, t] if len(tape.slopes) else values
        grid = (-(-values.numel() // _ELEMENTS),)
        flags = {"SLOPES": len(tape.slopes) > 0, "BLOCK": _ELEMENTS, **options(4)}
        layer_forward[grid](values, slopes, values.numel(), *outer, **flags)
        return values

    for t in range(T):
        if memory is not None:
            memory.gates[t].addmm_(operand, memory.weights.T)
            memory_forward[B, columns](
                memory.gates[t],
                cell,
                memory.cells[t],
                mask,
                source,
                operand,
                t,
                T,
                N,
                source.shape[1],
                READS_STATE=memory.reads_state,
                MASKED=core.mask is not None,
                BLOCK=_NEURONS,
                **options(4),
            )
        row = tape.heads[t % tape.heads.shape[0]]
        if core.form.layers:
            z = activated(tape.first[t].addmm_(source, core.recurrent.T), 0, t)
            for layer, values in enumerate(tape.deep):
                value = values[t % values.shape[0]]
                torch.addmm(parameters.deep_bias[layer], z, parameters.deep[layer].T, out=value)
                z = activated(value, layer + 1, t)
            torch.addmm(parameters.heads_bias, z, parameters.heads.T, out=row[:, : core.rows])
        else:
            row[:, : core.rows].addmm_(source, core.recurrent.T)
        heads_forward[B, columns](
            row,
            parameters.rate,
            parameters.amplitude,
            core.dt,
            mask,
            state,
            operand,
            results.out,
            t,
            T,
            B,
            N,
            row.shape[1],
            **closed,
            BLOCK=_NEURONS,
            **options(4),
        )
    results.last.copy_(state)
    if cell is not None:
        results.last_c.copy_(cell)


def backward_by_steps(core: Core, gradients: Gradients) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Run the sequences backwards; return what :func:`.triton_cfc_launch.run_backward` does."""
    from .triton_steps import heads_backward, layer_backward, memory_backward

    (T, B, _), N = core.tape.first.shape, core.neurons
    tape, parameters, memory, deltas = core.tape, core.parameters, core.memory, gradients.deltas
    to_state = gradients.last.to(torch.float32, copy=True)
    to_memory = gradients.last_c.to(torch.float32, copy=True)
    pulled = tape.first.new_zeros(B, N)
    to_z = tape.first.new_empty(B, core.units)
    to_source = tape.first.new_empty(B, core.recurrent.shape[1])
    g_rate, g_amplitude = core.dt.new_zeros(2, B if core.form.pure else 0, N)
    mask = core.dt if core.mask is None else core.mask
    closed, outer = core.closed_form(), core.backbone()
    columns = -(-N // _NEURONS)

    def before(values: Tensor, layer: int, t: int, delta: Tensor) -> Tensor:
        seen = tape.slopes[layer, t] if len(tape.slopes) else values
        grid = (-(-delta.numel() // _ELEMENTS),)
        flags = {"SLOPES": len(tape.slopes) > 0, "BLOCK": _ELEMENTS, **options(4)}
        layer_backward[grid](to_z, seen, delta, delta.numel(), *outer, **flags)
        return delta

    for t in reversed(range(T)):
        heads_backward[(B,)](
            tape.heads[t],
            parameters.rate,
            parameters.amplitude,
            core.dt,
            mask,
            gradients.out,
            to_state,
            pulled,
            deltas.heads[t],
            gradients.dt,
            g_rate,
            g_amplitude,
            t,
            T,
            B,
            N,
            tape.heads.shape[2],
            **closed,
            GAPS=len(gradients.dt) > 0,
            BLOCK=_NEURONS,
            **options(4),
        )
        delta = deltas.heads[t, :, : core.rows]
        if core.form.layers:
            torch.mm(delta, parameters.heads, out=to_z)
            for layer in reversed(range(core.form.layers - 1)):
                delta = before(tape.deep[layer, t], layer + 1, t, deltas.deep[layer, t])
                torch.mm(delta, parameters.deep[layer], out=to_z)
            delta = before(tape.first[t], 0, t, deltas.first[t])
        torch.mm(delta, core.recurrent, out=pulled if memory is None else to_source)
        if memory is not None:
            memory_backward[B, columns](
                memory.gates[t],
                memory.cells[t],
                memory.cells[t - 1] if t else memory.start,
                mask,
                to_source,
                to_memory,
                gradients.gates[t],
                to_state,
                t,
                T,
                N,
                to_source.shape[1],
                READS_STATE=memory.reads_state,
                MASKED=core.mask is not None,
                BLOCK=_NEURONS,
                **options(4),
            )
            torch.mm(gradients.gates[t], memory.weights, out=pulled)
    return (to_state + pulled).to(gradients.last.dtype), to_memory, g_rate, g_amplitude
