"""What the compiled loops of explicit flows read and write.

The field is ``F(h) = s phi(W_1 h + drive) - damping h``, or ``W_2 phi(W_1 h + drive) + b_2 -
damping h`` where there is a second layer. Axes: T time, B batch, N neurons, H width of phi, E field
evaluations of a step (sub-steps times stages).
"""

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from tauflow.solvers import ButcherTableau

from .activation_codes import Phi
from .cpu_arrays import as_array, written
from .numba_threads import slice_count
from .workspace import empty

Array = Any


class Field(NamedTuple):
    """Parameters.

    Args:
        numbers: (7,): those of phi, and the damping.
        W_1: (H, N).
        W_2: (N, H); empty if there is one layer.
        b_2: (N,); empty likewise.
        scale: (N,), s; empty if there are two layers.
    """

    numbers: Array
    W_1: Array
    W_2: Array
    b_2: Array
    scale: Array


class LSTMWeights(NamedTuple):
    """Parameters of a memory in front of a flow.

    Args:
        recurrent: (4 N, N), of the gates i, f, g, o.
        bias: (4 N,), what is still to be added to the gates' products.
        drive: (H, N), from what the memory shows to the flow's input; empty if the flow starts at
            what it shows.
        drive_bias: (H,).
    """

    recurrent: Array
    bias: Array
    drive: Array
    drive_bias: Array


class Steps(NamedTuple):
    """How a gap is covered.

    Args:
        a: (stages, stages), weights of the earlier stages.
        b: (stages,), weights in the step.
        substeps: steps per gap.
        clip: the state is clipped to [-clip, clip] after every sub-step; infinite for never.
    """

    a: Array
    b: Array
    substeps: int
    clip: float = math.inf


class FlowTape(NamedTuple):
    """What the field was evaluated at, for every step or, where the first axis is 1, the last one.

    Args:
        at: (T or 1, E, B, N), states.
        f: (T or 1, E, B, H), values of phi.
    """

    at: Array
    f: Array


class FlowDeltas(NamedTuple):
    """Gradients.

    Args:
        z: (T, E, B, H), of the arguments of phi.
        F: (T, E, B, N), of the field's values; empty if there is one layer.
        scale: (slices, N), of s, in double precision; empty if there are two layers.
        delta: (B, T), of the length of a sub-step; empty if not wanted.
    """

    z: Array
    F: Array
    scale: Array
    delta: Array


def make_steps(tableau: ButcherTableau, substeps: int, clip: float | None = None) -> Steps:
    """Return a tableau as arrays."""
    stages = len(tableau.b)
    a = np.zeros((stages, stages), np.float32)
    for row, weights in enumerate(tableau.a):
        a[row, : len(weights)] = weights
    limit = math.inf if clip is None else clip
    return Steps(a, np.array(tableau.b, np.float32), substeps, limit)


def make_field(
    phi: Phi, damping: float, W_1: Tensor, W_2: Tensor | None, b_2: Tensor | None, scale: Tensor
) -> Field:
    """Return the parameters as arrays; ``scale`` is looked at only without a second layer."""
    numbers = np.array([*phi, damping], np.float32)
    deep = W_2 is not None and b_2 is not None
    none = W_1.new_empty(0)
    tensors = (
        W_1,
        W_2 if W_2 is not None else none.view(0, 0),
        b_2 if b_2 is not None else none,
        none if deep else scale,
    )
    return Field(numbers, *(as_array(tensor) for tensor in tensors))


class FlowMemory(NamedTuple):
    """Tensors under a :class:`FlowTape`."""

    at: Tensor
    f: Tensor

    def tape(self) -> FlowTape:
        """Return the arrays."""
        return FlowTape(written(self.at), written(self.f))


def flow_memory(steps: Steps, kept: int, batch: int, neurons: int, width: int) -> FlowMemory:
    """Allocate what the forward loop writes, for ``kept`` steps."""
    evaluations = steps.substeps * len(steps.b)
    return FlowMemory(
        empty(kept, evaluations, batch, neurons),
        empty(kept, evaluations, batch, width),
    )


class FlowGradients(NamedTuple):
    """Tensors under :class:`FlowDeltas`, and what follows from them after the loop."""

    z: Tensor
    F: Tensor
    scale: Tensor
    delta: Tensor

    def deltas(self) -> FlowDeltas:
        """Return the arrays."""
        return FlowDeltas(*(written(tensor) for tensor in self))

    def of_drive(self) -> Tensor:
        """Return the gradient of the drive, (T, B, H)."""
        return self.z.sum(1)

    def of_parameters(
        self, memory: FlowMemory
    ) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
        """Return the gradients of W_1, W_2, b_2 and s."""
        z = self.z.view(-1, self.z.shape[-1])
        to_W_1 = z.T @ memory.at.view(-1, memory.at.shape[-1])
        if not self.F.numel():
            return to_W_1, None, None, self.scale.sum(0).to(z.dtype)
        F = self.F.view(-1, self.F.shape[-1])
        return to_W_1, F.T @ memory.f.view(-1, memory.f.shape[-1]), F.sum(0), None


def flow_gradients(memory: FlowMemory, *, deep: bool, wants_delta: bool) -> FlowGradients:
    """Allocate what the backward loop writes."""
    steps, _, batch, neurons = memory.at.shape
    return FlowGradients(
        empty(*memory.f.shape),
        empty(*memory.at.shape) if deep else empty(0, 0, 0, 0),
        memory.at.new_zeros(slice_count(batch), 0 if deep else neurons, dtype=torch.float64),
        memory.at.new_zeros(batch if wants_delta else 0, steps),
    )
