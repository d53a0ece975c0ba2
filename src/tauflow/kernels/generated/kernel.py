"""Whole sequences of any cell on a GPU: kernels generated from its traced step."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor

from tauflow._internal.checks import is_tracing
from tauflow.cells.split_step import split_step
from tauflow.kernels.engine.autograd import use_device
from tauflow.kernels.engine.program import (
    STATE,
    Gradients,
    GradOutputs,
    Inputs,
    KernelCall,
    NeedsInputGrad,
    Outputs,
    SequenceKernel,
    X,
)
from tauflow.kernels.engine.requirements import TRITON
from tauflow.kernels.gpu.plan import get_dot_precision, launch_options
from tauflow.kernels.trace import program as codes
from tauflow.kernels.trace.capture import Graph
from tauflow.kernels.trace.program import TracingError
from tauflow.kernels.trace.trace_cache import (
    NotMeasuredError,
    TraceCache,
    TracedStep,
    concat_step_inputs,
    run_traced_step,
)

from . import values
from .entries import ROWS
from .gradient_sums import check_linear, totals_of
from .phases import Operand, Phases, phases_of
from .source import Sizes, as_read, source_of, tensors_read
from .values import Step, backward_step, forward_step, matrix_entries

_MOST_WEIGHTS = 1 << 19  # of matrices that a step multiplies by
_MOST_FLOATS = 1 << 27  # of what kernels leave to others: half a gigabyte

_FEW_STEPS = 4  # which take less time than to find a recording
_MEASURED_SEQUENCES = 1024
_MEASURED_VALUES = 100  # of a step's gradient
_MEASURED_CODES = {
    *(codes.ADD, codes.SUB, codes.MUL, codes.WHERE, codes.LERP, codes.LESS_EQUAL, codes.RELU),
    *(codes.TANH, codes.SIGMOID, codes.EXP, codes.TANH_BACKWARD, codes.SIGMOID_BACKWARD),
}
"""What was measured on a GPU beside replayed graphs, as far as ``backend="auto"`` takes it."""

NEEDS = TRITON._replace(
    dtypes=(torch.float32,),
    dtype_message="generated from a step compute in float32",
    is_traceable=False,
    supports_autocast=False,
    mixed_dtype_message="",
)


@dataclass(frozen=True, eq=False)
class Generated:
    """The kernels of a step, or of its gradient.

    Args:
        step: as values.
        phases: as kernels.
        sizes: of what they read and write.
        carried: what the loop carries.
        weights: entries of the matrices that the step multiplies by.
    """

    step: Step
    phases: Phases
    sizes: Sizes
    carried: int
    weights: int
    _sources: dict[bool, str] = field(default_factory=dict)

    def source(self, *, resident: bool) -> str:
        """Return the source of the kernels; see :func:`.source.source_of`."""
        if resident not in self._sources:
            self._sources[resident] = source_of(
                self.step, self.phases, self.sizes, self.carried, resident=resident
            )
        return self._sources[resident]


@dataclass(frozen=True, eq=False)
class Both:
    """The kernels of a step and, if gradients were wanted, of its gradient."""

    forward: Generated
    backward: Generated | None

    @property
    def is_measured(self) -> bool:
        """Whether steps of such operations, of such a length and size, were measured on a GPU."""
        steps = [one.step for one in (self.forward, self.backward) if one is not None]
        return self.forward.weights <= max(_WARPS.values()) and all(
            len(step.values) <= _MEASURED_VALUES
            and all(isinstance(v.code, str) or v.code in _MEASURED_CODES for v in step.values)
            for step in steps
        )


class Launch(NamedTuple):
    """How the loop is launched.

    Args:
        resident: whether it keeps matrices on the chip.
        warps: of a program, which has one sequence.
    """

    resident: bool
    warps: int


_WARPS = {4: 1 << 13, 8: 6 << 12, 16: 5 << 14}
"""Warps of a program that keeps matrices, by the most entries of these."""

_ROWS_OF_ALL, _WARPS_OF_ALL = 16, 8
"""Steps and warps of a program that takes all steps at once."""


def choose(generated: Generated) -> Launch:
    """Return how a loop is launched.

    One sequence a program, so that a batch takes as many processors as there are; and as many warps
    as keep all matrices in registers.
    """
    weights = generated.weights
    warps = next((warps for warps, most in _WARPS.items() if weights <= most), None)
    return Launch(False, max(_WARPS)) if warps is None else Launch(True, warps)


def _generated(step: Step, sizes: Sizes, carried: int, weights: int) -> Generated:
    found = Generated(step, phases_of(step, sizes.widths, carried), sizes, carried, weights)
    found.source(resident=choose(found).resident)  # raises if an operation cannot be written
    return found


def _make(
    graph: Graph, given: Sequence[Tensor], met: Sequence[Tensor], wants: Sequence[bool] | None
) -> Both:
    for tensor in (*given, *met):
        if tensor.dtype not in (torch.float32, torch.bool):
            raise TracingError(f"it reads {tensor.dtype}")
    state, *parts = given
    widths = tuple(part.shape[1] for part in parts)

    def sizes(step: Step) -> Sizes:
        return Sizes(widths, state.shape[1], tensors_read(step, met))

    forward = forward_step(graph, given, met)
    weights = matrix_entries(forward)
    if weights > _MOST_WEIGHTS:
        raise TracingError(
            f"a step multiplies by {weights} weights, and generated kernels by {_MOST_WEIGHTS} at "
            "most"
        )
    backward = None
    if wants is not None:
        step = backward_step(graph, given, met, wants)
        check_linear(step)
        backward = _generated(step, sizes(step), values.PULL, weights)
    return Both(_generated(forward, sizes(forward), values.STATE, weights), backward)


RECORDER = TraceCache(_make)
"""The recordings of these kernels."""


def generated_limits(call: KernelCall) -> str | None:
    """Return why generated kernels cannot serve a call."""
    reason = NEEDS.unsupported_reason(replace(call, observed=None))
    if reason is None and is_tracing():
        reason = "a traced step cannot be traced"
    return reason or RECORDER.unsupported_reason(call, ROWS, _prepare)


def measured_limits(call: KernelCall) -> str | None:
    """Return why they cannot, or why it is not known whether they are faster than graphs."""
    reason = NEEDS.unsupported_reason(replace(call, observed=None))
    if reason is None and call.x.shape[0] > _MEASURED_SEQUENCES:
        reason = f"generated kernels were measured with up to {_MEASURED_SEQUENCES} sequences"
    return reason or RECORDER.unsupported_reason(call, (ROWS, "measured"), _prepare_measured)


def is_worth_generating(call: KernelCall) -> bool:
    """Whether a call takes longer than to find a recording."""
    return not is_tracing() and call.x.shape[1] >= _FEW_STEPS


def run_generated(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run any cell by kernels generated from its step.

    Raises:
        BackendError: the step does something today that it did not do before.
    """
    return run_traced_step(PROGRAM, "triton", _prepare, call)


