"""The programs of traced steps for all slices of a batch, as the compiled loops take them."""

from array import array
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from tauflow.kernels.cpu.binding import NULL_PAGE, ConstantArgument, check_memory
from tauflow.kernels.engine.workspace import empty

from . import lower
from . import program as c
from .graph import Axes
from .trace_cache import TracedStep

_PLAIN_TENSOR_TYPES = (Tensor, nn.Parameter)


class TraceConfig(NamedTuple):
    """A cell at a call.

    Args:
        by_rows: its recordings by number of rows.
        rows: how many sequences each slice has, the same in the backward pass.
        axes: for each captured tensor how the step permutes the axes of what is given in its
            place, or ``None``; empty if every one is given as the step meets it.
    """

    by_rows: dict[int, TracedStep]
    rows: tuple[int, ...]
    axes: tuple[Axes | None, ...] = ()

    def permute(self, given: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return what the step meets, of what was given in its place."""
        if not self.axes:
            return given
        return [
            tensor if axes is None else tensor.permute(axes)
            for tensor, axes in zip(given, self.axes, strict=True)
        ]


def split_by_slice(
    config: TraceConfig, captured: Sequence[Tensor]
) -> list[tuple[int, Sequence[Tensor], int]]:
    """Return the rows of each slice, what its steps met, and where that begins among all."""
    own, first = {}, 0
    for number, recording in config.by_rows.items():
        own[number] = number, captured[first : first + len(recording.captured_metadata)], first
        first += len(recording.captured_metadata)
    return [own[number] for number in config.rows]


class LinkedPrograms(NamedTuple):
    """The programs of all slices, as the compiled loops take them.

    Args:
        instructions: of all slices, (K, COLUMNS).
        size: of the memory of all slices.
        scratch: entries of a step of what gradients keep for a few steps, of all slices.
        saved: entries that are saved of a step, of all slices.
        slices: what is known of each slice, (slices, SLICE_COLUMNS).
        parts: for each slice of each part of what steps read where it is, or -1, its width, and
            where its gradient is, or -1; (slices, P, 3).
        constants: what the memories begin with.
        reads: what is read of parameters, a row each; see ``_read_parameter`` of the loops.
        moves: of operands, a row each; see :class:`~tauflow.kernels.trace.schedule.Program`.
        odd: numbers of parameters that are no plain float32 tensors.
        sums: for each parameter shape, strides and place of its gradient from every slice.
        traces: which these programs are of, so that nothing else can be taken for them.
    """

    instructions: ConstantArgument
    size: int
    scratch: int
    saved: int
    slices: ConstantArgument
    parts: ConstantArgument
    constants: ConstantArgument
    reads: ConstantArgument
    moves: ConstantArgument
    odd: tuple[int, ...]
    sums: tuple[tuple[tuple[Any, Any, int], ...], ...]
    traces: tuple[TracedStep, ...]

    def fetch(
        self, captured: Sequence[Tensor], segment: int = 0
    ) -> tuple[tuple[Any, ...], list[Tensor]]:
        """Return what the loops take, memory included, and the tensors whose addresses it holds.

        Args:
            captured: what the steps captured.
            segment: steps of which gradients keep something at once.
        """
        tensors = [
            _to_plain_tensor(tensor)
            if number in self.odd
            or type(tensor) not in _PLAIN_TENSOR_TYPES
            or tensor.is_neg()
            or tensor._is_zerotensor()
            else tensor
            for number, tensor in enumerate(captured)
        ]
        addresses = array("q", [tensor.data_ptr() for tensor in tensors])
        if addresses and min(addresses) < NULL_PAGE:
            for tensor in tensors:
                check_memory(tensor)
        memory = empty(self.size + segment * self.scratch)
        fixed = self.slices, self.parts, self.constants, self.reads, self.moves
        return (self.instructions, memory, *fixed, addresses), tensors

    def add_gradients(self, memory: Tensor) -> list[Tensor | None]:
        """Return the gradients of the parameters, added up over the slices."""
        found: list[Tensor | None] = []
        for places in self.sums:
            parts = [memory.as_strided(*place) for place in places]
            found.append(sum(parts[1:], parts[0]) if parts else None)
        return found


def _to_plain_tensor(tensor: Tensor) -> Tensor:
    """Return a parameter as its reads expect it: in float32, with no two entries in one place."""
    tensor = tensor.detach()
    strides = tensor.stride() if lower.is_non_overlapping(tensor) else None
    if strides is None:
        return tensor.as_subclass(Tensor).float().resolve_neg().contiguous()
    return torch.empty_strided(tensor.shape, strides).copy_(tensor)


ProgramKind = Literal["forward", "saving", "backward"]


def link_programs(config: TraceConfig, kind: ProgramKind) -> LinkedPrograms:
    """Return the programs of all slices, linked once for all calls alike."""
    key = (config.rows, config.axes, kind, *map(id, config.by_rows.values()))
    linked = _linked.get(key)
    if linked is None:
        if len(_linked) >= _MAX_LINKED:
            _linked.clear()
        linked = _linked[key] = _link_programs(config, kind)
    return linked


_MAX_LINKED = 256
_linked: dict[tuple[Any, ...], LinkedPrograms] = {}


def _link_programs(config: TraceConfig, kind: ProgramKind) -> LinkedPrograms:
    captured = [like for one in config.by_rows.values() for like in one.captured_metadata]
    sums: list[list[tuple[Any, Any, int]]] = [[] for _ in captured]
    instructions, constants, moves = [], [], []
    reads: list[lower.ParameterRead] = []
    slices, parts = [], []
    ends = [0] * 7  # of instructions, memory, constants, reads, moves, saved and scratch
    for rows, _, first in split_by_slice(config, captured):
        trace = config.by_rows[rows]
        step: lower.StepProgram = getattr(trace.lowered, kind)
        program = step.program
        sizes = (
            *(len(program.instructions), program.size, len(program.floats)),
            *(len(step.parameter_reads), len(program.moves), step.saved, program.scratch),
        )
        begins, ends = ends, [a + n for a, n in zip(ends, sizes, strict=True)]
        own = np.zeros(c.SLICE_COLUMNS, np.int64)
        own[[c.BEGIN, c.END, c.MEMORY]] = begins[0], ends[0], begins[1]
        own[[c.ONCE_END, c.STEP_END, c.SEGMENT_END]] = program.ends[:3]
        own[[c.STATE, c.RESULT]] = step.state, step.result
        own[[c.CONSTANTS, c.CONSTANTS_END]] = begins[2], ends[2]
        own[[c.READS, c.READS_END]] = begins[3], ends[3]
        own[[c.MOVES, c.MOVES_END]] = begins[4], ends[4]
        own[c.STEP_MOVES_END] = begins[4] + program.step_moves
        own[[c.SAVED_BEFORE, c.SCRATCH_BEFORE]] = begins[5:]
        own[c.IS_STREAMED] = kind == "saving"
        slices.append(own)
        grads = step.grad_inputs if kind == "backward" else [-1] * len(trace.widths)
        parts.append([*zip(step.inputs, trace.widths, grads, strict=True)])
        instructions.append(program.instructions)
        constants.append(program.floats)
        moves.append(program.moves)
        reads += [one._replace(number=first + one.number) for one in step.parameter_reads]
        for total in step.gradient_sums:
            number = first + total.number
            axes = config.axes[number] if config.axes else None
            order = range(len(total.shape)) if axes is None else map(axes.index, sorted(axes))
            layout = [(total.shape[axis], total.strides[axis]) for axis in order]
            shape, strides = zip(*layout, strict=True) if layout else ((), ())
            sums[number].append((shape, strides, begins[1] + total.start))
    for own in slices:
        own[c.SCRATCH] = ends[1]
    axes = max((len(read.shape) for read in reads), default=1) or 1
    table = np.zeros((len(reads), 4 + 2 * axes), np.int64)
    for row, read in zip(table, reads, strict=True):
        missing = axes - len(read.shape)
        row[:4] = read.number, read.offset, read.start, read.row
        row[4:] = [*[1] * missing, *read.shape, *[0] * missing, *read.strides]
    return LinkedPrograms(
        ConstantArgument(np.concatenate(instructions)),
        ends[1],
        ends[6],
        ends[5],
        ConstantArgument(np.array(slices)),
        ConstantArgument(np.array(parts, np.int64).reshape(len(parts), -1, 3)),
        ConstantArgument(np.concatenate(constants)),
        ConstantArgument(table),
        ConstantArgument(np.concatenate(moves)),
        tuple(number for number, like in enumerate(captured) if _is_odd(*like)),
        tuple(map(tuple, sums)),
        tuple(config.by_rows.values()),
    )


def _is_odd(shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype, _: bool) -> bool:
    """Whether a loop cannot read a parameter where it is."""
    shared = any(n > 1 and step == 0 for n, step in zip(shape, strides, strict=True))
    return shared or dtype is not torch.float32
