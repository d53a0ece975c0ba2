"""Conductance-based synapses in Triton: what sources send to targets, forwards and backwards.

As in :mod:`.numba_synapses`, a synapse conducts ``w s`` with ``s = sigmoid(sigma (z - mu))`` and
pulls its target towards E. Weights come as (4, ...): forwards ``a = sigma log2(e)``, mu, w and
``w E``; backwards a, mu, ``w sigma`` and E. Gradients with respect to sigma, mu, w and E lack the
factors that all terms of a sum share, which the caller applies: w, -w sigma, 1 and w.

Everything here has no recurrence, so that programs share rows and synapses out among them: sensory
synapses of all steps, and the gradients of weights once those of the sums over synapses are known.

Axes of tiles: rows, sources, targets. Sources beyond the last have w = 0 and send nothing.
"""

import triton
import triton.language as tl


@triton.jit
def sigmoid2(y):
    """Return ``1 / (1 + 2^y)``; as the square of a root, which takes half a division's steps."""
    root = tl.rsqrt(1.0 + tl.exp2(y))
    return root * root


@triton.jit
def load_weights(weights, at, inside, size):
    """Return the four weights of the synapses ``at``."""
    first = tl.load(weights + at, inside, other=0.0)
    second = tl.load(weights + size + at, inside, other=0.0)
    third = tl.load(weights + 2 * size + at, inside, other=0.0)
    fourth = tl.load(weights + 3 * size + at, inside, other=0.0)
    return first, second, third, fourth


@triton.jit(do_not_specialize=["M"])
def conduct(
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
def pull_sources(
    z,  # (M, S)
    weights,  # (4, S, N)
    g_drive,  # (M, N)
    g_conductance,  # (M, N)
    g_z,  # (M, S)
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
    pulls = tl.zeros((ROWS, SOURCES, TARGETS), tl.float32)
    for first in range(0, N, TARGETS):
        j = (first + tl.arange(0, TARGETS))[None, None, :]
        a, mu, w_sigma, E = load_weights(weights, i * N + j, (i < S) & (j < N), S * N)
        here = (rows < M) & (j < N)
        g_D = tl.load(g_drive + rows * N + j, here, other=0.0)
        g_G = tl.load(g_conductance + rows * N + j, here, other=0.0)
        s = sigmoid2(a * (mu - z_i))
        pulls += w_sigma * (s * (1.0 - s) * (g_G + E * g_D))
    at = row[:, None] * S + source[None, :]
    both = (row[:, None] < M) & (source[None, :] < S)
    tl.store(g_z + at, tl.sum(pulls, 2).to(g_z.dtype.element_ty), both)


@triton.jit(do_not_specialize=["M", "chunk"])
def pull_weights(
    z,  # (M, S)
    weights,  # (4, S, N)
    g_drive,  # (M, N)
    g_conductance,  # (M, N); where AFTER, -g_drive times the next row of z instead
    g_weights,  # (chunks, 4, S, N)
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
    g_sigma = tl.zeros((ROWS, SOURCES, TARGETS), tl.float32)
    g_mu = tl.zeros((ROWS, SOURCES, TARGETS), tl.float32)
    g_w = tl.zeros((ROWS, SOURCES, TARGETS), tl.float32)
    g_E = tl.zeros((ROWS, SOURCES, TARGETS), tl.float32)
    for first in range(begin, end, ROWS):
        row = (first + tl.arange(0, ROWS))[:, None, None]
        here = (row < end) & (j < N)
        g_D = tl.load(g_drive + row * N + j, here, other=0.0)
        if AFTER:
            g_G = -g_D * tl.load(z + (row + 1) * N + j, here & (row + 1 < M), other=0.0)
        else:
            g_G = tl.load(g_conductance + row * N + j, here, other=0.0)
        z_i = tl.load(z + row * S + i, (row < end) & (i < S), other=0.0).to(tl.float32)
        s = sigmoid2(a * (mu - z_i))
        p = g_G + E * g_D
        q = s * (1.0 - s) * p
        g_sigma += q * (z_i - mu)
        g_mu += q
        g_w += s * p
        g_E += s * g_D
    at = g_weights + tl.program_id(2).to(tl.int64) * 4 * S * N + i * N + j
    tl.store(at, tl.sum(g_sigma, 0)[None], inside)
    tl.store(at + S * N, tl.sum(g_mu, 0)[None], inside)
    tl.store(at + 2 * S * N, tl.sum(g_w, 0)[None], inside)
    tl.store(at + 3 * S * N, tl.sum(g_E, 0)[None], inside)