def _prepare(call: KernelCall) -> tuple[TracedStep, list[Tensor]]:
    """Return the recording of a call, and the inputs of a run."""
    split = split_step(call.cell, call.x, call.dt, call.observed)
    recording, met = RECORDER.find(call, split, ROWS)
    no_gaps = call.h.new_empty(*call.dt.shape[:2], 0)  # they are among what steps read
    return recording, [concat_step_inputs(call, split), call.h, no_gaps, *met]


def _prepare_measured(call: KernelCall) -> None:
    recording, _ = _prepare(call)
    if not recording.lowered.is_measured:
        raise NotMeasuredError("kernels generated from such a step were not measured")


class GeneratedProgram(SequenceKernel):
    """Generated kernels. The tape is the states before every step, (B, T, S)."""

    name = "generated/triton"

    @staticmethod
    def advance(form: TracedStep, h: Tensor, step: tuple[Tensor, Tensor], *met: Tensor) -> Tensor:
        """Take a step by torch's operations, as they were recorded."""
        return form.step(h, step[0], met)

    def allocate(self, form: TracedStep, inputs: Inputs, wants: NeedsInputGrad) -> Outputs:
        """Return memory for what :meth:`forward` writes."""
        h, (B, T, _) = inputs[STATE], inputs[X].shape
        states = h.new_empty(B if wants else 0, T, h.shape[1])
        return Outputs(h.new_empty(B, T, h.shape[1]), h.new_empty(h.shape), (states,))

    def forward(
        self,
        form: TracedStep,
        mask: Tensor | None,
        inputs: Inputs,
        out: Outputs,
        wants: NeedsInputGrad,
    ) -> None:
        """Run all steps."""
        steps, h, _, *met = inputs
        generated: Generated = form.lowered.forward
        nothing = h.new_empty(1)
        tensors = steps.contiguous(), out.saved_tensors[0], nothing, h.contiguous(), out.y, out.last
        with use_device(h):
            for part in _parts(generated, *steps.shape[:2]):
                some = _of(part, generated, tensors)
                own_mask = None if mask is None else mask[part]
                _launch(generated, own_mask, some, met, keep=len(wants) > 0)

    def backward(
        self,
        form: TracedStep,
        mask: Tensor | None,
        inputs: Inputs,
        tape: Sequence[Tensor],
        pulls: GradOutputs,
        wants: NeedsInputGrad,
    ) -> Gradients:
        """Return the gradients of the inputs."""
        steps, h, _, *met = inputs
        generated: Generated = form.lowered.backward
        (B, T, F), nothing = steps.shape, h.new_empty(1)
        written = sum(target.width for target in generated.phases.pulled)
        make = steps.new_empty if written == F else steps.new_zeros
        to_steps = make(B, T, F) if wants[X] else nothing
        last = torch.zeros_like(h) if pulls.last is None else pulls.last.contiguous()
        y = nothing if pulls.y is None else pulls.y.contiguous()
        to_h = torch.empty_like(last)
        tensors = steps.contiguous(), tape[0], to_steps, last, y, to_h
        totals: dict[int, Tensor] = {}
        with use_device(h):
            for part in _parts(generated, B, T):
                some = _of(part, generated, tensors)
                own_mask = None if mask is None else mask[part]
                _launch(generated, own_mask, some, met, keep=pulls.y is not None)
                if generated.step.totals:
                    found = totals_of(generated.step, _sums(generated, some), met)
                    totals = {n: found[n] + totals[n] if n in totals else found[n] for n in found}
        of_met = [totals.get(number) for number in range(len(met))]
        return [to_steps if wants[X] else None, to_h, None, *of_met]


