"""Whole sequences of any cell on a GPU: its own step, recorded as CUDA graphs and replayed.

For the cells that have no kernel of their own there. Torch launches tens of operations for a
step and more for the way back, each of which takes longer to launch than to run; see
:mod:`tauflow.kernels.gpu.graphs`. What the way back needs of a step is computed anew from the state
before it, so that no more is kept than the states.
"""

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from tauflow.cells.split import split_step
from tauflow.checks import is_traced
from tauflow.tapes.graph import Graph
from tauflow.tapes.tape import CannotRecordError

from .engine.needs import STORED, TORCH
from .engine.program import (
    GAPS,
    STATE,
    Buffers,
    Gradients,
    Inputs,
    KernelCall,
    Program,
    Pulls,
    Wants,
    X,
)
from .engine.run import on_device
from .gpu.graphs import run_loop
from .gpu.plan import precision_of
from .recordings import (
    Recorder,
    Recording,
    kept,
    mixed_dtype,
    run_recording,
    side_by_side,
    unmixed,
)

_FEW_STEPS = 4  # which take less time than to find a recording
_MUCH_WORK = 1 << 31  # rows times parameters, from which on a product takes longer than its launch

_DTYPES = (torch.float32, torch.float64)  # of states
_KNOWN = {
    *("mm", "addmm", "bmm", "baddbmm", "sum", "mean", "cumsum", "_softmax", "_log_softmax"),
    *("cat", "stack", "constant_pad_nd", "clone", "_to_copy", "native_layer_norm"),
    *("alias", "view", "_unsafe_view", "t", "transpose", "permute", "expand", "unsqueeze"),
    *("squeeze", "slice", "select", "split", "split_with_sizes", "unbind"),
}
"""Operations of torch that wait for nothing, beside those on single numbers."""

_NEEDS = TORCH._replace(backend="graph", follows_autocast=True)
_NEEDS_MIXED = _NEEDS._replace(dtypes=(*STORED, torch.float64))


def replayed_limits(call: KernelCall) -> str | None:
    """Return why the recorded step of a cell cannot serve a call."""
    if call.h.device.type != "cuda" or torch.version.hip is not None:
        return "the graph kernels run on NVIDIA GPUs"
    return recording_limits(call)


def recording_limits(call: KernelCall) -> str | None:
    """Return why it cannot, on any device."""
    needs = _NEEDS if mixed_dtype(call.x) is None else _NEEDS_MIXED
    reason = needs.why_not(replace(call, observed=None))
    if reason is None and is_traced():
        reason = "a recorded step cannot be traced"
    if reason is None and call.h.dtype not in _DTYPES:
        reason = "the graph kernels keep states in float32 or float64"
    return reason or RECORDER.objection(call, call.h.shape[0], _prepare)


def is_worth_replaying(call: KernelCall) -> bool:
    """Whether launches take longer than what they launch, and torch is not asked for the same bits.

    Torch refuses to record where it is to compute deterministically, see
    :func:`tauflow.kernels.gpu.graphs.may_record`.
    """
    if is_traced() or torch.are_deterministic_algorithms_enabled():
        return False
    B, T, _ = call.x.shape
    parameters = sum(parameter.numel() for parameter in call.cell.parameters())
    return T >= _FEW_STEPS and B * parameters <= _MUCH_WORK


