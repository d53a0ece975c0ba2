"""Snapshots of built cells, to detect parts and tensors that were replaced later.

Operations of torch look at the shapes that they are given. Compiled loops, and some of torch's own
fused operators, read as far as the sizes say, beyond the end of a parameter that became smaller.
And a kernel reads a part's parameters where the cell's step calls the part.
"""

from functools import lru_cache
from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized, type_before_parametrizations

from tauflow._internal.checks import is_jit_tracing, shape_error
from tauflow._internal.fixed_options import list_options
from tauflow._internal.module_hooks import HOOKS, PARAMETRIZATION_HOOKS, has_global_hooks, has_hooks
from tauflow.errors import ArgumentError, ShapeError

if TYPE_CHECKING:
    from .base import AbstractCell

_PLAIN_TENSOR_TYPES = (nn.Parameter, Tensor)
_HOOKED = "has hooks"


class ModuleSnapshot(NamedTuple):
    """A module of a cell as its constructor left it.

    Args:
        path: names that lead to it.
        kind: its class.
        children: names of its own parts.
        tensors: its parameters and buffers: name, shape, and whether they are floating.
        options: names and values of its options; of PyTorch's modules, those without underscore.
    """

    path: tuple[str, ...]
    kind: type[nn.Module]
    children: tuple[str, ...]
    tensors: tuple[tuple[str, tuple[int, ...], bool], ...]
    options: tuple[tuple[str, Any], ...]


def take_snapshot(cell: nn.Module) -> tuple[ModuleSnapshot, ...]:
    """Return what a cell consists of now, itself first."""
    parts = []
    for dotted, module in cell.named_modules(remove_duplicate=False):
        tensors = tuple(
            (name, tuple(tensor.shape), tensor.is_floating_point())
            for name, tensor in {**module._parameters, **module._buffers}.items()
            if tensor is not None
            and type(tensor) in _PLAIN_TENSOR_TYPES  # a lazy one has no shape yet
        )
        path = tuple(dotted.split(".")) if dotted else ()
        children = tuple(module._modules.keys())  # a script has no other way
        parts.append(ModuleSnapshot(path, type(module), children, tensors, _read_options(module)))
    return tuple(parts)


def find_modification(cell: "AbstractCell") -> str | None:
    """Return why only the cell's own step still knows what it computes, or ``None``.

    A part may have been replaced by another module, wrapped, or given hooks, a tensor replaced by
    one of another dtype or of a class of its own: a step calls them, a kernel would not.

    Raises:
        ShapeError: a parameter or buffer has another shape than the cell was built with. Torch
            would broadcast some, which then are another model silently: a bias (N,) become (1,)
            is shared by all neurons, one become (N, 1) differs by sequence where B equals N.
        ArgumentError: a part came in the place of one with other options, or has hooks that nothing
            calls, such as those of ``torch.nn.utils.prune``.
    """
    parts: tuple[ModuleSnapshot, ...] | None = cell.__dict__.get("_parts_when_built")
    if parts is None:
        return "it was not built by its constructor"
    reason = "there are hooks for all modules" if has_global_hooks() else None
    present: list[Tensor] = []
    for part in parts:
        module = _find_submodule(cell, part.path)
        if module is None:
            reason = reason or f"its {_join_path(part.path)} is gone"
            continue
        if any(
            isinstance(hook, PARAMETRIZATION_HOOKS) for hook in module._forward_pre_hooks.values()
        ):
            raise ArgumentError(
                f"{type(cell).__name__}: a parameter of its {_join_path(part.path)} is computed by "
                "a hook, which nothing calls. Make pruning permanent with prune.remove, and use "
                "torch.nn.utils.parametrizations for weight_norm and spectral_norm."
            )
        altered = _find_alteration(module, part)
        if altered is not None:
            reason = reason or f"its {_join_path(part.path)} {altered}"
            if altered == _HOOKED and ".".join(part.path) in cell.uncalled_submodules:
                raise ArgumentError(
                    f"{type(cell).__name__}: its {_join_path(part.path)} {altered}, which would "
                    "never "
                    f"be called: the cell reads the parameters of its {_join_path(part.path)}. "
                    "Register them on the cell."
                )
            if not _is_exact_instance(module, part.kind):
                continue
        _check_options(cell, module, part)
        unusual = _check_tensors(cell, module, part, present)
        reason = reason or unusual
    return reason or _find_mixed_dtype(present)


