"""What a cell was built of, so that what replaced it later is seen before anything reads it.

Operations of torch look at the shapes that they are given. Compiled loops, and some of torch's own
fused operators, read as far as the sizes say, beyond the end of a parameter that became smaller.
And a kernel reads a part's parameters where the cell's step calls the part.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized, type_before_parametrizations

from tauflow.checks import is_jit_traced, shape_error
from tauflow.errors import ArgumentError, ShapeError
from tauflow.modifications import HOOKS, has_hooks

if TYPE_CHECKING:
    from .base import AbstractCell

_PLAIN = (nn.Parameter, Tensor)
_SIZES = (
    *("input_size", "hidden_size", "in_features", "out_features", "wiring"),
    *("form", "mode", "time_bias", "blocks", "elastance"),
)
_OF_GAP = ("solver", "substeps", "rtol", "atol")
"""What a cell with a ``gap`` tells of its solver, which does not follow."""

_HOOKED = "has hooks"
_METHODS = {"forward", "step", "hoist", "advance", "readout"}


class Part(NamedTuple):
    """A module of a cell as its constructor left it.

    Args:
        path: names that lead to it.
        kind: its class.
        children: names of its own parts.
        tensors: its parameters and buffers: name, shape, and whether they are floating.
        sizes: its attributes on which shapes depend, or that the step does not read.
    """

    path: tuple[str, ...]
    kind: type[nn.Module]
    children: tuple[str, ...]
    tensors: tuple[tuple[str, tuple[int, ...], bool], ...]
    sizes: tuple[tuple[str, Any], ...]


def parts_of(cell: nn.Module) -> tuple[Part, ...]:
    """Return what a cell consists of now, itself first."""
    parts = []
    for dotted, module in cell.named_modules(remove_duplicate=False):
        own = vars(module)
        tensors = tuple(
            (name, tuple(tensor.shape), tensor.is_floating_point())
            for name, tensor in {**module._parameters, **module._buffers}.items()
            if tensor is not None and type(tensor) in _PLAIN  # a lazy one has no shape yet
        )
        sizes = tuple((name, own[name]) for name in _SIZES if name in own)
        if "gap" in own:
            sizes += tuple((name, own.get(name)) for name in _OF_GAP)
        path = tuple(dotted.split(".")) if dotted else ()
        parts.append(Part(path, type(module), tuple(module._modules), tensors, sizes))
    return tuple(parts)


def changes(cell: "AbstractCell") -> str | None:
    """Return why only the cell's own step still knows what it computes, or ``None``.

    A part may have been replaced by another module, wrapped, or given hooks, a tensor replaced by
    one of another dtype or of a class of its own: a step calls them, a kernel would not.

    Raises:
        ShapeError: a parameter or buffer has another shape than the cell was built with. Torch
            would broadcast some, which then are another model in silence: a bias (N,) become (1,)
            is shared by all neurons, one become (N, 1) differs by sequence where B equals N.
        ArgumentError: an attribute on which shapes depend has another value, or one that says what
            the cell's solver is; or a part has hooks that nothing calls.
    """
    parts: tuple[Part, ...] | None = cell.__dict__.get("_parts_when_built")
    if parts is None:
        return "it was not built by its constructor"
    reason: str | None = None
    present: list[Tensor] = []
    for part in parts:
        module = _find(cell, part.path)
        if module is None:
            reason = reason or f"its {_dotted(part.path)} is gone"
            continue
        altered = _altered(module, part) if _may_be_altered(module, part) else None
        if altered is not None:
            reason = reason or f"its {_dotted(part.path)} {altered}"
            if altered == _HOOKED and ".".join(part.path) in cell.parts_not_called:
                raise ArgumentError(
                    f"{type(cell).__name__}: its {_dotted(part.path)} {altered}, which would never "
                    f"be called: the cell reads the parameters of its {_dotted(part.path)}. "
                    "Register them on the cell."
                )
            if not _is_a(module, part.kind):
                continue
        _compare_sizes(cell, module, part)
        odd = _compare_tensors(cell, module, part, present)
        reason = reason or odd
    return reason or _unequal(present)


def _find(module: nn.Module | None, path: tuple[str, ...]) -> nn.Module | None:
    for name in path:
        if module is None:
            return None
        module = module._modules.get(name)
    return module


def _is_a(module: nn.Module, kind: type[nn.Module]) -> bool:
    """Whether a module is of a class, parametrised or not; a subclass may compute anything."""
    return module.__class__ is kind or type_before_parametrizations(module) is kind


def _may_be_altered(module: nn.Module, part: Part) -> bool:
    """Whether :func:`_altered` is worth its time, which most forward passes cannot spare."""
    own: dict[str, Any] = module.__dict__
    return (
        module.__class__ is not part.kind
        or len(own["_modules"]) != len(part.children)  # others by the same names have other classes
        or not own.keys().isdisjoint(_METHODS)
        or any(own[kind] for kind in HOOKS)
    )


def _altered(module: nn.Module, part: Part) -> str | None:
    """Return what makes calling a module differ from what its parameters say."""
    if not _is_a(module, part.kind):
        return f"is a {type(module).__name__} now"
    if tuple(module._modules) != part.children:
        now = set(module._modules) - {"parametrizations"}
        if now != set(part.children):
            return f"has the parts {sorted(now)} now"
    if not module.__dict__.keys().isdisjoint(_METHODS):
        return "has a method of its own now"
    return _HOOKED if has_hooks(module) else None


def _compare_sizes(cell: nn.Module, module: nn.Module, part: Part) -> None:
    own = module.__dict__
    for name, value in part.sizes:
        if own.get(name) != value:
            built = getattr(own["gap"], name, value) if name in _OF_GAP else value
            raise ArgumentError(
                f"{type(cell).__name__}: {_dotted((*part.path, name))} is {own.get(name)!r}, but "
                f"the cell was built with {built!r}. Build a cell with the new value."
            )


def _compare_tensors(
    cell: nn.Module, module: nn.Module, part: Part, present: list[Tensor]
) -> str | None:
    """Add the floating tensors to ``present``; return which one is no plain tensor."""
    own, parameters, buffers = module.__dict__, module._parameters, module._buffers
    reason = None
    for name, shape, floating in part.tensors:
        tensor: Any = parameters.get(name)
        if tensor is None:  # a buffer, or what a reparametrisation put in a parameter's place
            tensor = buffers.get(name, own.get(name))
        if tensor.__class__ not in _PLAIN:
            if tensor is not None or not is_parametrized(module, name):
                reason = f"its {_dotted((*part.path, name))} is a {type(tensor).__name__} now"
            continue
        if tensor.shape != shape:
            raise wrong_shape(cell, ".".join((*part.path, name)), tensor, shape)
        if floating:
            present.append(tensor)
    return reason


def _unequal(present: list[Tensor]) -> str | None:
    """Return in what tensors differ that were alike, or ``None``."""
    if not present:
        return None
    dtype, on_cpu = present[0].dtype, present[0].is_cpu
    for tensor in present:
        if tensor.dtype is not dtype:
            return f"its parameters have several dtypes, {dtype} and {tensor.dtype}"
        if tensor.is_cpu is not on_cpu:
            return f"its parameters are on several devices, {present[0].device} and {tensor.device}"
    return None


def wrong_shape(cell: nn.Module, name: str, tensor: Tensor, shape: tuple[int, ...]) -> ShapeError:
    """Build the error about a parameter or buffer that no longer fits its cell."""
    advice = "The cell was built with that shape; for another one build a cell of other sizes."
    return shape_error(type(cell).__name__, name, tensor, str(shape), advice)


def _dotted(path: tuple[str, ...]) -> str:
    return ".".join(path) or "own step"


def read(module: nn.Module, name: str, *shape: int) -> Tensor:
    """Return a parameter of a part, which a parametrisation may compute anew at every access.

    Raises:
        ShapeError: what it computes has another shape.
    """
    tensor: Tensor = getattr(module, name)
    if not is_jit_traced() and tensor.shape != shape:  # a trace is to hold no look
        kind = type_before_parametrizations(module).__name__
        raise shape_error(kind, name, tensor, str(shape), "Its parametrization computes another.")
    return tensor
