"""Every fused kernel, one row each, in order of preference; and which serves a call."""

import os
from collections.abc import Callable
from dataclasses import replace

from tauflow._internal.checks import check_one_of, is_tracing
from tauflow.cells.base import AbstractCell
from tauflow.cells.cfc import CfCCell
from tauflow.cells.ct_gru import CTGRUCell
from tauflow.cells.ct_rnn import CTRNNCell
from tauflow.cells.diagonal import AbstractScanCell
from tauflow.cells.gated import ElmanCell, GRUCell, LSTMCell
from tauflow.cells.gnode import GNODECell
from tauflow.cells.gru_d import GRUDCell
from tauflow.cells.lem import LEMCell
from tauflow.cells.lrc import LRCCell
from tauflow.cells.lru import LRUCell
from tauflow.cells.ltc import LTCCell
from tauflow.cells.mixed_memory import MixedMemoryCell
from tauflow.cells.phased_lstm import PhasedLSTMCell
from tauflow.cells.registry import MODELS
from tauflow.cells.s5 import S5Cell
from tauflow.cells.wired_cfc import WiredCfCCell
from tauflow.errors import BackendError

from .cfc.kernel import (
    NUMBA_CFC,
    cfc_numba_unsupported_reason,
    cfc_triton_unsupported_reason,
    run_cfc,
    run_triton_cfc,
    run_triton_wired_cfc,
    run_wired_cfc,
)
from .ct_gru.kernel import ct_gru_unsupported_reason, run_ct_gru
from .engine.kernel_spec import KernelCall, KernelFunction, KernelSpec
from .engine.requirements import (
    add_builtin_cell,
    is_builtin_cell,
    require_unmodified,
    validate_call,
)
from .generated.kernel import (
    generated_unsupported_reason,
    run_generated,
    unmeasured_reason,
)
from .ltc.kernel import run_lrc, run_ltc, synapses_unsupported_reason
from .ltc.triton_kernel import run_triton_ltc, triton_ltc_unsupported_reason
from .phased_lstm import (
    PlannedPhasedLSTM,
    phased_lstm_unsupported_reason,
    phased_unmeasured_reason,
    phased_unsupported_reason,
    run_phased_generated,
    run_phased_lstm,
)
from .scan.kernel import (
    run_torch_scan,
    torch_scan_unsupported_reason,
)
from .thresholds import (
    TRACED_IF_LONG,
    is_cuda_graph_profitable,
    is_tracing_profitable,
    is_worth_generating,
)
from .torch_rnn import (
    gated_unsupported_reason,
    gru_unsupported_reason,
    lstm_unsupported_reason,
    run_elman,
    run_gru,
    run_lstm,
)
from .trace.cuda_graphs import (
    cuda_graph_unsupported_reason,
    run_cuda_graph,
)
from .trace.operator import run_traced
from .trace.traced_kernel import PlannedTrace, traced_unsupported_reason


def _make_triton_spec(
    cell: type[AbstractCell],
    unsupported_reason: Callable[[KernelCall], str | None],
    run: KernelFunction,
) -> KernelSpec:
    return KernelSpec(cell, "triton", unsupported_reason, run, rtol=1e-5, atol=1e-5, device="cuda")


def _make_scan_spec(cell: type[AbstractCell]) -> KernelSpec:
    return KernelSpec(
        cell, "torch", torch_scan_unsupported_reason, run_torch_scan, rtol=1e-5, atol=1e-5
    )


_DIAGONAL_CELLS = (LRUCell, S5Cell)
_UNTRACED_CELLS = (LTCCell, LRCCell)
"""Those whose own loops are faster, whatever the size."""

