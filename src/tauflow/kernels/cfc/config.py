"""What the kernels of the closed-form cells read and write.

Axes: T time, B batch, N neurons, U units of a backbone layer, L backbone layers, R width of what
the first layer reads at every step, F width of the first layer, K heads (4, or 1 in the pure form).
The first layer is the heads themselves if L is 0. Everything but outputs, time steps and masks is
stored with time first, so that a step of a slice of the batch is one block of memory.
"""

from collections.abc import Callable, Sequence
from functools import cache
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from tauflow.cells.cfc_heads import MODES, CfCConfig, cfc_step
from tauflow.cells.mixed_memory import MixedMemoryConfig, mixed_memory_update
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


class CfCWeights(NamedTuple):
    """The :class:`~tauflow.cells.cfc_heads.CfCParameters`, and those of a memory beside the core.

    Args:
        first, first_bias, deep, deep_bias, heads, heads_bias, rate, amplitude: of the core.
        input: (4 N, I), the weights W_x of the gates i, f, g, o; these three are ``None``
            without a memory.
        recurrent: (4 N, N), W_h.
        gates_bias: (4 N,), b with the constant of the forget gate added.
    """

    first: Array
    first_bias: Array
    deep: Array
    deep_bias: Array
    heads: Array
    heads_bias: Array
    rate: Array
    amplitude: Array
    input: Array = None
    recurrent: Array = None
    gates_bias: Array = None


class CfCSaved(NamedTuple):
    """What the backward pass reads; all empty where none may follow, and each that there is not.

    Args:
        source: (T, B, R), what the core's first layer reads: [x; h], or beside a memory [x; u] or
            [u; h].
        rows: (T, B, I + N), [x; h] of a memory.
        gates: (T, B, 4 N), i, f, g, o of a memory.
        c: (T + 1, B, N), the memory, its initial value first.
        first: (T, B, F), the first layer's values.
        deep: (L - 1, T, B, U), values of the other layers.
        slopes: (L, T, B, U), slopes of activations that do not show them.
        heads: (T, B, K N): phi(g), phi(h), p and t_a, or r of the pure form; ``first`` if L is 0.
    """

    source: Array
    rows: Array
    gates: Array
    c: Array
    first: Array
    deep: Array
    slopes: Array
    heads: Array

    @classmethod
    def from_tensors(cls, config: KernelConfig, tensors: Sequence[Tensor]) -> "CfCSaved":
        """Return the saved tensors of which these are those that there are, without the inputs."""
        return cls(*_find_field_order(config)((*tensors, *(None,) * len(cls._fields))))


class CfCGradients(NamedTuple):
    """What the loop back writes: gradients of products before bias and activation, and others.

    Args:
        first: (T, B, F), of the first layer.
        deep: (L - 1, T, B, U).
        heads: (T, B, K N); may be the memory of the saved ones.
        gates: (T, B, 4 N), of a memory; empty without one.
        h: (B, N), of the last state; becomes that of the first.
        c: (B, N), the same of a memory; empty without one.
        dt: (B, T), of the time steps; empty if not wanted.
        sums: (slices, W), of rate and amplitude of the pure form, and of the biases of first layer
            and heads, side by side, added to.
    """

    first: Array
    deep: Array
    heads: Array
    gates: Array
    h: Array
    c: Array
    dt: Array
    sums: Array


@cache
def _list_saved_fields(config: KernelConfig) -> tuple[bool, ...]:
    """Return for each field of saved tensors whether it is a separate tensor."""
    core, memory, _ = split_config(config)
    slopes = core.layers > 0 and not has_slope_from_value(CfCCode.from_config(core).outer)
    return True, memory, memory, memory, True, core.layers > 1, slopes, core.layers > 0


@cache
def _find_field_order(config: KernelConfig) -> Callable[[Any], tuple[Any, ...]]:
    """Return what takes the fields from the tensors that there are, and ``None``."""
    order, taken = [], 0
    for place, there in enumerate(_list_saved_fields(config)):
        is_given = there and place > 1  # source and rows are not kept
        order.append(taken if is_given else place - len(CfCSaved._fields))
        taken += is_given
    if not split_config(config)[0].layers:
        order[-1] = order[-4]
    return itemgetter(*order)


