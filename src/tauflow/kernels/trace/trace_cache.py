"""The step of any cell as a list of torch's operations, watched once and kept.

Torch's operations are watched while the cell takes a step. Parameters, and what the cell makes of
them alone, are read again at every call, with their graphs, so that a trace need not know how
they came about. What a backend makes of a trace is its own affair.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tauflow._internal.fork_safety import make_fork_safe_lock
from tauflow.cells.base import AbstractCell, StepSequence
from tauflow.errors import BackendError
from tauflow.kernels.engine.autograd import run_kernel
from tauflow.kernels.engine.kernel_call import KernelCall, check_call
from tauflow.kernels.engine.kernel_spec import SequenceKernel
from tauflow.kernels.engine.torch_state import is_autocast_available

from .capture import (
    CapturedStep,
    Draw,
    ForbidGradientChanges,
    capture_step,
    tensor_metadata,
)
from .config_key import ConfigKey, make_config_key
from .graph import Axes, Graph, Node, ParameterGraph, Slot, absorb_parameter_nodes
from .program import TracingError

_UNKNOWN = "unknown"
_MAX_TRACES = 256  # of a backend, for all cells and numbers of rows


class TracedStep(NamedTuple):
    """The step of a cell for a number of rows.

    Args:
        graph: of the step.
        captured_metadata: what the captured tensors are like, before their axes are permuted.
        parameter_graph: how to make them without taking the step, if it can be told.
        axes: for each captured tensor how the step permutes its axes, or ``None``.
        lowered: what the backend made of it.
        draws: what it draws, the last parts of what steps read.
        widths: of the parts of what steps read.
        dtypes: of these parts.
        reads: which of them it does read.
    """

    graph: Graph
    captured_metadata: tuple[Any, ...]
    parameter_graph: ParameterGraph | None
    axes: tuple[Axes | None, ...]
    lowered: Any
    draws: tuple[Draw, ...]
    widths: tuple[int, ...]
    dtypes: tuple[torch.dtype, ...]
    reads: tuple[bool, ...]

    def step(self, h: Tensor, inputs: Tensor, captured: Sequence[Tensor]) -> Tensor:
        """Take the step by torch's operations, as they were traced.

        Args:
            h: the state, (B, S).
            inputs: the parts of what the step reads side by side, (B, F).
            captured: what it reads of parameters, permuted.
        """
        parts = zip(inputs.split(self.widths, dim=1), self.dtypes, strict=True)
        return self.graph.run([h, *(part.to(dtype) for part, dtype in parts)], captured)

    def permute(self, captured: Sequence[Tensor]) -> list[Tensor]:
        """Return captured tensors with their axes as the step reads them."""
        return [
            tensor if axes is None else tensor.permute(axes)
            for tensor, axes in zip(captured, self.axes, strict=True)
        ]


class NotMeasuredError(TracingError):
    """A step can be traced, but whether that makes it faster has not been measured."""


LowerStep = Callable[[Graph, Sequence[Tensor], Sequence[Tensor], Sequence[bool] | None], Any]
"""Makes of a graph, the state and the parts that its step was given, and its captured tensors, what
a backend runs; the last argument says what wants gradients, ``None`` if nothing does. Raises
:class:`~tauflow.kernels.trace.program.TracingError` if it cannot."""


class TraceCache:
    """The traces of a backend, found by all that they depend on.

    Args:
        lower: what the backend makes of one.
        is_absorbed: which operations on parameters alone are part of steps that hoist nothing.
        draws: whether steps may drop units at random.
    """

    def __init__(
        self,
        lower: LowerStep,
        is_absorbed: Callable[[Node, Mapping[Slot, Tensor]], bool] = lambda node, values: False,
        *,
        draws: bool = False,
    ) -> None:
        self.lower, self.is_absorbed, self.draws = lower, is_absorbed, draws
        self.traces: dict[tuple[Hashable, ...], TracedStep] = {}
        self._unsupported_reasons: dict[Hashable, str | None] = {}

    def unsupported_reason(
        self, call: KernelCall, rows: Hashable, prepare_inputs: Callable[[KernelCall], object]
    ) -> str | None:
        """Return why the step of a call's cell cannot be traced.

        Args:
            call: the run at hand.
            rows: how many rows its traces have.
            prepare_inputs: finds them, or raises.
        """
        check_call(call)
        try:
            config = make_config_key(call.cell)
        except TracingError as error:
            return f"its step cannot be traced: {error}"
        learns = torch.is_grad_enabled()
        inputs = call.x, call.h, call.dt
        metadata = tuple(
            (tensor.dtype, tensor.device, learns and tensor.requires_grad) for tensor in inputs
        )
        key = config, rows, learns, call.observed is None, metadata, _get_torch_settings(call.x)
        reason = self._unsupported_reasons.get(key, _UNKNOWN)
        if reason is _UNKNOWN:
            reason = _find_untraceable_reason(call, config, prepare_inputs)
            _store_latest(self._unsupported_reasons, key, reason)
        return reason

    def draws_numbers(self, cell: AbstractCell) -> bool:
        """Whether a known trace of a cell, as it is now, drops units at random."""
        if not (self.draws and cell.training):
            return False
        try:
            config = make_config_key(cell)
        except TracingError:
            return False
        with _lock:
            return any(trace.draws for key, trace in self.traces.items() if key[0] == config)

    def find(
        self,
        call: KernelCall,
        config: ConfigKey,
        steps: StepSequence,
        rows: int,
    ) -> tuple[TracedStep, list[Tensor]]:
        """Return the trace of a step, an earlier one if there is one, and its captured tensors.

        Args:
            call: the run at hand.
            config: of its cell.
            steps: its steps.
            rows: how many rows the trace has.

        Raises:
            TracingError: there can be none.
        """
        cell, learns = call.cell, torch.is_grad_enabled()
        shapes = tuple(
            (part.shape[2], part.dtype, learns and part.requires_grad) for part in steps.per_step
        )
        like_state = call.h.dtype, call.h.device, learns and call.h.requires_grad
        settings = learns, steps.hoists, _get_torch_settings(call.x)
        key = config, rows, shapes, like_state, settings
        known = self.traces.get(key)
        if known is not None and known.parameter_graph is not None:
            with disable_autocast(call.x):
                captured = known.parameter_graph.run(cell, steps.fixed)
            if tensor_metadata(captured) == known.captured_metadata:
                _store_latest(self.traces, key, known)
                return known, captured
        inputs, (graph, permuted, prelude, draws) = _capture(call, config, steps, rows)
        if draws and not self.draws:
            raise TracingError("it draws numbers")
        inputs += [call.h.new_zeros(rows, draw.width) for draw in draws]
        shapes += tuple((draw.width, call.h.dtype, False) for draw in draws)
        captured, axes = permuted, tuple[Axes | None, ...]([None] * len(permuted))
        if prelude is not None:
            if not steps.hoists:
                values = prelude.evaluate(cell, steps.fixed)
                graph, prelude = absorb_parameter_nodes(graph, prelude, values, self.is_absorbed)
            with disable_autocast(call.x):  # as in every call to come
                permuted = prelude.run(cell, steps.fixed)
                prelude, axes = prelude.skip_permutations(permuted)
                captured = prelude.run(cell, steps.fixed)
        like = tensor_metadata(captured)
        if known is not None and known.graph == graph and known.captured_metadata == like:
            return known, captured
        wants = [True, *(wants for *_, wants in shapes)]
        wants += [learns and parameter.requires_grad for parameter in permuted]
        keeps = learns and (any(wants[1:]) or call.h.requires_grad)
        with bypass_saved_tensor_hooks(), disable_autocast(call.x):
            made = self.lower(graph, inputs, permuted, wants if keeps else None)
        widths, dtypes, _ = zip(*shapes, strict=True) if shapes else ((), (), ())
        read = {graph.result, *(slot for node in graph.nodes for slot in node.reads())}
        reads = tuple(Slot(number) in read for number in range(1, len(inputs)))
        traced_step = TracedStep(graph, like, prelude, axes, made, draws, widths, dtypes, reads)
        _store_latest(self.traces, key, traced_step)
        return traced_step, captured


def _capture(
    call: KernelCall, config: ConfigKey, steps: StepSequence, rows: int
) -> tuple[list[Tensor], CapturedStep]:
    """Return the first rows of what a step is given, and what it does with them."""
    learns = torch.is_grad_enabled()
    with disable_inference_mode():
        inputs = [_first_rows(call.h, rows)]
        inputs += [_first_rows(part[:, 0], rows) for part in steps.per_step]
        watched = ForbidGradientChanges() if config.has_user_code and learns else nullcontext()
        with bypass_saved_tensor_hooks(), _disable_autocast_cache(call.x), watched:
            captured = capture_step(steps.update, call.cell, steps.fixed, *inputs)
    return inputs, captured


def _get_torch_settings(like: Tensor) -> Hashable:
    """Return what PyTorch's operations depend on beside their arguments."""
    return get_autocast_dtype(like), torch.get_default_dtype()


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
            f"cannot be traced: {error}. Use backend='reference'."
        ) from error
    y, last = run_kernel(kernel, form, call.mask, *inputs)
    return call.cell.readout(y).contiguous(), last


