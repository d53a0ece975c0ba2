"""Whole sequences of any cell on a GPU: kernels generated from its traced step."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor

from tauflow._internal.checks import is_tracing
from tauflow.cells.base import precompute_steps
from tauflow.kernels.engine.autograd import use_device
from tauflow.kernels.engine.kernel_call import KernelCall
from tauflow.kernels.engine.kernel_spec import (
    STATE,
    Gradients,
    GradOutputs,
    Inputs,
    NeedsInputGrad,
    Outputs,
    SequenceKernel,
    X,
)
from tauflow.kernels.engine.requirements import TRITON
from tauflow.kernels.gpu.plan import get_dot_precision, launch_options
from tauflow.kernels.trace import program as codes
from tauflow.kernels.trace.columns import ROWS
from tauflow.kernels.trace.config_key import make_config_key
from tauflow.kernels.trace.graph import Graph
from tauflow.kernels.trace.program import TracingError
from tauflow.kernels.trace.trace_cache import (
    NotMeasuredError,
    TraceCache,
    TracedStep,
    concat_step_inputs,
    run_traced_step,
)

from . import values
from .gradient_sums import check_linear, compute_parameter_gradients
from .phases import Phases, SumOperand, split_into_phases
from .source import Sizes, generate_source, list_read_tensors, to_kernel_layout
from .values import ValueGraph, backward_step, forward_step, matrix_entries

_MAX_WEIGHTS = 1 << 19  # of matrices that a step multiplies by
_MAX_FLOATS = 1 << 27  # of what kernels leave to others: half a gigabyte

_MAX_MEASURED_SEQUENCES = 1024
_MAX_MEASURED_VALUES = 100  # of a step's gradient
_MEASURED_CODES = {
    *(codes.ADD, codes.SUB, codes.MUL, codes.WHERE, codes.LERP, codes.LESS_EQUAL, codes.RELU),
    *(codes.TANH, codes.SIGMOID, codes.EXP, codes.TANH_BACKWARD, codes.SIGMOID_BACKWARD),
}
"""What was measured on a GPU beside replayed graphs, as far as ``backend="auto"`` takes it."""

REQUIREMENTS = TRITON._replace(
    dtypes=(torch.float32,),
    dtype_message="generated from a step compute in float32",
    is_traceable=False,
    supports_autocast=False,
    mixed_dtype_message="",
)


@dataclass(frozen=True, eq=False)
class GeneratedKernel:
    """The kernels of a step, or of its gradient.

    Args:
        step: as values.
        phases: as kernels.
        sizes: of what they read and write.
        carried: what the loop carries.
        weights: entries of the matrices that the step multiplies by.
    """

    step: ValueGraph
    phases: Phases
    sizes: Sizes
    carried: int
    weights: int
    _sources: dict[bool, str] = field(default_factory=dict)

    def source(self, *, resident: bool) -> str:
        """Return the source of the kernels; see :func:`.source.generate_source`."""
        if resident not in self._sources:
            self._sources[resident] = generate_source(
                self.step, self.phases, self.sizes, self.carried, resident=resident
            )
        return self._sources[resident]


@dataclass(frozen=True, eq=False)
class KernelPair:
    """The kernels of a step and, if gradients were wanted, of its gradient."""

    forward: GeneratedKernel
    backward: GeneratedKernel | None

    @property
    def is_measured(self) -> bool:
        """Whether steps of such operations, of such a length and size, were measured on a GPU."""
        steps = [pair.step for pair in (self.forward, self.backward) if pair is not None]
        return self.forward.weights <= max(_WARPS.values()) and all(
            len(step.values) <= _MAX_MEASURED_VALUES
            and all(isinstance(v.code, str) or v.code in _MEASURED_CODES for v in step.values)
            for step in steps
        )


class LaunchConfig(NamedTuple):
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


def choose_launch(generated: GeneratedKernel) -> LaunchConfig:
    """Return how a loop is launched.

    One sequence a program, so that a batch takes as many processors as there are; and as many warps
    as keep all matrices in registers.
    """
    weights = generated.weights
    warps = next((warps for warps, most in _WARPS.items() if weights <= most), None)
    return LaunchConfig(False, max(_WARPS)) if warps is None else LaunchConfig(True, warps)


def _generate_kernel(step: ValueGraph, sizes: Sizes, carried: int, weights: int) -> GeneratedKernel:
    generated = GeneratedKernel(
        step, split_into_phases(step, sizes.widths, carried), sizes, carried, weights
    )
    generated.source(
        resident=choose_launch(generated).resident
    )  # raises if an operation cannot be written
    return generated


def _make(
    graph: Graph,
    inputs: Sequence[Tensor],
    captured: Sequence[Tensor],
    needs_grad: Sequence[bool] | None,
) -> KernelPair:
    for tensor in (*inputs, *captured):
        if tensor.dtype not in (torch.float32, torch.bool):
            raise TracingError(f"it reads {tensor.dtype}")
    state, *parts = inputs
    widths = tuple(part.shape[1] for part in parts)

    def sizes(step: ValueGraph) -> Sizes:
        return Sizes(widths, state.shape[1], list_read_tensors(step, captured))

    forward = forward_step(graph, inputs, captured)
    weights = matrix_entries(forward)
    if weights > _MAX_WEIGHTS:
        raise TracingError(
            f"a step multiplies by {weights} weights, and generated kernels by {_MAX_WEIGHTS} at "
            "most"
        )
    backward = None
    if needs_grad is not None:
        step = backward_step(graph, inputs, captured, needs_grad)
        check_linear(step)
        backward = _generate_kernel(step, sizes(step), values.GRAD, weights)
    return KernelPair(_generate_kernel(forward, sizes(forward), values.STATE, weights), backward)


TRACES = TraceCache(_make)
"""The traced steps of these kernels."""


def generated_unsupported_reason(call: KernelCall) -> str | None:
    """Return why generated kernels cannot serve a call."""
    reason = REQUIREMENTS.unsupported_reason(replace(call, observed=None))
    if reason is None and is_tracing():
        reason = "a traced step cannot be traced"
    return reason or TRACES.unsupported_reason(call, ROWS, _prepare)


def unmeasured_reason(call: KernelCall) -> str | None:
    """Return why they cannot, or why it is not known whether they are faster than graphs."""
    reason = REQUIREMENTS.unsupported_reason(replace(call, observed=None))
    if reason is None and call.x.shape[0] > _MAX_MEASURED_SEQUENCES:
        reason = f"generated kernels were measured with up to {_MAX_MEASURED_SEQUENCES} sequences"
    return reason or TRACES.unsupported_reason(call, (ROWS, "measured"), _prepare_if_measured)


def run_generated(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run any cell by kernels generated from its step.

    Raises:
        BackendError: the step does something today that it did not do before.
    """
    return run_traced_step(GENERATED_KERNEL, "triton", _prepare, call)


