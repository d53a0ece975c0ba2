"""The step of any cell as a list of torch's operations, watched once and kept.

Torch's operations are watched while the cell takes a step. Parameters, and what the cell makes of
them alone, are read again at every call, with their graphs, so that a recording need not know how
they came about. What a backend makes of a recording is its own affair.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from tauflow.cells.base import AbstractCell
from tauflow.cells.split_step import SplitStep
from tauflow.errors import BackendError
from tauflow.kernels.engine.autograd import run_kernel
from tauflow.kernels.engine.program import KernelCall, SequenceKernel
from tauflow.kernels.engine.requirements import check_call
from tauflow.kernels.engine.torch_state import is_autocast_available

from .attribute_snapshot import AttributeSnapshot, has_user_functions
from .capture import Graph, ParameterGraph, capture_step, tensor_metadata
from .gradient_check import check_gradients
from .program import TracingError

_MAX_CHANGES, _MIN_UNCHANGED_CALLS = (
    3,
    16,
)  # changes that are recorded again; calls after which none counts
_MAX_TRACES = 128  # of a cell, for as many numbers of rows


class TracedStep(NamedTuple):
    """The step of a cell for a number of rows.

    Args:
        settings: of the cell.
        graph: of the step.
        captured_metadata: what it met was like.
        parameter_graph: how to make that without taking the step, if it can be told.
        lowered: what the backend made of it.
        widths: of the parts of what steps read.
        dtypes: of these parts.
    """

    settings: AttributeSnapshot
    graph: Graph
    captured_metadata: tuple[Any, ...]
    parameter_graph: ParameterGraph | None
    lowered: Any
    widths: tuple[int, ...]
    dtypes: tuple[torch.dtype, ...]

    def step(self, h: Tensor, inputs: Tensor, captured: Sequence[Tensor]) -> Tensor:
        """Take the step by torch's operations, as they were recorded.

        Args:
            h: the state, (B, S).
            inputs: the parts of what the step reads side by side, (B, F).
            captured: what it met.
        """
        parts = zip(inputs.split(self.widths, dim=1), self.dtypes, strict=True)
        return self.graph.run([h, *(part.to(dtype) for part, dtype in parts)], captured)


class _ChangeCount(NamedTuple):
    """How often settings of a cell have changed.

    Args:
        settings: at the last call.
        number: of changes, since there were none for a while.
        unchanged_calls: how many calls there were since the last one.
    """

    settings: AttributeSnapshot
    number: int
    unchanged_calls: int


class NotMeasuredError(TracingError):
    """A step can be recorded, but whether that makes it faster has not been measured."""


LowerStep = Callable[[Graph, Sequence[Tensor], Sequence[Tensor], Sequence[bool] | None], Any]
"""Makes of a graph, the state and the parts that its step was given, and what it met, what a
backend runs; the last argument says what wants gradients, ``None`` if nothing does. Raises
:class:`~tauflow.kernels.trace.program.TracingError` if it cannot."""


class TraceCache:
    """The recordings of a backend.

    Args:
        lower: what the backend makes of one.
    """

    def __init__(self, lower: LowerStep) -> None:
        self.lower = lower
        self.traces: WeakKeyDictionary[AbstractCell, dict[Hashable, TracedStep]] = (
            WeakKeyDictionary()
        )
        self._unsupported_reasons: WeakKeyDictionary[
            AbstractCell, dict[Hashable, tuple[AttributeSnapshot, str | None]]
        ] = WeakKeyDictionary()
        self._change_counts: WeakKeyDictionary[AbstractCell, _ChangeCount] = WeakKeyDictionary()

    def has_frequent_changes(self, call: KernelCall) -> bool:
        """Whether what is set on a call's cell has changed at several calls of late.

        Each change is recorded again, which takes longer than to run a few plain steps.
        """
        settings = AttributeSnapshot(call.cell)
        last = self._change_counts.get(call.cell) or _ChangeCount(settings, 0, 0)
        if last.settings != settings:
            last = _ChangeCount(settings, last.number + 1, 0)
        elif last.unchanged_calls < _MIN_UNCHANGED_CALLS:
            last = last._replace(unchanged_calls=last.unchanged_calls + 1)
        else:
            last = last._replace(number=0)
        self._change_counts[call.cell] = last
        return last.number > _MAX_CHANGES

    def unsupported_reason(
        self, call: KernelCall, rows: Hashable, prepare_inputs: Callable[[KernelCall], object]
    ) -> str | None:
        """Return why the step of a call's cell cannot be recorded.

        Args:
            call: the run at hand.
            rows: how many rows its recordings have.
            prepare_inputs: finds them, or raises.
        """
        held = self._unsupported_reasons.setdefault(call.cell, {})
        leaves = (call.x, call.h, call.dt, *call.cell.parameters())
        learns = torch.is_grad_enabled() and tuple(leaf.requires_grad for leaf in leaves)
        own = (*call.cell.parameters(), *call.cell.buffers())
        tensors = tuple((one.dtype, one.device) for one in (call.x, call.h, call.dt, *own))
        key = rows, learns, call.observed is None, get_autocast_dtype(call.x), tensors
        settings = AttributeSnapshot(call.cell)
        if key not in held or held[key][0] != settings:
            held.pop(key, None)
            held[key] = settings, _find_untraceable_reason(call, prepare_inputs)
            _evict_oldest(held)
        return held[key][1]

    def find(
        self, call: KernelCall, split_step: SplitStep, rows: int
    ) -> tuple[TracedStep, list[Tensor]]:
        """Return the recording of a step, an earlier one if nothing has changed, and what it met.

        Raises:
            TracingError: there can be none.
        """
        cell, learns = call.cell, torch.is_grad_enabled()
        settings = AttributeSnapshot(cell)
        shapes = tuple(
            (part.shape[2], part.dtype, learns and part.requires_grad) for part in split_step.parts
        )
        like_state = call.h.dtype, call.h.device, learns and call.h.requires_grad
        key = rows, shapes, like_state, learns, get_autocast_dtype(call.x)
        held = self.traces.setdefault(cell, {})
        known, unsure = held.get(key), has_user_functions(cell)
        sure = known is not None and known.settings == settings and not unsure
        if known is not None and sure and known.parameter_graph is not None:
            with disable_autocast(call.x):
                met = known.parameter_graph.run(cell, split_step.fixed)
            if tensor_metadata(met) == known.captured_metadata:
                held.pop(key, None)
                held[key] = known  # the last to be dropped
                return known, met
        with disable_inference_mode():
            given = [_first_rows(call.h, rows)]
            given += [_first_rows(part[:, 0], rows) for part in split_step.parts]
            with bypass_saved_tensor_hooks(), _disable_autocast_cache(call.x):
                fixed = split_step.fixed
                graph, met, prelude = capture_step(
                    split_step.advance, cell, fixed, *given, with_parameter_graph=not unsure
                )
        like = tensor_metadata(met)
        if prelude is not None:  # as in every call to come
            with disable_autocast(call.x):
                met = prelude.run(cell, split_step.fixed)
        if known is not None and known.graph == graph and known.captured_metadata == like:
            held[key] = known = known._replace(settings=settings, parameter_graph=prelude)
            return known, met
        wants = [True, *(wants for *_, wants in shapes)]
        wants += [learns and one.requires_grad for one in met]
        keeps = learns and (any(wants[1:]) or call.h.requires_grad)
        if keeps:
            _check_traced_gradients(call, split_step, graph, given, met)
        with bypass_saved_tensor_hooks(), disable_autocast(call.x):
            made = self.lower(graph, given, met, wants if keeps else None)
        widths, dtypes, _ = zip(*shapes, strict=True) if shapes else ((), (), ())
        held[key] = found = TracedStep(settings, graph, like, prelude, made, widths, dtypes)
        _evict_oldest(held)
        return found, met


def _first_rows(tensor: Tensor, rows: int) -> Tensor:
    """Return a copy of the first rows of a tensor, which are repeated if there are too few."""
    return tensor.detach()[[row % len(tensor) for row in range(rows)]]


def run_traced_step(
    kernel: SequenceKernel,
    backend: str,
    prepare_inputs: Callable[[KernelCall], tuple[Any, list[Tensor]]],
    call: KernelCall,
) -> tuple[Tensor, Tensor]:
    """Run a call by the traced step of its cell.

    Args:
        kernel: of the backend.
        backend: its name.
        prepare_inputs: returns the form of a call, and the inputs of its run.
        call: the run at hand.

    Raises:
        BackendError: the step does something today that it did not do before.
    """
    try:
        form, inputs = prepare_inputs(call)
    except TracingError as error:
        raise BackendError(
            f"backend {backend!r} cannot serve this call: the step of {type(call.cell).__name__} "
            f"cannot be recorded: {error}. Use backend='reference'."
        ) from error
    y, last = run_kernel(kernel, form, call.mask, *inputs)
    return call.cell.readout(y), last


def _check_traced_gradients(
    call: KernelCall,
    split_step: SplitStep,
    graph: Graph,
    inputs: Sequence[Tensor],
    captured: Sequence[Tensor],
) -> None:
    """Refuse a step whose gradients are not those of its operations."""

    def eager(*arguments: Tensor) -> Tensor:
        with _disable_autocast_cache(call.x):
            return split_step.advance(*arguments)

    def traced(*arguments: Tensor) -> Tensor:
        with disable_autocast(call.x):
            return graph.run(arguments, captured)

    with bypass_saved_tensor_hooks():
        check_gradients(eager, traced, call.cell, inputs)


def concat_step_inputs(call: KernelCall, split_step: SplitStep) -> Tensor:
    """Return what the steps of a call read side by side, (B, T, F), in the dtype of its state."""
    nothing = call.h.new_empty(*call.dt.shape[:2], 0)
    return torch.cat([nothing, *(part.to(nothing.dtype) for part in split_step.parts)], dim=-1)


def get_autocast_dtype(like: Tensor) -> torch.dtype | None:
    """Return what products on a tensor's device are rounded to by autocast now, if they are."""
    device = like.device.type
    if not is_autocast_available(device) or not torch.is_autocast_enabled(device):
        return None
    return torch.get_autocast_dtype(device)