def concat_step_inputs(call: KernelCall, parts: Sequence[Tensor]) -> Tensor:
    """Return what the steps of a call read side by side, (B, T, F), in the dtype of its state.

    It is kept for the backward pass, and therefore no tensor that the caller may change.
    """
    dtype = call.h.dtype
    parts = [part if part.dtype is dtype else part.to(dtype) for part in parts]
    if len(parts) == 1 and not (parts[0]._is_view() or parts[0] is call.x or parts[0] is call.dt):
        return parts[0]
    return torch.cat(parts or [call.h.new_empty(*call.dt.shape[:2], 0)], dim=-1)


def draw_for_steps(call: KernelCall, draws: Sequence[Draw]) -> list[Tensor]:
    """Return what all steps of a call draw, (B, T, K) each.

    Numbers are drawn step after step, so that they are those of the plain loop.
    """
    B, T, _ = call.x.shape
    drawn = [call.h.new_empty(T, B, draw.width) for draw in draws]
    for rows in zip(*drawn, strict=True):
        for row, draw in zip(rows, draws, strict=True):
            row.bernoulli_(draw.probability)
    return [part.transpose(0, 1) for part in drawn]


def get_autocast_dtype(like: Tensor) -> torch.dtype | None:
    """Return what products on a tensor's device are rounded to by autocast now, if they are."""
    device = like.device.type
    if not is_autocast_available(device) or not torch.is_autocast_enabled(device):
        return None
    return torch.get_autocast_dtype(device)


