"""Conductance-based synapses: what sources send to targets, forwards and backwards.

A synapse conducts ``w s`` with ``s = sigmoid(sigma (u - mu))`` and pulls its target towards E. The
kernels take four *weights* per synapse: forwards ``a = sigma log2(e)``, mu, w and ``w E``,
backwards a, mu, ``w sigma`` and E, so that ``s = 1 / (1 + 2^(a (mu - u)))``. Not multiplied out
further: the gradients of sigma and w would be differences of large sums. Synapses whose drive has a
separate weight, k in place of ``w E``, are a, mu, w and k both ways.

Two layouts. *Dense*: weights (4, sources * N), row by row. *Packed*: weights (4, K) of the K
synapses that exist, by rank: first the first synapse of every neuron, then the second of those that
have one, and so on, neurons with the most synapses first. Neighbours in the list belong to
different neurons, so nothing is scattered and LLVM vectorises the loops; each rank is filled up to
whole vectors by synapses of weight 0. A packed layout is ``(starts, counts, other, position)``:
where each rank begins, how many synapses it has, the neuron or input at the other end of each, and
where in the order each neuron stands. Forwards, neurons are targets and the other end is the
source; backwards it is the other way round.

The loops index whole rows by unsigned numbers: numba counts references to every slice it takes,
which costs as much as ten synapses, and tests signed numbers for counting from the end.

Gradients with respect to sigma, mu, w and E lack the factors that all terms of a sum share, which
the caller applies: -w, -w sigma, 1 and w; of sigma, mu, w and k they are -1, -sigma, 1 and 1.
"""

# mypy: ignore-errors

import numpy as np

from tauflow.kernels import ltc as layout
from tauflow.kernels.cpu.jit import FAST_SUMS, f4, inline
from tauflow.kernels.cpu.math import sigmoid2
from tauflow.kernels.cpu.values import view

_ZERO = f4(0.0)
_LN2 = f4(np.log(2.0))
_LOG2E = f4(np.log2(np.e))
_NAN = f4(np.nan)


@inline(force=True)
def pack_synapses(arrange, side):
    """Return synapses with their weights as the loops read them, and the memory of these.

    Args:
        arrange: returns the four weights of a synapse, given those of the cell.
        side: a ``SynapseArrays``, whose weights are the cell's, (4, S, N).
    """
    weights, entries = side.weights.reshape((4, -1)), side.entries
    count = weights.shape[1]
    size = entries.size if side.starts.size > 0 else count
    memory = np.empty(4 * size + 1, np.float32)
    packed = view(memory, 0, (4, size))
    for k in range(size):
        i = np.uintp(entries[k] if side.starts.size > 0 else k)
        if i < count:
            first, second, third, fourth = arrange(
                weights[0, i], weights[1, i], weights[2, i], weights[3, i]
            )
        else:
            first, second, third, fourth = arrange(_ZERO, _ZERO, _ZERO, _ZERO)
        packed[0, k], packed[1, k], packed[2, k], packed[3, k] = first, second, third, fourth
    parts = side.entries, side.starts, side.counts, side.other, side.position
    return memory, layout.SynapseArrays(packed, *parts)


@inline(force=True)
def arrange_conductances(sigma, mu, w, E):
    """Return what conductances are computed from."""
    return sigma * _LOG2E, mu, w, w * E


@inline(force=True)
def arrange_conductances_backward(sigma, mu, w, E):
    """Return what their gradients are computed from."""
    return sigma * _LOG2E, mu, w * sigma, E


@inline(force=True)
def arrange_weights(sigma, mu, w, k):
    """Return what synapses with two weights are computed from, both ways."""
    return sigma * _LOG2E, mu, w, k


@inline(force=True)
def store_weight_gradients(apply_factors, sums, side, gradients):
    """Write the gradients of a cell's weights, (4, S, N).

    Args:
        apply_factors: applies the factors that the loops leave out.
        sums: (4, K), in the order of the loops.
        side: as for :func:`pack_synapses`.
        gradients: written.
    """
    weights, grads, is_packed = (
        side.weights.reshape((4, -1)),
        gradients.reshape((4, -1)),
        side.starts.size > 0,
    )
    if is_packed:
        grads[:] = _ZERO
    for k in range(sums.shape[1]):
        i = np.uintp(side.entries[k] if is_packed else k)
        if i < weights.shape[1]:
            sigma_and_w = weights[0, i], weights[2, i]
            first, second, third, fourth = apply_factors(
                *sigma_and_w, sums[0, k], sums[1, k], sums[2, k], sums[3, k]
            )
            grads[0, i], grads[1, i], grads[2, i], grads[3, i] = first, second, third, fourth


