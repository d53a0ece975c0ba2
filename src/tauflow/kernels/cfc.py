"""Closed-form cells over sequences on the CPU: what is served, and gradients around the loops."""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from tauflow.cells.cfc import CfCCell
from tauflow.cells.cfc_heads import Backbone, ClosedFormHeads

from .activation_codes import IDENTITY, Phi, code_of
from .blas import find_blas
from .cfc_arrays import Deltas, Form, Gaps, PureGradients, Tape, Weights, form_numbers
from .cpu_limits import cpu_limits
from .numba_threads import run_slices, slice_count
from .spec import KernelCall
from .workspace import empty


def cfc_limits(call: KernelCall) -> str | None:
    """Return why the compiled loops cannot serve the call."""
    cell = call.cell
    assert isinstance(cell, CfCCell)
    return loop_limits(call) or core_limits(cell.backbone, cell.heads)


def loop_limits(call: KernelCall) -> str | None:
    """Return why no compiled loop of closed-form cells can serve the call."""
    reason = cpu_limits(call)
    if reason is None and find_blas() is None:
        return "torch's CPU library shows no matrix product to compiled loops on this platform"
    return reason


def core_limits(backbone: Backbone | None, heads: ClosedFormHeads) -> str | None:
    """Return which option of a backbone or of heads the compiled loops lack."""
    phi = code_of(heads.phi)
    if heads.mode != "pure" and (phi is None or not phi.has_quadratic_slope):
        return "its compiled loops know the head activations tanh, lecun_tanh, sigmoid and identity"
    if backbone is None or not backbone.dense():
        return None
    if code_of(backbone.phi) is None:
        return "its compiled loops do not know this backbone activation"
    drops = backbone.dropout_first or len(backbone.dense()) > 1
    if backbone.training and backbone.dropout > 0 and drops:
        return "its compiled loops have no backbone dropout, which is active in training mode"
    return None


