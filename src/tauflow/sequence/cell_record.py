"""What the cells of a module consist of, compared by identity from call to call."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tauflow._internal.fixed_options import FixedOptionsModule
from tauflow._internal.module_hooks import HOOKS
from tauflow.cells.base import AbstractCell
from tauflow.cells.module_snapshot import find_modification
from tauflow.errors import TauflowError
from tauflow.kernels.cpu.binding import NULL_PAGE, check_memory
from tauflow.kernels.engine.requirements import is_builtin_cell

from .plain_tensors import PLAIN_TENSOR_TYPES

_HOOK_0, _HOOK_1, _HOOK_2, _HOOK_3 = HOOKS


class _Part(NamedTuple):
    """A module of a cell, as it was when its plans were made.

    Args:
        module: the module.
        kind: its class.
        size: how many entries its ``__dict__`` has.
        children: its own parts by name.
        options: of a module of PyTorch, which can be set; those of the library's are fixed.
    """

    module: nn.Module
    kind: type[nn.Module]
    size: int
    children: tuple[tuple[str, nn.Module | None], ...]
    options: tuple[tuple[str, Any], ...]


class _TensorPlace(NamedTuple):
    """Where a module keeps a parameter or buffer, and what may stand there."""

    holder: dict[str, Tensor | None]
    name: str
    shape: tuple[int, ...]
    floating: bool


class CellRecord(NamedTuple):
    """What a cell consists of, compared by identity."""

    cell: AbstractCell
    parts: tuple[_Part, ...]
    places: tuple[_TensorPlace, ...]

    def find_modes(self, cell: object) -> tuple[bool, ...] | None:
        """Return which parts are in training mode; ``None`` if the cell is not what it was."""
        if cell is not self.cell:
            return None
        modes = []
        for module, kind, size, children, options in self.parts:
            fields = module.__dict__
            if module.__class__ is not kind or len(fields) != size:
                return None
            if fields[_HOOK_0] or fields[_HOOK_1] or fields[_HOOK_2] or fields[_HOOK_3]:
                return None
            parts = fields["_modules"]
            if len(parts) != len(children):
                return None
            for name, child in children:
                if parts.get(name) is not child:
                    return None
            for name, value in options:
                if fields.get(name) is not value:
                    return None
            modes.append(fields["training"])
        return tuple(modes)

    def find_learning(self) -> tuple[bool, ...] | None:
        """Return which parameters want gradients; ``None`` if one is not what kernels read."""
        learns = []
        for holder, name, shape, floating in self.places:
            tensor = holder.get(name)
            if type(tensor) not in PLAIN_TENSOR_TYPES or tensor.shape != shape:  # type: ignore[union-attr]
                return None
            assert tensor is not None
            if floating and not (
                tensor.dtype is torch.float32 and tensor.is_cpu and tensor.is_contiguous()
            ):
                return None
            if tensor.data_ptr() < NULL_PAGE:
                check_memory(tensor)
            learns.append(tensor.requires_grad)
        return tuple(learns)


def _record_cell(cell: AbstractCell) -> CellRecord | None:
    """Return what a cell consists of, if it is as its constructor made it."""
    if not is_builtin_cell(cell):
        return None
    try:
        if find_modification(cell) is not None:
            return None
    except TauflowError:
        return None  # which its forward pass raises
    parts, places = [], []
    for snapshot in cell.__dict__["_parts_when_built"]:
        module: nn.Module = cell.get_submodule(".".join(snapshot.path))
        fields = module.__dict__
        if module.__class__ is not snapshot.kind or any(fields[kind] for kind in HOOKS):
            return None  # a parametrisation, or a hook that computes a parameter
        options = () if isinstance(module, FixedOptionsModule) else snapshot.options
        children = tuple(module._modules.items())
        parts.append(_Part(module, module.__class__, len(fields), children, options))
        for name, shape, floating in snapshot.tensors:
            holder: dict[str, Any] = module._parameters
            if holder.get(name) is None:
                holder = module._buffers
            places.append(_TensorPlace(holder, name, shape, floating))
    return CellRecord(cell, tuple(parts), tuple(places))


def record_cells(cells: Sequence[AbstractCell]) -> tuple[CellRecord, ...]:
    """Return what cells consist of; nothing if one is not as it was made."""
    records = []
    for cell in cells:
        record = _record_cell(cell)
        if record is None:
            return ()
        records.append(record)
    return tuple(records)


def find_places(record: CellRecord) -> tuple[tuple[Any, str], ...] | None:
    """Return where the packed parameters of a cell are, if none is computed.

    Returns:
        Holder and name of each, or an empty tensor and no name.
    """
    cell: Any = record.cell
    known = {id(place.holder[place.name]): place for place in record.places}
    places: list[tuple[Any, str]] = []
    for tensor in cell.packed_parameters():
        place = known.get(id(tensor))
        if place is not None:
            places.append((place.holder, place.name))
        elif tensor.numel() == 0:
            places.append((tensor.detach(), ""))
        else:
            return None
    return tuple(places)
