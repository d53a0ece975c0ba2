"""Which kernel serves a call of a cell, and why the others do not.

In order of preference: the traced step of any cell; torch's own operators for LSTM, GRU, Elman and
scans; loops written for LTC, LRC and CT-GRU; on a GPU kernels that are written or generated,
and CUDA graphs. The reference loop, the cell's own step, serves all else.
"""

import os
from collections.abc import Callable
from typing import Any

import torch

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
from tauflow.cells.ltc import LTCCell
from tauflow.cells.mixed_memory import MixedMemoryCell
from tauflow.cells.phased_lstm import PhasedLSTMCell
from tauflow.cells.registry import MODELS
from tauflow.cells.wired_cfc import WiredCfCCell
from tauflow.errors import BackendError

from .cfc.kernel import cfc_triton_unsupported_reason, run_triton_cfc, run_triton_wired_cfc
from .ct_gru.kernel import ct_gru_unsupported_reason, run_ct_gru
from .engine.kernel_call import (
    KernelCall,
    KernelFunction,
    add_builtin_cell,
    is_builtin_cell,
)
from .engine.kernel_spec import KernelSpec
from .generated.kernel import generated_unsupported_reason, run_generated, unmeasured_reason
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
from .scan.kernel import run_torch_scan, torch_scan_unsupported_reason
from .torch_rnn import (
    gated_unsupported_reason,
    gru_unsupported_reason,
    lstm_unsupported_reason,
    run_elman,
    run_gru,
    run_lstm,
)
from .trace.cuda_graphs import cuda_graph_unsupported_reason, run_cuda_graph
from .trace.operator import run_traced
from .trace.traced_kernel import PlannedTrace, is_long, traced_unsupported_reason

_WRITTEN_CELLS = {LSTMCell: lstm_unsupported_reason, CTGRUCell: ct_gru_unsupported_reason}
"""Cells whose written loops are faster than their traces in long sequences, where they serve."""
_UNTRACED_CELLS = (LTCCell, LRCCell)  # whose own loops are faster, whatever the size
_TRACED_IF_LONG: set[type[AbstractCell]] = set()
"""Cells whose matrices take longer in every step of a short sequence than torch's calls."""

_MAX_SHORT_WORK = 1 << 19
"""Rows times parameters, up to which a traced step is faster than a written one in short
sequences."""
_MIN_LAUNCHED_STEPS = 4  # on a GPU, which take less time than to find a trace
_MAX_GRAPH_WORK = 1 << 31  # rows times parameters, from which on products outlast their launches


def _is_tracing_profitable(call: KernelCall) -> bool:
    """Whether a traced step is faster than the other ways that there are for a call.

    Loops written for a cell are faster where they fuse more of it. Torch's own take tens of
    microseconds for a step, its LSTM excepted.
    """
    if is_tracing():  # before any look at sizes, which compilers would guard
        return torch.compiler.is_compiling() and type(call.cell) not in _WRITTEN_CELLS
    is_short_served = is_builtin_cell(call.cell) and type(call.cell) not in _TRACED_IF_LONG
    if not (is_long(call) or is_short_served):  # to find a user's trace takes longer
        return False
    find_reason = _WRITTEN_CELLS.get(type(call.cell))
    if find_reason is None or find_reason(call) is not None:
        return True
    work = len(call.x) * sum(parameter.numel() for parameter in call.cell.parameters())
    return not is_long(call) and work <= _MAX_SHORT_WORK


def _is_phased_profitable(call: KernelCall) -> bool:
    """Whether the gates of a Phased LSTM are computed ahead, which pays for more than one step."""
    return _is_tracing_profitable(call) and call.x.shape[1] > 1


def _is_generating_profitable(call: KernelCall) -> bool:
    """Whether a call takes longer than to find a trace."""
    return not is_tracing() and call.x.shape[1] >= _MIN_LAUNCHED_STEPS


def _is_graph_profitable(call: KernelCall) -> bool:
    """Whether launches take longer than what they launch, and torch is not asked for the same bits.

    Torch refuses to record where it is to compute deterministically, see
    :func:`tauflow.kernels.gpu.graph_loop.can_capture`.
    """
    if is_tracing() or torch.are_deterministic_algorithms_enabled():
        return False
    B, T, _ = call.x.shape
    parameters = sum(parameter.numel() for parameter in call.cell.parameters())
    return T >= _MIN_LAUNCHED_STEPS and B * parameters <= _MAX_GRAPH_WORK


def _is_never_profitable(call: KernelCall) -> bool:
    """Say no, of what serves by name only."""
    return False


def _make_row(
    cell: type[AbstractCell],
    backend: str,
    find_reason: Callable[[KernelCall], str | None],
    function: KernelFunction,
    *,
    atol: float = 1e-5,
    **options: Any,
) -> KernelSpec:
    return KernelSpec(cell, backend, find_reason, function, rtol=1e-5, atol=atol, **options)


