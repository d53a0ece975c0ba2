"""The tensors that a cell was built with, and what stands in their places later.

Operations of torch look at the shapes that they are given. Compiled loops, and some of torch's own
fused operators, read as far as the sizes say, beyond the end of a parameter that became smaller.
"""

from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized, type_before_parametrizations

from tauflow._internal.checks import is_jit_tracing, shape_error
from tauflow.errors import ShapeError

PLAIN_TENSOR_TYPES = (Tensor, nn.Parameter)


class TensorPlace(NamedTuple):
    """Where a cell keeps a parameter or buffer, and what its constructor put there.

    Args:
        path: of the module that holds it; empty for the cell itself.
        name: in that module.
        shape: of the tensor.
        is_floating: whether it holds floating numbers.
    """

    path: str
    name: str
    shape: tuple[int, ...]
    is_floating: bool

    @property
    def full_name(self) -> str:
        """The name by which a state dict knows it."""
        return f"{self.path}.{self.name}" if self.path else self.name


def list_tensors(cell: nn.Module) -> tuple[TensorPlace, ...]:
    """Return the places of all parameters and buffers that a cell has now."""
    return tuple(
        TensorPlace(path, name, tuple(tensor.shape), tensor.is_floating_point())
        for path, module in cell.named_modules(remove_duplicate=False)
        for name, tensor in {**module._parameters, **module._buffers}.items()
        if type(tensor) in PLAIN_TENSOR_TYPES  # a lazy one has no shape yet
    )


def find_unusual_tensor(cell: nn.Module) -> str | None:
    """Return why only the cell's own step reads its tensors, or ``None``.

    A tensor may have been replaced by one of another dtype or of a subclass.

    Raises:
        ShapeError: a parameter or buffer has another shape than the cell was built with. Torch
            would broadcast some, which then are another model silently: a bias (N,) become (1,)
            is shared by all neurons, one become (N, 1) differs by sequence where B equals N.
    """
    places: tuple[TensorPlace, ...] | None = cell.__dict__.get("_tensors_when_built")
    if places is None:
        return "it was not built by its constructor"
    reason, first = None, None
    for place in places:
        module = cell.get_submodule(place.path)
        tensor: Any = module._parameters.get(place.name)
        if tensor is None:  # a buffer, or what a reparametrisation put in a parameter's place
            tensor = module._buffers.get(place.name, module.__dict__.get(place.name))
        if type(tensor) not in PLAIN_TENSOR_TYPES:
            if tensor is not None or not is_parametrized(module, place.name):
                reason = reason or f"its {place.full_name} is a {type(tensor).__name__} now"
            continue
        if tensor.shape != place.shape:
            raise parameter_shape_error(cell, place.full_name, tensor, place.shape)
        if place.is_floating:
            first = tensor if first is None else first
            reason = reason or _describe_difference(first, tensor)
    return reason


def _describe_difference(first: Tensor, tensor: Tensor) -> str | None:
    """Return in what tensors differ that were alike, or ``None``."""
    if tensor.dtype is not first.dtype:
        return f"its parameters have several dtypes, {first.dtype} and {tensor.dtype}"
    if tensor.is_cpu is not first.is_cpu:
        return f"its parameters are on several devices, {first.device} and {tensor.device}"
    return None


def parameter_shape_error(
    cell: nn.Module, name: str, tensor: Tensor, shape: tuple[int, ...]
) -> ShapeError:
    """Build the error about a parameter or buffer that no longer fits its cell."""
    advice = "The cell was built with that shape; for another one build a cell of other sizes."
    return shape_error(type(cell).__name__, name, tensor, str(shape), advice)


def read_parameter(module: nn.Module, name: str, *shape: int) -> Tensor:
    """Return a parameter of a part, which a parametrisation may compute again at every access.

    Raises:
        ShapeError: what it computes has another shape.
    """
    tensor: Tensor = getattr(module, name)
    if not is_jit_tracing() and tensor.shape != shape:  # a trace is to hold no look
        kind = type_before_parametrizations(module).__name__
        raise shape_error(kind, name, tensor, str(shape), "Its parametrization computes another.")
    return tensor
