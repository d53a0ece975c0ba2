"""Every fused kernel, one row each, in order of preference."""

from collections.abc import Callable
from dataclasses import replace

from tauflow.cells.base import AbstractCell
from tauflow.cells.cfc import CfCCell
from tauflow.cells.ct_rnn import CTRNNCell
from tauflow.cells.gated import ElmanCell, GRUCell, LSTMCell
from tauflow.cells.ltc import LTCCell
from tauflow.cells.ltc_neuronal import NeuronalLTCCell
from tauflow.cells.mixed_memory import MixedMemoryCell
from tauflow.cells.ode_lstm import ODELSTMCell
from tauflow.cells.wired_cfc import WiredCfCCell

from .cfc import cfc_limits, run_cfc
from .flow import ct_rnn_limits, run_ct_rnn
from .guard import guarded, unchanged
from .ltc import ltc_limits, run_ltc
from .ltc_neuronal import neuronal_limits, run_neuronal
from .mixed_memory import mixed_limits, run_mixed
from .ode_lstm import ode_lstm_limits, run_ode_lstm
from .spec import KernelCall, KernelSpec, Run
from .torch_cfc import run_torch_cfc, run_torch_wired, torch_cfc_limits, torch_wired_limits
from .torch_gated import gated_limits, lstm_limits, run_elman, run_gru, run_lstm
from .torch_ltc import run_torch_ltc, torch_ltc_limits
from .triton_cfc import (
    run_triton_cfc,
    run_triton_cfc_stepped,
    triton_cfc_limits,
    triton_stepped_limits,
)
from .triton_flow import run_triton_flow, triton_flow_limits
from .triton_ltc import run_triton_ltc, triton_ltc_limits
from .triton_mixed import (
    run_triton_mixed,
    run_triton_mixed_stepped,
    triton_mixed_limits,
    triton_mixed_stepped_limits,
)
from .triton_wired import run_triton_wired, triton_wired_limits
from .wired_cfc import run_wired, wired_limits


def _triton(
    cell: type[AbstractCell], why_not: Callable[[KernelCall], str | None], run: Run
) -> KernelSpec:
    return KernelSpec(cell, "triton", why_not, run, rtol=1e-5, atol=1e-5, device="cuda")


_ROWS = (
    KernelSpec(LSTMCell, "torch", lstm_limits, run_lstm, rtol=1e-5, atol=1e-6),
    KernelSpec(GRUCell, "torch", gated_limits, run_gru, rtol=1e-5, atol=1e-6),
    KernelSpec(ElmanCell, "torch", gated_limits, run_elman, rtol=1e-5, atol=1e-6),
    KernelSpec(LTCCell, "numba", ltc_limits, run_ltc, rtol=1e-5, atol=1e-5),
    _triton(LTCCell, triton_ltc_limits, run_triton_ltc),
    KernelSpec(LTCCell, "torch", torch_ltc_limits, run_torch_ltc, rtol=1e-5, atol=1e-5),
    KernelSpec(NeuronalLTCCell, "numba", neuronal_limits, run_neuronal, rtol=1e-5, atol=1e-5),
    KernelSpec(CfCCell, "numba", cfc_limits, run_cfc, rtol=1e-5, atol=1e-5),
    _triton(CfCCell, triton_cfc_limits, run_triton_cfc),
    _triton(CfCCell, triton_stepped_limits, run_triton_cfc_stepped),
    KernelSpec(CfCCell, "torch", torch_cfc_limits, run_torch_cfc, rtol=1e-5, atol=1e-5),
    KernelSpec(MixedMemoryCell, "numba", mixed_limits, run_mixed, rtol=1e-5, atol=1e-5),
    _triton(MixedMemoryCell, triton_mixed_limits, run_triton_mixed),
    _triton(MixedMemoryCell, triton_mixed_stepped_limits, run_triton_mixed_stepped),
    KernelSpec(CTRNNCell, "numba", ct_rnn_limits, run_ct_rnn, rtol=1e-5, atol=1e-5),
    _triton(CTRNNCell, triton_flow_limits, run_triton_flow),
    KernelSpec(ODELSTMCell, "numba", ode_lstm_limits, run_ode_lstm, rtol=1e-5, atol=1e-5),
    KernelSpec(WiredCfCCell, "numba", wired_limits, run_wired, rtol=1e-5, atol=1e-5),
    _triton(WiredCfCCell, triton_wired_limits, run_triton_wired),
    KernelSpec(WiredCfCCell, "torch", torch_wired_limits, run_torch_wired, rtol=1e-5, atol=1e-5),
)

KERNELS: tuple[KernelSpec, ...] = tuple(
    replace(row, why_not=unchanged(row.why_not), run=guarded(row.run, row.backend)) for row in _ROWS
)
"""All rows; each looks at its calls before it serves them."""

BACKENDS: tuple[str, ...] = (
    "auto",
    "reference",
    *dict.fromkeys(row.backend for row in KERNELS),
)
"""Names accepted by ``backend=``."""
