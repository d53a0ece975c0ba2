r"""The neuronal LTC's fused solver over whole sequences, compiled.

With :math:`\delta = dt / substeps` and :math:`f = \varphi(W_h h + \ldots)`, one sub-step and its
gradient are

.. math::
    h' = n / m, \quad n = h + \delta f A, \quad m = 1 + \delta (1 / \tau + f)

    \bar n = \bar h' / m, \quad \bar m = -\bar n h', \quad
    \bar f = \delta (\bar n A + \bar m), \quad \bar A = \delta \bar n f, \quad
    \overline{1 / \tau} = \delta \bar m, \quad \bar h = \bar n + W_h^T (\varphi' \bar f)

One thread takes a slice of the batch through all steps; the product is done by the BLAS inside
torch. States and f of every sub-step are kept for the backward pass. The gradient of W_h is left to
one product over the whole sequence, after the loop. Arrays are time-major.
"""

import numpy as np

from .numba_blas import matmul, set_blas_threads
from .numba_cfc_math import activate, times_slope
from .numba_math import EXACT_DIVISION, FAST_SUMS, f4, inlined, kernel

_ZERO = f4(0.0)
_ONE = f4(1.0)


@inlined(math=EXACT_DIVISION)
def _advance(h, f, delta, A, leak, after):
    for j in range(h.shape[0]):
        after[j] = (h[j] + delta * (f[j] * A[j])) / (_ONE + delta * (leak[j] + f[j]))


@kernel
def neuronal_forward(
    index,  # of the slice; forwards there is nothing to accumulate
    low,  # first sequence
    high,  # one past the last
    blas,  # addresses of the matrix product
    phi,  # number of the activation
    drive,  # (T, B, N) what the input contributes
    delta,  # (B, T)
    mask,  # (B, T), or (B, 0) for none
    W_h,  # (N, N)
    b,  # (N,)
    A,  # (N,)
    leak,  # (N,)
    substeps,
    states,  # (T * substeps + 1, B, N), the first one set; or (1, B, N) if nothing is kept
    f,  # (T * substeps, B, N) or (1, B, N)
    out,  # (T, B, N) states after each step
):
    """Run sequences ``low`` to ``high``."""
    T, _, N = drive.shape
    keep = states.shape[0] > 1
    threads = set_blas_threads(blas, 1)
    at = 0
    for t in range(T):
        for k in range(substeps):
            here = t * substeps + k if keep else 0
            h, z = states[here, low:high], f[here, low:high]
            after = states[here + 1, low:high] if keep else h
            z[:] = drive[t, low:high]
            matmul(blas, h, W_h, z, N, N, True, True)
            for row in range(high - low):
                activate(phi, z[row], b, z[row], False)
                if mask.shape[1] == 0 or mask[low + row, t]:
                    _advance(h[row], z[row], delta[low + row, t], A, leak, after[row])
                else:
                    after[row] = h[row]
            at = here + 1 if keep else 0
        out[t, low:high] = states[at, low:high]
    set_blas_threads(blas, threads)


@inlined(math=FAST_SUMS)
def _pull_back_row(g_h, h, f, after, delta, A, leak, g_z, g_A, g_leak):
    """Turn ``g_h`` into its direct part before the sub-step; return the gradient of ``delta``."""
    g_delta = _ZERO
    for j in range(h.shape[0]):
        g_n = g_h[j] / (_ONE + delta * (leak[j] + f[j]))
        g_m = -g_n * after[j]
        g_z[j] = delta * (g_n * A[j] + g_m)
        g_A[j] += delta * (g_n * f[j])
        g_leak[j] += delta * g_m
        g_h[j] = g_n
        g_delta += g_n * (f[j] * A[j]) + g_m * (leak[j] + f[j])
    return g_delta


@inlined
def _move(total, part):
    """Add a partial sum and begin the next: sums of sums round less than one long sum."""
    for row in range(part.shape[0]):
        for j in range(part.shape[1]):
            total[row, j] += part[row, j]
            part[row, j] = _ZERO


@kernel
def neuronal_backward(
    index,  # of the slice
    low,
    high,
    blas,
    phi,
    delta,
    mask,
    W_h,
    A,
    leak,
    substeps,
    states,
    f,
    g_out,  # (T, B, N)
    g_h,  # (B, N): gradient of the last state on entry, of the first on return
    g_z,  # (T * substeps, B, N): of the arguments of phi
    g_delta,  # (B, T)
    g_neurons,  # (slices, 2, N), double precision: of A and 1 / tau
):
    """Run sequences ``low`` to ``high`` backwards, adding to the slice's own gradients."""
    T, _, N = g_out.shape
    g_rows, g_step = np.zeros((2, N), f4), np.zeros((2, N), f4)
    threads = set_blas_threads(blas, 1)
    g = g_h[low:high]
    for t in range(T - 1, -1, -1):
        for row in range(high - low):
            g_delta[low + row, t] = _ZERO
            for j in range(N):
                g[row, j] += g_out[t, low + row, j]
        for k in range(substeps - 1, -1, -1):
            here = t * substeps + k
            z = g_z[here, low:high]
            for row in range(high - low):
                b = low + row
                z[row] = _ZERO
                if mask.shape[1] == 0 or mask[b, t]:
                    now, after, value = states[here, b], states[here + 1, b], f[here, b]
                    g_delta[b, t] += _pull_back_row(
                        g[row],
                        now,
                        value,
                        after,
                        delta[b, t],
                        A,
                        leak,
                        z[row],
                        g_step[0],
                        g_step[1],
                    )
                    times_slope(phi, z[row], value, value)
            matmul(blas, z, W_h, g, N, N, False, True)
            _move(g_step, g_rows)
        _move(g_neurons[index], g_step)
    set_blas_threads(blas, threads)
