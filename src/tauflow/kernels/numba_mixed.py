"""A closed-form core beside an LSTM memory, over sequences: compiled loops.

A step is the four gates and the memory, then the step of the core in :mod:`numba_cfc`. What the
core's first layer reads at every step, its source, is u in the form ``state``, whose core has the
input beside it, and [u; v] in the form ``input``.
"""

from .cfc_arrays import PureGradients
from .numba_blas import matmul, set_blas_threads
from .numba_cfc import add, core_backward, core_forward, give_back_masked, keep_masked, read_form
from .numba_cfc_math import sigmoid, tanh
from .numba_math import f4, inlined, kernel


@inlined
def memory_forward(gates, bias, before, after, u):
    """Advance the memory of one row; the products in ``gates`` become i, f, g, o."""
    n = after.size
    i, f, g, o = gates[:n], gates[n : 2 * n], gates[2 * n : 3 * n], gates[3 * n :]
    b_i, b_f, b_g, b_o = bias[:n], bias[n : 2 * n], bias[2 * n : 3 * n], bias[3 * n :]
    for j in range(n):
        i[j] = sigmoid(i[j] + b_i[j])
        f[j] = sigmoid(f[j] + b_f[j])
        g[j] = tanh(g[j] + b_g[j])
        o[j] = sigmoid(o[j] + b_o[j])
        after[j] = f[j] * before[j] + i[j] * g[j]
        u[j] = o[j] * tanh(after[j])


@inlined
def memory_backward(gates, before, after, to_u, carry, delta):
    """Take the gradients of u and of the memory back through one row's gates.

    Args:
        gates: i, f, g, o, (4 N,).
        before, after: memory, (N,).
        to_u: gradient of u, (N,).
        carry: gradient of the memory after the step; becomes that before it, (N,).
        delta: receives the gradient of the gates' products, (4 N,).
    """
    n = after.size
    i, f, g, o = gates[:n], gates[n : 2 * n], gates[2 * n : 3 * n], gates[3 * n :]
    to_i, to_f, to_g, to_o = delta[:n], delta[n : 2 * n], delta[2 * n : 3 * n], delta[3 * n :]
    for j in range(n):
        shown = tanh(after[j])
        pull = carry[j] + to_u[j] * o[j] * (f4(1.0) - shown * shown)
        carry[j] = pull * f[j]
        left, right = i[j], g[j]
        to_o[j] = to_u[j] * shown * (o[j] - o[j] * o[j])
        to_f[j] = pull * before[j] * (f[j] - f[j] * f[j])
        to_i[j] = pull * right * (left - left * left)
        to_g[j] = pull * left * (f4(1.0) - right * right)


@kernel
def mixed_forward(
    index, low, high, blas, numbers, weights, tape, gaps, keep, mixed, memory, states, outputs
):
    """Run the slice through all steps.

    Args:
        index: number of the slice.
        low, high: slice of the batch.
        numbers: of the core's form, by ``form_numbers``.
        blas, weights, tape, gaps, keep: of the core, as for ``core_forward``.
        mixed: a :class:`~tauflow.kernels.cfc_arrays.MixedWeights`.
        memory: a :class:`~tauflow.kernels.cfc_arrays.MixedTape`.
        states: (T + 1 or 2, B, N), the core's initial state first; receives the others, in turns.
        outputs: (B, T, N), receives the core's states.
    """
    form = read_form(numbers)
    threads = set_blas_threads(blas, 1)
    n = outputs.shape[2]
    for t in range(outputs.shape[1]):
        before, after = states[t % states.shape[0]], states[(t + 1) % states.shape[0]]
        c_before = memory.c[t % memory.c.shape[0]]
        c_after = memory.c[(t + 1) % memory.c.shape[0]]
        source = memory.source[t % memory.source.shape[0]]
        gates = memory.gates[t]
        matmul(blas, before[low:high], mixed.recurrent, gates[low:high], 4 * n, n, True, True)
        for b in range(low, high):
            memory_forward(gates[b], mixed.bias, c_before[b], c_after[b], source[b, :n])
            if mixed.reads_state:
                source[b, n:] = before[b]
        core_forward(
            blas,
            form,
            weights,
            tape,
            keep,
            t,
            low,
            high,
            source,
            not mixed.reads_state,
            gaps,
            after,
        )
        for b in range(low, high):
            if gaps.valid.size > 0 and not gaps.valid[b, t]:
                after[b] = before[b]
                c_after[b] = c_before[b]
            outputs[b, t] = after[b]
    set_blas_threads(blas, threads)


@kernel
def mixed_backward(
    index, low, high, blas, numbers, weights, tape, deltas, gaps, mixed, memory, to_gates,
    to_source, pulls, carry, c_carry, kept, pure,
):  # fmt: skip
    """Run the slice back through all steps.

    Args:
        index: number of the slice, and of its row in ``pure``.
        low, high: slice of the batch.
        numbers: of the core's form, by ``form_numbers``.
        blas, weights, tape, deltas, gaps: of the core, as for ``core_backward``.
        mixed, memory: as for :func:`mixed_forward`.
        to_gates: (T, B, 4 N), receives the gradients of the gates' products.
        to_source: (B, R), memory for one step.
        pulls: (B, T, N), gradient of the outputs; empty if there is none.
        carry, c_carry: (B, N), gradients of the last states; become those of the first.
        kept: (B, N), memory for masked steps; empty if there are none.
        pure: :class:`~tauflow.kernels.cfc_arrays.PureGradients`.
    """
    form = read_form(numbers)
    threads = set_blas_threads(blas, 1)
    own = PureGradients(pure.rate[index], pure.amplitude[index])
    n = carry.shape[1]
    for t in range(gaps.dt.shape[1] - 1, -1, -1):
        if pulls.size > 0:
            for b in range(low, high):
                add(carry[b], pulls[b, t])
        keep_masked(gaps, t, low, high, carry, kept)
        core_backward(blas, form, weights, tape, deltas, t, low, high, carry, gaps, own, to_source)
        gates, delta = memory.gates[t], to_gates[t]
        before, after = memory.c[t], memory.c[t + 1]
        for b in range(low, high):
            if gaps.valid.size > 0 and not gaps.valid[b, t]:
                delta[b] = f4(0.0)
            else:
                memory_backward(
                    gates[b], before[b], after[b], to_source[b, :n], c_carry[b], delta[b]
                )
            if mixed.reads_state:
                carry[b] = to_source[b, n:]
        matmul(
            blas, delta[low:high], mixed.recurrent, carry[low:high], n, 4 * n, False,
            mixed.reads_state,
        )  # fmt: skip
        give_back_masked(gaps, t, low, high, carry, kept)
    set_blas_threads(blas, threads)
