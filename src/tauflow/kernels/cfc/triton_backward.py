"""Closed-form cells over whole sequences in Triton, backwards; see :mod:`.triton_forward`.

The kernel writes the gradients before each bias and activation; those of the weights are products
over all steps, which torch computes afterwards.
"""

# mypy: ignore-errors

import triton
import triton.language as tl

from tauflow.kernels.gpu.math import load_matrix, load_vector, matmul_add, slope_from_value, tanh

from .triton_pointwise import PURE, gated_backward, pure_backward


@triton.jit
def load_slope(
    values,
    slopes,
    at,
    live,
    PHI: tl.constexpr,
    SCALE: tl.constexpr,
    RATE: tl.constexpr,
    SLOPES: tl.constexpr,
):
    """Return the slope of a layer's activation."""
    if SLOPES:
        slope = tl.load(slopes + at, live, other=0.0).to(tl.float32)
    else:
        slope = slope_from_value(
            tl.load(values + at, live, other=0.0).to(tl.float32), PHI, SCALE, RATE
        )
    return slope


@triton.jit
def activation_backward(grad_value, slope, deltas, at, live):
    """Return and write the gradient before the activation of a layer."""
    delta = tl.where(live, grad_value * slope, 0.0)
    tl.store(deltas + at, delta.to(deltas.dtype.element_ty), live)
    return delta


