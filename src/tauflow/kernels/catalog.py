"""Every fused kernel, one row each, in order of preference."""

from tauflow.cells.gated import ElmanCell, GRUCell, LSTMCell

from .spec import KernelSpec
from .torch_gated import run_elman, run_gru, run_lstm, torch_limits

KERNELS: tuple[KernelSpec, ...] = (
    KernelSpec(LSTMCell, "torch", torch_limits, run_lstm, rtol=1e-5, atol=1e-6),
    KernelSpec(GRUCell, "torch", torch_limits, run_gru, rtol=1e-5, atol=1e-6),
    KernelSpec(ElmanCell, "torch", torch_limits, run_elman, rtol=1e-5, atol=1e-6),
)

BACKENDS: tuple[str, ...] = (
    "auto",
    "reference",
    *dict.fromkeys(row.backend for row in KERNELS),
)
"""Names accepted by ``backend=``."""
