"""Which kernel serves a call of a sequence module, and why the others do not."""

from dataclasses import replace
from typing import Any, NamedTuple

import torch

from tauflow._internal.checks import missing_features_error
from tauflow.cells.contract_checks import call_initial_state
from tauflow.errors import BackendError
from tauflow.kernels import KernelCall, select_kernel
from tauflow.kernels.select import explain_kernels

from .call_plan import EPISODES
from .inputs import check_dtype_and_device, infer_observed, time_dtype
from .read_call import check_times, read_call
from .states import resolve_initial_states

_SERVES = "serves the call"


class KernelExplanation(NamedTuple):
    """One way to run one cell.

    Args:
        cell: index and class of the cell, such as ``"0 CfCCell"``.
        backend: name that ``backend=`` chooses it by.
        loop: name of its loop; ``"step"`` for the cell's own steps.
        serves: whether it serves the call.
        reason: why it does not.
    """

    cell: str
    backend: str
    loop: str
    serves: bool
    reason: str


class CallExplanation(NamedTuple):
    """How a call runs; printed as a table.

    Args:
        kernels: every way to run every cell, in order of preference.
        plan: why the checks of the call are made each time, empty if a plan keeps them.
    """

    kernels: tuple[KernelExplanation, ...]
    plan: str

    def __str__(self) -> str:
        """Return the table."""
        rows = [
            (kernel.cell, kernel.backend, kernel.loop, _SERVES if kernel.serves else kernel.reason)
            for kernel in self.kernels
        ]
        head = ("cell", "backend", "loop", "")
        widths = [max(len(row[column]) for row in (head, *rows)) for column in range(3)]
        lines = [
            "  ".join(
                [*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]]
            ).rstrip()
            for row in (head, *rows)
        ]
        plan = f"none: {self.plan}" if self.plan else "checks are made once for calls like this"
        return "\n".join([*lines, f"call plan: {plan}"])


def explain_call(
    rnn: Any, x: Any, hx: Any = None, *, dt: Any = None, **others: Any
) -> CallExplanation:
    """Return how a call of a sequence module would run; see ``SequenceModule.explain``."""
    where = f"{type(rnn).__name__}.explain"
    inputs = read_call(where, rnn.input_size, x, dt=dt, has_initial_state=hx is not None, **others)
    has_episodes = inputs.episode_start is not None
    if inputs.episode_start is not None:  # episodes are rows, which end at different steps
        valid = inputs.episode_start.new_ones(inputs.x.shape[:2])
        mask = valid if inputs.mask is None else inputs.mask
        inputs = replace(inputs, mask=mask, episode_start=None)
    check_times(where, inputs)
    check_dtype_and_device(where, rnn.cell, inputs.x)
    if rnn.cell.uses_observed:
        inputs = infer_observed(inputs)
    elif inputs.observed is not None:
        raise missing_features_error(where, rnn.cell)
    starts = None
    if hx is not None:
        starts = resolve_initial_states(where, rnn.each_cell, hx, inputs)
    kernels: list[KernelExplanation] = []
    below, learns = inputs.x, torch.is_grad_enabled()
    for index, cell in enumerate(rnn.each_cell):
        if index and index % rnn.num_directions == 0:
            width = rnn.output_size
            below = inputs.x.new_zeros(*inputs.x.shape[:2], width, requires_grad=learns)
        if starts is None:
            start = call_initial_state(cell, below[:, 0].to(time_dtype(below)))
        else:
            start = starts[index]
        observed = inputs.observed if index < rnn.num_directions else None
        call = KernelCall(cell, below, start, inputs.dt, inputs.mask, observed)
        name = f"{index} {type(cell).__name__}"
        kernels += _explain_cell(name, call, rnn.backend)
    plan = EPISODES if has_episodes else rnn._call_plans.find(rnn, inputs, starts)
    return CallExplanation(tuple(kernels), plan if isinstance(plan, str) else "")


def _explain_cell(name: str, call: KernelCall, backend: str) -> list[KernelExplanation]:
    try:
        chosen, error = select_kernel(call, backend), ""
    except BackendError as refusal:
        chosen, error = None, f"the call raises BackendError: {refusal}"
    rows = [
        KernelExplanation(name, row.backend, row.function.__name__, row is chosen, reason)
        for row, reason in explain_kernels(call, backend, chosen)
    ]
    steps = error or (f"{chosen.backend} serves the call" if chosen is not None else "")
    return [*rows, KernelExplanation(name, "reference", "step", not steps, steps)]
