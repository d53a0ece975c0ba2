"""The closed-form kernels as operators of torch, with shapes to trace by and gradients."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tauflow.cells.cfc_heads import MODES, Backbone, ClosedFormHeads

from .activation_codes import number_of, phi_of
from .cfc_arrays import Form
from .cfc_core import (
    CoreDeltas,
    CoreMemory,
    CoreParameters,
    batch_first,
    core_gradients,
    core_memory,
    first_rows,
    flat,
    time_first,
)
from .cfc_plain import plain_closed_form
from .kept import save_for_backward, saved_tensors
from .replay import must_replay, replay
from .triton_cfc_core import Core, Gradients, Memory, Results
from .triton_cfc_launch import run_backward, run_forward
from .triton_limits import on_device

_INPUTS = 15  # arguments that may have gradients


def encode_form(backbone: Backbone | None, heads: ClosedFormHeads) -> list[int]:
    """Return the options of a core as an operator takes them."""
    layers = 0 if backbone is None else len(backbone.dense())
    outer = number_of(backbone.phi) if backbone is not None and layers else 0
    pure = heads.mode == "pure"
    inner = 0 if pure else number_of(heads.phi)
    return [layers, outer, MODES.index(heads.mode), inner, heads.time_sign, int(heads.time_bias)]


def _form(numbers: Sequence[int]) -> Form:
    """Return the form that was encoded."""
    layers, outer, mode, inner, sign, time_bias = numbers
    name = MODES[mode]
    return Form(
        layers,
        phi_of(outer),
        name == "pure",
        phi_of(inner),
        np.float32(name == "default"),
        np.float32(sign),
        bool(time_bias),
    )


@torch.library.custom_op("tauflow::closed_form_sequence", mutates_args=())
def closed_form_sequence(
    x: Tensor,
    h: Tensor,
    dt: Tensor,
    first: Tensor,
    first_bias: Tensor,
    deep: Tensor,
    deep_bias: Tensor,
    heads: Tensor,
    heads_bias: Tensor,
    rate: Tensor,
    amplitude: Tensor,
    c: Tensor | None,
    W_x: Tensor | None,
    W_h: Tensor | None,
    b: Tensor | None,
    mask: Tensor | None,
    form: Sequence[int],
    precision: str,
    reads_state: bool,
    way: str,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Run a closed form over whole sequences, beside a memory if there is one.

    Args:
        x: inputs, (B, T, I); its dtype is that of all factors of matrix products.
        h: state before the first step, (B, N); its dtype is that of the results.
        dt: gaps, (B, T), float32.
        first, first_bias, deep, deep_bias, heads, heads_bias, rate, amplitude: the
            :class:`~tauflow.kernels.cfc_core.CoreParameters`.
        c, W_x, W_h, b: the memory before the first step, (B, N), and the parameters of its gates.
        mask: (B, T), false where a step keeps state and memory.
        form: the closed form, as :func:`encode_form` writes it.
        precision: of products of float32 tiles.
        reads_state: whether a core beside a memory reads the state too.
        way: of running it, one of :mod:`.triton_cfc_plan`.
        keep: whether a backward pass may follow.

    Returns:
        The states (B, T, N), the last one and the last memory (B, N), and what the backward pass
        reads: the :class:`~tauflow.kernels.cfc_core.CoreMemory`, gates and memories. What does not
        exist is empty.
    """
    parameters = CoreParameters(
        first, first_bias, deep, deep_bias, heads, heads_bias, rate, amplitude
    )
    inputs, closed = x.shape[2], _form(form)
    tape, results, gates, cells = _allocate(x, h, dt, parameters, c, closed, keep=keep)
    rows = time_first(x)
    own = 0 if reads_state else inputs  # columns of the first layer that read the input
    bias = first_bias if closed.layers else heads_bias
    with on_device(x):
        torch.addmm(bias, rows[:, :own], first[:, :own].T, out=first_rows(tape, parameters))
        memory = None
        if c is not None:
            assert W_x is not None
            assert W_h is not None
            assert b is not None
            torch.addmm(b, rows, W_x.T, out=flat(gates))
            memory = Memory(gates, cells, W_h.contiguous(), c.contiguous(), reads_state)
        core = _core(closed, precision, way, parameters, own, tape, dt, mask, memory)
        run_forward(core, h.contiguous(), results, keep=keep)
    return (*results, *_kept(closed, tape, gates, cells, keep=keep))