def run_replayed(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run any cell by its own step, recorded.

    Raises:
        BackendError: the step does something today that it did not do before.
    """
    return run_recording(PROGRAM, "graph", _prepare, call)


class _Same:
    """What tells a step from another one."""


def _looked_at(
    graph: Graph, given: Sequence[Tensor], met: Sequence[Tensor], wants: Sequence[bool] | None
) -> _Same:
    """Refuse a step that no CUDA graph can hold."""
    state, *parts = given
    for part in parts:
        wider = torch.promote_types(part.dtype, state.dtype) is not state.dtype
        if wider or not (part.is_floating_point() or part.dtype is torch.bool):
            raise CannotRecordError(f"it reads {part.dtype}, and keeps states in {state.dtype}")
    for node in graph.nodes:
        function = node.function
        pointwise = torch.Tag.pointwise in function.tags
        if not pointwise and function.overloadpacket.__name__ not in _KNOWN:
            raise CannotRecordError(f"nobody has seen a CUDA graph hold {function}")
        elsewhere = dict(node.kwargs).get("device")
        if elsewhere is not None and torch.device(elsewhere).type != state.device.type:
            raise CannotRecordError(f"{function} waits for the device")
    if any(tensor.device != state.device for tensor in met):
        raise CannotRecordError("it reads numbers that lie on another device")
    with torch.no_grad():
        after = graph.run(given, met)
    if after.shape != state.shape or after.dtype is not state.dtype:
        raise CannotRecordError(
            f"it makes of a state {tuple(state.shape)} of {state.dtype} one "
            f"{tuple(after.shape)} of {after.dtype}"
        )
    return _Same()


RECORDER = Recorder(_looked_at)
"""The recordings of these loops."""


def _prepare(call: KernelCall) -> tuple[Recording, list[Tensor]]:
    """Return the recording of a call, and the inputs of a run."""
    split = split_step(call.cell, call.x, call.dt, call.observed)
    recording, met = RECORDER.find(call, split, call.h.shape[0])
    no_gaps = call.h.new_empty(*call.dt.shape[:2], 0)  # they are among what steps read
    return recording, [side_by_side(call, split), call.h, no_gaps, *met]


class Tensors(tuple[Tensor, ...]):
    """As many tensors as there are."""

    def __new__(cls, *tensors: Tensor) -> "Tensors":
        """Return them in a row."""
        return super().__new__(cls, tensors)


class _Part(NamedTuple):
    """Tensors of some steps, time first.

    Args:
        read: what the steps read, (T, B, F).
        mask: (T, B, 1) bool, or empty without a mask.
        before: states, (T, B, S); empty on the way forward.
        after: states, (T, B, S); empty on the way back.
        pulls: incoming gradients, (T, B, S), or empty.
        to_read: gradients of what they read, (T, B, F), or empty.
    """

    read: Tensor
    mask: Tensor
    before: Tensor
    after: Tensor
    pulls: Tensor
    to_read: Tensor

    def between(self, first: int, last: int) -> "_Part":
        """Return the tensors of the steps from ``first`` to before ``last``."""
        return _Part(*(tensor[first:last] for tensor in self))


class _Forward:
    """The loop forwards."""

    backwards = False
    reads: Sequence[str] = ("read", "mask")
    writes: Sequence[str] = ("after",)

    def __init__(self, recording: Recording, h: Tensor, part: _Part, met: Sequence[Tensor]) -> None:
        self.recording, self.whole, self.steps = recording, part, len(part.read)
        self.key: tuple[Hashable, ...] = ("forward", recording.made, *_rounding(h.dtype))
        self.fixed, self.carried = Tensors(*met), Tensors(h.clone())

    def part(self, first: int, last: int) -> _Part:
        """Return the tensors of some steps."""
        return self.whole.between(first, last)

    def run(self, fixed: Tensors, carried: Tensors, part: _Part) -> None:
        """Launch some steps."""
        (state,) = carried
        with torch.no_grad():
            for t, read in enumerate(part.read):
                after = self.recording.step(state, read, fixed)
                if len(part.mask):
                    after = torch.where(part.mask[t], after, state)
                state.copy_(after)
                part.after[t].copy_(after)


class _Backward:
    """The loop backwards. What is carried are the gradient of the state, and totals.

    Args:
        recording: of the step.
        to_h: gradient of the last state, (B, S).
        part: all steps.
        met: what the step met.
        wants: which of that wants gradients.
    """

    backwards = True
    reads: Sequence[str] = ("read", "mask", "before", "pulls")
    writes: Sequence[str] = ("to_read",)

    def __init__(
        self,
        recording: Recording,
        to_h: Tensor,
        part: _Part,
        met: Sequence[Tensor],
        wants: Sequence[bool],
    ) -> None:
        self.recording, self.whole, self.steps = recording, part, len(part.read)
        self.wanted = tuple(number for number, want in enumerate(wants) if want)
        self.key: tuple[Hashable, ...] = (
            *("backward", recording.made, self.wanted),
            *_rounding(to_h.dtype),
        )
        self.fixed = Tensors(*met)
        totals = (torch.zeros_like(met[number], dtype=to_h.dtype) for number in self.wanted)
        self.carried = Tensors(to_h, *totals)

    def part(self, first: int, last: int) -> _Part:
        """Return the tensors of some steps."""
        return self.whole.between(first, last)

    def run(self, fixed: Tensors, carried: Tensors, part: _Part) -> None:
        """Launch some steps."""
        pull, *totals = carried
        for t in reversed(range(len(part.read))):
            if len(part.pulls):
                pull.add_(part.pulls[t])
            met = [tensor.detach() for tensor in fixed]
            leaves = [part.before[t].detach(), *(met[number] for number in self.wanted)]
            read = part.read[t].detach()
            if len(part.to_read):
                leaves.append(read)
            for leaf in leaves:
                leaf.requires_grad_()
            with torch.enable_grad(), kept():
                after = self.recording.step(leaves[0], read, met)
                if len(part.mask):
                    after = torch.where(part.mask[t], after, leaves[0])
            found = _gradients(after, leaves, pull)
            if len(part.to_read):
                part.to_read[t].copy_(found.pop())
            for total, gradient in zip(totals, found[1:], strict=True):
                total.add_(gradient)
            pull.copy_(found[0])


def _gradients(after: Tensor, leaves: Sequence[Tensor], pull: Tensor) -> list[Tensor]:
    """Return the gradients of leaves, zeros where nothing leads there."""
    if not after.requires_grad:
        return [torch.zeros_like(leaf) for leaf in leaves]
    found = torch.autograd.grad(after, leaves, pull, allow_unused=True)
    pairs = zip(found, leaves, strict=True)
    return [torch.zeros_like(leaf) if grad is None else grad for grad, leaf in pairs]


class ReplayedProgram(Program):
    """Recorded steps. The tape is the states before every step and after the last."""

    name = "recorded/graph"

    @staticmethod
    def advance(form: Recording, h: Tensor, step: tuple[Tensor, Tensor], *met: Tensor) -> Tensor:
        """Take a step by torch's operations, as they were recorded."""
        own = (m.to(dtype) for m, (_, _, dtype, _) in zip(met, form.like, strict=True))
        with unmixed(h):
            return form.step(h, step[0], list(own))

    def allocate(self, form: Recording, inputs: Inputs, wants: Wants) -> Buffers:
        """Return memory for what :meth:`forward` writes."""
        h, (B, T, _) = inputs[STATE], inputs[X].shape
        return Buffers(
            h.new_empty(B, T, h.shape[1]), torch.empty_like(h), (h.new_empty(T + 1, *h.shape),)
        )

    def forward(
        self, form: Recording, mask: Tensor | None, inputs: Inputs, out: Buffers, wants: Wants
    ) -> None:
        """Run all steps."""
        read, h, _, *met = inputs
        states = out.tape[0]
        states[0] = h
        nothing = h.new_empty(0)
        part = _Part(_first(read), _marks(mask, h), nothing, states[1:], nothing, nothing)
        with unmixed(h), on_device(h):
            run_loop(_Forward(form, h, part, met), record=True)
        out.y.copy_(states[1:].transpose(0, 1))
        out.last.copy_(states[-1])

    def backward(
        self,
        form: Recording,
        mask: Tensor | None,
        inputs: Inputs,
        tape: Sequence[Tensor],
        pulls: Pulls,
        wants: Wants,
    ) -> Gradients:
        """Return the gradients of the inputs."""
        read, h, _, *met = inputs
        steps, nothing = _first(read), h.new_empty(0)
        to_read = torch.empty_like(steps) if wants[X] else nothing
        to_y = nothing if pulls.y is None else _first(pulls.y)
        part = _Part(steps, _marks(mask, h), tape[0][:-1], nothing, to_y, to_read)
        to_h = torch.zeros_like(h) if pulls.last is None else pulls.last.clone()
        with unmixed(h), on_device(h):
            loop = _Backward(form, to_h, part, met, wants[GAPS + 1 :])
            run_loop(loop, record=True)
        totals = dict(zip(loop.wanted, loop.carried[1:], strict=True))
        of_met = [totals[i].to(one.dtype) if i in totals else None for i, one in enumerate(met)]
        return [to_read.transpose(0, 1) if wants[X] else None, loop.carried[0], None, *of_met]


def _rounding(dtype: torch.dtype) -> tuple[Hashable, ...]:
    """Return how products are rounded now."""
    matmul = torch.backends.cuda.matmul
    return (
        precision_of(dtype),
        matmul.allow_bf16_reduced_precision_reduction,
        matmul.allow_fp16_reduced_precision_reduction,
    )


def _first(values: Tensor) -> Tensor:
    """Return (B, T, ...) as contiguous (T, B, ...)."""
    return values.transpose(0, 1).contiguous()


def _marks(mask: Tensor | None, like: Tensor) -> Tensor:
    return like.new_empty(0, dtype=torch.bool) if mask is None else _first(mask).unsqueeze(-1)


PROGRAM = ReplayedProgram()
