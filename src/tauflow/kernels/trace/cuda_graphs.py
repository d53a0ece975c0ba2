"""Whole sequences of any cell on a GPU: its own step, captured as CUDA graphs and replayed.

For the cells without a hand-written kernel there. Torch launches tens of operations for a
step and more for the backward pass, each of which takes longer to launch than to run; see
:mod:`tauflow.kernels.gpu.graph_loop`. What the backward pass needs of a step is computed again from
the state before it, so that no more is kept than the states.
"""

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from tauflow._internal.checks import is_tracing
from tauflow.cells.base import precompute_steps
from tauflow.kernels.engine.autograd import use_device
from tauflow.kernels.engine.kernel_call import KernelCall
from tauflow.kernels.engine.kernel_spec import (
    DT,
    STATE,
    Gradients,
    GradOutputs,
    Inputs,
    NeedsInputGrad,
    Outputs,
    SequenceKernel,
    X,
)
from tauflow.kernels.engine.requirements import CUDA_GRAPH, STORAGE_DTYPES
from tauflow.kernels.gpu.graph_loop import run_loop
from tauflow.kernels.gpu.plan import get_dot_precision

from .config_key import make_config_key
from .graph import Graph
from .program import TracingError
from .trace_cache import (
    TraceCache,
    TracedStep,
    bypass_saved_tensor_hooks,
    concat_step_inputs,
    disable_autocast,
    get_autocast_dtype,
    run_traced_step,
)

_STATE_DTYPES = (torch.float32, torch.float64)  # of states
_SUPPORTED_OPS = {
    *("mm", "addmm", "bmm", "baddbmm", "sum", "mean", "cumsum", "_softmax", "_log_softmax"),
    *("cat", "stack", "constant_pad_nd", "clone", "_to_copy", "native_layer_norm"),
    *("alias", "view", "_unsafe_view", "t", "transpose", "permute", "expand", "unsqueeze"),
    *("squeeze", "slice", "select", "split", "split_with_sizes", "unbind"),
}
"""Operations of torch that wait for nothing, beside those on single numbers."""

_AUTOCAST_REQUIREMENTS = CUDA_GRAPH._replace(dtypes=(*STORAGE_DTYPES, torch.float64))


def cuda_graph_unsupported_reason(call: KernelCall) -> str | None:
    """Return why the traced step of a cell cannot serve a call."""
    if call.h.device.type != "cuda" or torch.version.hip is not None:
        return "the graph kernels run on NVIDIA GPUs"
    return cuda_graph_trace_unsupported_reason(call)


def cuda_graph_trace_unsupported_reason(call: KernelCall) -> str | None:
    """Return why it cannot, on any device."""
    needs = CUDA_GRAPH if get_autocast_dtype(call.x) is None else _AUTOCAST_REQUIREMENTS
    reason = needs.unsupported_reason(replace(call, observed=None))
    if reason is None and is_tracing():
        reason = "a traced step cannot be traced"
    if reason is None and call.h.dtype not in _STATE_DTYPES:
        reason = "the graph kernels keep states in float32 or float64"
    return reason or CUDA_GRAPH_TRACES.unsupported_reason(call, call.h.shape[0], _prepare_inputs)


