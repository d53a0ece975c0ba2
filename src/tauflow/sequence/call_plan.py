"""What a call of a sequence module does, worked out once for all calls alike.

Most of what stands between a call and its kernels follows from metadata: which cells there are and
what they consist of, shapes, dtypes, devices, what wants gradients. A plan keeps the answers for
the calls of one signature; what is left for every call is to see that the signature is the same,
and to look at the values that are checked: times, states, missing features. Parameters are read in
every call.

A plan serves catalogued cells in float32 on the CPU, on tensors of torch's own, with nothing around
the call that follows what runs. All else, and every call that looks as if it were in error, is left
to ``SequenceModule.forward``.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from tauflow.cells.base import AbstractCell
from tauflow.errors import BackendError, TauflowError
from tauflow.kernels import KernelCall, KernelSpec, select_kernel
from tauflow.kernels.engine.autograd import run_keeping, run_without_gradients
from tauflow.kernels.engine.kernel_spec import KernelFunction, SequenceKernel
from tauflow.kernels.engine.torch_state import is_followed

from .cell_record import CellRecord, find_places, record_cells
from .finite_checks import check_finite_states
from .inputs import SequenceInputs, first_sample
from .planned_inputs import (
    UNREADABLE,
    PlannedInputs,
    add_batch_axis,
    find_bad_values,
    is_plain,
    may_have_nan,
    needs_grad,
    read_inputs,
)
from .ragged import run_segments, split_by_length
from .states import split_per_cell
from .unroll import run_builtin_steps

if TYPE_CHECKING:
    from .sequence_module import SequenceModule

_MAX_PLANS = 64
"""Signatures that a module keeps plans for; sequences of many lengths have one each."""


class _CellPlan(NamedTuple):
    """What serves one cell in the calls of a signature.

    Args:
        cell: the cell.
        run: the kernel, or the cell's own steps.
        keeps: whether a backward pass may follow.
        is_fused: whether it is a kernel; batches are then cut where sequences end.
        is_compiled: whether that is a compiled loop, which any gaps may be given; they are looked
            at when it is done.
        zeros: width of the state, of sequences that begin with zeros; else 0.
        kernel: what ``run`` comes to, if that is known.
        config: of the cell, for the kernel.
        places: holder and name of each parameter that the kernel reads where it is, or an empty
            tensor and no name.
    """

    cell: AbstractCell
    run: KernelFunction
    keeps: bool
    is_fused: bool
    is_compiled: bool
    zeros: int
    kernel: SequenceKernel | None
    config: Any
    places: tuple[tuple[Any, str], ...]


class _Plan(NamedTuple):
    """What serves the calls of a signature.

    Args:
        cells: what serves each cell.
        is_single: whether there is one layer in one direction, without a projection.
        infers_observed: whether NaN in x stands for missing features.
        gaps_shape: (B, T, 1).
        state_shape: (B, S), of all cells.
        is_compiled: whether compiled loops serve all cells.
    """

    cells: tuple[_CellPlan, ...]
    is_single: bool
    infers_observed: bool
    gaps_shape: tuple[int, int, int]
    state_shape: tuple[int, int]
    is_compiled: bool


class CallPlans:
    """The plans of a sequence module. A copy of the module, or what is loaded, begins without."""

    def __init__(self) -> None:
        self._records: tuple[CellRecord, ...] = ()
        self._plans: dict[tuple[Any, ...], _Plan | str] = {}

    def __reduce__(self) -> tuple[type["CallPlans"], tuple[()]]:
        """Copy and pickle as one without plans."""
        return CallPlans, ()

    def run(
        self,
        rnn: "SequenceModule",
        x: Any,
        hx: Any,
        dt: Any,
        t: Any = None,
        mask: Any = None,
        lengths: Any = None,
        observed: Any = None,
    ) -> tuple[Tensor, Tensor] | None:
        """Return the outputs and the last state, or ``None`` where no plan serves.

        Args:
            rnn: the module.
            x: as it was given, and so all others.
            hx: state.
            dt: gaps.
            t: times.
            mask: valid steps.
            lengths: valid lengths.
            observed: measured features.
        """
        found = self.find(rnn, x, hx, dt, t, mask, lengths, observed)
        if isinstance(found, str):
            return None
        plan, given = found
        if plan.infers_observed and may_have_nan(given.x):
            x, hx, dt, mask, _, batched = given
            nan = x.isnan()
            found = self.find(rnn, x, hx, dt, None, mask, None, ~nan) if bool(nan.any()) else found
            if isinstance(found, str):
                return None
            plan, given = found[0], found[1]._replace(batched=batched)
        return _run_plan(rnn, plan, given)

    def find(
        self,
        rnn: "SequenceModule",
        x: Any,
        hx: Any,
        dt: Any,
        t: Any = None,
        mask: Any = None,
        lengths: Any = None,
        observed: Any = None,
    ) -> tuple[_Plan, PlannedInputs] | str:
        """Return a plan and the inputs of a call, or why there is no plan; see :meth:`run`."""
        if is_followed():
            return "a compiler, transform, trace, mode, autocast or global hook follows what runs"
        if not is_plain(x, torch.float32):
            return UNREADABLE
        batched = x.ndim != 2
        if not batched:
            x, hx, dt, t, mask, observed = map(add_batch_axis, (x, hx, dt, t, mask, observed))
        plan = self._find_plan(rnn, x, hx, dt, mask is lengths is None, observed is None)
        if isinstance(plan, str):
            return plan
        given = PlannedInputs(x, hx, dt, mask, observed, batched)
        inputs = read_inputs(type(rnn).__name__, given, t, lengths, *plan[3:])
        return inputs if isinstance(inputs, str) else (plan, inputs)

    def _find_plan(
        self, rnn: "SequenceModule", x: Tensor, hx: Any, dt: Any, is_whole: bool, is_measured: bool
    ) -> _Plan | str:
        own = rnn.__dict__
        modes, learns = self._look_at_cells(rnn, own["_modules"]["cells"]._modules)
        if modes is None:
            return "a cell is custom, or was modified after construction"
        if None in learns:
            return UNREADABLE
        projected = own["proj_size"]
        key: tuple[Any, ...] = (
            *(is_whole, is_measured, x.shape, modes, own["num_layers"], own["bidirectional"]),
            *(projected, own["backend"], own["checkpoint_every"]),
            *(torch.is_inference_mode_enabled(), torch.get_default_dtype()),
        )
        grads: tuple[Any, ...] = ()
        if torch.is_grad_enabled():
            outer = any(map(needs_grad, rnn.projections.parameters())) if projected else False
            grads = learns, needs_grad(x), needs_grad(dt) or needs_grad(hx), outer
        try:
            return self._plans[key, grads]
        except KeyError:
            if len(self._plans) >= _MAX_PLANS:
                self._plans.clear()
            plan = _make_plan(rnn, self._records, x, not is_whole, not is_measured, *grads)
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
) -> _Plan | str:
    """Return the plan for calls like one, or why there is none.

    Args:
        rnn: the module.
        records: of its cells.
        x: inputs, (B, T, I).
        masked: whether there is a mask.
        observed: whether ``observed`` is part of the call.
        learns: which parameters of each cell want gradients, if any may.
        x_learns: whether x wants them.
        state_learns: whether gaps or states do.
        output_learns: whether a projection does.
    """
    if x.ndim != 3 or x.shape[2] != rnn.input_size or x.numel() == 0:
        return f"x has to be (B, T, {rnn.input_size})"
    B, T, _ = x.shape
    every = rnn.checkpoint_every
    if any((*map(any, learns), x_learns, state_learns)) and every is not None and every < T:
        return "checkpoint_every cuts the sequences"
    if observed and not rnn.uses_observed:
        return "observed is given to a cell that does not model missing features"
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
            cells.append(_plan_cell(row, records[index], keeps=keeps))
        width = directions * (rnn.proj_size or cell.output_size)
        below, y = above, x.new_zeros(B, T, width)
    return _Plan(
        tuple(cells),
        len(cells) == 1 and not rnn.proj_size,
        rnn.uses_observed and not observed,
        (B, T, 1),
        (B, rnn.state_size),
        all(cell.is_compiled for cell in cells),
    )


def _plan_cell(row: KernelSpec | None, record: CellRecord, *, keeps: bool) -> _CellPlan:
    """Return what a row comes to for a cell."""
    cell: Any = record.cell
    # without the checks that a plan has made
    run = run_builtin_steps if row is None else getattr(row.run, "__wrapped__", row.run)
    run = run if row is None or row.plan is None else row.plan()
    is_compiled = row is not None and row.backend == "numba"
    zeros = cell.state_size if type(cell).initial_state is AbstractCell.initial_state else 0
    places = None if row is None or row.kernel is None else find_places(record)
    plan = _CellPlan(cell, run, keeps, row is not None, is_compiled, zeros, None, None, ())
    if row is None or places is None:
        return plan
    return plan._replace(kernel=row.kernel, config=cell.static_config(), places=places)


class _BadTimesError(Exception):
    """Gaps are negative or not finite, which is seen when a compiled loop has run."""


def _run_plan(
    rnn: "SequenceModule", plan: _Plan, planned: PlannedInputs
) -> tuple[Tensor, Tensor] | None:
    """Return what the module returns, or ``None`` if times are bad."""
    x, hx, dt, mask, observed, batched = planned
    try:
        if plan.is_single:
            y, last = _run_cell(rnn, plan.cells[0], planned, x, hx, dt, mask, observed)
        else:
            cells = rnn.each_cell
            starts = [None] * len(cells) if hx is None else split_per_cell(cells, hx)
            inputs = SequenceInputs(x, dt, mask, observed, batched=True, packed=None)

            def run(index: int, inputs: SequenceInputs, h: Tensor | None) -> tuple[Tensor, Tensor]:
                own = inputs.x, h, inputs.dt, inputs.mask, inputs.observed
                return _run_cell(rnn, plan.cells[index], planned, *own)

            y, states = rnn._run_layers(run, inputs, starts)
            last = torch.cat(states, dim=-1)
    except (BackendError, _BadTimesError):
        return None
    if not rnn.return_sequences:
        y = rnn._last_outputs(y)
    return (y, last) if batched else (y[0], last[0])


def _run_cell(
    rnn: "SequenceModule",
    plan: _CellPlan,
    planned: PlannedInputs,
    x: Tensor,
    h: Tensor | None,
    dt: Tensor,
    mask: Tensor | None,
    observed: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Run one cell over a layer's input, and look at gaps and last states.

    Raises:
        BackendError: the cell's step can no longer be traced; another kernel may serve.
    """
    if h is not None:
        start = h
    elif plan.zeros:
        start = x.new_zeros((x.shape[0], plan.zeros))
    else:
        start = plan.cell.initial_state(first_sample(x, mask))
    # steps after the ends of sequences are left out where it pays
    pieces = None if mask is None or not plan.is_fused else split_by_length(mask)
    if plan.kernel is not None and pieces is None:
        parameters = [holder[name] if name else holder for holder, name in plan.places]
        run = run_keeping if plan.keeps else run_without_gradients
        y, last = run(plan.kernel, plan.config, mask, x, start, dt, *parameters)
    else:
        call = KernelCall(plan.cell, x, start, dt, mask, observed)
        y, last = plan.run(call) if pieces is None else run_segments(call, pieces, plan.run)
    if not plan.is_compiled:
        # it may be part of something else
        last = last.clone(memory_format=torch.contiguous_format)
    bad = find_bad_values(dt if plan.is_compiled else None, last)
    if bad & 1:
        raise _BadTimesError
    if bad:
        given = planned.x, planned.dt, planned.mask, planned.observed
        inputs = SequenceInputs(*given, batched=True, packed=None)
        check_finite_states(f"{type(rnn).__name__}.forward", plan.cell, h, last, inputs)
    return y, last
