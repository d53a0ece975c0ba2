r"""The LTC's fused solver over whole sequences in Triton.

The equations and their gradient are those of :mod:`.numba_loop`. One program takes a tile of
sequences through all steps, with their potentials in registers. What input and leak contribute does
not depend on the state and is summed beforehand, for all steps at once.

Synapses are walked in blocks: by source forwards, by target backwards, so that what is summed for a
neuron stays in the thread that sums it. Where one block holds all of them, a program keeps it in
registers for the whole sequence, and backwards the gradients of its weights too; else the weights
stream from the cache, and :func:`weights_backward` sums the gradients afterwards.

As in :mod:`.numba_synapses`, a synapse conducts ``w s`` with ``s = sigmoid(sigma (z - mu))`` and
pulls its target towards E. Weights come as (4, ...): forwards ``a = sigma log2(e)``, mu, w and
``w E``; backwards a, mu, ``w sigma`` and E. Gradients with respect to sigma, mu, w and E lack the
factors that all terms of a sum share, which the caller applies: w, -w sigma, 1 and w.

What has no recurrence comes first: programs share rows and synapses out among them, sensory
synapses of all steps, and the gradients of weights once those of the sums over synapses are known.

Axes of tiles: rows, sources, targets. Sources beyond the last have w = 0 and send nothing.

Entries of padding are zero throughout, with C = 1.
"""

# mypy: ignore-errors

import triton
import triton.language as tl

from tauflow.kernels.gpu.math import sigmoid2


@triton.jit
def load_weights(weights, at, inside, size):
    """Return the four weights of the synapses ``at``."""
    first = tl.load(weights + at, inside, other=0.0)
    second = tl.load(weights + size + at, inside, other=0.0)
    third = tl.load(weights + 2 * size + at, inside, other=0.0)
    fourth = tl.load(weights + 3 * size + at, inside, other=0.0)
    return first, second, third, fourth


@triton.jit(do_not_specialize=["M"])
def synaptic_currents(
    z,  # (M, S)
    weights,  # (4, S, N)
    offsets,  # (2, N), added to the sums
    drive,  # (M, N)
    conductance,  # (M, N)
    M,
    S,
    N,
    ROWS: tl.constexpr,
    SOURCES: tl.constexpr,
    TARGETS: tl.constexpr,
):
    """Sum what sources send to each target."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    target = tl.program_id(1) * TARGETS + tl.arange(0, TARGETS)
    j = target[None, None, :]
    drives = tl.zeros((ROWS, SOURCES, TARGETS), tl.float32)
    totals = tl.zeros((ROWS, SOURCES, TARGETS), tl.float32)
    for first in range(0, S, SOURCES):
        i = (first + tl.arange(0, SOURCES))[None, :, None]
        a, mu, w, wE = load_weights(weights, i * N + j, (i < S) & (j < N), S * N)
        inside = (row[:, None, None] < M) & (i < S)
        z_i = tl.load(z + row[:, None, None] * S + i, inside, other=0.0).to(tl.float32)
        s = sigmoid2(a * (mu - z_i))
        drives += wE * s
        totals += w * s
    inside = target < N
    at = row[:, None] * N + target[None, :]
    both = (row[:, None] < M) & inside[None, :]
    sums = tl.sum(drives, 1) + tl.load(offsets + target, inside, other=0.0)[None, :]
    tl.store(drive + at, sums, both)
    sums = tl.sum(totals, 1) + tl.load(offsets + N + target, inside, other=0.0)[None, :]
    tl.store(conductance + at, sums, both)


@triton.jit(do_not_specialize=["M"])
def sources_backward(
    z,  # (M, S)
    weights,  # (4, S, N)
    grad_drive,  # (M, N)
    grad_conductance,  # (M, N)
    grad_z,  # (M, S)
    M,
    S,
    N,
    ROWS: tl.constexpr,
    SOURCES: tl.constexpr,
    TARGETS: tl.constexpr,
):
    """Return the gradient of the sources."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    source = tl.program_id(1) * SOURCES + tl.arange(0, SOURCES)
    i = source[None, :, None]
    rows = row[:, None, None]
    inside = (rows < M) & (i < S)
    z_i = tl.load(z + rows * S + i, inside, other=0.0).to(tl.float32)
    grad_terms = tl.zeros((ROWS, SOURCES, TARGETS), tl.float32)
    for first in range(0, N, TARGETS):
        j = (first + tl.arange(0, TARGETS))[None, None, :]
        a, mu, w_sigma, E = load_weights(weights, i * N + j, (i < S) & (j < N), S * N)
        here = (rows < M) & (j < N)
        grad_D = tl.load(grad_drive + rows * N + j, here, other=0.0)
        grad_G = tl.load(grad_conductance + rows * N + j, here, other=0.0)
        s = sigmoid2(a * (mu - z_i))
        grad_terms += w_sigma * (s * (1.0 - s) * (grad_G + E * grad_D))
    at = row[:, None] * S + source[None, :]
    both = (row[:, None] < M) & (source[None, :] < S)
    tl.store(grad_z + at, tl.sum(grad_terms, 2).to(grad_z.dtype.element_ty), both)


