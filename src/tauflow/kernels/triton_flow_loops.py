r"""Explicit Runge-Kutta steps of a driven flow over whole sequences in Triton.

The field is ``F(h) = s phi(W h + drive) - damping h``. The equations of a sub-step and of its
gradient are those of :mod:`.numba_flow`; of the tables here, each stage reads the one before it
only. One program takes a tile of sequences through all steps, with W on the chip.

Axes: B batch, T time, N neurons, E field evaluations of a step (sub-steps times stages). Entries of
padding are zero throughout, as s is there.
"""

import triton
import triton.language as tl

from .triton_cfc_forward import matrix, product, vector
from .triton_closed_form import activate, slope_of


@triton.jit
def evaluate(
    h,
    drive,
    weights,
    scale,
    damping,
    at,
    f,
    place,
    real,
    PHI: tl.constexpr,
    SCALE: tl.constexpr,
    RATE: tl.constexpr,
    KEEP: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Return the field's value at h, and write what the backward pass reads."""
    value, _ = activate(product(h, weights, drive, PRECISION), PHI, SCALE, RATE)
    if KEEP:
        tl.store(at + place, h.to(at.dtype.element_ty), real)
        tl.store(f + place, value.to(f.dtype.element_ty), real)
    # In padding, a product with an infinity is NaN.
    return tl.where(real, scale * value - damping * h, 0.0)


@triton.jit(do_not_specialize=["B", "T"])
def flow_forward(
    drive,  # (B, T, N)
    delta,  # (B, T): lengths of sub-steps
    mask,  # (B, T) where MASKED
    h,  # (B, N)
    weights,  # (N, N): W
    scale,  # (N,): s
    out,  # (B, T, N)
    last,  # (B, N)
    at,  # (B, T E, N) where KEEP: states that the field was evaluated at
    f,  # (B, T E, N) where KEEP: values of phi
    damping,
    B,
    T,
    N,
    K,
    STAGES: tl.constexpr,
    A_1: tl.constexpr,
    A_2: tl.constexpr,
    A_3: tl.constexpr,
    B_0: tl.constexpr,
    B_1: tl.constexpr,
    B_2: tl.constexpr,
    B_3: tl.constexpr,
    PHI: tl.constexpr,
    SCALE: tl.constexpr,
    RATE: tl.constexpr,
    MASKED: tl.constexpr,
    KEEP: tl.constexpr,
    PRECISION: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Run a tile of sequences."""
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    column = tl.arange(0, WIDTH)[None, :]
    real = (row < B) & (column < N)
    w, s = matrix(weights, 1, N, N, N, WIDTH, WIDTH), vector(scale, N, WIDTH)
    state = tl.load(h + row * N + column, real, other=0.0).to(tl.float32)
    gap, place = row * T, row * T * N + column
    stage = row * T * K * STAGES * N + column
    ahead = tl.load(drive + place, real, other=0.0)
    for t in range(T):
        z, d = ahead.to(tl.float32), tl.load(delta + gap, row < B, other=0.0)
        valid = real
        if MASKED:
            valid = real & (tl.load(mask + gap, row < B, other=0) != 0)
        # The next step's input is on its way while this step is computed; the last one's again.
        ahead = tl.load(drive + place + N * (t + 1 < T).to(tl.int32), real, other=0.0)
        v = state
        for _ in range(K):
            F = evaluate(v, z, w, s, damping, at, f, stage, real, PHI, SCALE, RATE, KEEP, PRECISION)
            total = B_0 * F
            stage += N
            if STAGES > 1:
                F = evaluate(
                    v + d * (A_1 * F), z, w, s, damping, at, f, stage, real,
                    PHI, SCALE, RATE, KEEP, PRECISION,
                )  # fmt: skip
                total += B_1 * F
                stage += N
            if STAGES > 2:
                F = evaluate(
                    v + d * (A_2 * F), z, w, s, damping, at, f, stage, real,
                    PHI, SCALE, RATE, KEEP, PRECISION,
                )  # fmt: skip
                total += B_2 * F
                stage += N
            if STAGES > 3:
                F = evaluate(
                    v + d * (A_3 * F), z, w, s, damping, at, f, stage, real,
                    PHI, SCALE, RATE, KEEP, PRECISION,
                )  # fmt: skip
                total += B_3 * F
                stage += N
            v += d * total
        state = tl.where(valid, v, state)
        tl.store(out + place, state.to(out.dtype.element_ty), real)
        place += N
        gap += 1
    tl.store(last + row * N + column, state.to(last.dtype.element_ty), real)


@triton.jit
def pull_stage(
    e,
    d,
    weights,
    scale,
    damping,
    at,
    f,
    to_z,
    place,
    real,
    PHI: tl.constexpr,
    SCALE: tl.constexpr,
    RATE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Take ``e``, the gradient of a field's value over the gap, back to the state.

    Returns:
        The gradients of the state, of the gap and of s, and that of phi's argument, as written.
    """
    h = tl.load(at + place, real, other=0.0).to(tl.float32)
    value = tl.load(f + place, real, other=0.0).to(tl.float32)
    pulled = d * e
    z = pulled * scale * slope_of(value, PHI, SCALE, RATE)
    tl.store(to_z + place, z.to(to_z.dtype.element_ty), real)
    back = product(z, weights, -damping * pulled, PRECISION)
    return back, e * (scale * value - damping * h), pulled * value, z


@triton.jit(do_not_specialize=["B", "T"])
def flow_backward(
    delta,  # (B, T)
    mask,  # (B, T) where MASKED
    weights,  # (N, N)
    scale,  # (N,)
    at,  # (B, T E, N)
    f,  # (B, T E, N)
    g_out,  # (B, T, N)
    g_last,  # (B, N)
    g_h,  # (B, N)
    g_drive,  # (B, T, N)
    g_delta,  # (B, T) where GAPS
    g_scale,  # (programs, N)
    to_z,  # (B, T E, N): gradients of phi's arguments
    damping,
    B,
    T,
    N,
    K,
    STAGES: tl.constexpr,
    A_1: tl.constexpr,
    A_2: tl.constexpr,
    A_3: tl.constexpr,
    B_0: tl.constexpr,
    B_1: tl.constexpr,
    B_2: tl.constexpr,
    B_3: tl.constexpr,
    PHI: tl.constexpr,
    SCALE: tl.constexpr,
    RATE: tl.constexpr,
    MASKED: tl.constexpr,
    GAPS: tl.constexpr,
    PRECISION: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Run a tile of sequences backwards."""
    program = tl.program_id(0).to(tl.int64)
    row = (program * ROWS + tl.arange(0, ROWS))[:, None]
    column = tl.arange(0, WIDTH)[None, :]
    real = (row < B) & (column < N)
    w, s = matrix(weights, N, 1, N, N, WIDTH, WIDTH), vector(scale, N, WIDTH)
    g = tl.load(g_last + row * N + column, real, other=0.0).to(tl.float32)
    to_scale = tl.zeros((ROWS, WIDTH), tl.float32)
    gap = row * T + T - 1
    place = gap * N + column
    stage = (gap + 1) * K * STAGES * N - N + column
    for _ in range(T):
        g += tl.load(g_out + place, real, other=0.0).to(tl.float32)
        d = tl.load(delta + gap, row < B, other=0.0)
        valid = real
        if MASKED:
            valid = real & (tl.load(mask + gap, row < B, other=0) != 0)
        rest, pull = tl.where(valid, 0.0, g), tl.where(valid, g, 0.0)
        to_drive = tl.zeros((ROWS, WIDTH), tl.float32)
        to_gap = tl.zeros((ROWS, WIDTH), tl.float32)
        for _ in range(K):
            # Each stage, the last one first, adds to the gradient of the state before the sub-step,
            # and pulls at the field's value in the stage before it.
            whole = pull
            back = tl.zeros((ROWS, WIDTH), tl.float32)
            if STAGES > 3:
                back, part, other, z = pull_stage(
                    B_3 * whole, d, w, s, damping, at, f, to_z, stage, real,
                    PHI, SCALE, RATE, PRECISION,
                )  # fmt: skip
                pull += back
                to_gap += part
                to_scale += other
                to_drive += z
                stage -= N
            if STAGES > 2:
                back, part, other, z = pull_stage(
                    B_2 * whole + A_3 * back, d, w, s, damping, at, f, to_z, stage, real,
                    PHI, SCALE, RATE, PRECISION,
                )  # fmt: skip
                pull += back
                to_gap += part
                to_scale += other
                to_drive += z
                stage -= N
            if STAGES > 1:
                back, part, other, z = pull_stage(
                    B_1 * whole + A_2 * back, d, w, s, damping, at, f, to_z, stage, real,
                    PHI, SCALE, RATE, PRECISION,
                )  # fmt: skip
                pull += back
                to_gap += part
                to_scale += other
                to_drive += z
                stage -= N
            back, part, other, z = pull_stage(
                B_0 * whole + A_1 * back, d, w, s, damping, at, f, to_z, stage, real,
                PHI, SCALE, RATE, PRECISION,
            )  # fmt: skip
            pull += back
            to_gap += part
            to_scale += other
            to_drive += z
            stage -= N
        g = pull + rest
        tl.store(g_drive + place, to_drive.to(g_drive.dtype.element_ty), real)
        if GAPS:
            tl.store(g_delta + gap, tl.sum(to_gap, 1)[:, None], row < B)
        place -= N
        gap -= 1
    tl.store(g_h + row * N + column, g.to(g_h.dtype.element_ty), real)
    j = tl.arange(0, WIDTH)
    tl.store(g_scale + program * N + j, tl.sum(to_scale, 0), j < N)
