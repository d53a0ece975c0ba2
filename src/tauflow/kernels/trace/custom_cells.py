"""Cells that users wrote: their steps are recorded as those of the catalog are, but tried first.

A step of the catalog is known to be pure. A user's may keep something on the cell, look at other
sequences of the batch, compute outside of torch: nothing of that is in a list of torch's
operations. So only cells whose class says that it is pure are recorded, and that is not taken on
trust alone: a recording must come to what a few plain steps come to, in values and in all
gradients, and what is seen to be impure is refused.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from tauflow._internal.module_hooks import HOOKS, has_hooks
from tauflow.cells.base import AbstractCell
from tauflow.cells.contract import call_readout, check_next_state
from tauflow.errors import BackendError
from tauflow.kernels.engine.program import KernelCall, KernelSpec
from tauflow.kernels.engine.requirements import validate_call

from .attribute_snapshot import AttributeSnapshot
from .program import TracingError
from .trace_cache import disable_inference_mode
from .traced_kernel import (
    INTERPRETER_TRACES,
    is_tracing_profitable,
    run_traced,
    traced_unsupported_reason,
)

_COMPARED_STEPS = 3  # that are compared; what a first one takes for constant may differ in a second
_TOLERANCE = 1e-4
_VALUE_READING_FUNCTIONS = {
    "numpy",
    "tolist",
    "item",
    "__array__",
    "__bool__",
    "__float__",
    "__int__",
    "__index__",
}
_GRADIENT_CHANGING_FUNCTIONS = {"detach", "detach_", "data", "register_hook", "_set_grad_enabled"}
_IMPURE_MESSAGE = "its step changes what is set on the cell"
_IMPURE_CELLS: WeakSet[AbstractCell] = WeakSet()  # cells whose settings never stay as they are


def custom_cell_unsupported_reason(call: KernelCall) -> str | None:
    """Return why the traced step of a user's cell cannot serve a call."""
    if not call.cell.is_pure:
        return "its class does not say is_pure = True"
    try:
        if call.cell in _IMPURE_CELLS:
            return _IMPURE_MESSAGE
        return _find_hooks(call.cell) or traced_unsupported_reason(call, _check_trace)
    except Exception as error:  # the reference loop says it, or does not mind
        return _describe_error(error)


def _is_tracing_profitable(call: KernelCall) -> bool:
    if not (call.cell.is_pure and is_tracing_profitable(call)):
        return False
    return not INTERPRETER_TRACES.has_frequent_changes(call)


CUSTOM_CELL_KERNELS = (
    KernelSpec(
        AbstractCell,  # type: ignore[type-abstract]  # it stands for all of them
        "numba",
        custom_cell_unsupported_reason,
        validate_call(run_traced, "numba"),
        rtol=1e-5,
        atol=1e-5,
        device="cpu",
        is_profitable=_is_tracing_profitable,
    ),
)
"""What serves cells that are not of the catalog."""


def _describe_error(error: Exception) -> str:
    return f"its step raised {type(error).__name__}: {error}"


def _find_hooks(cell: nn.Module) -> str | None:
    """Return which part has hooks, which are called at every step."""
    for name, part in cell.named_modules():
        if any(getattr(part, kind) for kind in HOOKS) if name else has_hooks(part):
            return f"its {name or 'own step'} has hooks"
    return None


def _check_trace(call: KernelCall) -> None:
    """Take a few steps both ways, and compare. No random number is taken from anybody.

    Raises:
        TracingError: they differ, or the step does not do without what recording takes away.
    """
    unknown = AttributeSnapshot(call.cell).untracked_attribute
    if unknown is not None:
        raise TracingError(f"a change of its attribute {unknown} could not be seen")
    try:
        # of plain tensors changes in place are counted
        with disable_inference_mode(), torch.random.fork_rng(devices=[]):
            few = _copy_first_steps(call)
            _compare_with_eager(call.cell, few)
            _compare_with_eager(
                call.cell, _randomise_call(few)
            )  # where zeros hide a difference, others do not
    except TracingError:
        raise
    except Exception as error:
        raise TracingError(_describe_error(error)) from error


def _compare_with_eager(cell: AbstractCell, short_call: KernelCall) -> None:
    failure = None
    with _ForbidUntraceableMode():
        plain = _compute_results(_run_eager, short_call)
    before = _get_cell_state(
        short_call.cell
    )  # a first step may have put something there for all others
    try:
        recorded = _compute_results(run_traced, short_call)
    except BackendError as error:
        failure = error.__cause__ or error
    if _get_cell_state(short_call.cell) != before:
        _IMPURE_CELLS.add(cell)
        raise TracingError(_IMPURE_MESSAGE)
    if failure is not None:
        raise failure
    if not _are_close(recorded, plain):
        raise TracingError("as torch's operations alone it comes to something else")
    observed = None if short_call.observed is None else short_call.observed[:1]
    alone = replace(
        short_call, x=short_call.x[:1], h=short_call.h[:1], dt=short_call.dt[:1], observed=observed
    )
    with torch.no_grad():
        if not _are_close(_run_eager(alone), [one[:1].detach() for one in plain[:2]]):
            raise TracingError("a sequence's state depends on other sequences of the batch")


