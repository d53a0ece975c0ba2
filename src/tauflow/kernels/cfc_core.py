"""Closed-form cores as the loops over them take them: parameters, memory and gradients."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from tauflow.cells.cfc_heads import Backbone, ClosedFormHeads

from .activation_codes import IDENTITY, Phi, code_of
from .cfc_arrays import Deltas, Form, Gaps, Tape, Weights
from .cpu_arrays import as_array, written
from .guard import read
from .workspace import empty


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


def head_parameters(backbone: Backbone | None, heads: ClosedFormHeads) -> tuple[Tensor, Tensor]:
    """Return weight and bias of the heads, without the synapses that a wiring leaves out."""
    rows, synapses = heads.blocks * heads.hidden_size, heads.synapses
    bias = read(heads, "bias", rows)
    if synapses is None:
        assert backbone is not None
        return read(heads, "weight", rows, backbone.out_features), bias
    shape = rows, synapses.shape[1]
    return read(heads, "weight", *shape) * read(heads, "synapses", *shape), bias


def dense_parameters(layer: nn.Linear) -> tuple[Tensor, Tensor]:
    """Return weight and bias of a layer."""
    weight = read(layer, "weight", layer.out_features, layer.in_features)
    return weight, read(layer, "bias", layer.out_features)


def core_parameters(x: Tensor, backbone: Backbone | None, heads: ClosedFormHeads) -> CoreParameters:
    """Return the parameters, through operations that carry their gradients."""
    none = x.new_empty(0)
    weight, bias = head_parameters(backbone, heads)
    rate = amplitude = none
    if heads.mode == "pure":
        w_tau, amplitude = (read(heads, name, heads.hidden_size) for name in _PURE)
        rate = torch.where(w_tau >= 0, w_tau, -w_tau)
    layers = [] if backbone is None else [dense_parameters(layer) for layer in backbone.dense()]
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
    units = first[1].shape[0]
    return CoreParameters(
        *first,
        torch.stack([W for W, _ in deep]) if deep else none.view(0, units, units),
        torch.stack([b for _, b in deep]) if deep else none.view(0, units),
        weight,
        bias,
        rate,
        amplitude,
    )


_PURE = ("w_tau", "A")
_EMPTY = {
    (axes, dtype): np.empty((0,) * axes, dtype) for axes in (2, 3) for dtype in ("float32", "bool")
}


def array_or_empty(tensor: Tensor | None, axes: int, dtype: str = "float32") -> Any:
    """Return the array of a tensor to read, or an empty one of as many axes."""
    return _EMPTY[axes, dtype] if tensor is None else as_array(tensor)


def written_or_empty(tensor: Tensor | None) -> Any:
    """Return the array on a tensor's own memory, or an empty one of two axes."""
    return _EMPTY[2, "float32"] if tensor is None else written(tensor)


def as_weights(parameters: CoreParameters, inputs: int) -> Weights:
    """Return the parameters as arrays; the first layer's without the columns of ``inputs``."""
    first, *others = parameters
    return Weights(as_array(first[:, inputs:]), *(as_array(other) for other in others))


def time_first(x: Tensor) -> Tensor:
    """Return (B, T, I) as (T B, I)."""
    return x.transpose(0, 1).reshape(-1, x.shape[-1])


def batch_first(rows: Tensor, steps: int) -> Tensor:
    """Return (T B, I) as (B, T, I)."""
    return rows.view(steps, -1, rows.shape[1]).transpose(0, 1)


class CoreMemory(NamedTuple):
    """Tensors under a :class:`Tape`; ``first`` and ``heads`` are one where L is 0."""

    first: Tensor
    deep: Tensor
    slopes: Tensor
    heads: Tensor

    def tape(self) -> Tape:
        """Return the arrays."""
        return Tape(*(written(tensor) for tensor in self))


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
    """Tensors under :class:`~tauflow.kernels.cfc_arrays.Deltas`."""

    first: Tensor
    deep: Tensor
    heads: Tensor

    def arrays(self) -> Deltas:
        """Return the arrays."""
        return Deltas(*(written(tensor) for tensor in self))


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
    return Gaps(as_array(dt.squeeze(-1)), valid, written_or_empty(gradient))