@closed_form_sequence.register_fake
def _(
    x: Tensor,
    h: Tensor,
    dt: Tensor,
    first: Tensor,
    first_bias: Tensor,
    deep: Tensor,
    deep_bias: Tensor,
    heads: Tensor,
    heads_bias: Tensor,
    rate: Tensor,
    amplitude: Tensor,
    c: Tensor | None,
    W_x: Tensor | None,
    W_h: Tensor | None,
    b: Tensor | None,
    mask: Tensor | None,
    form: Sequence[int],
    precision: str,
    reads_state: bool,
    way: str,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    parameters = CoreParameters(
        first, first_bias, deep, deep_bias, heads, heads_bias, rate, amplitude
    )
    closed = _form(form)
    tape, results, gates, cells = _allocate(x, h, dt, parameters, c, closed, keep=keep)
    return (*results, *_kept(closed, tape, gates, cells, keep=keep))


def _allocate(
    x: Tensor,
    h: Tensor,
    dt: Tensor,
    parameters: CoreParameters,
    c: Tensor | None,
    form: Form,
    *,
    keep: bool,
) -> tuple[CoreMemory, Results, Tensor, Tensor]:
    """Return tape, results, gates and cells, to be written."""
    (B, T, _), N = x.shape, h.shape[1]
    tape = core_memory(form, T, B, parameters, keep=keep, new=x.new_empty)
    rows = 0 if c is None else B
    results = Results(h.new_empty(B, T, N), h.new_empty(B, N), h.new_empty(rows, N))
    return tape, results, x.new_empty(T, rows, 4 * N), dt.new_empty(T, rows, N)


def _kept(
    form: Form, tape: CoreMemory, gates: Tensor, cells: Tensor, *, keep: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return what the backward pass reads; an operator must not return one tensor twice."""
    if not keep:
        return (*(gates.new_empty(0) for _ in range(5)), cells.new_empty(0))  # type: ignore[return-value]
    heads = tape.heads if form.layers else gates.new_empty(0)
    return tape.first, tape.deep, tape.slopes, heads, gates, cells


def _core(
    form: Form,
    precision: str,
    way: str,
    parameters: CoreParameters,
    own: int,
    tape: CoreMemory,
    dt: Tensor,
    mask: Tensor | None,
    memory: Memory | None,
) -> Core:
    recurrent = parameters.first[:, own:].contiguous()
    whole = CoreParameters(*(parameter.contiguous() for parameter in parameters))
    valid = None if mask is None else mask.contiguous().view(torch.uint8)
    return Core(form, precision, way, whole, recurrent, tape, dt.contiguous(), valid, memory)


@torch.library.custom_op("tauflow::closed_form_sequence_backward", mutates_args=())
def closed_form_sequence_backward(
    x: Tensor,
    h: Tensor,
    dt: Tensor,
    parameters: Sequence[Tensor],
    c: Tensor | None,
    W_x: Tensor | None,
    W_h: Tensor | None,
    mask: Tensor | None,
    y: Tensor,
    kept: Sequence[Tensor],
    g_y: Tensor,
    g_last: Tensor,
    g_last_c: Tensor,
    form: Sequence[int],
    precision: str,
    reads_state: bool,
    way: str,
    wants_x: bool,
    wants_dt: bool,
) -> list[Tensor]:
    """Return the gradients of the first fifteen arguments of :func:`closed_form_sequence`.

    Those not wanted, and of what does not exist, are empty.
    """
    closed, named = _form(form), CoreParameters(*parameters)
    (B, T, inputs), N = x.shape, h.shape[1]
    own = 0 if reads_state else inputs
    values, deep_values, slopes, head_values, gates, cells = kept
    tape = CoreMemory(values, deep_values, slopes, head_values if closed.layers else values)
    deltas = _deltas(closed, tape)
    to_gates, g_dt = torch.empty_like(gates), dt.new_empty(B if wants_dt else 0, T)
    with on_device(x):
        memory = None
        if c is not None:
            assert W_h is not None
            memory = Memory(gates, cells, W_h.contiguous(), c.contiguous(), reads_state)
        core = _core(closed, precision, way, named, own, tape, dt, mask, memory)
        pulls = (g_y.contiguous(), g_last.contiguous(), g_last_c.contiguous())
        g_h, g_c, g_rate, g_amplitude = run_backward(
            core, Gradients(*pulls, deltas, to_gates, g_dt)
        )
        rows = time_first(x)
        before = torch.cat([h.to(x.dtype).unsqueeze(0), y.transpose(0, 1)[:-1].to(x.dtype)])
        source = [rows, flat(before)]
        if c is not None:
            u = flat(gates)[:, 3 * N :] * flat(cells).tanh().to(x.dtype)
            source = [u, flat(before)] if reads_state else [rows, u]
        g_parameters = core_gradients(closed, tape, deltas, named, source)
        g_x = first_rows(deltas, named) @ named.first[:, :own] if wants_x else rows.new_empty(0)
        g_memory = [x.new_empty(0) for _ in range(3)]
        if c is not None:
            assert W_x is not None
            pulled = flat(to_gates)
            g_memory = [pulled.T @ rows, pulled.T @ flat(before), pulled.sum(0)]
            if wants_x:
                g_x = torch.addmm(g_x, pulled, W_x) if own else pulled @ W_x
    found = (
        g if g is not None else torch.empty_like(p)
        for g, p in zip(g_parameters, named, strict=False)
    )
    return [
        batch_first(g_x, T).contiguous() if wants_x else g_x,
        g_h,
        g_dt,
        *found,
        *(part.sum(0) if closed.pure else part.new_empty(0) for part in (g_rate, g_amplitude)),
        g_c,
        *g_memory,
    ]


@closed_form_sequence_backward.register_fake
def _(
    x: Tensor,
    h: Tensor,
    dt: Tensor,
    parameters: Sequence[Tensor],
    c: Tensor | None,
    W_x: Tensor | None,
    W_h: Tensor | None,
    mask: Tensor | None,
    y: Tensor,
    kept: Sequence[Tensor],
    g_y: Tensor,
    g_last: Tensor,
    g_last_c: Tensor,
    form: Sequence[int],
    precision: str,
    reads_state: bool,
    way: str,
    wants_x: bool,
    wants_dt: bool,
) -> list[Tensor]:
    (B, T, _), N = x.shape, h.shape[1]
    gates = [x.new_empty(0)] * 3 if W_x is None or W_h is None else [W_x, W_h, W_x[:, 0]]
    return [
        x.new_empty(x.shape if wants_x else (0,)),
        h.new_empty(B, N),
        dt.new_empty(B if wants_dt else 0, T),
        *(parameter.new_empty(parameter.shape) for parameter in parameters),
        g_last_c.new_empty(g_last_c.shape),
        *(gate.new_empty(gate.shape) for gate in gates),
    ]


def _deltas(form: Form, tape: CoreMemory) -> CoreDeltas:
    heads = torch.empty_like(tape.heads)
    first = torch.empty_like(tape.first) if form.layers else heads
    return CoreDeltas(first, torch.empty_like(tape.deep), heads)


def _keep_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    y, _, last_c, *kept = output
    save_for_backward(ctx, *inputs[:_INPUTS], inputs[_INPUTS], y, *kept)
    ctx.options, ctx.memory_shape = inputs[_INPUTS + 1 : -1], last_c.shape
    ctx.set_materialize_grads(False)  # the tape's would be as large as the tape


def _backward(ctx: Any, *pulls: Tensor | None) -> tuple[Any, ...]:
    saved = saved_tensors(ctx)  # once: a checkpoint unpacks no tensor twice
    inputs, (mask, y, *kept) = saved[:_INPUTS], saved[_INPUTS:]
    pulls, wanted = pulls[:3], ctx.needs_input_grad[:_INPUTS]
    if must_replay(pulls):
        plain = partial(_plain, ctx.options, mask)
        return *replay(plain, inputs, wanted, pulls), *(None,) * 6
    x, h, dt, *parameters = inputs[:11]
    c, W_x, W_h, _ = inputs[11:]
    g_y, g_last, g_last_c = pulls
    gradients = closed_form_sequence_backward(
        x,
        h,
        dt,
        parameters,
        c,
        W_x,
        W_h,
        mask,
        y,
        kept,
        torch.zeros_like(y) if g_y is None else g_y,
        torch.zeros_like(h) if g_last is None else g_last,
        h.new_zeros(ctx.memory_shape) if g_last_c is None else g_last_c,
        *ctx.options,
        wanted[0],
        wanted[2],
    )
    found = [g if want else None for g, want in zip(gradients, wanted, strict=True)]
    return (*found, *(None,) * 6)


def _plain(options: Sequence[Any], mask: Tensor | None, *inputs: Tensor | None) -> Any:
    """Return the results through operations that autograd knows, in the state's dtype."""
    form, _, reads_state, _ = options
    x, h, dt, *others = (None if tensor is None else tensor.float() for tensor in inputs)
    assert x is not None
    assert h is not None
    assert dt is not None
    present = [tensor for tensor in others if tensor is not None]
    parameters, memory = CoreParameters(*present[:8]), present[8:]
    results = plain_closed_form(_form(form), reads_state, mask, x, h, dt, parameters, memory)
    stored = inputs[1]
    assert stored is not None
    return tuple(result.to(stored.dtype) for result in results)


closed_form_sequence.register_autograd(_backward, setup_context=_keep_for_backward)