_CELL_KERNELS = (
    KernelSpec(LSTMCell, "torch", lstm_unsupported_reason, run_lstm, rtol=1e-5, atol=1e-6),
    KernelSpec(GRUCell, "torch", gru_unsupported_reason, run_gru, rtol=1e-5, atol=1e-6),
    KernelSpec(ElmanCell, "torch", gated_unsupported_reason, run_elman, rtol=1e-5, atol=1e-6),
    KernelSpec(CTGRUCell, "numba", ct_gru_unsupported_reason, run_ct_gru, rtol=1e-5, atol=1e-5),
    KernelSpec(LTCCell, "numba", synapses_unsupported_reason, run_ltc, rtol=1e-5, atol=1e-5),
    _make_triton_spec(LTCCell, triton_ltc_unsupported_reason, run_triton_ltc),
    KernelSpec(LRCCell, "numba", synapses_unsupported_reason, run_lrc, rtol=1e-5, atol=1e-5),
    KernelSpec(
        CfCCell,
        "numba",
        cfc_numba_unsupported_reason,
        run_cfc,
        rtol=1e-5,
        atol=1e-5,
        kernel=NUMBA_CFC,
    ),
    _make_triton_spec(CfCCell, cfc_triton_unsupported_reason, run_triton_cfc),
    KernelSpec(
        MixedMemoryCell,
        "numba",
        cfc_numba_unsupported_reason,
        run_cfc,
        rtol=1e-5,
        atol=1e-5,
    ),
    _make_triton_spec(MixedMemoryCell, cfc_triton_unsupported_reason, run_triton_cfc),
    KernelSpec(
        PhasedLSTMCell,
        "numba",
        phased_lstm_unsupported_reason,
        run_phased_lstm,
        rtol=1e-5,
        atol=1e-5,
        # the gates of a single step take longer apart from it
        is_profitable=lambda call: is_tracing_profitable(call) and call.x.shape[1] > 1,
        plan=PlannedPhasedLSTM,
    ),
    KernelSpec(
        WiredCfCCell, "numba", cfc_numba_unsupported_reason, run_wired_cfc, rtol=1e-5, atol=1e-5
    ),
    _make_triton_spec(WiredCfCCell, cfc_triton_unsupported_reason, run_triton_wired_cfc),
    *(_make_scan_spec(cell) for cell in _DIAGONAL_CELLS),
)


def _make_traced_spec(cell: type[AbstractCell]) -> KernelSpec:
    return KernelSpec(
        cell,
        "numba",
        traced_unsupported_reason,
        run_traced,
        rtol=1e-5,
        atol=1e-5,
        device="cpu",
        is_profitable=is_tracing_profitable,
        plan=PlannedTrace,
    )


def _make_cuda_graph_spec(cell: type[AbstractCell]) -> KernelSpec:
    return KernelSpec(
        cell,
        "graph",
        cuda_graph_unsupported_reason,
        run_cuda_graph,
        rtol=1e-5,
        atol=1e-5,
        device="cuda",
        is_profitable=is_cuda_graph_profitable,
    )


_CATALOG_CELLS = tuple(dict.fromkeys(entry.cell for entry in MODELS.values()))
_TRACED_KERNELS = tuple(
    _make_traced_spec(cell) for cell in _CATALOG_CELLS if cell not in _UNTRACED_CELLS
)
_CUDA_GRAPH_KERNELS = tuple(_make_cuda_graph_spec(cell) for cell in _CATALOG_CELLS)

_PREFERRED = tuple(
    replace(_make_triton_spec(cell, why_not, run), is_profitable=is_worth_generating)
    for cell, why_not, run in (
        (PhasedLSTMCell, phased_unmeasured_reason, run_phased_generated),
        *(
            (cell, unmeasured_reason, run_generated)
            for cell in (GRUDCell, LEMCell, GNODECell, CfCCell, MixedMemoryCell, WiredCfCCell)
        ),
        # Each of its evaluations would be launched by itself.
        (CTRNNCell, generated_unsupported_reason, run_generated),
    )
)
"""Generated kernels that ``backend="auto"`` takes."""


def _make_generated_spec(cell: type[AbstractCell]) -> KernelSpec:
    """Return the generated kernel of a cell, which serves by name only."""
    row = _make_triton_spec(cell, generated_unsupported_reason, run_generated)
    return replace(row, is_profitable=lambda call: False)


_GENERATED = (
    replace(
        _make_triton_spec(PhasedLSTMCell, phased_unsupported_reason, run_phased_generated),
        is_profitable=lambda call: False,
    ),
    *(
        _make_generated_spec(cell)
        for cell in _CATALOG_CELLS
        if cell is not CTRNNCell  # which is among the preferred for any call
    ),
)


def _check_calls(row: KernelSpec) -> KernelSpec:
    """Return a row that looks at cell and call before it runs."""
    return replace(
        row,
        unsupported_reason=require_unmodified(row.unsupported_reason),
        run=validate_call(row.run, row.backend),
    )


KERNELS: list[KernelSpec] = [
    _check_calls(row)
    for row in (*_TRACED_KERNELS, *_CELL_KERNELS, *_PREFERRED, *_GENERATED, *_CUDA_GRAPH_KERNELS)
]
"""All kernels, in order of preference; each checks whether it supports a call. Those of
:mod:`tauflow.zoo` are among them when that has been imported."""

_CUSTOM_CELL_KERNELS = (
    KernelSpec(
        AbstractCell,  # it stands for all of them
        "numba",
        traced_unsupported_reason,
        validate_call(run_traced, "numba"),
        rtol=1e-5,
        atol=1e-5,
        device="cpu",
        is_profitable=is_tracing_profitable,
    ),
)
"""What serves cells that are not of the catalog."""

