r"""Explicit Runge-Kutta steps of a driven flow over whole sequences in Triton.

The field is ``F(h) = s phi(W h + drive) - damping h``. The equations of a step are those of
:func:`~tauflow.cells.ct_rnn.ct_rnn_update`; of the tables here, each stage reads the one before it
only. One program takes a tile of sequences through all steps, with W on the chip.

Axes: B batch, T time, N neurons, E field evaluations of a step (sub-steps times stages). Entries of
padding are zero throughout, as s is there.
"""

# mypy: ignore-errors

import triton
import triton.language as tl

from tauflow.kernels.gpu.math import (
    activate,
    load_matrix,
    load_vector,
    matmul_add,
    slope_from_value,
)

UNSPECIALIZED_ARGUMENTS = ["A_1", "A_2", "A_3", "B_0", "B_1", "B_2", "B_3", "B", "T", "E", "STAGES"]
"""Arguments of whatever value, one compilation for all."""


@triton.jit
def select_coefficient(i, first, second, third, fourth):
    """Return entry i of four."""
    return tl.where(i == 0, first, tl.where(i == 1, second, tl.where(i == 2, third, fourth)))


@triton.jit
def evaluate_field(
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
    value, _ = activate(matmul_add(h, weights, drive, PRECISION), PHI, SCALE, RATE)
    if KEEP:
        tl.store(at + place, h.to(at.dtype.element_ty), real)
        tl.store(f + place, value.to(f.dtype.element_ty), real)
    # In padding, a product with an infinity is NaN.
    return tl.where(real, scale * value - damping * h, 0.0)


@triton.jit(do_not_specialize=UNSPECIALIZED_ARGUMENTS)
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
    A_1,  # what stages take of the field's value in the stage before
    A_2,
    A_3,
    B_0,  # and what the sub-step takes of each
    B_1,
    B_2,
    B_3,
    B,
    T,
    N,
    E,
    STAGES,
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
    w, s = load_matrix(weights, 1, N, N, N, WIDTH, WIDTH), load_vector(scale, N, WIDTH)
    state = tl.load(h + row * N + column, real, other=0.0).to(tl.float32)
    gap, place = row * T, row * T * N + column
    stage = row * T * E * N + column
    ahead = tl.load(drive + place, real, other=0.0)
    for t in range(T):
        z, d = ahead.to(tl.float32), tl.load(delta + gap, row < B, other=0.0)
        valid = real
        if MASKED:
            valid = real & (tl.load(mask + gap, row < B, other=0) != 0)
        # The next step's input is on its way while this step is computed; the last one's again.
        ahead = tl.load(drive + place + N * (t + 1 < T).to(tl.int32), real, other=0.0)
        # One loop over sub-steps and stages: a single product keeps registers and memory few.
        v, total, F = state, tl.zeros((ROWS, WIDTH), tl.float32), tl.zeros_like(state)
        for n in range(E):
            i = n % STAGES
            v_i = tl.where(i == 0, v, v + d * (select_coefficient(i, 0.0, A_1, A_2, A_3) * F))
            F = evaluate_field(
                v_i, z, w, s, damping, at, f, stage, real, PHI, SCALE, RATE, KEEP, PRECISION
            )
            total = tl.where(i == 0, 0.0, total) + select_coefficient(i, B_0, B_1, B_2, B_3) * F
            v = tl.where(i == STAGES - 1, v + d * total, v)
            stage += N
        state = tl.where(valid, v, state)
        tl.store(out + place, state.to(out.dtype.element_ty), real)
        place += N
        gap += 1
    tl.store(last + row * N + column, state.to(last.dtype.element_ty), real)


@triton.jit
def stage_backward(
    e,
    d,
    weights,
    scale,
    damping,
    at,
    f,
    grad_z,
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
    scaled = d * e
    z = scaled * scale * slope_from_value(value, PHI, SCALE, RATE)
    tl.store(grad_z + place, z.to(grad_z.dtype.element_ty), real)
    back = matmul_add(z, weights, -damping * scaled, PRECISION)
    return back, e * (scale * value - damping * h), scaled * value, z


@triton.jit(do_not_specialize=UNSPECIALIZED_ARGUMENTS)
def flow_backward(
    delta,  # (B, T)
    mask,  # (B, T) where MASKED
    weights,  # (N, N)
    scale,  # (N,)
    at,  # (B, T E, N)
    f,  # (B, T E, N)
    grad_out,  # (B, T, N)
    grad_last,  # (B, N)
    grad_h,  # (B, N)
    grad_drive,  # (B, T, N)
    grad_delta,  # (B, T) where GAPS
    grad_scale,  # (programs, N)
    grad_z,  # (B, T E, N): gradients of phi's arguments
    damping,
    A_1,  # what stages take of the field's value in the stage before
    A_2,
    A_3,
    B_0,  # and what the sub-step takes of each
    B_1,
    B_2,
    B_3,
    B,
    T,
    N,
    E,
    STAGES,
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
    w, s = load_matrix(weights, N, 1, N, N, WIDTH, WIDTH), load_vector(scale, N, WIDTH)
    g = tl.load(grad_last + row * N + column, real, other=0.0).to(tl.float32)
    scale_sum = tl.zeros((ROWS, WIDTH), tl.float32)
    gap = row * T + T - 1
    place = gap * N + column
    stage = (gap + 1) * E * N - N + column
    for _ in range(T):
        g += tl.load(grad_out + place, real, other=0.0).to(tl.float32)
        d = tl.load(delta + gap, row < B, other=0.0)
        valid = real
        if MASKED:
            valid = real & (tl.load(mask + gap, row < B, other=0) != 0)
        rest, grad_after = tl.where(valid, 0.0, g), tl.where(valid, g, 0.0)
        drive_sum = tl.zeros((ROWS, WIDTH), tl.float32)
        grad_gap = tl.zeros((ROWS, WIDTH), tl.float32)
        whole, back = grad_after, tl.zeros((ROWS, WIDTH), tl.float32)
        for n in range(E):
            # Each stage, the last one first, adds to the gradient of the state before the sub-step,
            # and pulls at the field's value in the stage before it.
            i = STAGES - 1 - n % STAGES
            is_last = i == STAGES - 1
            whole = tl.where(is_last, grad_after, whole)
            e = tl.where(is_last, 0.0, select_coefficient(i + 1, 0.0, A_1, A_2, A_3) * back)
            e += select_coefficient(i, B_0, B_1, B_2, B_3) * whole
            back, part, other, z = stage_backward(
                e, d, w, s, damping, at, f, grad_z, stage, real, PHI, SCALE, RATE, PRECISION
            )
            grad_after += back
            grad_gap += part
            scale_sum += other
            drive_sum += z
            stage -= N
        g = grad_after + rest
        tl.store(grad_drive + place, drive_sum.to(grad_drive.dtype.element_ty), real)
        if GAPS:
            tl.store(grad_delta + gap, tl.sum(grad_gap, 1)[:, None], row < B)
        place -= N
        gap -= 1
    tl.store(grad_h + row * N + column, g.to(grad_h.dtype.element_ty), real)
    j = tl.arange(0, WIDTH)
    tl.store(grad_scale + program * N + j, tl.sum(scale_sum, 0), j < N)
