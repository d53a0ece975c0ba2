"""What the kernels of the closed-form cells read and write.

Axes: T time, B batch, N neurons, U units of a backbone layer, L backbone layers, R width of what
the first layer reads at every step, F width of the first layer, K heads (4, or 1 in the pure form).
The first layer is the heads themselves if L is 0. Everything but outputs, gaps and masks is stored
with time first, so that a step of a slice of the batch is one block of memory.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from tauflow.cells.cfc_heads import MODES, CfCConfig, CfCParameters, cfc_step
from tauflow.cells.mixed_memory import MixedMemoryConfig, mixed_memory_update
from tauflow.kernels.cpu.binding import (
    ConstantArgument,
    input_array,
    input_array_or_empty,
)
from tauflow.kernels.engine.activations import (
    IDENTITY,
    ActivationCode,
    decode_activation,
    encode_activation,
    find_activation_code,
    has_slope_from_value,
)
from tauflow.kernels.engine.kernel_spec import OperatorKernel

Array = Any  # numpy arrays of float32, which numba types by itself

DEFAULT, NO_GATE, PURE = range(len(MODES))

KernelConfig = CfCConfig | MixedMemoryConfig


class CfCKernel(OperatorKernel):
    """What all programs for the closed form have in common."""

    @staticmethod
    def update(
        config: KernelConfig, h: Tensor, x: Tensor, dt: Tensor, *parameters: Tensor
    ) -> Tensor:
        """Take one step of the cell."""
        if isinstance(config, MixedMemoryConfig):
            return mixed_memory_update(config, h, x, dt, *parameters)
        return cfc_step(config, torch.cat([x, h], dim=-1), dt, *parameters)

    @staticmethod
    def encode(config: KernelConfig) -> list[str]:
        """Return a form as words."""
        core, memory, reads_state = split_config(config)
        outer = encode_activation(core.outer) if core.layers else 0
        phi = 0 if core.is_pure_mode else encode_activation(core.phi)
        kind = ("input" if reads_state else "state") if memory else "none"
        numbers = (core.layers, outer, phi, core.time_sign, int(core.time_bias))
        return [kind, core.mode, *map(str, numbers)]

    @staticmethod
    def decode(words: Sequence[str]) -> KernelConfig:
        """Return the form that :meth:`encode` wrote."""
        kind, mode, *numbers = words
        assert mode in MODES
        layers, outer, phi, sign, time_bias = map(int, numbers)
        phis = decode_activation(outer), decode_activation(phi)
        core = CfCConfig(layers, phis[0], mode, phis[1], sign, bool(time_bias))
        return core if kind == "none" else MixedMemoryConfig(core, kind == "input")


class CfCCode(NamedTuple):
    """A closed form in numbers.

    Args:
        layers: L.
        outer: activation of the backbone.
        mode: place in :data:`~tauflow.cells.cfc_heads.MODES`.
        phi: activation of the two state heads.
        sign: of the time in the gate.
        time_bias: whether t_b exists; its place in memory does in any case, and holds t_a.
    """

    layers: int
    outer: ActivationCode
    mode: int
    phi: ActivationCode
    sign: np.float32
    time_bias: bool

    @classmethod
    def from_config(cls, config: CfCConfig) -> "CfCCode":
        """Return a form in numbers."""
        outer = find_activation_code(config.outer) if config.layers else ActivationCode(IDENTITY)
        phi = ActivationCode(IDENTITY) if config.is_pure_mode else find_activation_code(config.phi)
        assert outer is not None
        assert phi is not None
        mode, sign = MODES.index(config.mode), np.float32(config.time_sign)
        return cls(config.layers, outer, mode, phi, sign, config.time_bias)


@cache
def pack_code(config: KernelConfig) -> ConstantArgument:
    """Return a form's code as an array, which costs Python far less to pass than nested tuples.

    The last number is 0 without a memory, else 1, or 2 if the core reads the state.
    """
    core, memory, reads_state = split_config(config)
    layers, outer, mode, phi, sign, time_bias = CfCCode.from_config(core)
    code = [layers, *outer, mode, *phi, sign, time_bias, int(memory) + int(reads_state)]
    return ConstantArgument(np.array(code, np.float32))


class CfCWeights(NamedTuple):
    """Parameters.

    Args:
        first: (F, R), the first layer.
        first_bias: (F,).
        deep: (L - 1, U, U), the other layers of the backbone.
        deep_bias: (L - 1, U).
        heads: (K N, U), without t_b (3 N, U); empty if L is 0.
        heads_bias: (K N,), or (3 N,).
        rate: (N,), |w_tau| of the pure form.
        amplitude: (N,), A of the pure form.
    """

    first: Array
    first_bias: Array
    deep: Array
    deep_bias: Array
    heads: Array
    heads_bias: Array
    rate: Array
    amplitude: Array


class CfCActivations(NamedTuple):
    """What the layers give at every step; all empty where no backward pass may follow.

    Args:
        first: (T, B, F), the first layer's values.
        deep: (L - 1, T, B, U), values of the other layers.
        slopes: (L, T, B, U), slopes of activations that do not show them; else empty.
        heads: (T, B, K N): phi(g), phi(h), p and t_a, or r of the pure form.
    """

    first: Array
    deep: Array
    slopes: Array
    heads: Array


class CfCPreactivationGrads(NamedTuple):
    """Gradients of the products, before bias and activation.

    Args:
        first: (T, B, F).
        deep: (L - 1, T, B, U).
        heads: (T, B, K N); may be the memory of the tape's.
        gates: (T, B, 4 N), of a memory; empty without one.
    """

    first: Array
    deep: Array
    heads: Array
    gates: Array


class CfCSequence(NamedTuple):
    """What every step reads beside the weights, and what it gives.

    Args:
        dt: (B, T).
        valid: (B, T) bool; empty if every step is.
        x: (B, T, I); going back, receives its gradient, or empty.
        out: (B, T, N), receives the states; going back their gradients, or empty.
        start: (B, S), the states before, with those of a memory; empty going back.
        last: (B, S), receives the last ones; empty going back.
        source: (T, B, R), receives what the core's first layer reads: [x; h], or beside a memory
            [x; u] or [u; h]; empty if no backward pass may follow.
        rows: (T, B, I + N), receives [x; h] of a memory for its backward pass; or empty.
    """

    dt: Array
    valid: Array
    x: Array
    out: Array
    start: Array
    last: Array
    source: Array
    rows: Array


class CfCGradCarry(NamedTuple):
    """What the loop back carries from step to step, or adds up.

    Args:
        h: (B, N), gradient of the last state; becomes that of the first.
        c: (B, N), the same of a memory; empty without one.
        dt: (B, T), receives the gradient of the gaps; empty if not wanted.
        sums: (slices, W), gradients of rate and amplitude of the pure form, and of the biases of
            first layer and heads, side by side.
    """

    h: Array
    c: Array
    dt: Array
    sums: Array


class CfCLSTMArrays(NamedTuple):
    """A memory beside a core; all empty without one.

    Args:
        input: (4 N, I), the weights W_x of the gates i, f, g, o.
        recurrent: (4 N, N), W_h.
        bias: (4 N,), b with the constant of the forget gate added.
        gates: (T, B, 4 N), receives i, f, g, o; empty if no backward pass may follow.
        c: (T + 1, B, N), the memory, its initial value first; empty likewise.
    """

    input: Array
    recurrent: Array
    bias: Array
    gates: Array
    c: Array


def pack_weights(parameters: Sequence[Tensor], networks: int = 0) -> CfCWeights:
    """Return the :class:`~tauflow.cells.cfc_heads.CfCParameters` as arrays.

    Args:
        parameters: of a network, or of several.
        networks: how many axes of networks they have in front.
    """
    # what there is not, such as deeper layers, is half of them
    return CfCWeights(
        *[input_array(one) if one.numel() else EMPTY[one.ndim - networks] for one in parameters]
    )


EMPTY = {axes: ConstantArgument(input_array_or_empty(None, axes)) for axes in (1, 2, 3, 4)}
"""Arrays without entries, by their number of axes."""


def flatten_time_first(x: Tensor) -> Tensor:
    """Return a copy of (B, T, I) as (T B, I)."""
    return x.transpose(0, 1).clone(memory_format=torch.contiguous_format).view(-1, x.shape[-1])


class CoreActivations(NamedTuple):
    """Tensors under a :class:`CfCActivations`; ``first`` and ``heads`` are one where L is 0."""

    first: Tensor
    deep: Tensor
    slopes: Tensor
    heads: Tensor

    def to_arrays(self) -> CfCActivations:
        """Return the arrays."""
        return CfCActivations(*self)

    @classmethod
    def from_tensors(cls, config: CfCConfig, tensors: Sequence[Tensor]) -> "CoreActivations":
        """Return the activations of which these are the tensors that do not share memory."""
        first, deep, slopes, *heads = tensors
        return cls(first, deep, slopes, heads[0] if config.layers else first)

    def unique_tensors(self) -> tuple[Tensor, ...]:
        """Return the tensors, none of them twice."""
        return self[: 3 if self.heads is self.first else 4]


def get_tape_shapes(
    config: CfCConfig, steps: int, batch: int, parameters: CfCParameters
) -> tuple[tuple[int, ...], ...]:
    """Return the shapes of a :class:`CfCActivations`; of the heads without entries if L is 0."""
    rows, layers = parameters.heads_bias.shape[0], config.layers
    width = rows if config.is_pure_mode or config.time_bias else rows // 3 * 4
    units = parameters.first.shape[0] if layers else 0
    slopes = 0 if _has_slope_from_value(config) else layers
    return (
        (steps, batch, units or width),
        (max(layers - 1, 0), steps, batch, units),
        (slopes, steps, batch, units),
        (steps if layers else 0, batch, width),
    )


def allocate_activations(
    config: CfCConfig,
    steps: int,
    batch: int,
    parameters: CfCParameters,
    *,
    saves_all_steps: bool,
    allocate: Callable[..., Tensor],
) -> CoreActivations:
    """Allocate what the loops write by ``allocate(*shape)``; if not all, the first layer alone."""
    shapes = get_tape_shapes(config, steps, batch, parameters)
    if not saves_all_steps:
        kept = get_tape_shapes(config, 1, batch, parameters)
        shapes = shapes[0], kept[1], (0, *kept[2][1:]), kept[3]
    first, deep, slopes, heads = (allocate(*shape) for shape in shapes)
    return CoreActivations(first, deep, slopes, heads if config.layers else first)


class CorePreactivationGrads(NamedTuple):
    """Tensors under :class:`CfCPreactivationGrads`."""

    first: Tensor
    deep: Tensor
    heads: Tensor


def allocate_preactivation_grads(
    config: CfCConfig,
    activations: CoreActivations,
    allocate: Callable[..., Tensor],
    *,
    in_place: bool = False,
) -> CorePreactivationGrads:
    """Allocate what the backward loop writes; the heads' in place if the tape is not read again."""
    heads = activations.heads if in_place else allocate(*activations.heads.shape)
    first = allocate(*activations.first.shape) if config.layers else heads
    return CorePreactivationGrads(first, allocate(*activations.deep.shape), heads)


