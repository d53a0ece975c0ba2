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

from tauflow.cells.base import AbstractCell
from tauflow.cells.contract import next_state, read_out
from tauflow.errors import BackendError
from tauflow.modifications import HOOKS, has_hooks
from tauflow.tapes.tape import CannotRecordError

from .engine.needs import guarded
from .engine.program import KernelCall, KernelSpec
from .engine.settings import Settings
from .recorded import RECORDER, is_worth_recording, recorded_limits, run_recorded
from .recordings import plain_tensors

_STEPS = 3  # that are compared; what a first one takes for constant may differ in a second
_CLOSE = 1e-4
_READS = {"numpy", "tolist", "item", "__array__", "__bool__", "__float__", "__int__", "__index__"}
_CHANGES_GRADIENTS = {"detach", "detach_", "data", "register_hook", "_set_grad_enabled"}
_CHANGES = "its step changes what is set on the cell"
_IMPURE: WeakSet[AbstractCell] = WeakSet()  # cells whose settings never stay as they are


def others_limits(call: KernelCall) -> str | None:
    """Return why the recorded step of a user's cell cannot serve a call."""
    if not call.cell.is_pure:
        return "its class does not say is_pure = True"
    try:
        if call.cell in _IMPURE:
            return _CHANGES
        return _hooked(call.cell) or recorded_limits(call, _try)
    except Exception as error:  # the reference loop says it, or does not mind
        return _told(error)


def _is_worth_recording(call: KernelCall) -> bool:
    if not (call.cell.is_pure and is_worth_recording(call)):
        return False
    return not RECORDER.changes_often(call)


OTHERS = (
    KernelSpec(
        AbstractCell,  # type: ignore[type-abstract]  # it stands for all of them
        "numba",
        others_limits,
        guarded(run_recorded, "numba"),
        rtol=1e-5,
        atol=1e-5,
        device="cpu",
        worth=_is_worth_recording,
    ),
)
"""What serves cells that are not of the catalog."""


def _told(error: Exception) -> str:
    return f"its step raised {type(error).__name__}: {error}"


def _hooked(cell: nn.Module) -> str | None:
    """Return which part has hooks, which are called at every step."""
    for name, part in cell.named_modules():
        if any(getattr(part, kind) for kind in HOOKS) if name else has_hooks(part):
            return f"its {name or 'own step'} has hooks"
    return None


def _try(call: KernelCall) -> None:
    """Take a few steps both ways, and compare. No random number is taken from anybody.

    Raises:
        CannotRecordError: they differ, or the step does not do without what recording takes away.
    """
    unknown = Settings(call.cell).unknown
    if unknown is not None:
        raise CannotRecordError(f"a change of its attribute {unknown} could not be seen")
    try:
        # of plain tensors changes in place are counted
        with plain_tensors(), torch.random.fork_rng(devices=[]):
            few = _few_steps(call)
            _compare(call.cell, few)
            _compare(call.cell, _drawn(few))  # where zeros hide a difference, others do not
    except CannotRecordError:
        raise
    except Exception as error:
        raise CannotRecordError(_told(error)) from error


def _compare(cell: AbstractCell, few: KernelCall) -> None:
    failure = None
    with _Unseen():
        plain = _results(_run_plainly, few)
    before = _state_of(few.cell)  # a first step may have put something there for all others
    try:
        recorded = _results(run_recorded, few)
    except BackendError as error:
        failure = error.__cause__ or error
    if _state_of(few.cell) != before:
        _IMPURE.add(cell)
        raise CannotRecordError(_CHANGES)
    if failure is not None:
        raise failure
    if not _are_close(recorded, plain):
        raise CannotRecordError("as torch's operations alone it comes to something else")
    observed = None if few.observed is None else few.observed[:1]
    alone = replace(few, x=few.x[:1], h=few.h[:1], dt=few.dt[:1], observed=observed)
    with torch.no_grad():
        if not _are_close(_run_plainly(alone), [one[:1].detach() for one in plain[:2]]):
            raise CannotRecordError("a sequence's state depends on other sequences of the batch")