def _get_cell_state(cell: AbstractCell) -> tuple[AttributeSnapshot, list[tuple[str, int, int]]]:
    """Return what a pure step leaves as it is: settings, and every tensor of the cell."""
    tensors = [*cell.named_parameters(), *cell.named_buffers()]
    return AttributeSnapshot(cell), [(name, id(one), one._version) for name, one in tensors]


class _ForbidUntraceableMode(TorchFunctionMode):
    """Refuses what is not seen among operations: numbers read out, gradients that are changed."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name = getattr(function, "__name__", "")
        if function is Tensor.data.__get__:  # type: ignore[attr-defined]
            name = "data"
        if name in _VALUE_READING_FUNCTIONS or (
            torch.is_grad_enabled() and name in _GRADIENT_CHANGING_FUNCTIONS
        ):
            raise TracingError(f"it calls {name}, of which a list of operations does not tell")
        return function(*args, **(kwargs or {}))


def _copy_first_steps(call: KernelCall) -> KernelCall:
    """Return the first steps of a call, on a cell and tensors of their own that learn as its do.

    What a step keeps on its cell, such as a count of its calls, is kept on the copy.
    """

    def copy_tensor(tensor: Tensor) -> Tensor:
        return tensor.detach().clone().requires_grad_(tensor.requires_grad)

    observed = None if call.observed is None else call.observed[:, :_COMPARED_STEPS]
    x, dt = copy_tensor(call.x[:, :_COMPARED_STEPS]), copy_tensor(call.dt[:, :_COMPARED_STEPS])
    return KernelCall(deepcopy(call.cell), x, copy_tensor(call.h), dt, None, observed)


def _randomise_call(call: KernelCall) -> KernelCall:
    """Return a call like another, its inputs, state and gaps drawn at random."""
    generator = torch.Generator().manual_seed(0)

    def draw(like: Tensor, make: Callable[..., Tensor]) -> Tensor:
        drawn = make(like.shape, generator=generator, dtype=like.dtype)
        return drawn.to(like.device).requires_grad_(like.requires_grad)

    x, h, dt = draw(call.x, torch.randn), draw(call.h, torch.randn), draw(call.dt, torch.rand)
    return replace(call, x=x, h=h, dt=dt)


def _run_eager(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Take the steps as the cell does, and refuse what the reference loop would refuse."""
    h, states = call.h.clone(), []
    for step in range(call.x.shape[1]):
        seen = () if call.observed is None else (call.observed[:, step],)
        version = h._version
        after = call.cell.step(call.x[:, step], h, call.dt[:, step], *seen)
        if h._version != version:
            raise TracingError("it changes its state in place")
        h = check_next_state(call.cell, h, after)
        states.append(h)
    _check_autograd_functions(h)
    return call_readout(call.cell, torch.stack(states, dim=1)), h


def _compute_results(
    run: Callable[[KernelCall], tuple[Tensor, Tensor]], call: KernelCall
) -> list[Tensor]:
    """Return outputs, the last state, and the gradients of all that learns."""
    y, last = run(call)
    leaves = [one for one in (call.x, call.h, call.dt) if one.requires_grad]
    leaves += [p for p in call.cell.parameters() if p.requires_grad and not p._backward_hooks]
    pulled = [one for one in (y, last) if one.requires_grad]
    if not (pulled and leaves):
        return [y, last]
    # other pulls at every entry, that no difference cancels
    pulls = [torch.linspace(0.5, 1.5, one.numel()).view(one.shape).to(one) for one in pulled]
    grads = torch.autograd.grad(pulled, leaves, pulls, allow_unused=True)
    return [y, last] + [
        torch.zeros_like(leaf) if grad is None else grad
        for leaf, grad in zip(leaves, grads, strict=True)
    ]


def _check_autograd_functions(output: Tensor) -> None:
    """Refuse gradients that a function of somebody's own computes."""
    found = [output.grad_fn]
    seen = set(found)
    for function in found:  # which grows
        if function is None:
            continue
        if isinstance(function, torch.autograd.function.BackwardCFunction):
            raise TracingError(f"{function.name()} is not of torch")
        following = {after for after, _ in function.next_functions} - seen
        seen |= following
        found += following


def _are_close(actual: Sequence[Tensor], expected: Sequence[Tensor]) -> bool:
    return all(map(_is_close, actual, expected))


def _is_close(actual: Tensor, expected: Tensor) -> bool:
    if actual.shape != expected.shape:
        return False
    largest = expected.detach().abs().nan_to_num(0.0, 0.0, 0.0)
    bound = _TOLERANCE * float(largest.max()) if expected.numel() else 0.0
    return torch.allclose(actual, expected, rtol=_TOLERANCE, atol=bound, equal_nan=True)
