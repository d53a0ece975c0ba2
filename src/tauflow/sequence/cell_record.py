"""What of a module's cells may differ from call to call: modes, parametrizations and tensors."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from tauflow.cells.base import AbstractCell
from tauflow.cells.built_tensors import PLAIN_TENSOR_TYPES, find_unusual_tensor
from tauflow.errors import TauflowError
from tauflow.kernels.cpu.binding import NULL_PAGE, check_memory
from tauflow.kernels.engine.kernel_call import is_builtin_cell


class _HeldTensor(NamedTuple):
    """Where a module keeps a parameter or buffer, and what may stand there."""

    holder: dict[str, Tensor | None]
    name: str
    shape: tuple[int, ...]
    is_floating: bool


class CellRecord(NamedTuple):
    """A cell of the library, whose parts and options are fixed, its modules and tensors.

    Args:
        cell: the cell.
        parts: all its modules, itself first, each with its class, which a parametrization replaces.
        places: its parameters and buffers.
    """

    cell: AbstractCell
    parts: tuple[tuple[nn.Module, type[nn.Module]], ...]
    places: tuple[_HeldTensor, ...]

    def find_modes(self, cell: object) -> tuple[bool, ...] | None:
        """Return which parts are in training mode; ``None`` if the cell is not what it was."""
        if cell is not self.cell:
            return None
        modes = []
        for module, kind in self.parts:
            if module.__class__ is not kind:
                return None
            modes.append(module.training)
        return tuple(modes)

    def find_learning(self) -> tuple[bool, ...] | None:
        """Return which parameters want gradients; ``None`` if one is not what kernels read."""
        learns = []
        for holder, name, shape, is_floating in self.places:
            tensor = holder.get(name)
            if type(tensor) not in PLAIN_TENSOR_TYPES or tensor.shape != shape:  # type: ignore[union-attr]
                return None
            assert tensor is not None
            if is_floating and not (
                tensor.dtype is torch.float32 and tensor.is_cpu and tensor.is_contiguous()
            ):
                return None
            if tensor.data_ptr() < NULL_PAGE:
                check_memory(tensor)
            learns.append(tensor.requires_grad)
        return tuple(learns)


def _record_cell(cell: AbstractCell) -> CellRecord | None:
    """Return the record of a cell of the library, if none of its tensors is computed or unusual."""
    parts = tuple((module, type(module)) for module in cell.modules())
    try:
        if (
            not is_builtin_cell(cell)
            or any(is_parametrized(module) for module, _ in parts)
            or find_unusual_tensor(cell) is not None
        ):
            return None
    except TauflowError:
        return None  # which its forward pass raises
    places = []
    for place in cell.__dict__["_tensors_when_built"]:
        module = cell.get_submodule(place.path)
        holder: dict[str, Any] = module._parameters
        if holder.get(place.name) is None:
            holder = module._buffers
        places.append(_HeldTensor(holder, place.name, place.shape, place.is_floating))
    return CellRecord(cell, parts, tuple(places))


def record_cells(cells: Sequence[AbstractCell]) -> tuple[CellRecord, ...]:
    """Return the records of cells; nothing if one has none."""
    records = []
    for cell in cells:
        record = _record_cell(cell)
        if record is None:
            return ()
        records.append(record)
    return tuple(records)
