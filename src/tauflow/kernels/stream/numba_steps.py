"""One step of a stream, compiled: parameters are packed once, and states live in fixed memory.

Each function reads one input per sequence, advances the states in place and leaves what the cell
emits in them. The mathematics is that of the loops over whole sequences, which they call.
"""

# mypy: ignore-errors

from typing import Any, NamedTuple

from tauflow.kernels.closed_form.form import Tape, Weights
from tauflow.kernels.closed_form.numba_loop import Core, Place, core_forward, read_code
from tauflow.kernels.cpu.jit import f4, inlined, kernel, matmul, set_blas_threads
from tauflow.kernels.cpu.math import copy, memory_forward
from tauflow.kernels.stream import AT
from tauflow.kernels.synapses import layout
from tauflow.kernels.synapses.numba_loop import ltc_forward


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


@kernel(of=("synapses", "closed_form"))
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


@inlined
def _row(floats, places, index):
    return floats[places[index, 0] : places[index, 1]]


@inlined
def _matrix(floats, places, index):
    p = places[index]
    return floats[p[0] : p[1]].reshape((p[4], p[5]))


@inlined
def _cube(floats, places, index):
    p = places[index]
    return floats[p[0] : p[1]].reshape((p[3], p[4], p[5]))


@inlined
def _block(floats, places, index):
    p = places[index]
    return floats[p[0] : p[1]].reshape((p[2], p[3], p[4], p[5]))


@inlined
def _core(blas, numbers, floats, places):
    """Return the core whose arrays lie in shared memory."""
    weights = Weights(
        _matrix(floats, places, AT.recurrent),
        _row(floats, places, AT.first_bias),
        _cube(floats, places, AT.deep),
        _matrix(floats, places, AT.deep_bias),
        _matrix(floats, places, AT.heads),
        _row(floats, places, AT.heads_bias),
        _row(floats, places, AT.rate),
        _row(floats, places, AT.amplitude),
    )
    code = read_code(numbers)
    # without a backbone the first layer is the heads
    heads = AT.head_values if code.layers > 0 else AT.first_values
    tape = Tape(
        _cube(floats, places, AT.first_values),
        _block(floats, places, AT.deep_values),
        _block(floats, places, AT.slopes),
        _cube(floats, places, heads),
    )
    return Core(blas, code, weights, tape)


@inlined
def _join(joint, left, right):
    split = left.shape[1]
    for b in range(joint.shape[0]):
        copy(left[b], joint[b, :split])
        copy(right[b], joint[b, split:])


@inlined
def _remember(blas, floats, places, x, h):
    """Advance the memory, and return what it shows."""
    c, c_after = _matrix(floats, places, AT.c), _matrix(floats, places, AT.c_after)
    u, gates = _matrix(floats, places, AT.u), _matrix(floats, places, AT.gates)
    reading, weights = (
        _matrix(floats, places, AT.reading),
        _matrix(floats, places, AT.gate_weights),
    )
    bias = _row(floats, places, AT.bias)
    _join(reading, x, h)
    width, reads = weights.shape
    matmul(blas, reading, weights, gates, width, reads, True, False)
    for b in range(x.shape[0]):
        memory_forward(gates[b], bias, c[b], c_after[b], u[b])
        copy(c_after[b], c[b])
    return u


@kernel(of=("synapses", "closed_form"))
def closed_step(x, dt, blas, numbers, floats, places, reads_state):
    """Advance the states of a closed-form core, beside a memory if there is one.

    Args:
        x: (B, D).
        dt: (B,).
        blas: a :class:`~tauflow.kernels.cpu.binding.Blas`.
        numbers: of the form, by ``numbers_of``.
        floats, places: a :class:`~tauflow.kernels.stream.SharedMemory`.
        reads_state: whether a core beside a memory reads [u; h], rather than [x; u].
    """
    threads = set_blas_threads(blas, 1)
    core = _core(blas, numbers, floats, places)
    source, h = _matrix(floats, places, AT.source), _matrix(floats, places, AT.h)
    gaps = _matrix(floats, places, AT.dt)
    copy(dt, _row(floats, places, AT.dt))
    if places[AT.c, 0] < places[AT.c, 1]:
        u = _remember(blas, floats, places, x, h)
        if reads_state:
            _join(source, u, h)
        else:
            _join(source, x, u)
    else:
        _join(source, x, h)
    core_forward(core, Place(0, 0, h.shape[0]), source, False, gaps, h)
    set_blas_threads(blas, threads)