@triton.jit(do_not_specialize=["M", "chunk"])
def weights_backward(
    z,  # (M, S)
    weights,  # (4, S, N)
    grad_drive,  # (M, N)
    grad_conductance,  # (M, N); where AFTER, -grad_drive times the next row of z instead
    grad_weights,  # (chunks, 4, S, N)
    M,
    S,
    N,
    chunk,  # rows of a chunk
    AFTER: tl.constexpr,
    ROWS: tl.constexpr,
    SOURCES: tl.constexpr,
    TARGETS: tl.constexpr,
):
    """Sum the gradients of weights over a chunk of the rows."""
    i = (tl.program_id(0) * SOURCES + tl.arange(0, SOURCES))[None, :, None]
    j = (tl.program_id(1) * TARGETS + tl.arange(0, TARGETS))[None, None, :]
    inside = (i < S) & (j < N)
    a, mu, _, E = load_weights(weights, i * N + j, inside, S * N)
    begin = tl.program_id(2).to(tl.int64) * chunk
    end = tl.minimum(begin + chunk, M)
    grad_sigma = tl.zeros((ROWS, SOURCES, TARGETS), tl.float32)
    grad_mu = tl.zeros((ROWS, SOURCES, TARGETS), tl.float32)
    grad_w = tl.zeros((ROWS, SOURCES, TARGETS), tl.float32)
    grad_E = tl.zeros((ROWS, SOURCES, TARGETS), tl.float32)
    for first in range(begin, end, ROWS):
        row = (first + tl.arange(0, ROWS))[:, None, None]
        here = (row < end) & (j < N)
        grad_D = tl.load(grad_drive + row * N + j, here, other=0.0)
        if AFTER:
            grad_G = -grad_D * tl.load(z + (row + 1) * N + j, here & (row + 1 < M), other=0.0)
        else:
            grad_G = tl.load(grad_conductance + row * N + j, here, other=0.0)
        z_i = tl.load(z + row * S + i, (row < end) & (i < S), other=0.0).to(tl.float32)
        s = sigmoid2(a * (mu - z_i))
        p = grad_G + E * grad_D
        q = s * (1.0 - s) * p
        grad_sigma += q * (z_i - mu)
        grad_mu += q
        grad_w += s * p
        grad_E += s * grad_D
    at = grad_weights + tl.program_id(2).to(tl.int64) * 4 * S * N + i * N + j
    tl.store(at, tl.sum(grad_sigma, 0)[None], inside)
    tl.store(at + S * N, tl.sum(grad_mu, 0)[None], inside)
    tl.store(at + 2 * S * N, tl.sum(grad_w, 0)[None], inside)
    tl.store(at + 3 * S * N, tl.sum(grad_E, 0)[None], inside)


