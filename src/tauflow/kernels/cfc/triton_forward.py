"""Closed-form cells over whole sequences in Triton, with their weights on the chip.

One program takes a tile of sequences through all steps. What the first layer reads of the input is
multiplied beforehand, for all steps in one product; what it reads of the state, the other layers
and the heads follow step by step, from weights that are loaded once.

A cell may have a memory c beside its state v: MIXED is 1 if its output u goes where the core's
input was, 2 if it goes where the state was, and 0 without one.

Axes as in :mod:`.config`: everything but outputs, time steps and masks has time first. Entries of
padding are zero throughout, for an infinity times a weight of zero would be NaN.
"""

# mypy: ignore-errors

import triton
import triton.language as tl

from tauflow.kernels.gpu.math import activate, load_matrix, load_vector, matmul_add, sigmoid, tanh

from .triton_pointwise import PURE, gated_forward, pure_forward


@triton.jit
def activate_layer(
    total,
    values,
    slopes,
    at,
    live,
    PHI: tl.constexpr,
    SCALE: tl.constexpr,
    RATE: tl.constexpr,
    KEEP: tl.constexpr,
    SLOPES: tl.constexpr,
):
    """Return the activation of a layer, and write what the backward pass reads."""
    z, slope = activate(total, PHI, SCALE, RATE)
    z = tl.where(live, z, 0.0)
    if KEEP:
        tl.store(values + at, z.to(values.dtype.element_ty), live)
        if SLOPES:
            tl.store(slopes + at, slope.to(slopes.dtype.element_ty), live)
    return z


