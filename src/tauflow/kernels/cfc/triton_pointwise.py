"""The closed form joined from its heads, and its adjoint, in Triton: functions of tiles.

What depends on options is known when a kernel is compiled: MODE, the closed form, as in
:mod:`.config`, and what :mod:`tauflow.kernels.gpu.math` knows. Then what a step computes beside
matrix products, one step per launch.
"""

# mypy: ignore-errors

import triton
import triton.language as tl

from tauflow.kernels.gpu.math import activate, sigmoid, slope_from_value, tanh

DEFAULT: tl.constexpr = tl.constexpr(0)
NO_GATE: tl.constexpr = tl.constexpr(1)
PURE: tl.constexpr = tl.constexpr(2)


@triton.jit
def gated_forward(g, h, t_a, t_b, dt, MODE: tl.constexpr, SIGN: tl.constexpr):
    """Return the state after ``dt``, and the gate, from phi of the state heads and time heads."""
    p = sigmoid(SIGN * t_a * dt + t_b)
    after = g + p * h if MODE == NO_GATE else g * (1.0 - p) + h * p
    return after, p


@triton.jit
def gated_backward(
    grad_after,
    g,
    h,
    p,
    t_a,
    dt,
    MODE: tl.constexpr,
    SIGN: tl.constexpr,
    PHI: tl.constexpr,
    SCALE: tl.constexpr,
    RATE: tl.constexpr,
):
    """Return the gradients of the four heads before phi, and that of the gap, per neuron."""
    grad_p = grad_after * h if MODE == NO_GATE else grad_after * (h - g)
    grad_exponent = grad_p * p * (1.0 - p)
    grad_g = grad_after if MODE == NO_GATE else grad_after * (1.0 - p)
    grad_g = grad_g * slope_from_value(g, PHI, SCALE, RATE)
    grad_h = grad_after * p * slope_from_value(h, PHI, SCALE, RATE)
    return grad_g, grad_h, SIGN * dt * grad_exponent, grad_exponent, SIGN * t_a * grad_exponent


@triton.jit
def pure_forward(r, rate, amplitude, dt):
    """Return the state after ``dt`` of the pure form."""
    decay = tl.exp2(-1.4426950408889634 * dt * (rate + tl.abs(r)))
    return amplitude - amplitude * decay * r


@triton.jit
def pure_backward(grad_after, r, rate, amplitude, dt):
    """Return the gradients of the head, of the gap, and of rate and amplitude, per neuron."""
    size = tl.abs(r)
    decay = tl.exp2(-1.4426950408889634 * dt * (rate + size))
    scaled = grad_after * amplitude * decay
    grad_gap = scaled * r * (rate + size)
    return -scaled * (1.0 - dt * size), grad_gap, scaled * dt * r, grad_after * (1.0 - decay * r)


