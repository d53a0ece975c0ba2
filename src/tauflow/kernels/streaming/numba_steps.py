"""One step of a stream, compiled: parameters are packed once, and states live in fixed memory.

The LTC has a step of its own, which visits the synapses that exist.
"""

# mypy: ignore-errors

from typing import Any, NamedTuple

from tauflow.kernels import ltc as layout
from tauflow.kernels.cpu.jit import f4, kernel
from tauflow.kernels.cpu.math import copy
from tauflow.kernels.ltc.numba_loop import ltc_forward
from tauflow.kernels.trace.interpreter import run_instructions


@kernel(source_folders=("trace",))
def run_program(x, dt, y, instructions, floats):
    """Take the steps of a recorded cell.

    Args:
        x: inputs, (T B, I).
        dt: gaps, (T B,).
        y: receives what the cell emits, (T B, M).
        instructions: (1 + instructions, COLUMNS): first the batch size, where input, gaps and
            outputs are; then the instructions.
        floats: all numbers: constants, the state, and what the instructions write.
    """
    head = instructions[0]
    size, D, M = head[0], x.shape[1], y.shape[1]
    for t in range(x.shape[0] // size):
        for b in range(size):
            own = t * size + b
            floats[head[2] + b] = dt[own]
            start = head[1] + b * D
            copy(x[own], floats[start : start + D])
        run_instructions(instructions, 1, floats)
        for b in range(size):
            start = head[3] + b * M
            copy(floats[start : start + M], y[t * size + b])


class AffineMaps(NamedTuple):
    """Affine maps a z + b of an LTC.

    Args:
        inputs: (2, D).
        outputs: (2, M), of the motor neurons.
        dt: (2,).
    """

    inputs: Any
    outputs: Any
    dt: Any


class LTCStepBuffers(NamedTuple):
    """What an LTC's step writes.

    Args:
        u: (B, 1, D), mapped inputs.
        delta: (B, 1), length of a sub-step.
        mask: (B, 0), none.
        evaluations, slopes: a tape of nothing.
        states: (B, 1, N), the potentials after the step.
        h: (B, N), advanced.
        y: (B, M), receives the outputs.
    """

    u: Any
    delta: Any
    mask: Any
    evaluations: Any
    slopes: Any
    states: Any
    h: Any
    y: Any


@kernel(source_folders=("ltc", "trace"))
def ltc_step(x, dt, *packed):
    """Advance the potentials of an LTC.

    Args:
        x: (B, D).
        dt: (B,).
        *packed: what :class:`AffineMaps`, two sides and a method of ``synapses.layout``, and
            :class:`LTCStepBuffers` hold, in a row, which costs Python least to pass.
    """
    maps, own = AffineMaps(*packed[:3]), LTCStepBuffers(*packed[18:])
    sensory, recurrent = layout.SynapseArrays(*packed[3:8]), layout.SynapseArrays(*packed[8:13])
    method = layout.SolverArrays(*packed[13:18])
    B, D = x.shape
    for b in range(B):
        gap = maps.dt[0] * dt[b] + maps.dt[1]
        own.delta[b, 0] = gap / f4(method.substeps)
        for i in range(D):
            own.u[b, 0, i] = maps.inputs[0, i] * x[b, i] + maps.inputs[1, i]
    samples, tape = (
        layout.SynapseInputs(own.u, own.delta, own.mask),
        layout.LTCActivations(own.evaluations, own.slopes),
    )
    ltc_forward(0, 0, B, samples, sensory, recurrent, method, own.h, own.states, tape)
    for b in range(B):
        copy(own.states[b, 0], own.h[b])
        for j in range(own.y.shape[1]):
            own.y[b, j] = maps.outputs[0, j] * own.h[b, j] + maps.outputs[1, j]
