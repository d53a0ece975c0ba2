"""Flows with one product per evaluation (CT-RNN, ODE-LSTM, the neuronal LTC), and their arrays.

The field of an explicit flow is ``F(h) = s phi(W_1 h + drive) - damping h``, or
``W_2 phi(W_1 h + drive) + b_2 - damping h`` where there is a second layer. The fused flow is
``-(leak + f) h + f A`` with ``f = phi(W_1 h + drive)``. A memory in front of a flow has the gates
i, f, g, o of an LSTM.

Axes: T time, B batch, N neurons, H width of phi, E evaluations of phi in a step (sub-steps times
stages). Results, inputs, gaps and masks have the batch first, all else has time first.
"""

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from tauflow.kernels.engine.activations import ActivationCode

Array = Any


class FlowParameters(NamedTuple):
    """Parameters.

    Args:
        numbers: (8,): those of phi, the damping, and where the state is clipped.
        W_1: (H, N).
        W_2: (N, H); empty if there is one layer.
        b_2: (N,); empty likewise.
        scale: (N,), s, or A of the fused flow; empty if there are two layers.
        leak: (N,) of the fused flow; else empty.
        a: (stages, stages), weights of the earlier stages of a sub-step.
        b: (stages,), weights in the sub-step.
        substeps: steps per gap.
    """

    numbers: Array
    W_1: Array
    W_2: Array
    b_2: Array
    scale: Array
    leak: Array
    a: Array
    b: Array
    substeps: int


class FlowLSTMArrays(NamedTuple):
    """A memory in front of a flow; all empty without one.

    Args:
        recurrent: (4 N, N), of the gates.
        drive: (H, N), from what the memory shows to the flow's input; empty if the flow starts at
            what it shows.
        drive_bias: (H,), the flow's input without it.
        gates: (T, B, 4 N), the products with the input beforehand, the gates after.
        c: (T + 1, B, N), the memory, its initial value first.
        u: (T, B, N), what it shows.
    """

    recurrent: Array
    drive: Array
    drive_bias: Array
    gates: Array
    c: Array
    u: Array


class FlowSequence(NamedTuple):
    """What every step reads, and the states.

    Args:
        drive: (B, T, H), the flow's input; empty behind a memory.
        delta: (B, T), length of a sub-step.
        mask: (B, T) bool, or (B, 0) for none.
        states: (T + 1 or 2, B, N), the first one set; the others in turns.
        out: (B, T, N), the results; going back their gradients, or empty.
    """

    drive: Array
    delta: Array
    mask: Array
    states: Array
    out: Array


class FlowActivations(NamedTuple):
    """What phi was evaluated at, for every step or, where the first axis is 1, the last one.

    Args:
        at: (T or 1, E, B, N), states.
        f: (T or 1, E, B, H), values of phi.
    """

    at: Array
    f: Array


class FlowGradients(NamedTuple):
    """Gradients.

    Args:
        z: (T, E, B, H), of the arguments of phi.
        F: (T, E, B, N), of the field's values; empty if there is one layer.
        neurons: (slices, 2, N), of s, or A and leak, in double precision.
        delta: (B, T), of the length of a sub-step; empty if not wanted.
        drive: (T, B, H), of the flow's input.
        gates: (T, B, 4 N), of the gates' products; empty without a memory.
        h: (B, N), of the last state; becomes that of the first.
        c: (B, N), of the last memory; becomes that of the first.
    """

    z: Array
    F: Array
    neurons: Array
    delta: Array
    drive: Array
    gates: Array
    h: Array
    c: Array


class FlowContext(NamedTuple):
    """A flow.

    Args:
        phi: the activation.
        field: its :class:`FlowParameters`.
        grad_phi: (N, H), W_1 transposed; going back, anything.
        grad_field: (H, N), W_2 transposed.
    """

    phi: Array
    field: Array
    grad_phi: Array
    grad_field: Array


class FlowRows(NamedTuple):
    """What the rows of a slice have at one step.

    Args:
        delta: (rows,), length of a sub-step.
        valid: (rows,) bool; the others keep their gradient and give none.
        grad_delta: (rows,), added to; empty if not wanted.
        neurons: (2, N), gradients of s, or A and leak, added to.
    """

    delta: Array
    valid: Array
    grad_delta: Array
    neurons: Array


class StageGradients(NamedTuple):
    """One evaluation of the field going back.

    Args:
        at: (rows, N), where.
        f: (rows, H), values of phi.
        F: (rows, N), memory for the field's values.
        e: (rows, N), their gradient over delta; becomes that of ``at``.
        grad_z: (rows, H), receives the gradient of phi's argument.
        grad_F: (rows, N), receives that of the field's values.
    """

    at: Array
    f: Array
    F: Array
    e: Array
    grad_z: Array
    grad_F: Array


class FlowStepSlice(NamedTuple):
    """A step of a slice of the batch.

    Args:
        t: step.
        low: first sequence.
        high: one past the last.
    """

    t: int
    low: int
    high: int


class GRUDActivations(NamedTuple):
    """What a gated unit that reads a decayed state leaves, at every step or the last one only.

    Args:
        gates: (T, B, 3 N), the input's share beforehand; z, r and n after.
        decayed: (T or 1, B, N), states after the decay.
        reset: (T or 1, B, N), r times these.
    """

    gates: Array
    decayed: Array
    reset: Array


@cache
def pack_constants(phi: ActivationCode, damping: float, clip: float | None) -> Array:
    """Return the numbers of a field."""
    return np.array([*phi, damping, np.inf if clip is None else clip], np.float32)


FUSED_TABLEAU = np.zeros((1, 1), np.float32), np.ones(1, np.float32)
"""Weights of the one stage of the fused solver."""