def _prepare(call: KernelCall) -> tuple[TracedStep, list[Tensor]]:
    """Return the trace of a call, and the inputs of a run."""
    steps = precompute_steps(call.cell, call.x, call.dt, call.observed)
    config = make_config_key(call.cell)
    trace, captured = TRACES.find(call, config, steps, ROWS)
    no_gaps = call.h.new_empty(*call.dt.shape[:2], 0)  # they are among what steps read
    captured = trace.permute(captured)
    return trace, [concat_step_inputs(call, steps.per_step), call.h, no_gaps, *captured]


def _prepare_if_measured(call: KernelCall) -> None:
    trace, _ = _prepare(call)
    if not trace.lowered.is_measured:
        raise NotMeasuredError("kernels generated from such a step were not measured")


class GeneratedSequenceKernel(SequenceKernel):
    """GeneratedKernel kernels. Saved are the states before every step, (B, T, S)."""

    name = "generated/triton"

    @staticmethod
    def update(
        form: TracedStep, h: Tensor, inputs: Tensor, no_gaps: Tensor, *captured: Tensor
    ) -> Tensor:
        """Take a step by torch's operations, as they were traced."""
        return form.step(h, inputs, captured)

    def allocate(self, form: TracedStep, inputs: Inputs, needs_grad: NeedsInputGrad) -> Outputs:
        """Return memory for what :meth:`forward` writes."""
        h, (B, T, _) = inputs[STATE], inputs[X].shape
        states = h.new_empty(B if needs_grad else 0, T, h.shape[1])
        return Outputs(h.new_empty(B, T, h.shape[1]), h.new_empty(h.shape), (states,))

    def forward(
        self,
        form: TracedStep,
        mask: Tensor | None,
        inputs: Inputs,
        out: Outputs,
        needs_grad: NeedsInputGrad,
    ) -> None:
        """Run all steps."""
        steps, h, _, *captured = inputs
        generated: GeneratedKernel = form.lowered.forward
        nothing = h.new_empty(1)
        tensors = steps.contiguous(), out.saved_tensors[0], nothing, h.contiguous(), out.y, out.last
        with use_device(h):
            for part in _split_batch(generated, *steps.shape[:2]):
                some = _of(part, generated, tensors)
                part_mask = None if mask is None else mask[part]
                _launch(generated, part_mask, some, captured, keep=len(needs_grad) > 0)

    def backward(
        self,
        form: TracedStep,
        mask: Tensor | None,
        inputs: Inputs,
        saved_tensors: Sequence[Tensor],
        grad_outputs: GradOutputs,
        needs_grad: NeedsInputGrad,
    ) -> Gradients:
        """Return the gradients of the inputs."""
        steps, h, _, *captured = inputs
        generated: GeneratedKernel = form.lowered.backward
        (B, T, F), nothing = steps.shape, h.new_empty(1)
        written = sum(target.width for target in generated.phases.input_grads)
        make = steps.new_empty if written == F else steps.new_zeros
        grad_steps = make(B, T, F) if needs_grad[X] else nothing
        last = torch.zeros_like(h) if grad_outputs.last is None else grad_outputs.last.contiguous()
        y = nothing if grad_outputs.y is None else grad_outputs.y.contiguous()
        grad_h = torch.empty_like(last)
        tensors = steps.contiguous(), saved_tensors[0], grad_steps, last, y, grad_h
        totals: dict[int, Tensor] = {}
        with use_device(h):
            for part in _split_batch(generated, B, T):
                some = _of(part, generated, tensors)
                part_mask = None if mask is None else mask[part]
                _launch(generated, part_mask, some, captured, keep=grad_outputs.y is not None)
                if generated.step.totals:
                    part_totals = compute_parameter_gradients(
                        generated.step, _sums(generated, some), captured
                    )
                    totals = {
                        n: part_totals[n] + totals[n] if n in totals else part_totals[n]
                        for n in part_totals
                    }
        captured_grads = [totals.get(number) for number in range(len(captured))]
        return [grad_steps if needs_grad[X] else None, grad_h, None, *captured_grads]