@triton.jit
def _load_block(weights, first, N, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    """Return the weights of rows ``first`` to ``first + BLOCK`` of (4, N, N)."""
    i = (first + tl.arange(0, BLOCK))[None, :, None]
    j = tl.arange(0, WIDTH)[None, None, :]
    return load_weights(weights, i * N + j, (i < N) & (j < N), N * N)


@triton.jit
def _gather_columns(values, first, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Return ``values[:, first : first + BLOCK]``, which lie in other threads' registers."""
    index = tl.broadcast_to((first + tl.arange(0, BLOCK))[None, :], (ROWS, BLOCK))
    return tl.gather(values, index, 1)


@triton.jit
def _synapse_currents(v_i, a, mu, w, wE):
    """Return what sources send to drive and conductance, per synapse."""
    s = sigmoid2(a * (mu - v_i[:, :, None]))
    return wE * s, w * s


@triton.jit(do_not_specialize=["B", "T"])
def ltc_forward(
    drive_x,  # (B, T, N): what input and leak contribute
    conductance_x,  # (B, T, N)
    delta,  # (B, T)
    mask,  # (B, T) where MASKED
    h,  # (B, N)
    weights,  # (4, N, N), sources by targets
    C,  # (N,)
    out,  # (B, T, N)
    last,  # (B, N)
    potentials,  # (B, T K + 1, N) where KEEP: potentials before every sub-step, and the last ones
    reciprocals,  # (B, T K, N) where KEEP: 1 / m
    slopes,  # (B, T K, N) where SLOPES: (D - G v') / m
    B,
    T,
    N,
    K,
    MASKED: tl.constexpr,
    KEEP: tl.constexpr,
    SLOPES: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Run a tile of sequences."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, WIDTH)
    real = (row[:, None] < B) & (column[None, :] < N)
    step = row * T  # entry (b, t) of what has steps
    at = step[:, None] * N + column[None, :]
    # And of what has sub-steps, where sequences of the saved potentials have one row more.
    substep = step[:, None] * K * N + column[None, :]
    taped = substep + row[:, None] * N
    capacity = tl.load(C + column, column < N, other=1.0)[None, :]
    v = tl.load(h + row[:, None] * N + column[None, :], real, other=0.0).to(tl.float32)
    if BLOCK == WIDTH:
        a, mu, w, wE = _load_block(weights, 0, N, BLOCK, WIDTH)
    ahead_drive = tl.load(drive_x + at, real, other=0.0)
    ahead_conductance = tl.load(conductance_x + at, real, other=0.0)
    ahead_delta = tl.load(delta + step, row < B, other=0.0)
    for t in range(T):
        input_drive, input_conductance, d = ahead_drive, ahead_conductance, ahead_delta[:, None]
        valid = real
        if MASKED:
            valid = real & (tl.load(mask + step, row < B, other=0)[:, None] != 0)
        # The next step's input is on its way while this step is computed; the last one's is again.
        more = (t + 1 < T).to(tl.int32)
        ahead_drive = tl.load(drive_x + at + more * N, real, other=0.0)
        ahead_conductance = tl.load(conductance_x + at + more * N, real, other=0.0)
        ahead_delta = tl.load(delta + step + more, row < B, other=0.0)
        for _ in range(K):
            if BLOCK == WIDTH:
                drives, totals = _synapse_currents(v, a, mu, w, wE)
            else:
                drives = tl.zeros((ROWS, BLOCK, WIDTH), tl.float32)
                totals = tl.zeros((ROWS, BLOCK, WIDTH), tl.float32)
                for first in range(0, N, BLOCK):
                    a, mu, w, wE = _load_block(weights, first, N, BLOCK, WIDTH)
                    sent = _synapse_currents(_gather_columns(v, first, ROWS, BLOCK), a, mu, w, wE)
                    drives += sent[0]
                    totals += sent[1]
            drive = input_drive + tl.sum(drives, 1)
            conductance = input_conductance + tl.sum(totals, 1)
            m = capacity + d * conductance
            after = tl.div_rn(capacity * v + d * drive, m)  # without a time step, C v / C is v
            if KEEP:
                reciprocal = tl.div_rn(1.0, m)
                tl.store(potentials + taped, v, real)
                tl.store(reciprocals + substep, reciprocal, real)
                if SLOPES:
                    tl.store(slopes + substep, (drive - conductance * after) * reciprocal, real)
            v = tl.where(valid, after, v)
            taped += N
            substep += N
        tl.store(out + at, v.to(out.dtype.element_ty), real)
        at += N
        step += 1
    if KEEP:
        tl.store(potentials + taped, v, real)
    tl.store(last + row[:, None] * N + column[None, :], v.to(last.dtype.element_ty), real)


@triton.jit(do_not_specialize=["B", "T"])
def ltc_backward(
    delta,  # (B, T)
    mask,  # (B, T) where MASKED
    weights,  # (4, N, N), targets by sources
    C,  # (N,)
    potentials,  # (B, T K + 1, N)
    reciprocals,  # (B, T K, N)
    slopes,  # (B, T K, N) where SLOPES
    grad_out,  # (B, T, N)
    grad_last,  # (B, N)
    grad_h,  # (B, N)
    grad_drive_x,  # (B, T, N)
    grad_conductance_x,  # (B, T, N)
    grad_delta,  # (B, T) where SLOPES
    grad_C,  # (programs, N)
    grad_weights,  # (programs, 4, N, N) where one block holds all synapses, targets by sources
    grad_drives,  # else (B, T K + 1, N): gradients of the sums over synapses
    B,
    T,
    N,
    K,
    MASKED: tl.constexpr,
    SLOPES: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Run a tile of sequences backwards."""
    program = tl.program_id(0).to(tl.int64)
    row = program * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, WIDTH)
    inside = column < N
    real = (row[:, None] < B) & inside[None, :]
    step = row * T + T - 1
    at = step[:, None] * N + column[None, :]
    substep = (step[:, None] + 1) * K * N - N + column[None, :]
    taped = substep + row[:, None] * N
    capacity = tl.load(C + column, inside, other=1.0)[None, :]
    grad_v = tl.load(grad_last + row[:, None] * N + column[None, :], real, other=0.0).to(tl.float32)
    grad_capacity = tl.zeros((ROWS, WIDTH), tl.float32)
    if BLOCK == WIDTH:
        a, mu, w_sigma, E = _load_block(weights, 0, N, BLOCK, WIDTH)
        grad_sigma = tl.zeros((1, BLOCK, WIDTH), tl.float32)
        grad_mu = tl.zeros((1, BLOCK, WIDTH), tl.float32)
        grad_w = tl.zeros((1, BLOCK, WIDTH), tl.float32)
        grad_E = tl.zeros((1, BLOCK, WIDTH), tl.float32)
    else:
        tl.store(grad_drives + taped + N, tl.zeros((ROWS, WIDTH), tl.float32), real)
    after = tl.load(potentials + taped + N, real, other=0.0)
    ahead_v = tl.load(potentials + taped, real, other=0.0)
    ahead_reciprocal = tl.load(reciprocals + substep, real, other=0.0)
    ahead_g = tl.load(grad_out + at, real, other=0.0)
    ahead_delta = tl.load(delta + step, row < B, other=0.0)
    for t in range(T):
        grad_v += ahead_g.to(tl.float32)
        d = ahead_delta[:, None]
        valid = real
        if MASKED:
            valid = real & (tl.load(mask + step, row < B, other=0)[:, None] != 0)
        more = (t + 1 < T).to(tl.int32)
        ahead_g = tl.load(grad_out + at - more * N, real, other=0.0)
        ahead_delta = tl.load(delta + step - more, row < B, other=0.0)
        grad_input_drive = tl.zeros((ROWS, WIDTH), tl.float32)
        grad_input_conductance = tl.zeros((ROWS, WIDTH), tl.float32)
        grad_gap = tl.zeros((ROWS, WIDTH), tl.float32)
        for k in range(K):
            v, reciprocal = ahead_v, ahead_reciprocal
            back = N * ((t + 1 < T) | (k + 1 < K)).to(tl.int32)
            ahead_v = tl.load(potentials + taped - back, real, other=0.0)
            ahead_reciprocal = tl.load(reciprocals + substep - back, real, other=0.0)
            if SLOPES:
                slope = tl.load(slopes + substep, real, other=0.0)
                grad_gap += tl.where(valid, grad_v * slope, 0.0)
            grad_n = tl.where(valid, grad_v * reciprocal, 0.0)
            grad_m = -grad_n * after
            grad_capacity += grad_n * v + grad_m
            grad_drive = d * grad_n
            grad_conductance = d * grad_m
            grad_input_drive += grad_drive
            grad_input_conductance += grad_conductance
            grad_v = tl.where(valid, grad_n * capacity, grad_v)
            if BLOCK == WIDTH:
                s = sigmoid2(a * (mu - v[:, None, :]))
                p = grad_conductance[:, :, None] + E * grad_drive[:, :, None]
                q = s * (1.0 - s) * p
                grad_v += tl.sum(w_sigma * q, 1)
                grad_sigma += tl.sum(q * (v[:, None, :] - mu), 0)[None]
                grad_mu += tl.sum(q, 0)[None]
                grad_w += tl.sum(s * p, 0)[None]
                grad_E += tl.sum(s * grad_drive[:, :, None], 0)[None]
            else:
                tl.store(grad_drives + taped, grad_drive, real)
                grad_terms = tl.zeros((ROWS, BLOCK, WIDTH), tl.float32)
                for first in range(0, N, BLOCK):
                    a, mu, w_sigma, E = _load_block(weights, first, N, BLOCK, WIDTH)
                    grad_D = _gather_columns(grad_drive, first, ROWS, BLOCK)[:, :, None]
                    grad_G = _gather_columns(grad_conductance, first, ROWS, BLOCK)[:, :, None]
                    s = sigmoid2(a * (mu - v[:, None, :]))
                    grad_terms += w_sigma * (s * (1.0 - s) * (grad_G + E * grad_D))
                grad_v += tl.sum(grad_terms, 1)
            after = v
            taped -= N
            substep -= N
        tl.store(grad_drive_x + at, grad_input_drive, real)
        tl.store(grad_conductance_x + at, grad_input_conductance, real)
        if SLOPES:
            tl.store(grad_delta + step, tl.sum(grad_gap, 1), row < B)
        at -= N
        step -= 1
    tl.store(grad_h + row[:, None] * N + column[None, :], grad_v.to(grad_h.dtype.element_ty), real)
    tl.store(grad_C + program * N + column, tl.sum(grad_capacity, 0), inside)
    if BLOCK == WIDTH:
        j = tl.arange(0, BLOCK)[None, :, None]
        i = column[None, None, :]
        here = grad_weights + program * 4 * N * N + j * N + i
        both = (j < N) & (i < N)
        tl.store(here, grad_sigma, both)
        tl.store(here + N * N, grad_mu, both)
        tl.store(here + 2 * N * N, grad_w, both)
        tl.store(here + 3 * N * N, grad_E, both)
