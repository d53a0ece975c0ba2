"""What a module decided for calls of one signature, kept with it.

Nearly all that is decided between a call and its kernels follows from metadata: which cells there
are and what they consist of, shapes, modes, what wants gradients. A plan keeps the answers for the
calls of one signature; what is left for every call is to see that the signature is the same, and to
look at the values that are checked: times, states, missing features. Parameters are read in every
call.

A plan serves catalogued cells in float32 on the CPU, on tensors of torch's own, with nothing around
the call that follows what runs. All other calls choose their kernels each time.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from tauflow.cells.base import AbstractCell
from tauflow.errors import TauflowError
from tauflow.kernels import KernelCall, KernelSpec, select_kernel
from tauflow.kernels.engine.kernel_call import KernelFunction
from tauflow.kernels.engine.torch_state import is_followed

from .cell_record import CellRecord, record_cells
from .finite_checks import check_finite_states
from .inputs import SequenceInputs, first_sample
from .plain_tensors import find_bad_values, is_plain
from .ragged import run_segments, split_by_length
from .read_call import check_times
from .unroll import run_builtin_steps

if TYPE_CHECKING:
    from .sequence_module import SequenceModule

EPISODES = "episodes start within the sequences"
"""Why calls with ``episode_start`` have no plan."""
_UNREADABLE = "x and parameters have to be float32, on the CPU, and of no subclass"
_FOLLOWED = "a compiler, transform, trace, mode, autocast or global hook follows what runs"
_MAX_PLANS = 64
"""Signatures that a module keeps plans for; sequences of many lengths have one each."""


class CellPlan(NamedTuple):
    """What serves one cell in the calls of a signature.

    Args:
        cell: the cell.
        run: the kernel, or the cell's own steps.
        is_fused: whether it is a kernel; batches are then cut where sequences end.
        is_compiled: whether that is a compiled loop, which any time steps may be given; they are
            looked at when it is done.
        zeros: width of the state, of sequences that begin with zeros; else 0.
    """

    cell: AbstractCell
    run: KernelFunction
    is_fused: bool
    is_compiled: bool
    zeros: int


class CallPlan(NamedTuple):
    """What serves the calls of a signature.

    Args:
        cells: what serves each cell.
        is_single: whether there is one layer in one direction, without a projection.
        is_compiled: whether compiled loops serve all cells.
    """

    cells: tuple[CellPlan, ...]
    is_single: bool
    is_compiled: bool


class CallPlans:
    """The plans of a sequence module. A copy of the module, or what is loaded, begins without."""

    def __init__(self) -> None:
        self._records: tuple[CellRecord, ...] = ()
        self._plans: dict[tuple[Any, ...], CallPlan | str] = {}

    def __reduce__(self) -> tuple[type["CallPlans"], tuple[()]]:
        """Copy and pickle as one without plans."""
        return CallPlans, ()

    def find(
        self, rnn: "SequenceModule", inputs: SequenceInputs, starts: Sequence[Tensor] | None
    ) -> CallPlan | str:
        """Return the plan of a call, or why it has no plan.

        Args:
            rnn: the module.
            inputs: the call.
            starts: the state that each cell starts from, or ``None`` for its own.
        """
        if not inputs.is_plain:
            return _FOLLOWED if is_followed() else _UNREADABLE
        if inputs.episodes is not None:
            return EPISODES
        fields = rnn.__dict__
        modes, learns = self._look_at_cells(rnn, fields["_modules"]["cells"]._modules)
        if modes is None:
            return "a cell is custom, or was modified after construction"
        if None in learns:
            return _UNREADABLE
        x, projected, state_learns = inputs.x, fields["proj_size"], inputs.dt.requires_grad
        if starts is not None:
            if not all(is_plain(start, torch.float32) for start in starts):
                return "hx has to be a float32 state, (B, S)"
            state_learns = state_learns or any(start.requires_grad for start in starts)
        masked, observed = inputs.mask is not None, inputs.observed is not None
        key: tuple[Any, ...] = (
            *(masked, observed, x.shape, modes, fields["num_layers"], fields["bidirectional"]),
            *(projected, fields["backend"], fields["checkpoint_every"]),
            *(torch.is_inference_mode_enabled(), torch.get_default_dtype()),
        )
        grads: tuple[Any, ...] = ()
        if torch.is_grad_enabled():
            outer = projected > 0 and any(p.requires_grad for p in rnn.projections.parameters())
            grads = learns, x.requires_grad, state_learns, outer
        plan = self._plans.get((key, grads))
        if plan is None:
            if len(self._plans) >= _MAX_PLANS:
                self._plans.clear()
            plan = _make_plan(rnn, self._records, x, masked, observed, *grads)
            self._plans[key, grads] = plan
        return plan

    def _look_at_cells(
        self, rnn: "SequenceModule", cells: dict[str, nn.Module]
    ) -> tuple[tuple[Any, ...] | None, tuple[tuple[bool, ...] | None, ...]]:
        """Return which parts of each cell are in training mode, and which parameters learn."""
        records = self._records
        if len(records) == len(cells):
            modes = [
                record.find_modes(cell)
                for record, cell in zip(records, cells.values(), strict=True)
            ]
            if None not in modes:
                return tuple(modes), tuple([record.find_learning() for record in records])
        self._plans = {}
        self._records = records = record_cells(rnn.each_cell)
        if not records:
            return None, ()
        return tuple(record.find_modes(record.cell) for record in records), tuple(
            record.find_learning() for record in records
        )


def _make_plan(
    rnn: "SequenceModule",
    records: Sequence[CellRecord],
    x: Tensor,
    masked: bool,
    observed: bool,
    learns: Sequence[Sequence[bool]] = (),
    x_learns: bool = False,
    state_learns: bool = False,
    output_learns: bool = False,
) -> CallPlan | str:
    """Return the plan for calls like one, or why they have no plan.

    Args:
        rnn: the module.
        records: of its cells.
        x: inputs, (B, T, I).
        masked: whether there is a mask.
        observed: whether ``observed`` is part of the call.
        learns: which parameters of each cell want gradients, if any may.
        x_learns: whether x wants them.
        state_learns: whether time steps or states do.
        output_learns: whether a projection does.
    """
    if x.numel() == 0:
        return "x is empty"
    if observed and not rnn.uses_observed:
        return "the cell does not model missing features"
    B, T, _ = x.shape
    every = rnn.checkpoint_every
    if any((*map(any, learns), x_learns, state_learns)) and every is not None and every < T:
        return "checkpoint_every cuts the sequences"
    mask = torch.ones(B, T, dtype=torch.bool) if masked else None
    below, cells, directions, y = x_learns, [], rnn.num_directions, x
    for first in range(0, len(records), directions):
        above = False
        for index in range(first, first + directions):
            cell = records[index].cell
            if cell.input_size != y.shape[2]:
                return f"a cell of layer {first // directions} reads features of another number"
            keeps = below or state_learns or any(map(any, learns[index : index + 1]))
            above = above or keeps or output_learns
            state = x.new_zeros(B, cell.state_size).requires_grad_(keeps)
            seen = torch.ones_like(x, dtype=torch.bool) if observed and first == 0 else None
            call = KernelCall(cell, y, state, x.new_ones(B, T, 1), mask, seen)
            try:
                row = select_kernel(call, rnn.backend)
            except TauflowError as error:
                return str(error)
            cells.append(_plan_cell(row, cell))
        width = directions * (rnn.proj_size or cell.output_size)
        below, y = above, x.new_zeros(B, T, width)
    return CallPlan(
        tuple(cells),
        len(cells) == 1 and not rnn.proj_size,
        all(cell.is_compiled for cell in cells),
    )


def _plan_cell(row: KernelSpec | None, cell: AbstractCell) -> CellPlan:
    """Return what a row comes to for a cell."""
    run = run_builtin_steps if row is None else row.function
    run = run if row is None or row.plan is None else row.plan()
    is_compiled = row is not None and row.backend == "numba"
    zeros = cell.state_size if type(cell).initial_state is AbstractCell.initial_state else 0
    return CellPlan(cell, run, row is not None, is_compiled, zeros)


def run_planned(
    where: str,
    plan: CallPlan,
    module_inputs: SequenceInputs,
    index: int,
    inputs: SequenceInputs,
    h: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Run one cell over a layer's input, and look at time steps and last states.

    Args:
        where: name of the module, for messages.
        plan: of the call.
        module_inputs: the call.
        index: of the cell.
        inputs: of the layer.
        h: the state to start from, or ``None`` for the cell's own.

    Raises:
        TimeError: time steps are negative or not finite, which is seen when a compiled loop has
            run.
        NonFiniteError: see :func:`.finite_checks.check_finite_states`.
        BackendError: the cell's step can no longer be traced; another kernel may serve.
    """
    cell_plan, x, dt, mask = plan.cells[index], inputs.x, inputs.dt, inputs.mask
    if h is not None:
        start = h
    elif cell_plan.zeros:
        start = x.new_zeros((x.shape[0], cell_plan.zeros))
    else:
        start = cell_plan.cell.initial_state(first_sample(x, mask))
    # steps after the ends of sequences are left out where it pays
    pieces = None
    if mask is not None and cell_plan.is_fused:
        pieces = split_by_length(cell_plan.cell, mask)
    call = KernelCall(cell_plan.cell, x, start, dt, mask, inputs.observed)
    y, last = cell_plan.run(call) if pieces is None else run_segments(call, pieces, cell_plan.run)
    if not cell_plan.is_compiled:
        # it may be part of something else
        last = last.clone(memory_format=torch.contiguous_format)
    bad = find_bad_values(None if module_inputs.is_checked else module_inputs.dt, last)
    if bad & 1:
        check_times(where, module_inputs)
    if bad:
        check_finite_states(where, cell_plan.cell, h, last, module_inputs)
    return y, last