def run_cfc(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run a :class:`CfCCell`."""
    cell = call.cell
    assert isinstance(cell, CfCCell)
    return run_closed_form(call, call.x, call.h, cell.backbone, cell.heads)


def run_closed_form(
    call: KernelCall, x: Tensor, h: Tensor, backbone: Backbone | None, heads: ClosedFormHeads
) -> tuple[Tensor, Tensor]:
    """Run heads on a backbone over inputs (B, T, I) from state (B, N), with the call's gaps."""
    parameters = core_parameters(x, backbone, heads)
    y, last = ClosedFormLoop.apply(  # type: ignore[no-untyped-call]
        core_form(backbone, heads),
        needs_backward(x, h, call.dt, *parameters),
        call.mask,
        x,
        h,
        call.dt,
        *parameters,
    )
    return y, last


def needs_backward(*tensors: Tensor) -> bool:
    """Whether a backward pass may follow."""
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def core_form(backbone: Backbone | None, heads: ClosedFormHeads) -> Form:
    """Return the numbers by which the loops know the options."""
    phi = Phi(IDENTITY) if heads.mode == "pure" else code_of(heads.phi)
    layers = 0 if backbone is None else len(backbone.dense())
    outer = code_of(backbone.phi) if backbone is not None and layers else Phi(IDENTITY)
    assert phi is not None
    assert outer is not None
    blend, sign = np.float32(heads.mode == "default"), np.float32(heads.time_sign)
    return Form(layers, outer, heads.mode == "pure", phi, blend, sign, heads.time_bias)


class CoreParameters(NamedTuple):
    """Parameters of the loops as tensors; ``first`` reads [x; h], the others are of Weights."""

    first: Tensor
    first_bias: Tensor
    deep: Tensor
    deep_bias: Tensor
    heads: Tensor
    heads_bias: Tensor
    rate: Tensor
    amplitude: Tensor


def core_parameters(x: Tensor, backbone: Backbone | None, heads: ClosedFormHeads) -> CoreParameters:
    """Return the parameters, through operations that carry their gradients."""
    none = x.new_empty(0)
    weight: Tensor = heads.weight if heads.synapses is None else heads.weight * heads.synapses
    bias = heads.bias
    if heads.mode == "pure":
        rate = torch.where(heads.w_tau >= 0, heads.w_tau, -heads.w_tau)
        amplitude: Tensor = heads.A
    else:
        rate = amplitude = none
    layers = [] if backbone is None else backbone.dense()
    if not layers:
        return CoreParameters(
            weight,
            none,
            none.view(0, 0, 0),
            none.view(0, 0),
            none.view(0, 0),
            bias,
            rate,
            amplitude,
        )
    first, *deep = layers
    units = first.out_features
    return CoreParameters(
        first.weight,
        first.bias,
        torch.stack([d.weight for d in deep]) if deep else none.view(0, units, units),
        torch.stack([d.bias for d in deep]) if deep else none.view(0, units),
        weight,
        bias,
        rate,
        amplitude,
    )


def as_array(tensor: Tensor) -> Any:
    """Return the NumPy array on a tensor's memory."""
    return tensor.detach().contiguous().numpy()


_EMPTY = {
    (axes, dtype): np.empty((0,) * axes, dtype) for axes in (2, 3) for dtype in ("float32", "bool")
}


def array_or_empty(tensor: Tensor | None, axes: int, dtype: str = "float32") -> Any:
    """Return the NumPy array on a tensor's memory, or an empty one of as many axes."""
    return _EMPTY[axes, dtype] if tensor is None else as_array(tensor)


def as_weights(parameters: CoreParameters, inputs: int) -> Weights:
    """Return the parameters as arrays; the first layer's without the columns of ``inputs``."""
    first, *others = parameters
    return Weights(as_array(first[:, inputs:]), *(as_array(other) for other in others))


def time_first(x: Tensor) -> Tensor:
    """Return (B, T, I) as (T B, I)."""
    return x.transpose(0, 1).reshape(-1, x.shape[-1])


class CoreMemory(NamedTuple):
    """Tensors under a :class:`Tape`; ``first`` and ``heads`` are one where L is 0."""

    first: Tensor
    deep: Tensor
    slopes: Tensor
    heads: Tensor

    def tape(self) -> Tape:
        """Return the arrays."""
        return Tape(*(as_array(tensor) for tensor in self))


def core_memory(
    form: Form,
    steps: int,
    batch: int,
    parameters: CoreParameters,
    *,
    keep: bool,
    new: Callable[..., Tensor] = empty,
) -> CoreMemory:
    """Allocate what the loops write, for every step only if ``keep``, by ``new(*shape)``."""
    kept = steps if keep else 1
    rows = parameters.heads_bias.shape[0]
    width = rows if form.pure or form.time_bias else rows // 3 * 4
    units = parameters.first.shape[0] if form.layers else 0
    first = new(steps, batch, units or width)
    slopes = form.layers if keep and not form.backbone.shows_its_slope else 0
    return CoreMemory(
        first,
        new(max(form.layers - 1, 0), kept, batch, units),
        new(slopes, kept, batch, units),
        new(kept, batch, width) if form.layers else first,
    )


class CoreDeltas(NamedTuple):
    """Tensors under :class:`Deltas`."""

    first: Tensor
    deep: Tensor
    heads: Tensor


def core_deltas(form: Form, memory: CoreMemory) -> CoreDeltas:
    """Allocate what the backward loop writes; the heads' in place if the tape is not read again."""
    heads = empty(*memory.heads.shape) if graph_is_kept() else memory.heads
    first = empty(*memory.first.shape) if form.layers else heads
    return CoreDeltas(first, empty(*memory.deep.shape), heads)


def graph_is_kept() -> bool:
    """Whether the running backward pass may be followed by another one through the same graph."""
    kept = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", None)
    return kept is None or bool(kept())


def core_gradients(
    form: Form,
    memory: CoreMemory,
    deltas: CoreDeltas,
    parameters: CoreParameters,
    source: list[Tensor],
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None, Tensor | None, Tensor]:
    """Return the gradients of the first six :class:`CoreParameters`.

    Args:
        form: the closed form.
        memory: what the forward loop wrote.
        deltas: what the backward loop wrote.
        parameters: of the core.
        source: what the first layer read, side by side, (T B, ...) each.
    """
    first, heads = (
        first_rows(deltas, parameters),
        flat(deltas.heads)[:, : parameters.heads_bias.shape[0]],
    )
    to_first = torch.cat([first.T @ part for part in source], dim=1)
    if not form.layers:
        return to_first, None, None, None, None, heads.sum(0)
    values = [memory.first, *memory.deep]
    to_deep = to_deep_bias = None
    if form.layers > 1:
        below = zip(deltas.deep, values, strict=False)
        to_deep = torch.stack([flat(delta).T @ flat(z) for delta, z in below])
        to_deep_bias = deltas.deep.sum((1, 2))
    to_heads = heads.T @ flat(values[-1])
    return to_first, first.sum(0), to_deep, to_deep_bias, to_heads, heads.sum(0)


def first_rows(core: CoreMemory | CoreDeltas, parameters: CoreParameters) -> Tensor:
    """Return the products of the first layer, (T B, F), without room left for a missing t_b."""
    return flat(core.first)[:, : parameters.first.shape[0]]


def flat(tensor: Tensor) -> Tensor:
    """Return (T, B, F) as (T B, F)."""
    return tensor.view(-1, tensor.shape[-1])


def as_gaps(dt: Tensor, mask: Tensor | None, *, gradient: Tensor | None = None) -> Gaps:
    """Return gaps (B, T, 1) and mask (B, T) as arrays."""
    valid = array_or_empty(mask, 2, "bool")
    return Gaps(as_array(dt.squeeze(-1)), valid, array_or_empty(gradient, 2))


def input_gradient(rows: Tensor, steps: int) -> Tensor:
    """Return the gradient of the input, (B, T, I), from (T B, I)."""
    return rows.view(steps, -1, rows.shape[1]).transpose(0, 1)


@cache
def _loops() -> Any:
    """Import the compiled loops, which takes seconds where they have to be compiled."""
    from . import numba_cfc as loops
    from .numba_math import announce

    announce("CfC", loops.cfc_forward, loops.cfc_backward)
    return loops


class ClosedFormLoop(torch.autograd.Function):
    """The closed form over whole sequences; the arguments of ``apply`` are those of ``forward``."""

    @staticmethod
    def forward(
        ctx: Any,
        form: Form,
        keep: bool,
        mask: Tensor | None,
        x: Tensor,
        h: Tensor,
        dt: Tensor,
        *parameters: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Return the states (B, T, N) and the last one, (B, N)."""
        loops = _loops()
        packed = CoreParameters(*parameters)
        batch, steps, inputs = x.shape
        memory = core_memory(form, steps, batch, packed, keep=keep)
        rows = time_first(x)
        torch.mm(rows, packed.first[:, :inputs].T, out=first_rows(memory, packed))
        states = empty(steps + 1 if keep else 2, batch, h.shape[1])
        states[0] = h
        y = x.new_empty(batch, steps, h.shape[1])
        run_slices(
            loops.cfc_forward,
            batch,
            find_blas(),
            form_numbers(form),
            as_weights(packed, inputs),
            memory.tape(),
            as_gaps(dt, mask),
            keep,
            as_array(states),
            as_array(y),
        )
        if keep:
            ctx.form, ctx.mask = form, mask
            ctx.save_for_backward(rows, dt, states, *memory, *parameters)
            ctx.set_materialize_grads(False)
        return y, states[steps % states.shape[0]].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, pulls: Tensor | None, last: Tensor | None) -> tuple[Any, ...]:
        """Return the gradients of the inputs of ``forward``."""
        loops = _loops()
        rows, dt, states, *tensors = ctx.saved_tensors
        memory, parameters = CoreMemory(*tensors[:4]), CoreParameters(*tensors[4:])
        form, wants = ctx.form, ctx.needs_input_grad
        steps, batch = states.shape[0] - 1, states.shape[1]
        inputs = rows.shape[1]
        deltas = core_deltas(form, memory)
        carry = torch.zeros_like(states[0]) if last is None else last.clone()
        to_dt = dt.new_zeros(batch, steps) if wants[5] else None
        own = dt.new_zeros(2, slice_count(batch), parameters.rate.shape[0])
        run_slices(
            loops.cfc_backward,
            batch,
            find_blas(),
            form_numbers(form),
            as_weights(parameters, inputs),
            memory.tape(),
            Deltas(*(as_array(delta) for delta in deltas)),
            as_gaps(dt, ctx.mask, gradient=to_dt),
            array_or_empty(pulls, 3),
            as_array(carry),
            array_or_empty(None if ctx.mask is None else torch.empty_like(carry), 2),
            PureGradients(as_array(own[0]), as_array(own[1])),
        )
        to_x = None
        if wants[3]:
            to_x = input_gradient(
                first_rows(deltas, parameters) @ parameters.first[:, :inputs], steps
            )
        weights = core_gradients(form, memory, deltas, parameters, [rows, flat(states[:steps])])
        to_pure = (own[0].sum(0), own[1].sum(0)) if form.pure else (None, None)
        to_dt = None if to_dt is None else to_dt.unsqueeze(-1)
        return None, None, None, to_x, carry, to_dt, *weights, *to_pure
