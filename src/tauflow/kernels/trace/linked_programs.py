"""The programs of traced steps for all slices of a batch, as the compiled loops take them."""

from array import array
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from tauflow.cells.built_tensors import PLAIN_TENSOR_TYPES
from tauflow.kernels.cpu.binding import NULL_PAGE, ConstantArgument, check_memory
from tauflow.kernels.engine.workspace import empty

from . import lower
from .trace_cache import TracedStep


class TraceConfig(NamedTuple):
    """A cell at a call.

    Args:
        by_rows: its traces by number of rows.
        rows: how many sequences each slice has, the same in the backward pass.
    """

    by_rows: dict[int, TracedStep]
    rows: tuple[int, ...]


def split_by_slice(
    config: TraceConfig, captured: Sequence[Tensor]
) -> list[tuple[int, Sequence[Tensor], int]]:
    """Return the rows of each slice, what its steps captured, and where that begins among all."""
    by_number, first = {}, 0
    for number, trace in config.by_rows.items():
        by_number[number] = number, captured[first : first + len(trace.captured_metadata)], first
        first += len(trace.captured_metadata)
    return [by_number[number] for number in config.rows]


class LinkedPrograms(NamedTuple):
    """The programs of all slices, as the compiled loops take them.

    Args:
        instructions: of all slices, (K, COLUMNS).
        size: of the memory of all slices.
        saved_size: floats that a step of all slices saves.
        places: for each slice where its instructions begin and end, and its memory; where in its
            memory the state is, and the gradient of the next state; where its constants begin and
            end, and its reads of parameters; where among what all slices save its part begins and
            ends, and where that is in its memory; (slices, 13).
        parts: for each slice of each part of what steps read where it is, or -1, its width, and
            where its gradient is, or -1; (slices, P, 3).
        constants: what the memories begin with.
        reads: what is read of parameters, a row each; see ``_read_parameter`` of the loops.
        odd: numbers of parameters that are no plain float32 tensors.
        sums: for each parameter shape, strides and place of its gradient from every slice.
        traces: which these programs are of, so that nothing else can be taken for them.
    """

    instructions: ConstantArgument
    size: int
    saved_size: int
    places: ConstantArgument
    parts: ConstantArgument
    constants: ConstantArgument
    reads: ConstantArgument
    odd: tuple[int, ...]
    sums: tuple[tuple[tuple[Any, Any, int], ...], ...]
    traces: tuple[TracedStep, ...]

    def fetch(self, captured: Sequence[Tensor]) -> tuple[tuple[Any, ...], list[Tensor]]:
        """Return what the loops take, memory included, and the tensors whose addresses it holds."""
        tensors = [
            _to_plain_tensor(tensor)
            if number in self.odd
            or type(tensor) not in PLAIN_TENSOR_TYPES
            or tensor.is_neg()
            or tensor._is_zerotensor()
            else tensor
            for number, tensor in enumerate(captured)
        ]
        addresses = array("q", [tensor.data_ptr() for tensor in tensors])
        if addresses and min(addresses) < NULL_PAGE:
            check_memory(*tensors)
        fixed = self.places, self.parts, self.constants, self.reads
        return (self.instructions, empty(self.size), *fixed, addresses), tensors

    def add_gradients(self, memory: Tensor) -> list[Tensor | None]:
        """Return the gradients of the parameters, added up over the slices."""
        totals: list[Tensor | None] = []
        for places in self.sums:
            parts = [memory.as_strided(*place) for place in places]
            totals.append(sum(parts[1:], parts[0]) if parts else None)
        return totals


def _to_plain_tensor(tensor: Tensor) -> Tensor:
    """Return a parameter as its reads expect it: in float32, with no two entries in one place."""
    tensor = tensor.detach()
    strides = tensor.stride() if lower.is_non_overlapping(tensor) else None
    if strides is None:
        return tensor.as_subclass(Tensor).float().resolve_neg().contiguous()
    return torch.empty_strided(tensor.shape, strides).copy_(tensor)


Kind = Literal["forward", "backward", "saving", "reading"]
"""One of the programs of a trace."""


def link_programs(config: TraceConfig, kind: Kind) -> LinkedPrograms:
    """Return the programs of all slices, linked once for all calls alike."""
    key = (config.rows, kind, *map(id, config.by_rows.values()))
    linked = _linked.get(key)
    if linked is None:
        if len(_linked) >= _MAX_LINKED:
            _linked.clear()
        linked = _linked[key] = _link_programs(config, kind)
    return linked


_MAX_LINKED = 256
_linked: dict[tuple[Any, ...], LinkedPrograms] = {}


def _link_programs(config: TraceConfig, kind: Kind) -> LinkedPrograms:
    captured = [
        like
        for trace_of_rows in config.by_rows.values()
        for like in trace_of_rows.captured_metadata
    ]
    sums: list[list[tuple[Any, Any, int]]] = [[] for _ in captured]
    instructions, constants = [], []
    reads: list[lower.ParameterRead] = []
    places, parts = [], []
    ends = [0, 0, 0, 0, 0]  # of instructions, memory, constants, reads and what is saved
    for rows, _, first in split_by_slice(config, captured):
        trace = config.by_rows[rows]
        program: lower.StepProgram = getattr(trace.lowered, kind)
        sizes = (
            *(len(program.instructions), program.size),
            *(len(program.floats), len(program.parameter_reads), program.saved[1]),
        )
        begins, ends = ends, [a + n for a, n in zip(ends, sizes, strict=True)]
        state = program.arguments[0], program.grad_output
        spans = [(begins[i], ends[i]) for i in range(5)]
        rest = (*spans[2], *spans[3], *spans[4], program.saved[0])
        places.append([*spans[0], *spans[1], *state, *rest])
        grads = program.grad_inputs or [-1] * len(trace.widths)
        parts.append([*zip(program.arguments[1:], trace.widths, grads, strict=True)])
        instructions.append(program.instructions)
        constants.append(program.floats)
        reads += [slot._replace(number=first + slot.number) for slot in program.parameter_reads]
        for total in program.gradient_sums:
            number = first + total.number
            axes = trace.axes[total.number]
            order = range(len(total.shape)) if axes is None else map(axes.index, sorted(axes))
            layout = [(total.shape[axis], total.strides[axis]) for axis in order]
            shape, strides = zip(*layout, strict=True) if layout else ((), ())
            sums[number].append((shape, strides, begins[1] + total.start))
    depth = max((len(read.shape) for read in reads), default=1) or 1
    table = np.zeros((len(reads), 3 + 2 * depth), np.int64)
    for row, read in zip(table, reads, strict=True):
        missing = depth - len(read.shape)
        row[:3] = read.number, read.offset, read.start
        row[3:] = [*[1] * missing, *read.shape, *[0] * missing, *read.strides]
    return LinkedPrograms(
        ConstantArgument(np.concatenate(instructions)),
        ends[1],
        ends[4],
        ConstantArgument(np.array(places, np.int64)),
        ConstantArgument(np.array(parts, np.int64).reshape(len(parts), -1, 3)),
        ConstantArgument(np.concatenate(constants)),
        ConstantArgument(table),
        tuple(number for number, like in enumerate(captured) if _is_odd(*like)),
        tuple(map(tuple, sums)),
        tuple(config.by_rows.values()),
    )


def _is_odd(shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype, _: bool) -> bool:
    """Whether a loop cannot read a parameter where it is."""
    shared = any(n > 1 and step == 0 for n, step in zip(shape, strides, strict=True))
    return shared or dtype is not torch.float32