@triton.jit(do_not_specialize=["B", "T"])
def cfc_forward(  # noqa: C901 - branches on constants, gone when compiled
    first,  # (T, B, F): products with the input and the bias; values of the first layer on return
    deep,  # (L - 1, T, B, U)
    slopes,  # (L, T, B, U) where SLOPES
    heads,  # (T, B, W): phi(g), phi(h), p and t_a, or r; the first layer where LAYERS is 0
    recurrent,  # (F, N), or (F, 2 N) for [u; v] where MIXED is 1
    deep_weights,  # (L - 1, U, U)
    head_weights,  # (K N, U)
    rate,  # (N,)
    amplitude,  # (N,)
    gate_weights,  # (4 N, N) where MIXED
    deep_bias,  # (L - 1, U)
    head_bias,  # (K N,)
    h,  # (B, S): N, or 2 N with the memory c where MIXED
    dt,  # (B, T)
    mask,  # (B, T) where MASKED
    out,  # (B, T, N)
    last,  # (B, S)
    gates,  # (T, B, 4 N) where MIXED: products with the input and the bias; i, f, g, o on return
    cells,  # (T + 1, B, N) where MIXED: c before every step and after the last
    B,
    T,
    N,
    U,
    W,  # width of a row of heads
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
    KEEP: tl.constexpr,
    SLOPES: tl.constexpr,
    PRECISION: tl.constexpr,
    ROWS: tl.constexpr,
    UNITS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Run a tile of sequences."""
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    column, unit = tl.arange(0, WIDTH)[None, :], tl.arange(0, UNITS)[None, :]
    real, live = (row < B) & (column < N), (row < B) & (unit < U)
    size = 2 * N if MIXED > 0 else N
    state = tl.load(h + row * size + column, real, other=0.0).to(tl.float32)
    # Heads are separate weights, so that no tile has to be taken apart.
    block = N * U if LAYERS > 0 else N * N
    source = head_weights if LAYERS > 0 else recurrent
    width = U if LAYERS > 0 else N
    w_g = load_matrix(source, 1, width, width, N, UNITS, WIDTH)
    if MODE != PURE:
        w_h = load_matrix(source + block, 1, width, width, N, UNITS, WIDTH)
        w_a = load_matrix(source + 2 * block, 1, width, width, N, UNITS, WIDTH)
        if TIME_BIAS:
            w_b = load_matrix(source + 3 * block, 1, width, width, N, UNITS, WIDTH)
    if LAYERS > 0:
        reads = 2 * N if MIXED == 1 else N
        w_first = load_matrix(recurrent + reads - N, 1, reads, N, U, WIDTH, UNITS)
        b_g = load_vector(head_bias, N, WIDTH)
        if MODE != PURE:
            b_h, b_a = (
                load_vector(head_bias + N, N, WIDTH),
                load_vector(head_bias + 2 * N, N, WIDTH),
            )
            if TIME_BIAS:
                b_b = load_vector(head_bias + 3 * N, N, WIDTH)
    if LAYERS > 1:
        w_second = load_matrix(deep_weights, 1, U, U, U, UNITS, UNITS)
        b_second = load_vector(deep_bias, U, UNITS)
    if LAYERS > 2:
        w_third = load_matrix(deep_weights + U * U, 1, U, U, U, UNITS, UNITS)
        b_third = load_vector(deep_bias + U, U, UNITS)
    if MODE == PURE:
        decay, height = load_vector(rate, N, WIDTH), load_vector(amplitude, N, WIDTH)
    if MIXED > 0:
        w_in = load_matrix(gate_weights, 1, N, N, N, WIDTH, WIDTH)
        w_forget = load_matrix(gate_weights + N * N, 1, N, N, N, WIDTH, WIDTH)
        w_cell = load_matrix(gate_weights + 2 * N * N, 1, N, N, N, WIDTH, WIDTH)
        w_out = load_matrix(gate_weights + 3 * N * N, 1, N, N, N, WIDTH, WIDTH)
        memory = tl.load(h + row * size + N + column, real, other=0.0).to(tl.float32)
        gate, cell = row * 4 * N + column, (B + row) * N + column
        if KEEP:
            tl.store(cells + row * N + column, memory, real)
    if MIXED == 1:
        w_u = load_matrix(recurrent, 1, 2 * N, N, U, WIDTH, UNITS)
    depth = T.to(tl.int64) * B * U  # entries of one layer of the saved tensors
    at, gap = row * U + unit, row * T
    head, place = row * W + column, row * T * N + column
    if LAYERS > 0:
        ahead = tl.load(first + at, live, other=0.0)
    for t in range(T):
        d = tl.load(dt + gap, row < B, other=0.0)
        valid = real
        if MASKED:
            valid = real & (tl.load(mask + gap, row < B, other=0) != 0)
        z = state
        if MIXED > 0:
            i = tl.load(gates + gate, real, other=0.0).to(tl.float32)
            f = tl.load(gates + gate + N, real, other=0.0).to(tl.float32)
            m = tl.load(gates + gate + 2 * N, real, other=0.0).to(tl.float32)
            o = tl.load(gates + gate + 3 * N, real, other=0.0).to(tl.float32)
            i = sigmoid(matmul_add(state, w_in, i, PRECISION))
            f = sigmoid(matmul_add(state, w_forget, f, PRECISION))
            m = tanh(matmul_add(state, w_cell, m, PRECISION))
            o = sigmoid(matmul_add(state, w_out, o, PRECISION))
            fresh = f * memory + i * m
            u = tl.where(real, o * tanh(fresh), 0.0)
            memory = tl.where(valid, fresh, memory)
            if KEEP:
                tl.store(gates + gate, i.to(gates.dtype.element_ty), real)
                tl.store(gates + gate + N, f.to(gates.dtype.element_ty), real)
                tl.store(gates + gate + 2 * N, m.to(gates.dtype.element_ty), real)
                tl.store(gates + gate + 3 * N, o.to(gates.dtype.element_ty), real)
                tl.store(cells + cell, memory, real)
            gate += 4 * B * N
            cell += B * N
        if MIXED == 2:
            z = u
        if LAYERS > 0:
            total = ahead.to(tl.float32)
            if MIXED == 1:
                total = matmul_add(u, w_u, total, PRECISION)
            # The next step's input is on its way while this step is computed; the last one's again.
            more = (t + 1 < T).to(tl.int32)
            ahead = tl.load(first + at + more * B * U, live, other=0.0)
            total = matmul_add(z, w_first, total, PRECISION)
            z = activate_layer(
                total, first, slopes, at, live, OUTER, OUTER_SCALE, OUTER_RATE, KEEP, SLOPES
            )
        if LAYERS > 1:
            total = matmul_add(z, w_second, tl.broadcast_to(b_second, (ROWS, UNITS)), PRECISION)
            z = activate_layer(
                total, deep, slopes + depth, at, live, OUTER, OUTER_SCALE, OUTER_RATE, KEEP, SLOPES
            )
        if LAYERS > 2:
            total = matmul_add(z, w_third, tl.broadcast_to(b_third, (ROWS, UNITS)), PRECISION)
            z = activate_layer(
                total,
                deep + depth,
                slopes + 2 * depth,
                at,
                live,
                OUTER,
                OUTER_SCALE,
                OUTER_RATE,
                KEEP,
                SLOPES,
            )
        if LAYERS > 0:
            g = tl.broadcast_to(b_g, (ROWS, WIDTH))
        else:
            g = tl.load(heads + head, real, other=0.0).to(tl.float32)
        g = matmul_add(z, w_g, g, PRECISION)
        if MODE == PURE:
            after = pure_forward(g, decay, height, d)
        else:
            if LAYERS > 0:
                e = tl.broadcast_to(b_h, (ROWS, WIDTH))
                t_a = tl.broadcast_to(b_a, (ROWS, WIDTH))
            else:
                e = tl.load(heads + head + N, real, other=0.0).to(tl.float32)
                t_a = tl.load(heads + head + 2 * N, real, other=0.0).to(tl.float32)
            e = matmul_add(z, w_h, e, PRECISION)
            t_a = matmul_add(z, w_a, t_a, PRECISION)
            t_b = tl.zeros_like(t_a)
            if TIME_BIAS:
                if LAYERS > 0:
                    t_b = tl.broadcast_to(b_b, (ROWS, WIDTH))
                else:
                    t_b = tl.load(heads + head + 3 * N, real, other=0.0).to(tl.float32)
                t_b = matmul_add(z, w_b, t_b, PRECISION)
            g, _ = activate(g, PHI, SCALE, RATE)
            e, _ = activate(e, PHI, SCALE, RATE)
            after, p = gated_forward(g, e, t_a, t_b, d, MODE, SIGN)
        if KEEP:
            kind = heads.dtype.element_ty
            tl.store(heads + head, g.to(kind), real)
            if MODE != PURE:
                tl.store(heads + head + N, e.to(kind), real)
                tl.store(heads + head + 2 * N, p.to(kind), real)
                tl.store(heads + head + 3 * N, t_a.to(kind), real)
        state = tl.where(valid, after, state)
        tl.store(out + place, state.to(out.dtype.element_ty), real)
        at += B * U
        head += B * W
        place += N
        gap += 1
    tl.store(last + row * size + column, state.to(last.dtype.element_ty), real)
    if MIXED > 0:
        tl.store(last + row * size + N + column, memory.to(last.dtype.element_ty), real)