BACKENDS: tuple[str, ...] = (
    "auto",
    "reference",
    *dict.fromkeys(row.backend for row in KERNELS),
)
"""Names accepted by ``backend=``."""


# Not at the first call, which torch's compiler may be tracing.
_DEFAULT_BACKEND = check_one_of(
    BACKENDS, TAUFLOW_BACKEND=os.environ.get("TAUFLOW_BACKEND") or "auto"
)


def add_kernels(
    cell: type[AbstractCell], *, is_short_traced: bool = True, is_generated: bool = True
) -> None:
    """Serve a class of the library that is not in the catalog: by its trace, or by one scan.

    Args:
        cell: the class.
        is_short_traced: whether its trace is the fastest way in short sequences, too.
        is_generated: whether there are generated kernels of it.
    """
    KERNELS.append(_check_calls(_make_traced_spec(cell)))
    if issubclass(cell, AbstractScanCell):
        KERNELS.append(_check_calls(_make_scan_spec(cell)))
    if is_generated:
        KERNELS.append(_check_calls(_make_generated_spec(cell)))
    KERNELS.append(_check_calls(_make_cuda_graph_spec(cell)))
    if not is_short_traced:
        TRACED_IF_LONG.add(cell)
    add_builtin_cell(cell)


def get_kernels(cell: AbstractCell) -> tuple[KernelSpec, ...]:
    """Return the kernels of a cell, in order of preference.

    Those of a cell of the catalog are its class's own. A cell that somebody else wrote, derived
    from one of the catalog or not, is served by its traced step, if at all.
    """
    rows = tuple(row for row in KERNELS if row.cell is type(cell))
    return rows if rows or is_tracing() or is_builtin_cell(cell) else _CUSTOM_CELL_KERNELS


def is_backend_allowed(backend: str, candidate: str) -> bool:
    """Whether a caller who asks for ``backend`` may be served by that of a name."""
    return backend == candidate or (backend == "auto" and _DEFAULT_BACKEND in ("auto", candidate))


def select_kernel(call: KernelCall, backend: str) -> KernelSpec | None:
    """Return the kernel that serves the call, or ``None`` for the reference loop.

    ``"auto"`` takes the first row for the call's device that is worth it and has no objection; of
    one backend only, or none, if the environment variable ``TAUFLOW_BACKEND`` named it when tauflow
    was imported. A backend asked for by the argument is never swapped for another.

    Args:
        call: the run at hand.
        backend: ``"auto"``, ``"reference"`` or a backend of the kernel catalog.

    Raises:
        BackendError: the backend asked for by name cannot serve the call.
    """
    if backend == "reference":
        return None
    rows = get_kernels(call.cell)
    if backend == "auto":
        fits = [
            row
            for row in rows
            if row.device in (None, call.x.device.type) and is_backend_allowed("auto", row.backend)
        ]
        for row in fits:  # a loop, as the compiler of torch 2.8 knows no default of next()
            if row.is_profitable(call) and row.unsupported_reason(call) is None:
                return row
        return None
    reasons = []
    named = [row for row in rows if row.backend == backend]
    for row in sorted(named, key=lambda row: not row.is_profitable(call)):
        reason = row.unsupported_reason(call)
        if reason is None:
            return row
        reasons.append(reason)
    why = "; ".join(dict.fromkeys(reasons)) or f"it has no kernel for {type(call.cell).__name__}"
    raise BackendError(
        f"backend {backend!r} cannot serve this call: {why}. "
        "Use backend='auto' to let tauflow choose, or backend='reference'."
    )


def explain_kernels(
    call: KernelCall, backend: str, chosen: KernelSpec | None
) -> list[tuple[KernelSpec, str]]:
    """Return every row of the call's cell, in order of preference, and why it does not serve.

    Args:
        call: as for :func:`select_kernel`.
        backend: likewise.
        chosen: the row that serves the call, whose reason is empty.
    """
    device = call.x.device.type
    explained = []
    for row in get_kernels(call.cell):
        if row is chosen:
            reason = ""
        elif row.backend != backend and backend != "auto":
            reason = f"backend={backend!r} asks for another"
        elif not is_backend_allowed(backend, row.backend):
            reason = f"TAUFLOW_BACKEND={_DEFAULT_BACKEND} asks for another"
        elif backend == "auto" and row.device not in (None, device):
            reason = f"backend='auto' takes it on {row.device} only"
        else:
            reason = row.unsupported_reason(call) or (
                "it can serve the call, but comes after the one that does"
                if row.is_profitable(call)
                else "another is faster for a call of this size"
            )
        explained.append((row, reason))
    return explained