def _split_batch(generated: GeneratedKernel, B: int, T: int) -> list[slice]:
    """Return which sequences are taken at once, so that the buffer stays small."""
    count = max(1, _MAX_FLOATS // max(1, T * generated.phases.width))
    return [slice(first, first + count) for first in range(0, B, count)]


def _of(part: slice, generated: GeneratedKernel, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return what some sequences have of tensors, and what kernels leave to others after two.

    Tensors of one axis stand for those that are neither read nor written.
    """
    steps, before, *rest = (tensor if tensor.ndim == 1 else tensor[part] for tensor in tensors)
    size = steps.shape[0] * steps.shape[1] * generated.phases.width
    return [steps, before, steps.new_empty(max(1, size)), *rest]


def _launch(
    generated: GeneratedKernel,
    mask: Tensor | None,
    tensors: Sequence[Tensor],
    captured: Sequence[Tensor],
    *,
    keep: bool,
) -> None:
    """Launch kernels on all tensors that they take; see ``source.ARGUMENTS``."""
    from .compile import compile_source

    (B, T, _), like = tensors[0].shape, tensors[0]
    launch = choose_launch(generated)
    marks = like.new_empty(1, dtype=torch.uint8) if mask is None else mask.view(torch.uint8)
    outside = [
        to_kernel_layout(source, captured[source.number])
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
    for name, kernel in compile_source(generated.source(resident=launch.resident)).items():
        rows, size, warps = (
            (1, B, launch.warps) if name == "loop" else (_ROWS_OF_ALL, B * T, _WARPS_OF_ALL)
        )
        kernel[(-(-size // rows),)](
            *arguments, ROWS=rows, num_stages=1, **constants, **launch_options(warps)
        )


def _sums(generated: GeneratedKernel, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return the sums over sequences and steps; the tensors are as for :func:`_launch`."""
    widths = generated.sizes.widths
    steps, before, saved, *_ = tensors
    rows = steps.shape[0] * steps.shape[1]

    def columns(operand: SumOperand) -> Tensor:
        if operand.source is None:
            source, first = saved, 0
        elif operand.source == values.STATE:
            source, first = before, 0
        else:
            source, first = steps, sum(widths[: operand.source])
        first += operand.start
        return source.view(rows, -1)[:, first : first + operand.width]

    return [
        columns(right).sum(0) if left is None else columns(left).T @ columns(right)
        for left, right in generated.phases.sums
    ]


GENERATED_KERNEL = GeneratedSequenceKernel()
