"""The programs of traced steps for all slices of a batch, as the compiled loops take them."""

from array import array
from collections.abc import Sequence
from functools import cache, cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from tauflow.cells.built_tensors import PLAIN_TENSOR_TYPES
from tauflow.kernels.cpu.binding import (
    NULL_PAGE,
    ConstantArgument,
    check_memory,
    import_kernels,
    log_compilation,
    pack_tensors,
    prepare_launch,
    run_slices,
)
from tauflow.kernels.engine.workspace import empty

from . import lower
from .trace_cache import TracedStep


class TraceConfig:
    """A cell at a call.

    Args:
        by_rows: its traces by number of rows.
        rows: how many sequences each slice has, the same in the backward pass.
    """

    def __init__(self, by_rows: dict[int, TracedStep], rows: tuple[int, ...]) -> None:
        self.by_rows, self.rows = by_rows, rows

    @cached_property
    def forward(self) -> "LinkedPrograms":
        """The programs that save nothing."""
        return _find_programs(self, "forward")

    @cached_property
    def backward(self) -> "LinkedPrograms":
        """The backward pass of steps that saved nothing."""
        return _find_programs(self, "backward")

    @cached_property
    def saving(self) -> "LinkedPrograms":
        """The programs that save products and activations."""
        return _find_programs(self, "saving")

    @cached_property
    def reading(self) -> "LinkedPrograms":
        """The backward pass that reads them."""
        return _find_programs(self, "reading")


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
        interpreter: what the loops go by: the instructions of all slices, (K, COLUMNS); for each
            slice where its instructions begin and end, and its memory; where in its memory the
            state is, and the gradient of the next state; where its constants begin and end, and its
            reads of parameters; where among what all slices save its part begins and ends, and
            where that is in its memory, (slices, 13); for each slice of each part of what steps
            read where it is, or -1, its width, and where its gradient is, or -1, (slices, P, 3);
            what the memories begin with; what is read of parameters, a row each, see
            ``_read_parameter`` of the loops.
        size: of the memory of all slices.
        saved_size: floats that a step of all slices saves.
        odd: numbers of parameters that are no plain float32 tensors.
        sums: for each parameter shape, strides and place of its gradient from every slice.
        traces: which these programs are of, so that nothing else can be taken for them.
        slices: how many there are.
    """

    interpreter: ConstantArgument
    size: int
    saved_size: int
    odd: tuple[int, ...]
    sums: tuple[tuple[tuple[Any, Any, int], ...], ...]
    traces: tuple[TracedStep, ...]
    slices: int

    def run(
        self, name: str, count: int, captured: Sequence[Tensor], tensors: Sequence[Tensor]
    ) -> Tensor:
        """Run a loop of the interpreter; return the memory that it worked in.

        Args:
            name: of the loop.
            count: sequences in the batch.
            captured: tensors that are read where they are.
            tensors: what the loop takes behind them, contiguous.
        """
        if self.odd or any([_is_unreadable(tensor) for tensor in captured]):
            captured = self._make_readable(captured)
        addresses = array("q", [tensor.data_ptr() for tensor in captured])
        memory = empty(self.size)
        launch = _launches.get(name)
        if launch is None:
            function = getattr(_load_kernels(), name)
            arguments = self.interpreter, addresses, memory, *tensors
            launch, _ = prepare_launch(function, arguments)
            _launches[name] = launch
        words = (*self.interpreter.words, *addresses.buffer_info(), *pack_tensors(memory, *tensors))
        run_slices(launch, words, count, self.slices)
        return memory

    def _make_readable(self, captured: Sequence[Tensor]) -> list[Tensor]:
        """Return tensors that the loops read, copies of those that they cannot."""
        check_memory(*[tensor for tensor in captured if not tensor._is_zerotensor()])
        return [
            _to_plain_tensor(tensor) if number in self.odd or _is_unreadable(tensor) else tensor
            for number, tensor in enumerate(captured)
        ]

    def add_gradients(self, memory: Tensor) -> list[Tensor | None]:
        """Return the gradients of the parameters, added up over the slices."""
        totals: list[Tensor | None] = []
        for places in self.sums:
            parts = [memory.as_strided(*place) for place in places]
            totals.append(sum(parts[1:], parts[0]) if parts else None)
        return totals


_launches: dict[str, Any] = {}


@cache
def _load_kernels() -> Any:
    """Import the compiled interpreter, which takes seconds where it has to be compiled."""
    loops = import_kernels("trace.interpreter")
    log_compilation("traced-step", loops.interpret_forward, loops.interpret_backward)
    return loops


def _is_unreadable(tensor: Tensor) -> bool:
    """Whether a loop cannot read a tensor where it is, or finds nothing there."""
    return (
        type(tensor) not in PLAIN_TENSOR_TYPES or tensor.is_neg() or tensor.data_ptr() < NULL_PAGE
    )


def _to_plain_tensor(tensor: Tensor) -> Tensor:
    """Return a parameter as its reads expect it: in float32, with no two entries in one place."""
    tensor = tensor.detach()
    strides = tensor.stride() if lower.is_non_overlapping(tensor) else None
    if strides is None:
        return tensor.as_subclass(Tensor).float().resolve_neg().contiguous()
    plain = torch.empty_strided(tensor.shape, strides, dtype=torch.float32, device="cpu")
    return plain.copy_(tensor)


Kind = Literal["forward", "backward", "saving", "reading"]
"""One of the programs of a trace."""


def _find_programs(config: TraceConfig, kind: Kind) -> LinkedPrograms:
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
    depth = max((len(read.shape) for read in reads), default=0)
    depth = max(depth, 2)  # they are read as matrices
    table = np.zeros((len(reads), 3 + 2 * depth), np.int64)
    for row, read in zip(table, reads, strict=True):
        missing = depth - len(read.shape)
        row[:3] = read.number, read.offset, read.start
        row[3:] = [*[1] * missing, *read.shape, *[0] * missing, *read.strides]
    interpreter = (
        np.concatenate(instructions),
        np.array(places, np.int64),
        np.array(parts, np.int64).reshape(len(parts), -1, 3),
        np.concatenate(constants),
        table,
    )
    return LinkedPrograms(
        ConstantArgument(interpreter),
        ends[1],
        ends[4],
        tuple(number for number, like in enumerate(captured) if _is_odd(*like)),
        tuple(map(tuple, sums)),
        tuple(config.by_rows.values()),
        len(config.rows),
    )


def _is_odd(shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype, _: bool) -> bool:
    """Whether a loop cannot read a parameter where it is."""
    shared = any(n > 1 and step == 0 for n, step in zip(shape, strides, strict=True))
    return shared or dtype is not torch.float32