def get_saved_shapes(
    config: KernelConfig, steps: int, batch: int, inputs: Sequence[Tensor]
) -> CfCSaved:
    """Return the shapes of saved tensors, ``None`` where a field has no separate tensor.

    Args:
        config: of the cell.
        steps: T.
        batch: B.
        inputs: of the run.
    """
    x, h, _, first, _, _, _, _, heads_bias = inputs[:9]
    sizes = x.shape[-1], h.shape[-1], first.shape[-2], heads_bias.shape[-1]
    return list_saved_shapes(config, steps, batch, *sizes)


def list_saved_shapes(
    config: KernelConfig, steps: int, batch: int, D: int, state_size: int, units: int, rows: int
) -> CfCSaved:
    """Do as :func:`get_saved_shapes`, of the sizes that these follow from."""
    core, memory, reads_state = split_config(config)
    N = state_size // (1 + memory)
    width = rows if core.is_pure_mode or core.time_bias else rows // 3 * 4
    units = units if core.layers else width
    shapes = (
        (steps, batch, N + (N if reads_state else D)),
        (steps, batch, D + N),
        (steps, batch, 4 * N),
        (steps + 1, batch, N),
        (steps, batch, units),
        (core.layers - 1, steps, batch, units),
        (core.layers, steps, batch, units),
        (steps, batch, width),
    )
    fields = zip(shapes, _list_saved_fields(config), strict=True)
    return CfCSaved(*[shape if there else None for shape, there in fields])


def flatten_time_first(x: Tensor) -> Tensor:
    """Return a copy of (B, T, I) as (T B, I)."""
    return x.transpose(0, 1).clone(memory_format=torch.contiguous_format).view(-1, x.shape[-1])


def compute_core_gradients(
    config: CfCConfig,
    saved: CfCSaved,
    gradients: CfCGradients,
    weights: CfCWeights,
    source: Sequence[Tensor],
) -> list[Tensor | None]:
    """Return the gradients of the first six parameters.

    Args:
        config: the closed form.
        saved: what the forward loop wrote.
        gradients: what the backward loop wrote.
        weights: the parameters.
        source: what the first layer read, side by side, (T B, ...) each.
    """
    first = get_rows(gradients.first, weights.first.shape[-2])
    heads = get_rows(gradients.heads, weights.heads_bias.shape[-1])
    of_first = torch.cat([first.T @ part for part in source], dim=-1)
    of_first_bias, of_heads_bias = first.sum(0), heads.sum(0)
    if not config.layers:
        return [of_first, None, None, None, None, of_heads_bias]
    values, of_deep, of_deep_bias = saved.first, None, None
    if config.layers > 1:
        below = [saved.first, *saved.deep]
        values = below.pop()
        each = [get_rows(d).T @ get_rows(z) for d, z in zip(gradients.deep, below, strict=True)]
        of_deep, of_deep_bias = torch.stack(each), gradients.deep.sum((1, 2))
    of_heads = heads.T @ get_rows(values)
    return [of_first, of_first_bias, of_deep, of_deep_bias, of_heads, of_heads_bias]


def get_rows(tensor: Tensor, width: int | None = None) -> Tensor:
    """Return (T, B, F) as (T B, F), without the unused column of a missing t_b."""
    rows = tensor.flatten(0, 1)
    return rows if width is None or rows.shape[-1] == width else rows[..., :width]


def split_config(config: KernelConfig) -> tuple[CfCConfig, bool, bool]:
    """Return the core's form, whether a memory stands beside it, and whether it reads the state."""
    if isinstance(config, MixedMemoryConfig):
        return config.core, True, config.reads_state
    return config, False, False


def count_input_columns(config: KernelConfig, x: Tensor) -> int:
    """Return how many columns of the first layer read the input itself."""
    return 0 if isinstance(config, MixedMemoryConfig) and config.reads_state else x.shape[-1]