@inline(force=True)
def conductance_factors(sigma, w, grad_sigma, grad_mu, grad_w, grad_E):
    """Return the gradients of conductances' weights."""
    return -w * grad_sigma, -w * sigma * grad_mu, grad_w, w * grad_E


@inline(force=True)
def weight_factors(sigma, w, grad_sigma, grad_mu, grad_w, grad_k):
    """Return the gradients of synapses with two weights."""
    return -grad_sigma, -sigma * grad_mu, grad_w, grad_k


@inline(force=True)
def synaptic_currents_four(u, weights, drive, conductance):
    """Add what four rows of sources u (4, S) send to ``drive``, ``conductance``: (4, N)."""
    N = drive.shape[1]
    a, mu, w, wE = weights[0], weights[1], weights[2], weights[3]
    u0, u1, u2, u3 = u[0], u[1], u[2], u[3]
    drive0, drive1, drive2, drive3 = drive[0], drive[1], drive[2], drive[3]
    total0, total1 = conductance[0], conductance[1]
    total2, total3 = conductance[2], conductance[3]
    for i in range(u.shape[1]):
        first = np.uintp(i * N)
        u0_i, u1_i, u2_i, u3_i = u0[i], u1[i], u2[i], u3[i]
        for j in range(N):
            k = first + np.uintp(j)
            a_k, mu_k, w_k, wE_k = a[k], mu[k], w[k], wE[k]
            s = sigmoid2(a_k * (mu_k - u0_i))
            drive0[j] += wE_k * s
            total0[j] += w_k * s
            s = sigmoid2(a_k * (mu_k - u1_i))
            drive1[j] += wE_k * s
            total1[j] += w_k * s
            s = sigmoid2(a_k * (mu_k - u2_i))
            drive2[j] += wE_k * s
            total2[j] += w_k * s
            s = sigmoid2(a_k * (mu_k - u3_i))
            drive3[j] += wE_k * s
            total3[j] += w_k * s


@inline(force=True)
def synaptic_currents_one(u, weights, drive, conductance):
    """Add what one row of sources u (S,) sends to ``drive`` and ``conductance``, (N,)."""
    N = drive.shape[0]
    a, mu, w, wE = weights[0], weights[1], weights[2], weights[3]
    for i in range(u.shape[0]):
        first, u_i = np.uintp(i * N), u[i]
        for j in range(N):
            k = first + np.uintp(j)
            s = sigmoid2(a[k] * (mu[k] - u_i))
            drive[j] += wE[k] * s
            conductance[j] += w[k] * s


@inline(force=True)
def synaptic_currents_packed(u, side, drive, conductance):
    """Do what :func:`synaptic_currents_one` does, with the weights packed by target."""
    weights, _, starts, counts, source, position = side
    N = drive.shape[0]
    a, mu, w, wE = weights[0], weights[1], weights[2], weights[3]
    sums = _zero_vectors(3, N)  # in the packed order
    drives, totals, sources = sums[0], sums[1], sums[2]
    for rank in range(counts.shape[0]):
        first, count = np.uintp(starts[rank]), np.intp(counts[rank])
        width = np.intp(starts[rank + 1]) - np.intp(first)
        _gather(u, source, first, count, width, sources)
        for j in range(width):
            k = first + np.uintp(j)
            s = sigmoid2(a[k] * (mu[k] - sources[j]))
            drives[j] += wE[k] * s
            totals[j] += w[k] * s
    _add_in_place(u, drives, totals, position, drive, conductance)


@inline(force=True)
def _add_in_place(u, drives, totals, position, drive, conductance):
    """Add sums in the packed order to those in the order of the neurons."""
    # Without a synapse there is a conductance of 0 * sigmoid(u), which lets NaN through.
    nothing = _NAN if _has_nan(u) else _ZERO
    for j in range(drive.shape[0]):
        drive[j] += drives[position[j]] + nothing
        conductance[j] += totals[position[j]] + nothing


