"""Model files: one ``.safetensors`` file that holds the weights and says how to build the module.

The tensors are the state dict, the facts the module's description; for the form of the file see
:mod:`tauflow._internal.tensor_file`.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from tauflow._internal.allocation_limit import limit_allocations
from tauflow._internal.atomic_write import write_atomically
from tauflow._internal.module_hooks import find_tied_names, tie_tensors
from tauflow._internal.regular_file import check_file_path
from tauflow._internal.tensor_file import encode_tensor_file, hash_tensors, read_tensor_file
from tauflow.errors import ArgumentError, ModelFileError, TauflowError

from .config import TIES, from_config, get_config
from .modification_check import describe_modifications
from .output_paths import check_file_place

KIND = "model"
PREDICTOR = "predictor.safetensors"
"""File of a run's folder that :func:`tauflow.load_predictor` reads."""
_ADVICE = "Copy it again from its source, or save the model again with tauflow.save."
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
    write_atomically(check_file_place(path), encode_model(module))


def encode_model(module: nn.Module) -> bytes:
    """Return the bytes of a model file.

    Raises:
        ArgumentError: see :func:`save`.
    """
    description = get_file_config(module)
    return encode_tensor_file(KIND, collect_tensors(module), description)


def get_file_config(module: nn.Module) -> dict[str, Any]:
    """Return how a module was built, see :func:`tauflow.export.config`, if that is how it is.

    Raises:
        ArgumentError: see :func:`save`.
    """
    description = get_config(module)
    get_state_dict(module)  # which refuses what is no tensor
    if changes := describe_modifications(from_config(description), module):
        raise ArgumentError(
            f"{type(module).__name__} is not as it was built: {changes}. A model file holds the "
            "constructor's arguments, so that a part changed later would be lost. Build the "
            "module with that part; make computed parameters permanent, by prune.remove or "
            "parametrize.remove_parametrizations; or save its state_dict() alone."
        )
    ties = find_tied_names(module)
    return {**description, TIES: ties} if ties else description


def load(path: _Path) -> Any:
    """Read a module that :func:`save` wrote: the same class, options, dtypes and weights.

    The module is on the CPU and in training mode, as a newly built one; call ``.eval()`` before
    using one with dropout. The state of the global random generator is left as it was.

    Raises:
        DataNotFoundError: there is no such file, or it is a folder, a pipe or a device.
        ModelFileError: the file is not a model file, is damaged, truncated or from a newer version
            of tauflow, or its tensors do not fit the module it describes.
    """
    advice = "Check the path."
    is_named = isinstance(path, str | os.PathLike) and path
    if is_named and os.path.isfile(os.path.join(path, PREDICTOR)):
        advice = "It is that of a run: tauflow.load_predictor(path) reads it."
    path = check_file_path(path, "a model file", advice=advice)
    tensors, description = read_tensor_file(path, KIND, error=ModelFileError, advice=_ADVICE)
    return build_module(path, tensors, description)


def build_module(path: Path, tensors: dict[str, Tensor], config: Mapping[str, Any]) -> Any:
    """Return the module that a file describes, with the tensors that it holds.

    Args:
        path: the file, for messages.
        tensors: as :func:`collect_tensors` returned them.
        config: as :func:`get_file_config` returned it.

    Raises:
        ModelFileError: it cannot be built, or the tensors do not fit it.
    """
    with convert_damage(path, "the module cannot be built", advice=_ADVICE):
        with limit_allocations(tensors):
            module: nn.Module = from_config(config)
        for name in _constant_buffers(module).keys() & tensors.keys():
            owner, _, attribute = name.rpartition(".")
            setattr(module.get_submodule(owner), attribute, tensors.pop(name))
        for name, tensor in module.state_dict().items():
            value = tensors.get(name, tensor)
            if value.is_floating_point() is not tensor.is_floating_point():
                raise TypeError(
                    f"{name} is of {value.dtype}, expected numbers such as {tensor.dtype}"
                )
        ties = [names for names in find_tied_names(module) if _are_bit_equal(names, tensors)]
        module.load_state_dict(tensors, assign=True)  # assigning keeps the dtypes of the file
        tie_tensors(module, ties)
    return module


def _are_bit_equal(names: list[str], tensors: Mapping[str, Tensor]) -> bool:
    """Whether tensors are equal to the bit: a file may be of a model that was tied no longer."""
    return len({hash_tensors({"": tensors[name]}) for name in names if name in tensors}) <= 1


@contextmanager
def convert_damage(
    path: Path, what: str = "it is damaged, or from another version of tauflow", *, advice: str
) -> Iterator[None]:
    """Raise :class:`ModelFileError` for any error that the facts of a file lead to in the block."""
    try:
        yield
    except Exception as error:  # of torch, too, where sizes or dtypes do not fit
        is_plain = isinstance(error, TauflowError)  # which says itself what to do
        why = str(error) if is_plain else f"{type(error).__name__}: {error}. {advice}"
        raise ModelFileError(f"{path.name}: {what}: {why}") from error


def collect_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Return what a model file holds of a module: its state dict, and constants left out of it."""
    return {**get_state_dict(module), **_constant_buffers(module)}


def get_state_dict(module: nn.Module) -> dict[str, Tensor]:
    """Return the state dict of a module.

    Raises:
        ArgumentError: an entry is no tensor.
    """
    state = module.state_dict()
    if other := find_non_tensor(state):
        raise ArgumentError(
            f"{type(module).__name__}: {other}. A model file holds tensors alone: save the model "
            "before it is quantised, or its state_dict() with torch.save."
        )
    return state


def find_non_tensor(state: Mapping[str, Any]) -> str:
    """Say which entry of a state dict is no tensor; nothing if all are."""
    for name, value in state.items():
        if not isinstance(value, Tensor):
            kind = type(value).__name__
            return f"{name} of its state_dict is a {kind} and no tensor, as of quantised modules"
    return ""


def _constant_buffers(module: nn.Module) -> dict[str, Tensor]:
    """Return the floating-point buffers that a state dict leaves out, as constructors make them.

    Built again they would have the default dtype, and its digits.
    """
    state = module.state_dict()
    return {
        name: buffer
        for name, buffer in module.named_buffers()
        if name not in state and buffer.is_floating_point()
    }
