"""Every fused kernel, one row each, in order of preference; and which serves a call."""

import os
from collections.abc import Callable
from dataclasses import replace

from tauflow.cells.base import AbstractCell
from tauflow.cells.catalog import MODELS
from tauflow.cells.cfc import CfCCell
from tauflow.cells.ct_gru import CTGRUCell
from tauflow.cells.ct_rnn import CTRNNCell
from tauflow.cells.gated import ElmanCell, GRUCell, LSTMCell
from tauflow.cells.gru_d import GRUDCell, UnmaskedGRUDCell
from tauflow.cells.lrc import LRCCell
from tauflow.cells.ltc import LTCCell
from tauflow.cells.ltc_neuronal import NeuronalLTCCell
from tauflow.cells.mixed_memory import MixedMemoryCell
from tauflow.cells.ode_lstm import ODELSTMCell
from tauflow.cells.phased_lstm import PhasedLSTMCell
from tauflow.cells.wired_cfc import WiredCfCCell
from tauflow.checks import is_traced, one_of
from tauflow.errors import BackendError

from .closed_form.programs import (
    numba_limits,
    run_cfc,
    run_mixed,
    run_torch_cfc,
    run_torch_wired,
    run_triton_cfc,
    run_triton_stepped,
    run_triton_wired,
    run_wired,
    torch_limits,
    triton_limits,
    triton_stepped_limits,
)
from .engine.needs import guarded, is_own, unchanged
from .engine.program import KernelCall, KernelSpec, Run
from .flow.programs import (
    ct_rnn_limits,
    neuronal_limits,
    ode_lstm_limits,
    run_flow,
    triton_flow_limits,
)
from .flow.triton_program import run_triton_flow
from .native import (
    decay_limits,
    gated_limits,
    lstm_limits,
    run_elman,
    run_gru,
    run_gru_d,
    run_lstm,
    run_unmasked_gru_d,
)
from .others import OTHERS
from .phased import phased_limits, run_phased
from .recorded import is_worth_recording, recorded_limits, run_recorded
from .replayed import is_worth_replaying, replayed_limits, run_replayed
from .scales.programs import run_scales, scales_limits
from .synapses.programs import ltc_limits, run_ltc, run_triton_ltc, triton_ltc_limits
from .synapses.saturated import lrc_limits, run_lrc


def _triton(
    cell: type[AbstractCell], why_not: Callable[[KernelCall], str | None], run: Run
) -> KernelSpec:
    return KernelSpec(cell, "triton", why_not, run, rtol=1e-5, atol=1e-5, device="cuda")


_ITS_OWN = (
    KernelSpec(LSTMCell, "torch", lstm_limits, run_lstm, rtol=1e-5, atol=1e-6),
    KernelSpec(GRUCell, "torch", gated_limits, run_gru, rtol=1e-5, atol=1e-6),
    KernelSpec(ElmanCell, "torch", gated_limits, run_elman, rtol=1e-5, atol=1e-6),
    KernelSpec(GRUDCell, "numba", decay_limits, run_gru_d, rtol=1e-5, atol=1e-5),
    KernelSpec(UnmaskedGRUDCell, "numba", decay_limits, run_unmasked_gru_d, rtol=1e-5, atol=1e-5),
    KernelSpec(CTGRUCell, "numba", scales_limits, run_scales, rtol=1e-5, atol=1e-5),
    KernelSpec(LTCCell, "numba", ltc_limits, run_ltc, rtol=1e-5, atol=1e-5),
    _triton(LTCCell, triton_ltc_limits, run_triton_ltc),
    KernelSpec(LRCCell, "numba", lrc_limits, run_lrc, rtol=1e-5, atol=1e-5),
    KernelSpec(NeuronalLTCCell, "numba", neuronal_limits, run_flow, rtol=1e-5, atol=1e-5),
    KernelSpec(CfCCell, "numba", numba_limits, run_cfc, rtol=1e-5, atol=1e-5),
    _triton(CfCCell, triton_limits, run_triton_cfc),
    _triton(CfCCell, triton_stepped_limits, run_triton_stepped),
    KernelSpec(CfCCell, "torch", torch_limits, run_torch_cfc, rtol=1e-5, atol=1e-5),
    KernelSpec(MixedMemoryCell, "numba", numba_limits, run_mixed, rtol=1e-5, atol=1e-5),
    _triton(MixedMemoryCell, triton_limits, run_triton_cfc),
    _triton(MixedMemoryCell, triton_stepped_limits, run_triton_stepped),
    KernelSpec(
        PhasedLSTMCell,
        "numba",
        phased_limits,
        run_phased,
        rtol=1e-5,
        atol=1e-5,
        worth=is_worth_recording,
    ),
    KernelSpec(CTRNNCell, "numba", ct_rnn_limits, run_flow, rtol=1e-5, atol=1e-5),
    _triton(CTRNNCell, triton_flow_limits, run_triton_flow),
    KernelSpec(ODELSTMCell, "numba", ode_lstm_limits, run_flow, rtol=1e-5, atol=1e-5),
    KernelSpec(WiredCfCCell, "numba", numba_limits, run_wired, rtol=1e-5, atol=1e-5),
    _triton(WiredCfCCell, triton_stepped_limits, run_triton_wired),
    KernelSpec(WiredCfCCell, "torch", torch_limits, run_torch_wired, rtol=1e-5, atol=1e-5),
)

