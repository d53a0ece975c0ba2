"""The step of any cell as a list of torch's operations, watched once and kept.

Torch's operations are watched while the cell takes a step. Parameters, and what the cell makes of
them alone, are read anew at every call, with their graphs, so that a recording need not know how
they came about. What a backend makes of a recording is its own affair.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from tauflow.cells.base import AbstractCell
from tauflow.cells.split import Split
from tauflow.errors import BackendError
from tauflow.tapes.graph import Graph, Prelude, likeness, watch
from tauflow.tapes.pulled_back import check_gradients
from tauflow.tapes.tape import CannotRecordError

from .engine.needs import check_call
from .engine.program import KernelCall, Program
from .engine.run import run
from .engine.settings import Settings, has_own_functions
from .engine.torch_state import has_autocast

_FEW_CHANGES, _CALM = 3, 16  # changes that are recorded again; calls after which none counts
_MOST_RECORDINGS = 128  # of a cell, for as many numbers of rows


class Recording(NamedTuple):
    """The step of a cell for a number of rows.

    Args:
        settings: of the cell.
        graph: of the step.
        like: what it met was like.
        prelude: how to make that without taking the step, if it can be told.
        made: what the backend made of it.
        widths: of the parts of what steps read.
        dtypes: of these parts.
    """

    settings: Settings
    graph: Graph
    like: tuple[Any, ...]
    prelude: Prelude | None
    made: Any
    widths: tuple[int, ...]
    dtypes: tuple[torch.dtype, ...]

    def step(self, h: Tensor, read: Tensor, met: Sequence[Tensor]) -> Tensor:
        """Take the step by torch's operations, as they were recorded.

        Args:
            h: the state, (B, S).
            read: the parts of what the step reads side by side, (B, F).
            met: what it met.
        """
        parts = zip(read.split(self.widths, dim=1), self.dtypes, strict=True)
        return self.graph.run([h, *(part.to(dtype) for part, dtype in parts)], met)


class _Changes(NamedTuple):
    """How often settings of a cell have changed.

    Args:
        settings: at the last call.
        number: of changes, since there were none for a while.
        calm: how many calls there were since the last one.
    """

    settings: Settings
    number: int
    calm: int


Make = Callable[[Graph, Sequence[Tensor], Sequence[Tensor], Sequence[bool] | None], Any]
"""Makes of a graph, the state and the parts that its step was given, and what it met, what a
backend runs; the last argument says what wants gradients, ``None`` if nothing does. Raises
:class:`~tauflow.tapes.tape.CannotRecordError` if it cannot."""


class Recorder:
    """The recordings of a backend.

    Args:
        make: what the backend makes of one.
    """

    def __init__(self, make: Make) -> None:
        self.make = make
        self.recordings: WeakKeyDictionary[AbstractCell, dict[Hashable, Recording]] = (
            WeakKeyDictionary()
        )
        self._objections: WeakKeyDictionary[
            AbstractCell, dict[Hashable, tuple[Settings, str | None]]
        ] = WeakKeyDictionary()
        self._changes: WeakKeyDictionary[AbstractCell, _Changes] = WeakKeyDictionary()

    def changes_often(self, call: KernelCall) -> bool:
        """Whether what is set on a call's cell has changed at several calls of late.

        Each change is recorded again, which takes longer than to run a few plain steps.
        """
        settings = Settings(call.cell)
        last = self._changes.get(call.cell) or _Changes(settings, 0, 0)
        if last.settings != settings:
            last = _Changes(settings, last.number + 1, 0)
        elif last.calm < _CALM:
            last = last._replace(calm=last.calm + 1)
        else:
            last = last._replace(number=0)
        self._changes[call.cell] = last
        return last.number > _FEW_CHANGES

    def objection(
        self, call: KernelCall, rows: Hashable, prepare: Callable[[KernelCall], object]
    ) -> str | None:
        """Return why the step of a call's cell cannot be recorded.

        Args:
            call: the run at hand.
            rows: how many rows its recordings have.
            prepare: finds them, or raises.
        """
        held = self._objections.setdefault(call.cell, {})
        leaves = (call.x, call.h, call.dt, *call.cell.parameters())
        learns = torch.is_grad_enabled() and tuple(leaf.requires_grad for leaf in leaves)
        own = (*call.cell.parameters(), *call.cell.buffers())
        tensors = tuple((one.dtype, one.device) for one in (call.x, call.h, call.dt, *own))
        key = rows, learns, call.observed is None, mixed_dtype(call.x), tensors
        settings = Settings(call.cell)
        if key not in held or held[key][0] != settings:
            held.pop(key, None)
            held[key] = settings, _reason(call, prepare)
            _drop_first(held)
        return held[key][1]

    def find(self, call: KernelCall, split: Split, rows: int) -> tuple[Recording, list[Tensor]]:
        """Return the recording of a step, an earlier one if nothing has changed, and what it met.

        Raises:
            CannotRecordError: there can be none.
        """
        cell, learns = call.cell, torch.is_grad_enabled()
        settings = Settings(cell)
        shapes = tuple(
            (part.shape[2], part.dtype, learns and part.requires_grad) for part in split.parts
        )
        like_state = call.h.dtype, call.h.device, learns and call.h.requires_grad
        key = rows, shapes, like_state, learns, mixed_dtype(call.x)
        held = self.recordings.setdefault(cell, {})
        known, unsure = held.get(key), has_own_functions(cell)
        sure = known is not None and known.settings == settings and not unsure
        if known is not None and sure and known.prelude is not None:
            with unmixed(call.x):
                met = known.prelude.run(cell, split.fixed)
            if likeness(met) == known.like:
                held.pop(key, None)
                held[key] = known  # the last to be dropped
                return known, met
        with plain_tensors():
            given = [call.h[:rows].detach().clone()]
            given += [part[:rows, 0].detach().clone() for part in split.parts]
            with kept(), _uncached(call.x):
                fixed = split.fixed
                graph, met, prelude = watch(split.advance, cell, fixed, *given, retold=not unsure)
        like = likeness(met)
        if prelude is not None:  # as in every call to come
            with unmixed(call.x):
                met = prelude.run(cell, split.fixed)
        if known is not None and known.graph == graph and known.like == like:
            held[key] = known = known._replace(settings=settings, prelude=prelude)
            return known, met
        wants = [True, *(wants for *_, wants in shapes)]
        wants += [learns and one.requires_grad for one in met]
        keeps = learns and (any(wants[1:]) or call.h.requires_grad)
        if keeps:
            _check(call, split, graph, given, met)
        with kept(), unmixed(call.x):
            made = self.make(graph, given, met, wants if keeps else None)
        widths, dtypes, _ = zip(*shapes, strict=True) if shapes else ((), (), ())
        held[key] = found = Recording(settings, graph, like, prelude, made, widths, dtypes)
        _drop_first(held)
        return found, met


def run_recording(
    program: Program,
    backend: str,
    prepare: Callable[[KernelCall], tuple[Any, list[Tensor]]],
    call: KernelCall,
) -> tuple[Tensor, Tensor]:
    """Run a call by the recorded step of its cell.

    Args:
        program: of the backend.
        backend: its name.
        prepare: returns the form of a call, and the inputs of its run.
        call: the run at hand.

    Raises:
        BackendError: the step does something today that it did not do before.
    """
    try:
        form, inputs = prepare(call)
    except CannotRecordError as error:
        raise BackendError(
            f"backend {backend!r} cannot serve this call: the step of {type(call.cell).__name__} "
            f"cannot be recorded: {error}. Use backend='reference'."
        ) from error
    y, last = run(program, form, call.mask, *inputs)
    return call.cell.readout(y), last


def _check(
    call: KernelCall, split: Split, graph: Graph, given: Sequence[Tensor], met: Sequence[Tensor]
) -> None:
    """Refuse a step whose gradients are not those of its operations."""

    def own(*given: Tensor) -> Tensor:
        with _uncached(call.x):
            return split.advance(*given)

    def recorded(*given: Tensor) -> Tensor:
        with unmixed(call.x):
            return graph.run(given, met)

    with kept():
        check_gradients(own, recorded, call.cell, given)


def side_by_side(call: KernelCall, split: Split) -> Tensor:
    """Return what the steps of a call read side by side, (B, T, F), in the dtype of its state."""
    nothing = call.h.new_empty(*call.dt.shape[:2], 0)
    return torch.cat([nothing, *(part.to(nothing.dtype) for part in split.parts)], dim=-1)


def mixed_dtype(like: Tensor) -> torch.dtype | None:
    """Return what products on a tensor's device are rounded to by autocast now, if they are."""
    device = like.device.type
    if not has_autocast(device) or not torch.is_autocast_enabled(device):
        return None
    return torch.get_autocast_dtype(device)


