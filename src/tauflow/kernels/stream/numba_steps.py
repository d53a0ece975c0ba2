"""One step of a stream of LTCs, compiled: it visits the synapses that exist.

Parameters are packed once, and states live in fixed memory.
"""

# mypy: ignore-errors

from typing import Any, NamedTuple

from tauflow.kernels import synapses as layout
from tauflow.kernels.cpu.jit import f4, kernel
from tauflow.kernels.cpu.math import copy
from tauflow.kernels.synapses.numba_loop import ltc_forward

_ZERO, _ONE = f4(0.0), f4(1.0)


class Maps(NamedTuple):
    """Affine maps a z + b of an LTC.

    Args:
        inputs: (2, D).
        outputs: (2, M), of the motor neurons.
        gaps: (2,).
    """

    inputs: Any
    outputs: Any
    gaps: Any


class Memory(NamedTuple):
    """What an LTC's step writes.

    Args:
        u: (B, 1, D), mapped inputs.
        delta: (B, 1), length of a sub-step.
        mask: (B, 0), none.
        kept, slopes: a tape of nothing.
        states: (B, 1, N), the potentials after the step.
        h: (B, N), advanced.
        y: (B, M), receives the outputs.
    """

    u: Any
    delta: Any
    mask: Any
    kept: Any
    slopes: Any
    states: Any
    h: Any
    y: Any


@kernel(of=("synapses", "../tapes"))
def ltc_step(x, dt, *packed):
    """Advance the potentials of an LTC.

    Args:
        x: (B, D).
        dt: (B,).
        *packed: what :class:`Maps`, two sides and a method of ``synapses.layout``, and
            :class:`Memory` hold, in a row, which costs Python least to pass.
    """
    maps, own = Maps(*packed[:3]), Memory(*packed[18:])
    sensory, recurrent = layout.Side(*packed[3:8]), layout.Side(*packed[8:13])
    method = layout.Method(*packed[13:18])
    B, D = x.shape
    for b in range(B):
        gap = maps.gaps[0] * dt[b] + maps.gaps[1]
        own.delta[b, 0] = gap / f4(method.substeps)
        for i in range(D):
            own.u[b, 0, i] = maps.inputs[0, i] * x[b, i] + maps.inputs[1, i]
    samples, tape = layout.Samples(own.u, own.delta, own.mask), layout.Tape(own.kept, own.slopes)
    ltc_forward(0, 0, B, samples, sensory, recurrent, method, own.h, own.states, tape)
    for b in range(B):
        copy(own.states[b, 0], own.h[b])
        for j in range(own.y.shape[1]):
            own.y[b, j] = maps.outputs[0, j] * own.h[b, j] + maps.outputs[1, j]
