"""One step of a stream, compiled: parameters are packed once, and states live in fixed memory.

The LTC has another step, which visits the synapses that exist.
"""

# mypy: ignore-errors

from typing import Any, NamedTuple

import numpy as np
from numba import carray

from tauflow.kernels import ltc as layout
from tauflow.kernels.cpu.jit import f4, inline, kernel
from tauflow.kernels.cpu.math import copy
from tauflow.kernels.cpu.values import part, to_pointer
from tauflow.kernels.ltc.numba_loop import run_forward
from tauflow.kernels.ltc.numba_substeps import ltc_evaluation
from tauflow.kernels.ltc.numba_synapses import arrange_conductances, pack_synapses
from tauflow.kernels.trace.instructions import run_instructions
from tauflow.kernels.trace.program import COLUMNS

BAD_INPUT, BAD_OUTPUT = 1, 2


@kernel(source_folders=("trace",))
def run_program(block):
    """Take a step of a traced cell.

    Args:
        block: address of integers, so that Python passes one number: addresses of inputs (B, D),
            time steps (B,), outputs (B, M), instructions (K, COLUMNS) and memory; B, D, M, K and
            size of the memory; and where in it input, time steps and outputs are.

    Returns:
        :data:`BAD_INPUT` if an input is not finite, and the step was not taken, although the block
        asks for a look (its last number); :data:`BAD_OUTPUT` if an output is not; else 0.
    """
    words = carray(to_pointer(block), 14, np.int64)
    size, D, M = words[5], words[6], words[7]
    x = carray(to_pointer(words[0]), size * D, f4)
    gaps = carray(to_pointer(words[1]), size, f4)
    y = carray(to_pointer(words[2]), size * M, f4)
    instructions = carray(to_pointer(words[3]), (words[8], COLUMNS), np.int64)
    floats = carray(to_pointer(words[4]), words[9], f4)
    if words[13] != 0 and not _is_finite(x):
        return BAD_INPUT
    copy(x, part(floats, words[10], size * D))
    copy(gaps, part(floats, words[11], size))
    run_instructions(instructions, 0, floats)
    copy(part(floats, words[12], size * M), y)
    return 0 if _is_finite(y) else BAD_OUTPUT


@inline
def _is_finite(values):
    fine = True
    for value in values:
        fine &= abs(value) < f4(np.inf)
    return fine


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
        dt: (B, 1), the time to cover.
        mask: (B, 0), none.
        saved: saved tensors of nothing.
        states: (B, 1, N), the potentials after the step.
        h: (B, N), advanced.
        y: (B, M), receives the outputs.
    """

    u: Any
    dt: Any
    mask: Any
    saved: Any
    states: Any
    h: Any
    y: Any


@kernel(source_folders=("ltc",))
def pack_conductances(side):
    """Return the weights of a ``SynapseArrays`` as the loop forward reads them."""
    memory, packed = pack_synapses(arrange_conductances, side)
    weights = packed.weights.copy()
    memory[0] = f4(0.0)  # so that it is kept until here
    return weights


@kernel(source_folders=("ltc", "trace"))
def ltc_step(x, dt, *packed):
    """Advance the potentials of an LTC.

    Args:
        x: (B, D).
        dt: (B,).
        *packed: what :class:`AffineMaps`, two packed ``SynapseArrays``, an ``LTCSolver`` and
            :class:`LTCStepBuffers` hold, in a row, which costs Python least to pass.
    """
    maps, buffers = AffineMaps(*packed[:3]), LTCStepBuffers(*packed[23:])
    sensory, recurrent = layout.SynapseArrays(*packed[3:9]), layout.SynapseArrays(*packed[9:15])
    method = layout.LTCSolver(*packed[15:23])
    B, D = x.shape
    for b in range(B):
        buffers.dt[b, 0] = maps.dt[0] * dt[b] + maps.dt[1]
        for i in range(D):
            buffers.u[b, 0, i] = maps.inputs[0, i] * x[b, i] + maps.inputs[1, i]
    samples = layout.SynapseInputs(buffers.u, D, buffers.dt, buffers.mask)
    sides = sensory, recurrent
    run_forward(
        ltc_evaluation,
        0,
        B,
        samples,
        sides,
        method,
        buffers.h,
        buffers.states,
        buffers.h,
        buffers.saved,
    )
    for b in range(B):
        for j in range(buffers.y.shape[1]):
            buffers.y[b, j] = maps.outputs[0, j] * buffers.h[b, j] + maps.outputs[1, j]