def unmixed(like: Tensor) -> AbstractContextManager[object]:
    """Let what was recorded under autocast, its casts among it, run without more of them."""
    if mixed_dtype(like) is None:
        return nullcontext()
    return torch.autocast(like.device.type, enabled=False)


def _uncached(like: Tensor) -> AbstractContextManager[object]:
    """Let autocast cast what a step reads, and not take the casts of another step."""
    dtype = mixed_dtype(like)
    if dtype is None:
        return nullcontext()
    return torch.autocast(like.device.type, dtype, cache_enabled=False)


@contextmanager
def plain_tensors() -> Iterator[None]:
    """Let what is made be plain tensors: of operations on those of inference mode less is seen."""
    learns = torch.is_grad_enabled()
    with torch.inference_mode(mode=False), torch.set_grad_enabled(learns):
        yield


def kept() -> torch.autograd.graph.saved_tensors_hooks:
    """Let autograd keep what it needs itself, whatever hooks there are.

    A checkpoint counts what it sees kept, and a step that is recorded now is not when it runs anew.
    What is kept is a tensor of its own: a result that held itself would never be given back.
    """
    return torch.autograd.graph.saved_tensors_hooks(Tensor.detach, lambda tensor: tensor)


def _reason(call: KernelCall, prepare: Callable[[KernelCall], object]) -> str | None:
    check_call(call)
    try:
        with kept():
            prepare(call)
    except CannotRecordError as error:
        return f"its step cannot be recorded: {error}"
    return None


def _drop_first(held: dict[Any, Any]) -> None:
    if len(held) > _MOST_RECORDINGS:
        held.pop(next(iter(held)), None)
