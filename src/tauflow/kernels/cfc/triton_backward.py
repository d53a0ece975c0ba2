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
def activation_backward(to_value, slope, deltas, at, live):
    """Return and write the gradient before the activation of a layer."""
    delta = tl.where(live, to_value * slope, 0.0)
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
    dt,  # (B, T)
    mask,  # (B, T) where MASKED
    g_out,  # (B, T, N)
    g_last,  # (B, N)
    g_h,  # (B, N)
    g_dt,  # (B, T) where GAPS
    g_rate,  # (programs, N) in the pure form
    g_amplitude,  # (programs, N) in the pure form
    to_first,  # (T, B, F)
    to_deep,  # (L - 1, T, B, U)
    to_heads,  # (T, B, W); the first layer's where LAYERS is 0
    gates,  # (T, B, 4 N) where MIXED: i, f, g, o
    cells,  # (T, B, N) where MIXED
    gate_weights,  # (4 N, N) where MIXED
    c,  # (B, N) where MIXED
    g_last_c,  # (B, N) where MIXED
    g_c,  # (B, N) where MIXED
    to_gates,  # (T, B, 4 N) where MIXED
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
        to_decay = tl.zeros((ROWS, WIDTH), tl.float32)
        to_height = tl.zeros((ROWS, WIDTH), tl.float32)
    if MIXED > 0:
        w_in = load_matrix(gate_weights, N, 1, N, N, WIDTH, WIDTH)
        w_forget = load_matrix(gate_weights + N * N, N, 1, N, N, WIDTH, WIDTH)
        w_cell = load_matrix(gate_weights + 2 * N * N, N, 1, N, N, WIDTH, WIDTH)
        w_out = load_matrix(gate_weights + 3 * N * N, N, 1, N, N, WIDTH, WIDTH)
        to_memory = tl.load(g_last_c + row * N + column, real, other=0.0).to(tl.float32)
    if MIXED == 1:
        w_u = load_matrix(recurrent, 2 * N, 1, U, N, UNITS, WIDTH)
    depth = T.to(tl.int64) * B * U
    end = T.to(tl.int64) - 1
    at, gap = (end * B + row) * U + unit, row * T + end
    head, place = (end * B + row) * W + column, gap * N + column
    gate, cell = (end * B + row) * 4 * N + column, (end * B + row) * N + column
    to_state = tl.load(g_last + row * N + column, real, other=0.0).to(tl.float32)
    for step in range(T):
        # All that a step reads is asked for at once, before it writes.
        to_state += tl.load(g_out + place, real, other=0.0).to(tl.float32)
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
            back = B * N * (step + 1 < T).to(tl.int32)
            memory = tl.load(cells + cell - back, real, other=0.0)
            if step + 1 == T:  # the memory before the first step lies elsewhere
                memory = tl.load(c + row * N + column, real, other=0.0).to(tl.float32)
        to_after = tl.where(valid, to_state, 0.0)
        kind = to_heads.dtype.element_ty
        to_z = tl.zeros((ROWS, UNITS), tl.float32)
        if MODE == PURE:
            to_g, to_gap, part, other = pure_backward(to_after, g, decay, height, d)
            to_decay += part
            to_height += other
        else:
            to_g, to_e, to_a, to_b, to_gap = gated_backward(
                to_after, g, e, p, t_a, d, MODE, SIGN, PHI, SCALE, RATE
            )
            tl.store(to_heads + head + N, to_e.to(kind), real)
            tl.store(to_heads + head + 2 * N, to_a.to(kind), real)
            to_z = matmul_add(to_e, w_h, to_z, PRECISION)
            to_z = matmul_add(to_a, w_a, to_z, PRECISION)
            if TIME_BIAS:
                tl.store(to_heads + head + 3 * N, to_b.to(kind), real)
                to_z = matmul_add(to_b, w_b, to_z, PRECISION)
        tl.store(to_heads + head, to_g.to(kind), real)
        to_z = matmul_add(to_g, w_g, to_z, PRECISION)
        if GAPS:
            tl.store(g_dt + gap, tl.sum(to_gap, 1)[:, None], row < B)
        if LAYERS > 2:
            to_z = activation_backward(to_z, slope_3, to_deep + depth, at, live)
            to_z = matmul_add(to_z, w_third, tl.zeros((ROWS, UNITS), tl.float32), PRECISION)
        if LAYERS > 1:
            to_z = activation_backward(to_z, slope_2, to_deep, at, live)
            to_z = matmul_add(to_z, w_second, tl.zeros((ROWS, UNITS), tl.float32), PRECISION)
        if LAYERS > 0:
            delta = activation_backward(to_z, slope, to_first, at, live)
            to_z = matmul_add(delta, w_first, tl.zeros((ROWS, WIDTH), tl.float32), PRECISION)
        if MIXED > 0:
            to_u = to_z
            if MIXED == 1:
                to_u = matmul_add(delta, w_u, tl.zeros((ROWS, WIDTH), tl.float32), PRECISION)
            else:
                to_z = tl.zeros((ROWS, WIDTH), tl.float32)
            bent = tanh(fresh)
            to_fresh = tl.where(valid, to_memory, 0.0) + to_u * o * (1.0 - bent * bent)
            to_i = to_fresh * m * i * (1.0 - i)
            to_f = to_fresh * memory * f * (1.0 - f)
            to_m = to_fresh * i * (1.0 - m * m)
            to_o = to_u * bent * o * (1.0 - o)
            to_memory = to_fresh * f + tl.where(valid, 0.0, to_memory)
            kept = to_gates.dtype.element_ty
            tl.store(to_gates + gate, to_i.to(kept), real)
            tl.store(to_gates + gate + N, to_f.to(kept), real)
            tl.store(to_gates + gate + 2 * N, to_m.to(kept), real)
            tl.store(to_gates + gate + 3 * N, to_o.to(kept), real)
            to_z = matmul_add(to_i, w_in, to_z, PRECISION)
            to_z = matmul_add(to_f, w_forget, to_z, PRECISION)
            to_z = matmul_add(to_m, w_cell, to_z, PRECISION)
            to_z = matmul_add(to_o, w_out, to_z, PRECISION)
            gate -= 4 * B * N
            cell -= B * N
        # Where a step is not valid, nothing was pulled, and the state's own gradient goes on.
        to_state = to_z + tl.where(valid, 0.0, to_state)
        at -= B * U
        head -= B * W
        place -= N
        gap -= 1
    tl.store(g_h + row * N + column, to_state.to(g_h.dtype.element_ty), real)
    if MIXED > 0:
        tl.store(g_c + row * N + column, to_memory.to(g_c.dtype.element_ty), real)
    if MODE == PURE:
        j, inside = tl.arange(0, WIDTH), tl.arange(0, WIDTH) < N
        tl.store(g_rate + program * N + j, tl.sum(to_decay, 0), inside)
        tl.store(g_amplitude + program * N + j, tl.sum(to_height, 0), inside)
