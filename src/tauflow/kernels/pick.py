"""Choose the kernel for a call."""

from tauflow.errors import BackendError

from .catalog import KERNELS
from .spec import KernelCall, KernelSpec


def pick(call: KernelCall, backend: str) -> KernelSpec | None:
    """Return the row that serves the call, or ``None`` for the reference loop.

    ``"auto"`` takes the first row for the call's device without an objection. A backend asked for
    by name is never swapped for another.

    Args:
        call: the run at hand.
        backend: ``"auto"``, ``"reference"`` or a backend of the kernel catalog.

    Raises:
        BackendError: the backend asked for by name cannot serve the call.
    """
    if backend == "reference":
        return None
    rows = [row for row in KERNELS if row.cell is type(call.cell)]
    if backend == "auto":
        fits = [row for row in rows if row.device in (None, call.x.device.type)]
        return next((row for row in fits if row.why_not(call) is None), None)
    reasons = []
    for row in rows:
        if row.backend == backend:
            reason = row.why_not(call)
            if reason is None:
                return row
            reasons.append(reason)
    why = "; ".join(reasons) or f"it has no kernel for {type(call.cell).__name__}"
    raise BackendError(
        f"backend {backend!r} cannot serve this call: {why}. "
        "Use backend='auto' to let tauflow choose, or backend='reference'."
    )