def disable_autocast(like: Tensor) -> AbstractContextManager[object]:
    """Let what was traced under autocast, its casts among it, run without more of them."""
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

    A checkpoint counts what it sees kept, and a step that is traced now is not when it runs
    again. What is kept is a separate tensor: a result that held itself would never be given back.
    """
    return torch.autograd.graph.saved_tensors_hooks(Tensor.detach, lambda tensor: tensor)


def _find_untraceable_reason(
    call: KernelCall, config: ConfigKey, prepare_inputs: Callable[[KernelCall], object]
) -> str | None:
    try:
        with bypass_saved_tensor_hooks(), torch.random.fork_rng(devices=[]):
            prepare_inputs(call)
    except NotMeasuredError as error:
        return str(error)
    except TracingError as error:
        return f"its step cannot be traced: {error}"
    except Exception as error:
        if not config.has_user_code:
            raise
        return f"its step raised {type(error).__name__}: {error}"  # the plain loop says so
    return None


_lock = make_fork_safe_lock()


def _store_latest(cache: dict[Any, Any], key: Hashable, value: object) -> None:
    """Hold a value as the last to be dropped."""
    with _lock:
        cache.pop(key, None)
        cache[key] = value
        if len(cache) > _MAX_TRACES:
            cache.pop(next(iter(cache)))