def _make_triton_row(
    cell: type[AbstractCell],
    find_reason: Callable[[KernelCall], str | None],
    function: KernelFunction,
    **options: Any,
) -> KernelSpec:
    return _make_row(cell, "triton", find_reason, function, device="cuda", **options)


def _make_traced_row(cell: type[AbstractCell]) -> KernelSpec:
    return _make_row(
        cell,
        "numba",
        traced_unsupported_reason,
        run_traced,
        device="cpu",
        is_profitable=_is_tracing_profitable,
        plan=None if cell is AbstractCell else PlannedTrace,
    )


def _make_scan_row(cell: type[AbstractCell]) -> KernelSpec:
    return _make_row(cell, "torch", torch_scan_unsupported_reason, run_torch_scan)


def _make_generated_row(cell: type[AbstractCell]) -> KernelSpec:
    """Return the generated kernel of a cell, which serves by name only."""
    return _make_triton_row(
        cell, generated_unsupported_reason, run_generated, is_profitable=_is_never_profitable
    )


def _make_graph_row(cell: type[AbstractCell]) -> KernelSpec:
    return _make_row(
        cell,
        "graph",
        cuda_graph_unsupported_reason,
        run_cuda_graph,
        device="cuda",
        is_profitable=_is_graph_profitable,
    )


_CATALOG_CELLS = tuple(dict.fromkeys(entry.cell for entry in MODELS.values()))

_TRACED = [_make_traced_row(cell) for cell in _CATALOG_CELLS if cell not in _UNTRACED_CELLS]
_TORCH = [
    _make_row(LSTMCell, "torch", lstm_unsupported_reason, run_lstm, atol=1e-6),
    _make_row(GRUCell, "torch", gru_unsupported_reason, run_gru, atol=1e-6),
    _make_row(ElmanCell, "torch", gated_unsupported_reason, run_elman, atol=1e-6),
    *(_make_scan_row(cell) for cell in _CATALOG_CELLS if issubclass(cell, AbstractScanCell)),
]
_WRITTEN = [
    _make_row(LTCCell, "numba", synapses_unsupported_reason, run_ltc),
    _make_triton_row(LTCCell, triton_ltc_unsupported_reason, run_triton_ltc),
    _make_row(LRCCell, "numba", synapses_unsupported_reason, run_lrc),
    _make_row(CTGRUCell, "numba", ct_gru_unsupported_reason, run_ct_gru),
    _make_triton_row(CfCCell, cfc_triton_unsupported_reason, run_triton_cfc),
    _make_triton_row(MixedMemoryCell, cfc_triton_unsupported_reason, run_triton_cfc),
    _make_triton_row(WiredCfCCell, cfc_triton_unsupported_reason, run_triton_wired_cfc),
    _make_row(
        PhasedLSTMCell,
        "numba",
        phased_lstm_unsupported_reason,
        run_phased_lstm,
        is_profitable=_is_phased_profitable,
        plan=PlannedPhasedLSTM,
    ),
]
_GENERATED = [  # those first that were measured, which ``backend="auto"`` takes
    _make_triton_row(cell, find_reason, function, is_profitable=_is_generating_profitable)
    for cell, find_reason, function in (
        (PhasedLSTMCell, phased_unmeasured_reason, run_phased_generated),
        *(
            (cell, unmeasured_reason, run_generated)
            for cell in (
                *(GRUDCell, LEMCell, GNODECell),
                *(CfCCell, MixedMemoryCell, WiredCfCCell),
            )
        ),
        # Each of its evaluations would be launched by itself.
        (CTRNNCell, generated_unsupported_reason, run_generated),
    )
]
_GENERATED += [
    _make_triton_row(
        PhasedLSTMCell,
        phased_unsupported_reason,
        run_phased_generated,
        is_profitable=_is_never_profitable,
    ),
    *(_make_generated_row(cell) for cell in _CATALOG_CELLS if cell is not CTRNNCell),
]
_GRAPHS = [_make_graph_row(cell) for cell in _CATALOG_CELLS]

KERNELS: list[KernelSpec] = [*_TRACED, *_TORCH, *_WRITTEN, *_GENERATED, *_GRAPHS]
"""All kernels, in order of preference; each checks whether it supports a call. Those of
:mod:`tauflow.zoo` are among them when that has been imported."""

_CUSTOM_CELL_KERNELS = (_make_traced_row(AbstractCell),)
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
    KERNELS.append(_make_traced_row(cell))
    if issubclass(cell, AbstractScanCell):
        KERNELS.append(_make_scan_row(cell))
    if is_generated:
        KERNELS.append(_make_generated_row(cell))
    KERNELS.append(_make_graph_row(cell))
    if not is_short_traced:
        _TRACED_IF_LONG.add(cell)
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