def disable_autocast(like: Tensor) -> AbstractContextManager[object]:
    """Let what was recorded under autocast, its casts among it, run without more of them."""
    if get_autocast_dtype(like) is None:
        return nullcontext()
    return torch.autocast(like.device.type, enabled=False)


def _disable_autocast_cache(like: Tensor) -> AbstractContextManager[object]:
    """Let autocast cast what a step reads, and not take the casts of another step."""
    dtype = get_autocast_dtype(like)
    if dtype is None:
        return nullcontext()
    return torch.autocast(like.device.type, dtype, cache_enabled=False)


@contextmanager
def disable_inference_mode() -> Iterator[None]:
    """Let what is made be plain tensors: of operations on those of inference mode less is seen."""
    learns = torch.is_grad_enabled()
    with torch.inference_mode(mode=False), torch.set_grad_enabled(learns):
        yield


def bypass_saved_tensor_hooks() -> torch.autograd.graph.saved_tensors_hooks:
    """Let autograd keep what it needs itself, whatever hooks there are.

    A checkpoint counts what it sees kept, and a step that is recorded now is not when it runs
    again. What is kept is a tensor of its own: a result that held itself would never be given back.
    """
    return torch.autograd.graph.saved_tensors_hooks(Tensor.detach, lambda tensor: tensor)


def _find_untraceable_reason(
    call: KernelCall, prepare_inputs: Callable[[KernelCall], object]
) -> str | None:
    check_call(call)
    try:
        with bypass_saved_tensor_hooks():
            prepare_inputs(call)
    except NotMeasuredError as error:
        return str(error)
    except TracingError as error:
        return f"its step cannot be recorded: {error}"
    return None


def _evict_oldest(cache: dict[Any, Any]) -> None:
    if len(cache) > _MAX_TRACES:
        cache.pop(next(iter(cache)), None)
