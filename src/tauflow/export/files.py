"""Model files: one ``.safetensors`` file that holds the weights and says how to build the module.

The tensors are the state dict, the facts the module's description; for the form of the file see
:mod:`tauflow.tensorfile`.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from tauflow.errors import ArgumentError, DataNotFoundError, ModelFileError, TauflowError
from tauflow.modifications import tie, tied_names
from tauflow.tensorfile import encode, hash_tensors, read_tensor_file, write_atomically

from .as_built import computed_parameters, modifications
from .describe import TIES, describe, rebuild
from .room import room_of

KIND = "model"
PREDICTOR = "predictor.safetensors"
"""File of a run's folder that :func:`tauflow.load_predictor` reads."""
_ADVICE = "Copy it again from its source, or save the model anew with tauflow.save."
_NOT_OURS = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
_Path = str | PathLike[str]


def save(module: nn.Module, path: _Path) -> None:
    """Write a module to a model file, replacing ``path`` in one step.

    A tensor that has several names, as a tied weight has, is one tensor again when loaded. Neither
    the training mode nor ``requires_grad`` is kept, nor hooks on the gradients of tensors.

    Args:
        module: a cell, a sequence module or a model of :mod:`tauflow.models`.
        path: the file, by convention ending in ``.safetensors``; its folder must exist.

    Raises:
        ArgumentError: a part of the module is not tauflow's, was built with a function, or was
            changed after the module had been built: replaced, quantised, pruned, parametrized, or
            given hooks, attributes or methods.
        DataNotFoundError: the folder does not exist.
    """
    path = Path(path)
    if path.is_dir():
        raise DataNotFoundError(f"cannot save to {path}: it is a folder. Add a file name.")
    if not path.parent.is_dir():
        raise DataNotFoundError(
            f"cannot save {path.name}: there is no folder {path.parent}. Create it first."
        )
    write_atomically(path, encoded(module))


def encoded(module: nn.Module) -> bytes:
    """Return the bytes of a model file.

    Raises:
        ArgumentError: see :func:`save`.
    """
    description = description_of(module)
    return encode(KIND, tensors_of(module), description)


def description_of(module: nn.Module) -> dict[str, Any]:
    """Return how a module was built, see :func:`tauflow.export.describe`, if that is how it is.

    Raises:
        ArgumentError: see :func:`save`.
    """
    description = describe(module)
    built = rebuild(description)
    changes = (
        computed_parameters(built, module)
        or _difference(_shapes(built), _shapes(module))
        or modifications(built, module)
    )
    if changes:
        raise ArgumentError(
            f"{type(module).__name__} is not as it was built: {changes}. A model file holds the "
            "constructor's arguments, so that a part changed later would be lost; build the "
            "module with that part, or save its state_dict() alone."
        )
    ties = tied_names(module)
    return {**description, TIES: ties} if ties else description


def load(path: _Path) -> Any:
    """Read a module that :func:`save` wrote: the same class, options, dtypes and weights.

    The module is on the CPU and in training mode, as a newly built one; call ``.eval()`` before
    using one with dropout. The state of the global random generator is left as it was.

    Raises:
        DataNotFoundError: there is no such file.
        ModelFileError: the file is not a model file, is damaged, truncated or from a newer version
            of tauflow, or its tensors do not fit the module it describes.
    """
    path = Path(path)
    if not path.is_file():
        what = "is a folder, not a model file" if path.is_dir() else "does not exist"
        told = "Check the path."
        if (path / PREDICTOR).is_file():
            told = "It is that of a run: tauflow.load_predictor(path) reads it."
        raise DataNotFoundError(f"{path} {what}. {told}")
    tensors, description = read_tensor_file(path, KIND, error=ModelFileError, advice=_ADVICE)
    return module_of(path, tensors, description)