_RECORDED = tuple(
    KernelSpec(
        cell,
        "numba",
        recorded_limits,
        run_recorded,
        rtol=1e-5,
        atol=1e-5,
        device="cpu",
        worth=is_worth_recording,
    )
    for cell in dict.fromkeys(entry.cell for entry in MODELS.values())
    if cell not in (LTCCell, LRCCell, CTGRUCell)  # whose own loops are faster, whatever the size
)

_REPLAYED = tuple(
    KernelSpec(
        cell,
        "graph",
        replayed_limits,
        run_replayed,
        rtol=1e-5,
        atol=1e-5,
        device="cuda",
        worth=is_worth_replaying,
    )
    for cell in dict.fromkeys(entry.cell for entry in MODELS.values())
)

KERNELS: tuple[KernelSpec, ...] = tuple(
    replace(row, why_not=unchanged(row.why_not), run=guarded(row.run, row.backend))
    for row in (*_RECORDED, *_ITS_OWN, *_REPLAYED)
)
"""All rows; each looks at its calls before it serves them."""

BACKENDS: tuple[str, ...] = (
    "auto",
    "reference",
    *dict.fromkeys(row.backend for row in KERNELS),
)
"""Names accepted by ``backend=``."""


# Not at the first call, which torch's compiler may be tracing.
_ASKED_FOR = one_of(BACKENDS, TAUFLOW_BACKEND=os.environ.get("TAUFLOW_BACKEND") or "auto")


def kernels_of(cell: AbstractCell) -> tuple[KernelSpec, ...]:
    """Return the kernels of a cell, in order of preference.

    Those of a cell of the catalog are its class's own. A cell that somebody else wrote, derived
    from one of the catalog or not, is served by its recorded step, if at all.
    """
    rows = tuple(row for row in KERNELS if row.cell is type(cell))
    return rows if rows or is_traced() or is_own(cell) else OTHERS


def may_serve(backend: str, name: str) -> bool:
    """Whether a caller who asks for ``backend`` may be served by that of a name."""
    return backend == name or (backend == "auto" and _ASKED_FOR in ("auto", name))


def pick(call: KernelCall, backend: str) -> KernelSpec | None:
    """Return the row that serves the call, or ``None`` for the reference loop.

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
    rows = kernels_of(call.cell)
    if backend == "auto":
        fits = [
            row
            for row in rows
            if row.device in (None, call.x.device.type) and may_serve("auto", row.backend)
        ]
        for row in fits:  # a loop, as the compiler of torch 2.8 knows no default of next()
            if row.worth(call) and row.why_not(call) is None:
                return row
        return None
    reasons = []
    named = [row for row in rows if row.backend == backend]
    for row in sorted(named, key=lambda row: not row.worth(call)):
        reason = row.why_not(call)
        if reason is None:
            return row
        reasons.append(reason)
    why = "; ".join(reasons) or f"it has no kernel for {type(call.cell).__name__}"
    raise BackendError(
        f"backend {backend!r} cannot serve this call: {why}. "
        "Use backend='auto' to let tauflow choose, or backend='reference'."
    )
