"""Functions of compiled loops, for Python to call."""

import numpy as np

from tauflow.kernels.cfc.numba_loop import unpack_code
from tauflow.kernels.cfc.numba_pointwise import cfc_gate_backward, cfc_gate_forward, dt_gradients
from tauflow.kernels.cpu.jit import kernel
from tauflow.kernels.cpu.math import lstm_cell_backward, lstm_cell_forward


@kernel(source_folders=("cfc",))
def run_rows(numbers, heads, dt, weights, after):
    cfc_gate_forward(unpack_code(numbers), weights, heads, dt, after)


@kernel(source_folders=("cfc",))
def pull_back_rows(numbers, heads, dt, weights, pulls, to_dt, delta, own_scratch):
    code, everywhere = unpack_code(numbers), np.empty(0, np.bool_)
    dt_gradients(code, weights, heads, dt, everywhere, pulls, to_dt)
    cfc_gate_backward(
        code, weights, heads, dt, everywhere, pulls, delta, (own_scratch[0], own_scratch[1])
    )


@kernel
def remember(gates, bias, before, after, u):
    lstm_cell_forward(gates, bias, before, after, u)


@kernel
def forget(gates, before, after, to_u, carry, delta):
    lstm_cell_backward(gates, before, after, to_u, carry, delta)