@inline(force=True)
def _zero_vectors(rows, size):
    """Return zeros, (rows, at least ``size``), in whole vectors."""
    return np.zeros((rows, (size + layout.LANES - 1) // layout.LANES * layout.LANES), np.float32)


@inline(force=True)
def _gather(values, index, first, count, width, gathered):
    """Look ``count`` values up in a separate loop: LLVM vectorises none with unknown places."""
    for j in range(count):
        gathered[j] = values[index[first + np.uintp(j)]]
    for j in range(count, width):
        gathered[np.uintp(j)] = _ZERO


@inline(force=True)
def _has_nan(values):
    count = 0
    for i in range(values.shape[0]):
        count += values[i] != values[i]
    return count > 0


@inline(force=True)
def synaptic_currents(rows, u, side, drive, conductance):
    """Add what ``rows`` <= 4 rows of sources send; the rest of the arrays is left alone."""
    packed = side.starts.shape[0] > 0
    if rows == 4 and not packed:
        synaptic_currents_four(u, side.weights, drive, conductance)
    else:
        for row in range(rows):
            if packed:
                synaptic_currents_packed(u[row], side, drive[row], conductance[row])
            else:
                synaptic_currents_one(u[row], side.weights, drive[row], conductance[row])


@inline(
    force=True
)  # not in any order: E would be factored out, and the sum for w become a difference
def _conductance_gradients(z, slope, E, grad_drive, grad_conductance):
    """Return a synapse's gradients of sigma (u - mu), w and E, the first and last divided by w."""
    s = sigmoid2(z)
    scaled = (E * grad_drive + grad_conductance) * s
    return scaled - scaled * s, scaled, grad_drive * s


@inline(force=True)
def _conductance_source_factor(a, slope):
    """Return what takes the gradient of sigma (u - mu), divided by w, to u."""
    return slope


@inline(force=True)
def _weight_gradients(z, w, k, grad_drive, grad_conductance):
    """Return a synapse's gradients of sigma (u - mu), w and k."""
    s = sigmoid2(z)
    scaled = (k * grad_drive + w * grad_conductance) * s
    return scaled - scaled * s, grad_conductance * s, grad_drive * s


@inline(force=True)
def _weight_source_factor(a, w):
    """Return what takes the gradient of sigma (u - mu) to u."""
    return a * _LN2


def _make_backward(name, gradients, source_factor):  # noqa: C901 - four functions of a few loops
    """Compile the backward pass of synapses that are told by four weights each.

    Args:
        name: of these four weights.
        gradients: returns those of a synapse, given a (mu - u), its third and fourth weight, and
            the gradients of its target's drive and conductance.
        source_factor: returns the factor between the first of these and the gradient of the source,
            given a and the third weight.
    """

    @inline(force=True, math=FAST_SUMS, name=name)
    def backward_four(u, weights, grad_drive, grad_conductance, grad_u, grad_weights):
        """Add the gradients of four rows to ``grad_u`` (4, S) and ``grad_weights``, dense."""
        N = grad_drive.shape[1]
        a, mu, third, fourth = weights[0], weights[1], weights[2], weights[3]
        grad_sigma, grad_mu, grad_third, grad_fourth = (
            grad_weights[0],
            grad_weights[1],
            grad_weights[2],
            grad_weights[3],
        )
        u0, u1, u2, u3 = u[0], u[1], u[2], u[3]
        grad_u0, grad_u1, grad_u2, grad_u3 = grad_u[0], grad_u[1], grad_u[2], grad_u[3]
        drive0, drive1, drive2, drive3 = grad_drive[0], grad_drive[1], grad_drive[2], grad_drive[3]
        total0, total1 = grad_conductance[0], grad_conductance[1]
        total2, total3 = grad_conductance[2], grad_conductance[3]
        for i in range(u.shape[1]):
            first = np.uintp(i * N)
            u0_i, u1_i, u2_i, u3_i = u0[i], u1[i], u2[i], u3[i]
            sum0, sum1, sum2, sum3 = _ZERO, _ZERO, _ZERO, _ZERO
            for j in range(N):
                k = first + np.uintp(j)
                a_k, mu_k, third_k, fourth_k = a[k], mu[k], third[k], fourth[k]
                gap0, gap1, gap2, gap3 = mu_k - u0_i, mu_k - u1_i, mu_k - u2_i, mu_k - u3_i
                q0, p0, e0 = gradients(a_k * gap0, third_k, fourth_k, drive0[j], total0[j])
                q1, p1, e1 = gradients(a_k * gap1, third_k, fourth_k, drive1[j], total1[j])
                q2, p2, e2 = gradients(a_k * gap2, third_k, fourth_k, drive2[j], total2[j])
                q3, p3, e3 = gradients(a_k * gap3, third_k, fourth_k, drive3[j], total3[j])
                factor = source_factor(a_k, third_k)
                sum0 += q0 * factor
                sum1 += q1 * factor
                sum2 += q2 * factor
                sum3 += q3 * factor
                grad_fourth[k] += e0 + e1 + e2 + e3
                grad_third[k] += p0 + p1 + p2 + p3
                grad_mu[k] += q0 + q1 + q2 + q3
                grad_sigma[k] += q0 * gap0 + q1 * gap1 + q2 * gap2 + q3 * gap3
            grad_u0[i] += sum0
            grad_u1[i] += sum1
            grad_u2[i] += sum2
            grad_u3[i] += sum3

    @inline(force=True, math=FAST_SUMS, name=name)
    def backward_one(u, weights, grad_drive, grad_conductance, grad_u, grad_weights):
        """Add the gradients of one row to ``grad_u`` (S,) and ``grad_weights``, dense."""
        N = grad_drive.shape[0]
        a, mu, third, fourth = weights[0], weights[1], weights[2], weights[3]
        grad_sigma, grad_mu, grad_third, grad_fourth = (
            grad_weights[0],
            grad_weights[1],
            grad_weights[2],
            grad_weights[3],
        )
        for i in range(u.shape[0]):
            first, u_i, total = np.uintp(i * N), u[i], _ZERO
            for j in range(N):
                k = first + np.uintp(j)
                gap = mu[k] - u_i
                q, p, e = gradients(
                    a[k] * gap, third[k], fourth[k], grad_drive[j], grad_conductance[j]
                )
                grad_fourth[k] += e
                grad_third[k] += p
                grad_mu[k] += q
                grad_sigma[k] += q * gap
                total += q * source_factor(a[k], third[k])
            grad_u[i] += total

    @inline(force=True, name=name)
    def backward_packed(u, side, grad_drive, grad_conductance, grad_u, grad_weights):
        """Do what ``backward_one`` does, with the weights packed by source."""
        weights, _, starts, counts, target, position = side
        S = u.shape[0]
        a, mu, third, fourth = weights[0], weights[1], weights[2], weights[3]
        grad_sigma, grad_mu, grad_third, grad_fourth = (
            grad_weights[0],
            grad_weights[1],
            grad_weights[2],
            grad_weights[3],
        )
        work = _zero_vectors(4, S)  # in the packed order
        sources, sums, drives, totals = work[0], work[1], work[2], work[3]
        for i in range(S):
            sources[position[i]] = u[i]
        for rank in range(counts.shape[0]):
            first, count = np.uintp(starts[rank]), np.intp(counts[rank])
            width = np.intp(starts[rank + 1]) - np.intp(first)
            _gather(grad_drive, target, first, count, width, drives)
            _gather(grad_conductance, target, first, count, width, totals)
            for i in range(width):
                k = first + np.uintp(i)
                gap = mu[k] - sources[i]
                q, p, e = gradients(a[k] * gap, third[k], fourth[k], drives[i], totals[i])
                grad_fourth[k] += e
                grad_third[k] += p
                grad_mu[k] += q
                grad_sigma[k] += q * gap
                sums[i] += q * source_factor(a[k], third[k])
        for i in range(S):
            grad_u[i] += sums[position[i]]

    @inline(force=True, name=name)
    def backward(rows, u, side, grad_drive, grad_conductance, grad_u, grad_weights):
        """Add the gradients of ``rows`` <= 4 rows; the rest of the arrays is left alone."""
        packed = side.starts.shape[0] > 0
        if rows == 4 and not packed:
            backward_four(u, side.weights, grad_drive, grad_conductance, grad_u, grad_weights)
        else:
            for row in range(rows):
                grad_rows = grad_drive[row], grad_conductance[row], grad_u[row]
                if packed:
                    backward_packed(u[row], side, *grad_rows, grad_weights)
                else:
                    backward_one(u[row], side.weights, *grad_rows, grad_weights)

    return backward


synaptic_currents_backward = _make_backward(
    "conductances", _conductance_gradients, _conductance_source_factor
)
weighted_currents_backward = _make_backward("weights", _weight_gradients, _weight_source_factor)
