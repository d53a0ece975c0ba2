"""Functions of compiled loops, for Python to call."""

import numpy as np

from tauflow.kernels.closed_form.numba_loop import read_code
from tauflow.kernels.closed_form.numba_pointwise import gap_gradients, join, pull_apart
from tauflow.kernels.cpu.jit import kernel
from tauflow.kernels.cpu.math import memory_backward, memory_forward


@kernel(of=("closed_form",))
def run_rows(numbers, heads, dt, weights, after):
    join(read_code(numbers), weights, heads, dt, after)


@kernel(of=("closed_form",))
def pull_back_rows(numbers, heads, dt, weights, pulls, to_dt, delta, own):
    code, everywhere = read_code(numbers), np.empty(0, np.bool_)
    gap_gradients(code, weights, heads, dt, everywhere, pulls, to_dt)
    pull_apart(code, weights, heads, dt, everywhere, pulls, delta, (own[0], own[1]))


@kernel
def remember(gates, bias, before, after, u):
    memory_forward(gates, bias, before, after, u)


@kernel
def forget(gates, before, after, to_u, carry, delta):
    memory_backward(gates, before, after, to_u, carry, delta)