def module_of(path: Path, tensors: dict[str, Tensor], description: Mapping[str, Any]) -> Any:
    """Return the module that a file describes, with the tensors that it holds.

    Args:
        path: the file, for messages.
        tensors: as :func:`tensors_of` returned them.
        description: as :func:`description_of` returned it.

    Raises:
        ModelFileError: it cannot be built, or the tensors do not fit it.
    """
    with _told(path), room_of(tensors):
        module: nn.Module = rebuild(description)
    if difference := _unlike(module, tensors):
        raise ModelFileError(
            f"{path.name}: the tensors do not fit the {description['class']} described: "
            f"{difference}. Save the model anew with tauflow.save."
        )
    with _told(path):
        ties = [names for names in tied_names(module) if _are_one(names, tensors)]
        for name in _constants(module).keys() & tensors.keys():
            owner, _, attribute = name.rpartition(".")
            setattr(module.get_submodule(owner), attribute, tensors.pop(name))
        module.load_state_dict(tensors, assign=True)  # assigning keeps the dtypes of the file
        tie(module, ties)
    return module


def _are_one(names: list[str], tensors: Mapping[str, Tensor]) -> bool:
    """Whether tensors are equal to the bit: a file may be of a model that was tied no longer."""
    return len({hash_tensors({"": tensors[name]}) for name in names if name in tensors}) <= 1


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Let no other error out of the building of a module that a file describes."""
    try:
        yield
    except TauflowError as error:
        raise ModelFileError(f"{path.name}: the module cannot be built: {error}") from error
    except _NOT_OURS as error:  # what the constructors of others say of absurd numbers
        raise ModelFileError(
            f"{path.name}: the module cannot be built: {type(error).__name__}: {error}. {_ADVICE}"
        ) from error


def _unlike(module: nn.Module, tensors: Mapping[str, Tensor]) -> str:
    """Say how tensors differ from a module's in name, shape or kind; nothing if they do not."""
    expected = state_of(module)
    expected |= {name: c for name, c in _constants(module).items() if name in tensors}
    return _difference(
        {name: tuple(tensor.shape) for name, tensor in expected.items()},
        {name: tuple(tensor.shape) for name, tensor in tensors.items()},
    ) or "; ".join(
        f"{name} is of {tensors[name].dtype}, expected numbers such as {tensor.dtype}"
        for name, tensor in expected.items()
        if tensors[name].is_floating_point() is not tensor.is_floating_point()
    )


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """Return what a model file holds of a module: its state dict, and constants left out of it."""
    return {**state_of(module), **_constants(module)}


def state_of(module: nn.Module) -> dict[str, Tensor]:
    """Return the state dict of a module.

    Raises:
        ArgumentError: an entry is no tensor.
    """
    state = module.state_dict()
    if other := named_other(state):
        raise ArgumentError(
            f"{type(module).__name__}: {other}. A model file holds tensors alone: save the model "
            "before it is quantised, or its state_dict() with torch.save."
        )
    return state


def named_other(state: Mapping[str, Any]) -> str:
    """Say which entry of a state dict is no tensor; nothing if all are."""
    for name, value in state.items():
        if not isinstance(value, Tensor):
            kind = type(value).__name__
            return f"{name} of its state_dict is a {kind} and no tensor, as of quantised modules"
    return ""


def _constants(module: nn.Module) -> dict[str, Tensor]:
    """Return the floating-point buffers that a state dict leaves out, as constructors make them.

    Built anew they would have the default dtype, and its digits.
    """
    kept = state_of(module)
    return {
        name: buffer
        for name, buffer in module.named_buffers()
        if name not in kept and buffer.is_floating_point()
    }


def _shapes(module: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in state_of(module).items()}


def _difference(
    expected: Mapping[str, tuple[int, ...]], found: Mapping[str, tuple[int, ...]]
) -> str:
    """Say how the names and shapes of tensors differ; nothing if they do not."""
    parts = []
    if missing := sorted(set(expected) - set(found)):
        parts.append(f"missing {', '.join(missing)}")
    if extra := sorted(set(found) - set(expected)):
        parts.append(f"unexpected {', '.join(extra)}")
    parts += [
        f"{name} has shape {found[name]}, expected {shape}"
        for name, shape in sorted(expected.items())
        if name in found and found[name] != shape
    ]
    return "; ".join(parts)