@triton.jit
def layer_forward(
    values,  # (size,): products on entry
    slopes,  # (size,) where SLOPES
    size,
    PHI: tl.constexpr,
    SCALE: tl.constexpr,
    RATE: tl.constexpr,
    SLOPES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Activate a layer in place."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    z = tl.load(values + at, at < size, other=0.0).to(tl.float32)
    z, slope = activate(z, PHI, SCALE, RATE)
    tl.store(values + at, z.to(values.dtype.element_ty), at < size)
    if SLOPES:
        tl.store(slopes + at, slope.to(slopes.dtype.element_ty), at < size)


@triton.jit
def layer_backward(
    grad_values,  # (size,)
    values,  # (size,), or the slopes where SLOPES
    deltas,  # (size,)
    size,
    PHI: tl.constexpr,
    SCALE: tl.constexpr,
    RATE: tl.constexpr,
    SLOPES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Return the gradient before the activation of a layer."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    grad = tl.load(grad_values + at, at < size, other=0.0).to(tl.float32)
    slope = tl.load(values + at, at < size, other=0.0).to(tl.float32)
    if not SLOPES:
        slope = slope_from_value(slope, PHI, SCALE, RATE)
    tl.store(deltas + at, (grad * slope).to(deltas.dtype.element_ty), at < size)


@triton.jit(do_not_specialize=["t", "T"])
def heads_forward(
    heads,  # (B, W): products on entry; phi(g), phi(h), p and t_a, or r on return
    rate,  # (N,)
    amplitude,  # (N,)
    dt,  # (B, T)
    mask,  # (B, T) where MASKED
    state,  # (B, N) float32, in place
    operand,  # (B, N): the state as the next products read it
    out,  # (B, T, N)
    t,
    T,
    B,
    N,
    W,
    MODE: tl.constexpr,
    SIGN: tl.constexpr,
    TIME_BIAS: tl.constexpr,
    PHI: tl.constexpr,
    SCALE: tl.constexpr,
    RATE: tl.constexpr,
    MASKED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Join the heads of one step."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < N
    head, place = heads + row * W + column, row * N + column
    d = tl.load(dt + row * T + t)
    before = tl.load(state + place, inside, other=0.0)
    g = tl.load(head, inside, other=0.0).to(tl.float32)
    kind = heads.dtype.element_ty
    if MODE == PURE:
        decay = tl.load(rate + column, inside, other=0.0).to(tl.float32)
        height = tl.load(amplitude + column, inside, other=0.0).to(tl.float32)
        after = pure_forward(g, decay, height, d)
    else:
        e = tl.load(head + N, inside, other=0.0).to(tl.float32)
        t_a = tl.load(head + 2 * N, inside, other=0.0).to(tl.float32)
        t_b = tl.zeros_like(t_a)
        if TIME_BIAS:
            t_b = tl.load(head + 3 * N, inside, other=0.0).to(tl.float32)
        g, _ = activate(g, PHI, SCALE, RATE)
        e, _ = activate(e, PHI, SCALE, RATE)
        after, p = gated_forward(g, e, t_a, t_b, d, MODE, SIGN)
        tl.store(head, g.to(kind), inside)
        tl.store(head + N, e.to(kind), inside)
        tl.store(head + 2 * N, p.to(kind), inside)
        tl.store(head + 3 * N, t_a.to(kind), inside)
    if MASKED:
        after = tl.where(tl.load(mask + row * T + t) != 0, after, before)
    tl.store(state + place, after, inside)
    tl.store(operand + place, after.to(operand.dtype.element_ty), inside)
    tl.store(out + (row * T + t) * N + column, after.to(out.dtype.element_ty), inside)


@triton.jit(do_not_specialize=["t", "T"])
def heads_backward(
    heads,  # (B, W)
    rate,  # (N,)
    amplitude,  # (N,)
    dt,  # (B, T)
    mask,  # (B, T) where MASKED
    grad_out,  # (B, T, N)
    grad_state,  # (B, N) float32; without valid rows on return
    grad_recurrent,  # (B, N): what the products of the step after give
    grad_heads,  # (B, W)
    grad_dt,  # (B, T) where GAPS
    grad_rate,  # (B, N) in the pure form, added to
    grad_amplitude,  # (B, N) in the pure form, added to
    t,
    T,
    B,
    N,
    W,
    MODE: tl.constexpr,
    SIGN: tl.constexpr,
    TIME_BIAS: tl.constexpr,
    PHI: tl.constexpr,
    SCALE: tl.constexpr,
    RATE: tl.constexpr,
    MASKED: tl.constexpr,
    GAPS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Return the gradients before the heads of one step."""
    row = tl.program_id(0).to(tl.int64)
    d = tl.load(dt + row * T + t)
    kind = grad_heads.dtype.element_ty
    grad_gaps = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, N, BLOCK):
        column = first + tl.arange(0, BLOCK)
        inside = column < N
        head, delta, place = (
            heads + row * W + column,
            grad_heads + row * W + column,
            row * N + column,
        )
        grad_after = tl.load(grad_state + place, inside, other=0.0)
        grad_after += tl.load(grad_recurrent + place, inside, other=0.0).to(tl.float32)
        grad_after += tl.load(grad_out + (row * T + t) * N + column, inside, other=0.0).to(
            tl.float32
        )
        rest = tl.zeros_like(grad_after)
        if MASKED:
            valid = tl.load(mask + row * T + t) != 0
            rest = tl.where(valid, 0.0, grad_after)
            grad_after = tl.where(valid, grad_after, 0.0)
        tl.store(grad_state + place, rest, inside)
        g = tl.load(head, inside, other=0.0).to(tl.float32)
        if MODE == PURE:
            decay = tl.load(rate + column, inside, other=0.0).to(tl.float32)
            height = tl.load(amplitude + column, inside, other=0.0).to(tl.float32)
            grad_g, grad_gap, part, other = pure_backward(grad_after, g, decay, height, d)
            part += tl.load(grad_rate + place, inside, other=0.0)
            other += tl.load(grad_amplitude + place, inside, other=0.0)
            tl.store(grad_rate + place, part, inside)
            tl.store(grad_amplitude + place, other, inside)
        else:
            e = tl.load(head + N, inside, other=0.0).to(tl.float32)
            p = tl.load(head + 2 * N, inside, other=0.0).to(tl.float32)
            t_a = tl.load(head + 3 * N, inside, other=0.0).to(tl.float32)
            grad_g, grad_e, grad_a, grad_b, grad_gap = gated_backward(
                grad_after, g, e, p, t_a, d, MODE, SIGN, PHI, SCALE, RATE
            )
            tl.store(delta + N, grad_e.to(kind), inside)
            tl.store(delta + 2 * N, grad_a.to(kind), inside)
            if TIME_BIAS:
                tl.store(delta + 3 * N, grad_b.to(kind), inside)
        tl.store(delta, grad_g.to(kind), inside)
        grad_gaps += tl.where(inside, grad_gap, 0.0)
    if GAPS:
        tl.store(grad_dt + row * T + t, tl.sum(grad_gaps, 0))


@triton.jit(do_not_specialize=["t", "T"])
def lstm_cell_forward(
    gates,  # (B, 4 N): products on entry; i, f, g, o on return
    memory,  # (B, N) float32, in place
    cells,  # (B, N) float32: the memory after the step
    mask,  # (B, T) where MASKED
    source,  # (B, R): receives u in its first N columns, and v after them where READS_STATE
    operand,  # (B, N): v
    t,
    T,
    N,
    R,
    READS_STATE: tl.constexpr,
    MASKED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Advance the memory of one step."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < N
    gate, place = gates + row * 4 * N + column, row * N + column
    i = sigmoid(tl.load(gate, inside, other=0.0).to(tl.float32))
    f = sigmoid(tl.load(gate + N, inside, other=0.0).to(tl.float32))
    g = tanh(tl.load(gate + 2 * N, inside, other=0.0).to(tl.float32))
    o = sigmoid(tl.load(gate + 3 * N, inside, other=0.0).to(tl.float32))
    c = tl.load(memory + place, inside, other=0.0)
    fresh = f * c + i * g
    kind = source.dtype.element_ty
    tl.store(source + row * R + column, (o * tanh(fresh)).to(kind), inside)
    if READS_STATE:
        v = tl.load(operand + place, inside, other=0.0)
        tl.store(source + row * R + N + column, v.to(kind), inside)
    if MASKED:
        fresh = tl.where(tl.load(mask + row * T + t) != 0, fresh, c)
    kept = gates.dtype.element_ty
    tl.store(gate, i.to(kept), inside)
    tl.store(gate + N, f.to(kept), inside)
    tl.store(gate + 2 * N, g.to(kept), inside)
    tl.store(gate + 3 * N, o.to(kept), inside)
    tl.store(memory + place, fresh, inside)
    tl.store(cells + place, fresh, inside)


@triton.jit(do_not_specialize=["t", "T"])
def lstm_cell_backward(
    gates,  # (B, 4 N)
    cells,  # (B, N) float32
    before,  # (B, N): the memory before the step
    mask,  # (B, T) where MASKED
    grad_source,  # (B, R): gradient of what the core read: u, and v after it where READS_STATE
    grad_memory,  # (B, N) float32, in place
    grad_gates,  # (B, 4 N)
    grad_state,  # (B, N) float32, added to where READS_STATE
    t,
    T,
    N,
    R,
    READS_STATE: tl.constexpr,
    MASKED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Return the gradients before the gates of one step."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < N
    gate, delta = gates + row * 4 * N + column, grad_gates + row * 4 * N + column
    place = row * N + column
    i = tl.load(gate, inside, other=0.0).to(tl.float32)
    f = tl.load(gate + N, inside, other=0.0).to(tl.float32)
    g = tl.load(gate + 2 * N, inside, other=0.0).to(tl.float32)
    o = tl.load(gate + 3 * N, inside, other=0.0).to(tl.float32)
    c = tl.load(before + place, inside, other=0.0).to(tl.float32)
    bent = tanh(tl.load(cells + place, inside, other=0.0))
    grad_u = tl.load(grad_source + row * R + column, inside, other=0.0).to(tl.float32)
    if READS_STATE:
        grad_v = tl.load(grad_source + row * R + N + column, inside, other=0.0).to(tl.float32)
        grad_v += tl.load(grad_state + place, inside, other=0.0)
        tl.store(grad_state + place, grad_v, inside)
    grad_after = tl.load(grad_memory + place, inside, other=0.0)
    rest = tl.zeros_like(grad_after)
    if MASKED:
        valid = tl.load(mask + row * T + t) != 0
        rest = tl.where(valid, 0.0, grad_after)
        grad_after = tl.where(valid, grad_after, 0.0)
    grad_after += grad_u * o * (1.0 - bent * bent)
    kind = grad_gates.dtype.element_ty
    tl.store(delta, (grad_after * g * i * (1.0 - i)).to(kind), inside)
    tl.store(delta + N, (grad_after * c * f * (1.0 - f)).to(kind), inside)
    tl.store(delta + 2 * N, (grad_after * i * (1.0 - g * g)).to(kind), inside)
    tl.store(delta + 3 * N, (grad_u * bent * o * (1.0 - o)).to(kind), inside)
    tl.store(grad_memory + place, grad_after * f + rest, inside)
