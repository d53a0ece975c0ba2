"""Run a call of a sequence module: read it, find its plan, run layer by layer."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

from tauflow._internal.checks import missing_features_error
from tauflow.cells.contract_checks import call_initial_state
from tauflow.errors import BackendError
from tauflow.kernels import KernelCall
from tauflow.kernels.cpu.binding import check_memory

from .call_plan import run_planned
from .episodes import run_episodes
from .finite_checks import check_finite_states
from .inputs import (
    SequenceInputs,
    check_dtype_and_device,
    first_sample,
    infer_observed,
    time_dtype,
)
from .read_call import check_times, read_call
from .states import State, resolve_initial_states

if TYPE_CHECKING:
    from .sequence_module import SequenceModule

RunCall: TypeAlias = Callable[[int, KernelCall], tuple[Tensor, Tensor]]
"""Returns outputs and last state of a call of a cell, by its index."""
RunCell: TypeAlias = Callable[[int, SequenceInputs, Tensor | None], tuple[Tensor, Tensor]]
"""Returns outputs and last state of a cell by its index, its inputs, and the state to start from,
``None`` for its own."""


def run_call(
    rnn: "SequenceModule",
    where: str,
    x: Any,
    hx: State | None,
    run_cell: RunCall | None = None,
    **arguments: Any,
) -> tuple[Tensor | PackedSequence, Tensor]:
    """Run a call, given the arguments of ``SequenceModule.forward`` by name.

    Args:
        rnn: the module.
        where: name of the caller, for messages.
        x: inputs.
        hx: initial state.
        run_cell: what runs each cell; ``None`` for kernels.
        **arguments: the other arguments.
    """
    inputs = read_call(where, rnn.input_size, x, has_initial_state=hx is not None, **arguments)
    starts: list[Tensor] | None = None
    if hx is not None:
        starts = resolve_initial_states(where, rnn.each_cell, hx, inputs)
    if inputs.episode_start is None:
        y, h = _run_inputs(rnn, where, run_cell, inputs, starts)
    else:
        y, h = run_episodes(
            inputs,
            starts,
            partial(_run_inputs, rnn, where, run_cell),
            state_sizes=[cell.state_size for cell in rnn.each_cell],
            directions=rnn.num_directions,
        )
    if not rnn.return_sequences:
        y = get_last_outputs(rnn, y)
    if inputs.batched and inputs.packed is None:
        return y, h
    result = inputs.match_input_format(y, is_per_step=rnn.return_sequences)
    return result, h if inputs.batched else h[0]


def _run_inputs(
    rnn: "SequenceModule",
    where: str,
    run_cell: RunCall | None,
    inputs: SequenceInputs,
    starts: list[Tensor] | None,
) -> tuple[Tensor, Tensor]:
    """Return the outputs and the last state, by a plan where one serves."""
    if rnn.uses_observed:
        inputs = infer_observed(inputs)
    elif inputs.observed is not None:
        raise missing_features_error(where, rnn.cell)
    may_be_planned = run_cell is None and inputs.is_plain
    plan = rnn._call_plans.find(rnn, inputs, starts) if may_be_planned else ""
    run: RunCell
    if not isinstance(plan, str):
        if not plan.is_compiled:
            check_times(where, inputs)
        run = partial(run_planned, where, plan, inputs)
        try:
            if plan.is_single:
                return run(0, inputs, None if starts is None else starts[0])
            return _run_layers(rnn, run, inputs, starts)
        except BackendError:
            pass  # a step that can no longer be traced; others may serve
    check_memory(*rnn.parameters(), *rnn.buffers())
    check_times(where, inputs)
    check_dtype_and_device(where, rnn.cell, inputs.x)
    run = partial(_run_cell, rnn, where, run_cell or rnn._unroll, inputs)
    return _run_layers(rnn, run, inputs, starts)


def _run_layers(
    rnn: "SequenceModule", run: RunCell, inputs: SequenceInputs, starts: list[Tensor] | None
) -> tuple[Tensor, Tensor]:
    """Return the last layer's outputs at every step, and the last states of all cells."""
    y = inputs.x
    last: list[Tensor] = []
    for layer in range(rnn.num_layers):
        if layer:
            y = F.dropout(y, rnn.dropout, rnn.training)
        outputs = []
        for direction in range(rnn.num_directions):
            index = layer * rnn.num_directions + direction
            part = replace(inputs, x=y, observed=None) if layer else inputs
            part = part.reverse() if direction else part
            out, state = run(index, part, None if starts is None else starts[index])
            if rnn.proj_size:
                out = rnn.projections[index](out)
            outputs.append(out.flip(1) if direction else out)
            last.append(state)
        y = torch.cat(outputs, dim=-1) if rnn.bidirectional else outputs[0]
    return y, torch.cat(last, dim=-1)


def _run_cell(
    rnn: "SequenceModule",
    where: str,
    run: RunCall,
    module_inputs: SequenceInputs,
    index: int,
    inputs: SequenceInputs,
    h: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Run one cell over ``inputs``, from a state or its own; ``module_inputs`` is the module's."""
    cell, x, mask = rnn._cell(index), inputs.x, inputs.mask
    start, some = h, inputs.episodes
    if start is None or some is not None:
        start = call_initial_state(cell, first_sample(x, mask).to(time_dtype(x)))
    if h is not None and some is not None:
        continued = some.is_continued[index % rnn.num_directions]
        start = torch.where(continued.unsqueeze(1), h, start)
    call = KernelCall(cell, x, start, inputs.dt, mask, inputs.observed)
    y, last = run(index, call)
    check_finite_states(where, cell, h, last, module_inputs)
    return y, last


def get_last_outputs(rnn: "SequenceModule", y: Tensor) -> Tensor:
    """Return each direction's last output; masked steps repeat the last valid one."""
    if not rnn.bidirectional:
        return y[:, -1]
    width = y.shape[-1] // 2
    return torch.cat([y[:, -1, :width], y[:, 0, width:]], dim=-1)