def _find_submodule(module: nn.Module | None, path: tuple[str, ...]) -> nn.Module | None:
    for name in path:
        if module is None:
            return None
        module = module._modules.get(name)
    return module


def _is_exact_instance(module: nn.Module, kind: type[nn.Module]) -> bool:
    """Whether a module is of a class, parametrised or not; a subclass may compute anything."""
    return module.__class__ is kind or type_before_parametrizations(module) is kind


def _find_alteration(module: nn.Module, part: ModuleSnapshot) -> str | None:
    """Return what makes calling a module differ from what its parameters say."""
    attrs: dict[str, Any] = module.__dict__
    kind: Any = type(module)
    if module.__class__ is not part.kind and not _is_exact_instance(module, part.kind):
        return f"is a {type(module).__name__} now"
    if len(attrs["_modules"]) != len(part.children):  # others by the same names have other classes
        names = set(attrs["_modules"]) - {"parametrizations"}
        if names != set(part.children):
            return f"has the parts {sorted(names)} now"
    if not _list_methods(kind).isdisjoint(attrs):
        return "has a method of its own now"
    return _HOOKED if any(attrs[kind] for kind in HOOKS) and has_hooks(module) else None


@lru_cache(maxsize=1024)
def _list_methods(kind: type) -> frozenset[str]:
    """Return the names of the methods of a class, which may be set on an object too."""
    kinds = FunctionType, classmethod, staticmethod
    return frozenset(
        name
        for base in kind.__mro__
        for name, value in vars(base).items()
        if isinstance(value, kinds)
    )


def _read_options(module: nn.Module) -> tuple[tuple[str, Any], ...]:
    """Return the options of a module; those of ours cannot have changed since it was built."""
    fixed: tuple[tuple[str, Any], ...] | None = module.__dict__.get("_options_when_built")
    if fixed is not None:
        return fixed
    return tuple(one for one in list_options(module) if not one[0].startswith("_"))


def _check_options(cell: nn.Module, module: nn.Module, part: ModuleSnapshot) -> None:
    """Raise if a part came in the place of one that was built with other options."""
    current = _read_options(module)
    if current is part.options or current == part.options:
        return
    values, built = dict(current), dict(part.options)
    kind: Any = type(module)
    for name in {**built, **values}.keys() - _list_methods(kind):
        if values.get(name) != built.get(name):
            where = _join_path((*part.path, name))
            raise ArgumentError(
                f"{type(cell).__name__}: {where} is {values.get(name)!r}, but the cell was built "
                f"with {built.get(name)!r}. Build a cell with the new value, or with cell.replace("
                "**options), which keeps its parameters."
            )


def _check_tensors(
    cell: nn.Module, module: nn.Module, part: ModuleSnapshot, present: list[Tensor]
) -> str | None:
    """Add the floating tensors to ``present``; return which one is no plain tensor."""
    attrs, parameters, buffers = module.__dict__, module._parameters, module._buffers
    reason = None
    for name, shape, floating in part.tensors:
        tensor: Any = parameters.get(name)
        if tensor is None:  # a buffer, or what a reparametrisation put in a parameter's place
            tensor = buffers.get(name, attrs.get(name))
        if tensor.__class__ not in _PLAIN_TENSOR_TYPES:
            if tensor is not None or not is_parametrized(module, name):
                reason = f"its {_join_path((*part.path, name))} is a {type(tensor).__name__} now"
            continue
        if tensor.shape != shape:
            raise parameter_shape_error(cell, ".".join((*part.path, name)), tensor, shape)
        if floating:
            present.append(tensor)
    return reason


def _find_mixed_dtype(present: list[Tensor]) -> str | None:
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


def parameter_shape_error(
    cell: nn.Module, name: str, tensor: Tensor, shape: tuple[int, ...]
) -> ShapeError:
    """Build the error about a parameter or buffer that no longer fits its cell."""
    advice = "The cell was built with that shape; for another one build a cell of other sizes."
    return shape_error(type(cell).__name__, name, tensor, str(shape), advice)


def _join_path(path: tuple[str, ...]) -> str:
    return ".".join(path) or "own step"


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