def run_cuda_graph(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run any cell by its own step, traced.

    Raises:
        BackendError: the step does something today that it did not do before.
    """
    return run_traced_step(CUDA_GRAPH_KERNEL, "graph", _prepare_inputs, call)


class _StepIdentity:
    """What tells a step from another one."""


def _check_capturable(
    graph: Graph,
    inputs: Sequence[Tensor],
    captured: Sequence[Tensor],
    needs_input_grad: Sequence[bool] | None,
) -> _StepIdentity:
    """Refuse a step that no CUDA graph can hold."""
    state, *parts = inputs
    for part in parts:
        wider = torch.promote_types(part.dtype, state.dtype) is not state.dtype
        if wider or not (part.is_floating_point() or part.dtype is torch.bool):
            raise TracingError(f"it reads {part.dtype}, and keeps states in {state.dtype}")
    for node in graph.nodes:
        function = node.function
        pointwise = torch.Tag.pointwise in function.tags
        if not pointwise and function.overloadpacket.__name__ not in _SUPPORTED_OPS:
            raise TracingError(f"no CUDA graph was tested with {function}")
        elsewhere = dict(node.kwargs).get("device")
        if elsewhere is not None and torch.device(elsewhere).type != state.device.type:
            raise TracingError(f"{function} waits for the device")
    if any(tensor.device != state.device for tensor in captured):
        raise TracingError("it reads numbers that lie on another device")
    with torch.no_grad():
        after = graph.run(inputs, captured)
    if after.shape != state.shape or after.dtype is not state.dtype:
        raise TracingError(
            f"it makes of a state {tuple(state.shape)} of {state.dtype} one "
            f"{tuple(after.shape)} of {after.dtype}"
        )
    return _StepIdentity()


CUDA_GRAPH_TRACES = TraceCache(_check_capturable)
"""The traces of these loops."""


def _prepare_inputs(call: KernelCall) -> tuple[TracedStep, list[Tensor]]:
    """Return the trace of a call, and the inputs of a run."""
    steps = precompute_steps(call.cell, call.x, call.dt, call.observed)
    config = make_config_key(call.cell)
    trace, unpermuted = CUDA_GRAPH_TRACES.find(call, config, steps, call.h.shape[0])
    no_gaps = call.h.new_empty(*call.dt.shape[:2], 0)  # they are among what steps read
    captured = trace.permute(unpermuted)
    return trace, [concat_step_inputs(call, steps.per_step), call.h, no_gaps, *captured]


class TensorTuple(tuple[Tensor, ...]):
    """As many tensors as there are."""

    def __new__(cls, *tensors: Tensor) -> "TensorTuple":
        """Return them in a row."""
        return super().__new__(cls, tensors)


class _StepTensors(NamedTuple):
    """Tensors of some steps, time first.

    Args:
        read: what the steps read, (T, B, F).
        mask: (T, B, 1) bool, or empty without a mask.
        before: states, (T, B, S); empty on the way forward.
        after: states, (T, B, S); empty in the backward pass.
        grad_outputs: incoming gradients, (T, B, S), or empty.
        grad_inputs: gradients of what they read, (T, B, F), or empty.
    """

    read: Tensor
    mask: Tensor
    before: Tensor
    after: Tensor
    grad_outputs: Tensor
    grad_inputs: Tensor

    def slice_steps(self, first: int, last: int) -> "_StepTensors":
        """Return the tensors of the steps from ``first`` to before ``last``."""
        return _StepTensors(*(tensor[first:last] for tensor in self))


class _ForwardLoop:
    """The loop forwards."""

    is_reversed = False
    reads: Sequence[str] = ("read", "mask")
    writes: Sequence[str] = ("after",)

    def __init__(
        self, traced_step: TracedStep, h: Tensor, part: _StepTensors, captured: Sequence[Tensor]
    ) -> None:
        self.traced_step, self.whole, self.steps = traced_step, part, len(part.read)
        self.key: tuple[Hashable, ...] = (
            "forward",
            traced_step.lowered,
            *_get_matmul_precision(h.dtype),
        )
        self.fixed, self.carry = TensorTuple(*captured), TensorTuple(h.clone())

    def part(self, first: int, last: int) -> _StepTensors:
        """Return the tensors of some steps."""
        return self.whole.slice_steps(first, last)

    def run(self, fixed: TensorTuple, carry: TensorTuple, steps: _StepTensors) -> None:
        """Launch some steps."""
        (state,) = carry
        with torch.no_grad():
            for t, read in enumerate(steps.read):
                after = self.traced_step.step(state, read, fixed)
                if len(steps.mask):
                    after = torch.where(steps.mask[t], after, state)
                state.copy_(after)
                steps.after[t].copy_(after)


class _BackwardLoop:
    """The loop backwards. What is carried are the gradient of the state, and totals.

    Args:
        traced_step: of the step.
        grad_h: gradient of the last state, (B, S).
        part: all steps.
        captured: the captured tensors.
        needs_input_grad: which of that wants gradients.
    """

    is_reversed = True
    reads: Sequence[str] = ("read", "mask", "before", "grad_outputs")
    writes: Sequence[str] = ("grad_inputs",)

    def __init__(
        self,
        traced_step: TracedStep,
        grad_h: Tensor,
        part: _StepTensors,
        captured: Sequence[Tensor],
        needs_input_grad: Sequence[bool],
    ) -> None:
        self.traced_step, self.whole, self.steps = traced_step, part, len(part.read)
        self.grad_indices = tuple(number for number, want in enumerate(needs_input_grad) if want)
        self.key: tuple[Hashable, ...] = (
            *("backward", traced_step.lowered, self.grad_indices),
            *_get_matmul_precision(grad_h.dtype),
        )
        self.fixed = TensorTuple(*captured)
        totals = (
            torch.zeros_like(captured[number], dtype=grad_h.dtype) for number in self.grad_indices
        )
        self.carry = TensorTuple(grad_h, *totals)

    def part(self, first: int, last: int) -> _StepTensors:
        """Return the tensors of some steps."""
        return self.whole.slice_steps(first, last)

    def run(self, fixed: TensorTuple, carry: TensorTuple, steps: _StepTensors) -> None:
        """Launch some steps."""
        pull, *totals = carry
        for t in reversed(range(len(steps.read))):
            if len(steps.grad_outputs):
                pull.add_(steps.grad_outputs[t])
            captured = [tensor.detach() for tensor in fixed]
            leaves = [steps.before[t].detach(), *(captured[number] for number in self.grad_indices)]
            read = steps.read[t].detach()
            if len(steps.grad_inputs):
                leaves.append(read)
            for leaf in leaves:
                leaf.requires_grad_()
            with torch.enable_grad(), bypass_saved_tensor_hooks():
                after = self.traced_step.step(leaves[0], read, captured)
                if len(steps.mask):
                    after = torch.where(steps.mask[t], after, leaves[0])
            gradients = _compute_gradients(after, leaves, pull)
            if len(steps.grad_inputs):
                steps.grad_inputs[t].copy_(gradients.pop())
            for total, gradient in zip(totals, gradients[1:], strict=True):
                total.add_(gradient)
            pull.copy_(gradients[0])


def _compute_gradients(
    after: Tensor, leaves: Sequence[Tensor], grad_output: Tensor
) -> list[Tensor]:
    """Return the gradients of leaves, zeros where nothing leads there."""
    if not after.requires_grad:
        return [torch.zeros_like(leaf) for leaf in leaves]
    gradients = torch.autograd.grad(after, leaves, grad_output, allow_unused=True)
    pairs = zip(gradients, leaves, strict=True)
    return [torch.zeros_like(leaf) if grad is None else grad for grad, leaf in pairs]


class CUDAGraphKernel(SequenceKernel):
    """Traced steps. Saved are the states before every step and after the last."""

    name = "traced/graph"

    @staticmethod
    def update(
        config: TracedStep, h: Tensor, inputs: Tensor, no_gaps: Tensor, *captured: Tensor
    ) -> Tensor:
        """Take a step by torch's operations, as they were traced."""
        parameters = (
            m.to(dtype)
            for m, (_, _, dtype, _) in zip(captured, config.captured_metadata, strict=True)
        )
        with disable_autocast(h):
            return config.step(h, inputs, list(parameters))

    def allocate(
        self, config: TracedStep, inputs: Inputs, needs_input_grad: NeedsInputGrad
    ) -> Outputs:
        """Return memory for what :meth:`forward` writes."""
        h, (B, T, _) = inputs[STATE], inputs[X].shape
        return Outputs(
            h.new_empty(B, T, h.shape[1]), h.new_empty(h.shape), (h.new_empty(T + 1, *h.shape),)
        )

    def forward(
        self,
        config: TracedStep,
        mask: Tensor | None,
        inputs: Inputs,
        out: Outputs,
        needs_input_grad: NeedsInputGrad,
    ) -> None:
        """Run all steps."""
        read, h, _, *captured = inputs
        states = out.saved_tensors[0]
        states[0] = h
        nothing = h.new_empty(0)
        part = _StepTensors(
            _to_time_first(read), _to_mask(mask, h), nothing, states[1:], nothing, nothing
        )
        with disable_autocast(h), use_device(h):
            run_loop(_ForwardLoop(config, h, part, captured), use_graphs=True)
        out.y.copy_(states[1:].transpose(0, 1))
        out.last.copy_(states[-1])

    def backward(
        self,
        config: TracedStep,
        mask: Tensor | None,
        inputs: Inputs,
        saved_tensors: Sequence[Tensor],
        grad_outputs: GradOutputs,
        needs_input_grad: NeedsInputGrad,
    ) -> Gradients:
        """Return the gradients of the inputs."""
        read, h, _, *captured = inputs
        steps, nothing = _to_time_first(read), h.new_empty(0)
        to_read = torch.empty_like(steps) if needs_input_grad[X] else nothing
        to_y = nothing if grad_outputs.y is None else _to_time_first(grad_outputs.y)
        part = _StepTensors(steps, _to_mask(mask, h), saved_tensors[0][:-1], nothing, to_y, to_read)
        to_h = torch.zeros_like(h) if grad_outputs.last is None else grad_outputs.last.clone()
        with disable_autocast(h), use_device(h):
            loop = _BackwardLoop(config, to_h, part, captured, needs_input_grad[DT + 1 :])
            run_loop(loop, use_graphs=True)
        totals = dict(zip(loop.grad_indices, loop.carry[1:], strict=True))
        captured_grads = [
            totals[i].to(tensor.dtype) if i in totals else None for i, tensor in enumerate(captured)
        ]
        return [
            to_read.transpose(0, 1) if needs_input_grad[X] else None,
            loop.carry[0],
            None,
            *captured_grads,
        ]


def _get_matmul_precision(dtype: torch.dtype) -> tuple[Hashable, ...]:
    """Return how products are rounded now."""
    matmul = torch.backends.cuda.matmul
    return (
        get_dot_precision(dtype),
        matmul.allow_bf16_reduced_precision_reduction,
        matmul.allow_fp16_reduced_precision_reduction,
    )


def _to_time_first(values: Tensor) -> Tensor:
    """Return (B, T, ...) as contiguous (T, B, ...)."""
    return values.transpose(0, 1).contiguous()


def _to_mask(mask: Tensor | None, like: Tensor) -> Tensor:
    return (
        like.new_empty(0, dtype=torch.bool) if mask is None else _to_time_first(mask).unsqueeze(-1)
    )


CUDA_GRAPH_KERNEL = CUDAGraphKernel()
