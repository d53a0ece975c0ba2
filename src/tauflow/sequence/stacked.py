"""A sequence module whose parameters are those of several networks, run without ``torch.vmap``.

The border looks at the n B sequences of all networks as at one batch, once; the cell's kernel then
takes them network by network, or all in one call.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tauflow._internal.module_hooks import HOOKS
from tauflow.cells.base import AbstractCell
from tauflow.cells.cfc import CfCCell
from tauflow.cells.module_snapshot import find_modification
from tauflow.kernels import KernelCall
from tauflow.kernels.engine.requirements import is_builtin_cell
from tauflow.kernels.engine.torch_state import is_followed
from tauflow.kernels.stacked import Place, list_places, read_place, run_stack, swapped

from .finite_checks import check_finite_states
from .inputs import SequenceInputs, check_dtype_and_device, prepare_inputs
from .sequence_module import SequenceModule
from .states import resolve_initial_states
from .unroll import unroll


class StackedSequence(NamedTuple):
    """A sequence module of one cell whose parameters have an axis of networks in front.

    Args:
        rnn: the module.
        parts: modules that a call would pass through, with their classes.
        places: of the cell's parameters and buffers, with the shape for one network.
        packed: where each packed parameter of a CfC is, or its shape if it is empty; ``None`` of
            other cells, and where some are computed.
    """

    rnn: SequenceModule
    parts: tuple[tuple[nn.Module, type[nn.Module]], ...]
    places: tuple[tuple[Place, tuple[int, ...]], ...]
    packed: tuple[Place | tuple[int, ...], ...] | None

    def run(
        self, count: int, x: Any, hx: Any = None, **times_and_masks: Any
    ) -> tuple[Tensor, Tensor] | None:
        """Return outputs, (n, B, T, H) or (n, B, H), and states, or ``None`` if it cannot.

        Args:
            count: n.
            x: (n, B, T, I).
            hx: (n, B, S), or ``None``.
            **times_and_masks: as for the module, with an axis of networks in front.

        Raises:
            ShapeError, DtypeError, ArgumentError, TimeError, NonFiniteError: as the module.
        """
        if not isinstance(x, Tensor) or x.ndim != 4 or is_followed() or not self._is_unchanged():
            return None
        if not times_and_masks.keys() <= {"dt", "t", "mask", "lengths"}:
            return None
        if hx is not None and not (isinstance(hx, Tensor) and hx.ndim == 3):
            return None
        rnn, cell = self.rnn, self.rnn.cell
        where = f"{type(rnn).__name__}.forward"
        flat = {name: _flatten(value) for name, value in times_and_masks.items()}
        joined = prepare_inputs(
            where, rnn.input_size, _flatten(x), has_initial_state=hx is not None, **flat
        )
        check_dtype_and_device(where, cell, joined.x)
        (start,) = resolve_initial_states(where, [cell], _flatten(hx), joined)
        if start is None:
            start = joined.x.new_zeros(len(joined.x), cell.state_size)
        found = self._run_networks(count, joined, start)
        if found is None:
            return None
        y, last = found
        check_finite_states(where, cell, start, last.flatten(0, 1), joined)
        return y if rnn.return_sequences else y[:, :, -1], last

    def _is_unchanged(self) -> bool:
        for module, kind in self.parts:
            own = module.__dict__
            if module.__class__ is not kind or any(map(own.get, ("forward", *HOOKS))):
                return False
        return True

    def _run_networks(
        self, count: int, joined: SequenceInputs, start: Tensor
    ) -> tuple[Tensor, Tensor] | None:
        places = [place for place, _ in self.places]
        tensors = [read_place(place) for place in places]
        for tensor, (_, shape) in zip(tensors, self.places, strict=True):
            if tensor.shape != (count, *shape):
                return None
        x, h, dt, mask = (
            None if one is None else one.view(count, -1, *one.shape[1:])
            for one in (joined.x.contiguous(), start, joined.dt, joined.mask)
        )
        assert x is not None
        assert h is not None
        assert dt is not None
        backend = self.rnn.backend
        return run_stack(
            KernelCall(self.rnn.cell, x, h, dt, mask),
            places,
            tensors,
            self._pack(count, places, tensors, x),
            backend,
            partial(unroll, backend=backend),
        )

    def _pack(
        self, count: int, places: Sequence[Place], tensors: Sequence[Tensor], like: Tensor
    ) -> Sequence[Tensor]:
        """Return the packed parameters of all networks; nothing where they are not read."""
        cell = self.rnn.cell
        if not isinstance(cell, CfCCell):
            return ()
        if self.packed is not None:
            return [
                read_place(place) if isinstance(place, Place) else like.new_empty(count, *place)
                for place in self.packed
            ]

        def pack(*tensors: Tensor) -> tuple[Tensor, ...]:
            with swapped(places, tensors):
                return cell.packed_parameters()

        packed: tuple[Tensor, ...] = torch.func.vmap(pack)(*tensors)
        return packed


def plan_stack(module: nn.Module, one: nn.Module) -> StackedSequence | None:
    """Return how to run a stack without ``torch.vmap``, if it is a sequence module of one cell.

    Args:
        module: a sequence module whose parameters have an axis of networks in front.
        one: the module for one network.
    """
    if not isinstance(module, SequenceModule) or type(module).forward is not SequenceModule.forward:
        return None
    if module.num_layers != 1 or module.bidirectional or module.proj_size:
        return None
    cell = module.cell
    assert isinstance(one, SequenceModule)
    if not is_builtin_cell(cell) or find_modification(one.cell) is not None:
        return None
    if cell.uses_observed or type(cell).initial_state is not AbstractCell.initial_state:
        return None
    if module.checkpoint_every is not None:
        return None
    places = list_places(cell)
    shapes = [tuple(read_place(place).shape) for place in list_places(one.cell)]
    return StackedSequence(
        module,
        tuple((part, type(part)) for part in module.modules()),
        tuple(zip(places, shapes, strict=True)),
        _find_packed(one.cell, places),
    )


def _find_packed(
    cell: AbstractCell, places: Sequence[Place]
) -> tuple[Place | tuple[int, ...], ...] | None:
    """Return where the packed parameters of a CfC are, if all of them are parameters."""
    if not isinstance(cell, CfCCell):
        return None
    known = {
        id(read_place(own)): place for own, place in zip(list_places(cell), places, strict=True)
    }
    found: list[Place | tuple[int, ...]] = []
    for tensor in cell.packed_parameters():
        place = known.get(id(tensor))
        if place is None and tensor.numel():
            return None
        found.append(tuple(tensor.shape) if place is None else place)
    return tuple(found)


def _flatten(value: Any) -> Any:
    """Return a tensor of networks as one of all their sequences."""
    return value.flatten(0, 1) if isinstance(value, Tensor) and value.ndim > 1 else value