def _parts(generated: Generated, B: int, T: int) -> list[slice]:
    """Return which sequences are taken at once, so that the buffer stays small."""
    count = max(1, _MOST_FLOATS // max(1, T * generated.phases.width))
    return [slice(first, first + count) for first in range(0, B, count)]


def _of(part: slice, generated: Generated, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return what some sequences have of tensors, and what kernels leave to others after two.

    Tensors of one axis stand for those that nobody reads or writes.
    """
    steps, before, *rest = (tensor if tensor.ndim == 1 else tensor[part] for tensor in tensors)
    size = steps.shape[0] * steps.shape[1] * generated.phases.width
    return [steps, before, steps.new_empty(max(1, size)), *rest]


def _launch(
    generated: Generated,
    mask: Tensor | None,
    tensors: Sequence[Tensor],
    met: Sequence[Tensor],
    *,
    keep: bool,
) -> None:
    """Launch kernels on all tensors that they take; see ``source.ARGUMENTS``."""
    from .compile import compiled

    (B, T, _), like = tensors[0].shape, tensors[0]
    launch = choose(generated)
    marks = like.new_empty(1, dtype=torch.uint8) if mask is None else mask.view(torch.uint8)
    outside = [
        as_read(source, met[source.number])
        if source.number >= 0
        else torch.as_tensor(generated.step.constants, device=like.device)
        for source in generated.sizes.tensors
    ]
    arguments = (*tensors, marks.contiguous(), *outside, B, T)
    constants = {
        "MASKED": mask is not None,
        "KEEP": keep,
        "PRECISION": get_dot_precision(like.dtype),
    }
    for name, kernel in compiled(generated.source(resident=launch.resident)).items():
        rows, size, warps = (
            (1, B, launch.warps) if name == "loop" else (_ROWS_OF_ALL, B * T, _WARPS_OF_ALL)
        )
        kernel[(-(-size // rows),)](
            *arguments, ROWS=rows, num_stages=1, **constants, **launch_options(warps)
        )


def _sums(generated: Generated, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return the sums over sequences and steps; the tensors are as for :func:`_launch`."""
    widths = generated.sizes.widths
    steps, before, saved, *_ = tensors
    rows = steps.shape[0] * steps.shape[1]

    def columns(operand: Operand) -> Tensor:
        if operand.source is None:
            whole, first = saved, 0
        elif operand.source == values.STATE:
            whole, first = before, 0
        else:
            whole, first = steps, sum(widths[: operand.source])
        first += operand.start
        return whole.view(rows, -1)[:, first : first + operand.width]

    return [
        columns(right).sum(0) if left is None else columns(left).T @ columns(right)
        for left, right in generated.phases.sums
    ]


PROGRAM = GeneratedProgram()