@triton.jit(do_not_specialize=["B", "T"])
def cfc_backward(  # noqa: C901 - branches on constants, gone when compiled
    first,  # (T, B, F)
    deep,  # (L - 1, T, B, U)
    slopes,  # (L, T, B, U) where SLOPES
    heads,  # (T, B, W)
    recurrent,  # (F, N), or (F, 2 N) for [u; v] where MIXED is 1
    deep_weights,  # (L - 1, U, U)
    head_weights,  # (K N, U)
    rate,  # (N,)
    amplitude,  # (N,)
    gate_weights,  # (4 N, N) where MIXED
    dt,  # (B, T)
    mask,  # (B, T) where MASKED
    grad_out,  # (B, T, N)
    grad_h,  # (B, S), S being N, or 2 N where MIXED: of the last state; of the first on return
    grad_dt,  # (B, T) where GAPS
    grad_pure,  # (2, programs, N), of rate and amplitude in the pure form
    grad_first,  # (T, B, F)
    grad_deep,  # (L - 1, T, B, U)
    grad_heads,  # (T, B, W); the first layer's where LAYERS is 0
    grad_gates,  # (T, B, 4 N) where MIXED
    gates,  # (T, B, 4 N) where MIXED: i, f, g, o
    cells,  # (T + 1, B, N) where MIXED
    B,
    T,
    N,
    U,
    W,
    LAYERS: tl.constexpr,
    MODE: tl.constexpr,
    SIGN: tl.constexpr,
    TIME_BIAS: tl.constexpr,
    PHI: tl.constexpr,
    SCALE: tl.constexpr,
    RATE: tl.constexpr,
    OUTER: tl.constexpr,
    OUTER_SCALE: tl.constexpr,
    OUTER_RATE: tl.constexpr,
    MIXED: tl.constexpr,
    MASKED: tl.constexpr,
    SLOPES: tl.constexpr,
    GAPS: tl.constexpr,
    PRECISION: tl.constexpr,
    ROWS: tl.constexpr,
    UNITS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Run a tile of sequences backwards."""
    program = tl.program_id(0).to(tl.int64)
    row = (program * ROWS + tl.arange(0, ROWS))[:, None]
    column, unit = tl.arange(0, WIDTH)[None, :], tl.arange(0, UNITS)[None, :]
    size = 2 * N if MIXED > 0 else N
    real, live = (row < B) & (column < N), (row < B) & (unit < U)
    block = N * U if LAYERS > 0 else N * N
    source = head_weights if LAYERS > 0 else recurrent
    width = U if LAYERS > 0 else N
    w_g = load_matrix(source, width, 1, N, width, WIDTH, UNITS)
    if MODE != PURE:
        w_h = load_matrix(source + block, width, 1, N, width, WIDTH, UNITS)
        w_a = load_matrix(source + 2 * block, width, 1, N, width, WIDTH, UNITS)
        if TIME_BIAS:
            w_b = load_matrix(source + 3 * block, width, 1, N, width, WIDTH, UNITS)
    if LAYERS > 0:
        reads = 2 * N if MIXED == 1 else N
        w_first = load_matrix(recurrent + reads - N, reads, 1, U, N, UNITS, WIDTH)
    if LAYERS > 1:
        w_second = load_matrix(deep_weights, U, 1, U, U, UNITS, UNITS)
    if LAYERS > 2:
        w_third = load_matrix(deep_weights + U * U, U, 1, U, U, UNITS, UNITS)
    if MODE == PURE:
        decay, height = load_vector(rate, N, WIDTH), load_vector(amplitude, N, WIDTH)
        grad_decay = tl.zeros((ROWS, WIDTH), tl.float32)
        grad_height = tl.zeros((ROWS, WIDTH), tl.float32)
    if MIXED > 0:
        w_in = load_matrix(gate_weights, N, 1, N, N, WIDTH, WIDTH)
        w_forget = load_matrix(gate_weights + N * N, N, 1, N, N, WIDTH, WIDTH)
        w_cell = load_matrix(gate_weights + 2 * N * N, N, 1, N, N, WIDTH, WIDTH)
        w_out = load_matrix(gate_weights + 3 * N * N, N, 1, N, N, WIDTH, WIDTH)
        grad_memory = tl.load(grad_h + row * size + N + column, real, other=0.0).to(tl.float32)
    if MIXED == 1:
        w_u = load_matrix(recurrent, 2 * N, 1, U, N, UNITS, WIDTH)
    depth = T.to(tl.int64) * B * U
    end = T.to(tl.int64) - 1
    at, gap = (end * B + row) * U + unit, row * T + end
    head, place = (end * B + row) * W + column, gap * N + column
    gate, cell = (end * B + row) * 4 * N + column, (end * B + B + row) * N + column
    grad_state = tl.load(grad_h + row * size + column, real, other=0.0).to(tl.float32)
    for _ in range(T):
        # All that a step reads is asked for at once, before it writes.
        grad_state += tl.load(grad_out + place, real, other=0.0).to(tl.float32)
        d = tl.load(dt + gap, row < B, other=0.0)
        valid = real
        if MASKED:
            valid = real & (tl.load(mask + gap, row < B, other=0) != 0)
        g = tl.load(heads + head, real, other=0.0).to(tl.float32)
        if MODE != PURE:
            e = tl.load(heads + head + N, real, other=0.0).to(tl.float32)
            p = tl.load(heads + head + 2 * N, real, other=0.0).to(tl.float32)
            t_a = tl.load(heads + head + 3 * N, real, other=0.0).to(tl.float32)
        if LAYERS > 0:
            slope = load_slope(first, slopes, at, live, OUTER, OUTER_SCALE, OUTER_RATE, SLOPES)
        if LAYERS > 1:
            slope_2 = load_slope(
                deep, slopes + depth, at, live, OUTER, OUTER_SCALE, OUTER_RATE, SLOPES
            )
        if LAYERS > 2:
            slope_3 = load_slope(
                deep + depth,
                slopes + 2 * depth,
                at,
                live,
                OUTER,
                OUTER_SCALE,
                OUTER_RATE,
                SLOPES,
            )
        if MIXED > 0:
            i = tl.load(gates + gate, real, other=0.0).to(tl.float32)
            f = tl.load(gates + gate + N, real, other=0.0).to(tl.float32)
            m = tl.load(gates + gate + 2 * N, real, other=0.0).to(tl.float32)
            o = tl.load(gates + gate + 3 * N, real, other=0.0).to(tl.float32)
            fresh = tl.load(cells + cell, real, other=0.0)
            memory = tl.load(cells + cell - B * N, real, other=0.0)
        grad_after = tl.where(valid, grad_state, 0.0)
        kind = grad_heads.dtype.element_ty
        grad_z = tl.zeros((ROWS, UNITS), tl.float32)
        if MODE == PURE:
            grad_g, grad_gap, part, other = pure_backward(grad_after, g, decay, height, d)
            grad_decay += part
            grad_height += other
        else:
            grad_g, grad_e, grad_a, grad_b, grad_gap = gated_backward(
                grad_after, g, e, p, t_a, d, MODE, SIGN, PHI, SCALE, RATE
            )
            tl.store(grad_heads + head + N, grad_e.to(kind), real)
            tl.store(grad_heads + head + 2 * N, grad_a.to(kind), real)
            grad_z = matmul_add(grad_e, w_h, grad_z, PRECISION)
            grad_z = matmul_add(grad_a, w_a, grad_z, PRECISION)
            if TIME_BIAS:
                tl.store(grad_heads + head + 3 * N, grad_b.to(kind), real)
                grad_z = matmul_add(grad_b, w_b, grad_z, PRECISION)
        tl.store(grad_heads + head, grad_g.to(kind), real)
        grad_z = matmul_add(grad_g, w_g, grad_z, PRECISION)
        if GAPS:
            tl.store(grad_dt + gap, tl.sum(grad_gap, 1)[:, None], row < B)
        if LAYERS > 2:
            grad_z = activation_backward(grad_z, slope_3, grad_deep + depth, at, live)
            grad_z = matmul_add(grad_z, w_third, tl.zeros((ROWS, UNITS), tl.float32), PRECISION)
        if LAYERS > 1:
            grad_z = activation_backward(grad_z, slope_2, grad_deep, at, live)
            grad_z = matmul_add(grad_z, w_second, tl.zeros((ROWS, UNITS), tl.float32), PRECISION)
        if LAYERS > 0:
            delta = activation_backward(grad_z, slope, grad_first, at, live)
            grad_z = matmul_add(delta, w_first, tl.zeros((ROWS, WIDTH), tl.float32), PRECISION)
        if MIXED > 0:
            grad_u = grad_z
            if MIXED == 1:
                grad_u = matmul_add(delta, w_u, tl.zeros((ROWS, WIDTH), tl.float32), PRECISION)
            else:
                grad_z = tl.zeros((ROWS, WIDTH), tl.float32)
            bent = tanh(fresh)
            grad_fresh = tl.where(valid, grad_memory, 0.0) + grad_u * o * (1.0 - bent * bent)
            grad_i = grad_fresh * m * i * (1.0 - i)
            grad_f = grad_fresh * memory * f * (1.0 - f)
            grad_m = grad_fresh * i * (1.0 - m * m)
            grad_o = grad_u * bent * o * (1.0 - o)
            grad_memory = grad_fresh * f + tl.where(valid, 0.0, grad_memory)
            dtype = grad_gates.dtype.element_ty
            tl.store(grad_gates + gate, grad_i.to(dtype), real)
            tl.store(grad_gates + gate + N, grad_f.to(dtype), real)
            tl.store(grad_gates + gate + 2 * N, grad_m.to(dtype), real)
            tl.store(grad_gates + gate + 3 * N, grad_o.to(dtype), real)
            grad_z = matmul_add(grad_i, w_in, grad_z, PRECISION)
            grad_z = matmul_add(grad_f, w_forget, grad_z, PRECISION)
            grad_z = matmul_add(grad_m, w_cell, grad_z, PRECISION)
            grad_z = matmul_add(grad_o, w_out, grad_z, PRECISION)
            gate -= 4 * B * N
            cell -= B * N
        # Where a step is not valid, nothing was pulled, and the state's own gradient goes on.
        grad_state = grad_z + tl.where(valid, 0.0, grad_state)
        at -= B * U
        head -= B * W
        place -= N
        gap -= 1
    tl.store(grad_h + row * size + column, grad_state.to(grad_h.dtype.element_ty), real)
    if MIXED > 0:
        tl.store(grad_h + row * size + N + column, grad_memory.to(grad_h.dtype.element_ty), real)
    if MODE == PURE:
        j, inside = tl.arange(0, WIDTH), tl.arange(0, WIDTH) < N
        tl.store(grad_pure + program * N + j, tl.sum(grad_decay, 0), inside)
        of_amplitude = grad_pure + (tl.num_programs(0) + program) * N
        tl.store(of_amplitude + j, tl.sum(grad_height, 0), inside)