@cache
def _has_slope_from_value(config: CfCConfig) -> bool:
    return has_slope_from_value(CfCCode.from_config(config).outer)


def compute_core_gradients(
    config: CfCConfig,
    activations: CoreActivations,
    preactivation_grads: CorePreactivationGrads,
    parameters: CfCParameters,
    source: list[Tensor],
    biases: Sequence[Tensor | None] = (),
) -> list[Tensor | None]:
    """Return the gradients of the first six :class:`CfCParameters`.

    Args:
        config: the closed form.
        activations: what the forward loop wrote.
        preactivation_grads: what the backward loop wrote.
        parameters: of the core.
        source: what the first layer read, side by side, (T B, ...) each.
        biases: the gradients of first_bias and heads_bias, if the loop has added them up.
    """
    first = get_first_layer_rows(preactivation_grads, parameters)
    heads = _first_columns(preactivation_grads.heads, parameters.heads_bias.shape[0])
    if len(source) == 1:
        grad_first = first.T @ source[0]
    else:
        grad_first = torch.cat([first.T @ part for part in source], dim=1)
    grad_first_bias, grad_heads_bias = biases or [rows.sum(0) for rows in (first, heads)]
    if not config.layers:
        return [grad_first, None, None, None, None, grad_heads_bias]
    values = [activations.first, *activations.deep]
    grad_deep = grad_deep_bias = None
    if config.layers > 1:
        below = zip(preactivation_grads.deep, values, strict=False)
        grad_deep = torch.stack([flatten_steps(delta).T @ flatten_steps(z) for delta, z in below])
        grad_deep_bias = preactivation_grads.deep.sum((1, 2))
    grad_heads = heads.T @ flatten_steps(values[-1])
    return [grad_first, grad_first_bias, grad_deep, grad_deep_bias, grad_heads, grad_heads_bias]


def get_first_layer_rows(
    core: CoreActivations | CorePreactivationGrads, parameters: CfCParameters
) -> Tensor:
    """Return the products of the first layer, (T B, F), without room left for a missing t_b."""
    return _first_columns(core.first, parameters.first.shape[0])


def _first_columns(tensor: Tensor, count: int) -> Tensor:
    rows = flatten_steps(tensor)
    return rows if rows.shape[1] == count else rows[:, :count]


def flatten_steps(tensor: Tensor) -> Tensor:
    """Return (T, B, F) as (T B, F)."""
    return tensor.view(-1, tensor.shape[-1])


def split_config(config: KernelConfig) -> tuple[CfCConfig, bool, bool]:
    """Return the core's form, whether a memory stands beside it, and whether it reads the state."""
    if isinstance(config, MixedMemoryConfig):
        return config.core, True, config.reads_state
    return config, False, False


def count_input_columns(config: KernelConfig, x: Tensor) -> int:
    """Return how many columns of the first layer read the input itself."""
    return 0 if isinstance(config, MixedMemoryConfig) and config.reads_state else x.shape[-1]