def _state_of(cell: AbstractCell) -> tuple[Settings, list[tuple[str, int, int]]]:
    """Return what a pure step leaves as it is: settings, and every tensor of the cell."""
    tensors = [*cell.named_parameters(), *cell.named_buffers()]
    return Settings(cell), [(name, id(one), one._version) for name, one in tensors]


class _Unseen(TorchFunctionMode):
    """Refuses what is not seen among operations: numbers read out, gradients that are changed."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name = getattr(function, "__name__", "")
        if function is Tensor.data.__get__:  # type: ignore[attr-defined]
            name = "data"
        if name in _READS or (torch.is_grad_enabled() and name in _CHANGES_GRADIENTS):
            raise CannotRecordError(f"it calls {name}, of which a list of operations does not tell")
        return function(*args, **(kwargs or {}))


def _few_steps(call: KernelCall) -> KernelCall:
    """Return the first steps of a call, on a cell and tensors of their own that learn as its do.

    What a step keeps on its cell, such as a count of its calls, is kept on the copy.
    """

    def own(tensor: Tensor) -> Tensor:
        return tensor.detach().clone().requires_grad_(tensor.requires_grad)

    observed = None if call.observed is None else call.observed[:, :_STEPS]
    x, dt = own(call.x[:, :_STEPS]), own(call.dt[:, :_STEPS])
    return KernelCall(deepcopy(call.cell), x, own(call.h), dt, None, observed)


def _drawn(call: KernelCall) -> KernelCall:
    """Return a call like another, its inputs, state and gaps drawn at random."""
    generator = torch.Generator().manual_seed(0)

    def draw(like: Tensor, make: Callable[..., Tensor]) -> Tensor:
        drawn = make(like.shape, generator=generator, dtype=like.dtype)
        return drawn.to(like.device).requires_grad_(like.requires_grad)

    x, h, dt = draw(call.x, torch.randn), draw(call.h, torch.randn), draw(call.dt, torch.rand)
    return replace(call, x=x, h=h, dt=dt)


def _run_plainly(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Take the steps as the cell does, and refuse what the reference loop would refuse."""
    h, states = call.h.clone(), []
    for step in range(call.x.shape[1]):
        seen = () if call.observed is None else (call.observed[:, step],)
        version = h._version
        after = call.cell.step(call.x[:, step], h, call.dt[:, step], *seen)
        if h._version != version:
            raise CannotRecordError("it changes its state in place")
        h = next_state(call.cell, h, after)
        states.append(h)
    _refuse_own_functions(h)
    return read_out(call.cell, torch.stack(states, dim=1)), h


def _results(run: Callable[[KernelCall], tuple[Tensor, Tensor]], call: KernelCall) -> list[Tensor]:
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


def _refuse_own_functions(made: Tensor) -> None:
    """Refuse gradients that a function of somebody's own computes."""
    found = [made.grad_fn]
    seen = set(found)
    for function in found:  # which grows
        if function is None:
            continue
        if isinstance(function, torch.autograd.function.BackwardCFunction):
            raise CannotRecordError(f"{function.name()} is not of torch")
        following = {after for after, _ in function.next_functions} - seen
        seen |= following
        found += following


def _are_close(found: Sequence[Tensor], expected: Sequence[Tensor]) -> bool:
    return all(map(_is_close, found, expected))


def _is_close(found: Tensor, expected: Tensor) -> bool:
    if found.shape != expected.shape:
        return False
    largest = expected.detach().abs().nan_to_num(0.0, 0.0, 0.0)
    bound = _CLOSE * float(largest.max()) if expected.numel() else 0.0
    return torch.allclose(found, expected, rtol=_CLOSE, atol=bound, equal_nan=True)
