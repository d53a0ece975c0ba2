"""Configurations: how a module was built, as plain data without its weights."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from tauflow._internal.allocation_limit import count_elements
from tauflow._internal.init_args import CaptureInitArgs
from tauflow._internal.module_hooks import tie_tensors
from tauflow._internal.plugins import PLUGINS_VARIABLE
from tauflow._internal.registry import Registry
from tauflow.cells import ACTIVATIONS
from tauflow.cells.registry import CELLS, MODELS
from tauflow.errors import ArgumentError, ModelFileError, OptionError, UnknownNameError
from tauflow.models import (
    WHOLE_MODELS,
    ActorModel,
    BoostedTrees,
    Calibrated,
    Ensemble,
    ForecastModel,
    ForecastTrees,
    ImputedInputs,
    NeuralHawkes,
    SequenceModel,
    StaticInputs,
)
from tauflow.sequence import RNN, SEQUENCE_MODULES
from tauflow.wirings import WIRINGS, AbstractWiring, wiring_from_dict

_BUILTIN_CLASSES: list[type[nn.Module]] = [*CELLS, *SEQUENCE_MODULES, RNN, SequenceModel]
_BUILTIN_CLASSES += (ActorModel, BoostedTrees, Calibrated, Ensemble, ForecastModel, ImputedInputs)
_BUILTIN_CLASSES += (ForecastTrees, NeuralHawkes, StaticInputs)
_BUILTIN_CLASSES += (entry.model for entry in WHOLE_MODELS.values())

CLASSES: Registry[type[nn.Module]] = Registry(
    "class of modules", {module.__name__: module for module in _BUILTIN_CLASSES}
)
"""Classes that a description may name, by the names it has for them.

Beside tauflow's own it holds what was added by ``CLASSES.add(name, class)``. A class that stands in
a catalog of models need not be added: a description names it ``module.Class``. Nothing else is ever
built from a description.
"""

TIES = "ties"
"""Entry of a description: lists of names, each of one parameter or buffer."""
_SCRIPT = "__main__."
_PAST_OPTIONS = {"target_specs": {"task": "binary"}}
"""Options of older versions, and what stands for them where they are not empty."""


def get_config(module: nn.Module) -> dict[str, Any]:
    """Return the constructor arguments of a module, as JSON-serialisable data.

    Args:
        module: a cell, a sequence module or a model of :mod:`tauflow.models`.

    Returns:
        ``{"class": name, "options": {...}}``, where an option that is itself a module is described
        alike, a wiring is ``{"wiring": wiring.to_dict()}``, and a tuple a list. The name of a class
        that is not tauflow's begins with its module.

    Raises:
        ArgumentError: the module, a part of it or a wiring is of a class that is neither tauflow's
            nor registered, or one of its options is a function or another object without a
            description.
    """
    kind = type(module)
    recorded: Any = module.options if isinstance(kind, CaptureInitArgs) else {}
    return {
        "class": _class_name(kind),
        "options": {
            option: _option_to_config(kind.__name__, option, v) for option, v in recorded.items()
        },
    }


def from_config(config: Mapping[str, Any]) -> Any:
    """Build the module that :func:`get_config` described, with fresh parameters.

    The state of the global random generator is left as it was. Names of tensors that the
    description says are one (``"ties"``) are one.

    Raises:
        ModelFileError: the description has another form.
        UnknownNameError: it names a class or a wiring that is not registered here.
        OptionError: it gives the class an option that it does not have, or lacks one.
    """
    match config:
        case {"class": str(name), "options": dict(recorded), **more} if more.keys() <= {TIES}:
            pass
        case _:
            raise ModelFileError(
                "a description has the keys 'class' and 'options', a name and a dictionary, got "
                f"{config!r}. Pass what tauflow.export.config returned."
            )
    options = {option: _option_from_config(value) for option, value in recorded.items()}
    for option in _PAST_OPTIONS.keys() & options.keys():
        options |= _PAST_OPTIONS[option] if options.pop(option) else {}
    if options.get("dropout_first") is False and options.get("backbone_layers", 1) == 1:
        options.pop("backbone_dropout", None)  # without effect, and no longer taken
    kind = _find_class(name)
    with torch.random.fork_rng(devices=[]):
        try:
            module = kind(**options)
        except TypeError as error:
            raise OptionError(
                f"{kind.__name__} cannot be built with the options {sorted(options)}: {error}. "
                "Was the model described by another version of tauflow?"
            ) from error
    if more:
        _apply_ties(module, more[TIES])
    return module


def _apply_ties(module: nn.Module, ties: Any) -> None:
    """Make one tensor of several, as a description says.

    Raises:
        ModelFileError: it says no such thing, or they differ in shape.
    """
    tensors: dict[str, Any] = dict(module.named_parameters(remove_duplicate=False))
    tensors |= module.named_buffers(remove_duplicate=False)
    try:
        shapes = [{(type(tensors[name]), tensors[name].shape) for name in names} for names in ties]
    except (KeyError, TypeError) as error:
        raise ModelFileError(
            f"'{TIES}' of a description are lists of names of tensors, got {ties!r}"
        ) from error
    if any(len(shape) != 1 for shape in shapes):
        raise ModelFileError(f"the tensors {ties!r} differ in shape, so that they cannot be one")
    tie_tensors(module, ties)


def _class_name(kind: type[nn.Module]) -> str:
    """Return the name that descriptions have for a class."""
    if known := CLASSES.find_name(kind):
        return known
    user_classes = _list_user_classes()
    name = _qualified_name(kind)
    if kind not in user_classes:
        raise ArgumentError(
            f"{kind.__name__} is not a class of tauflow and not registered, so that a model file "
            "cannot say how to build it. Register a cell with tauflow.cells.MODELS.add(name, "
            f"ModelEntry(name, title, {kind.__name__})), a model of your own with "
            "tauflow.models.WHOLE_MODELS. Save the state_dict() of other modules with safetensors, "
            "or save the tauflow module inside."
        )
    if [_qualified_name(other) for other in user_classes].count(name) > 1:
        raise ArgumentError(
            f"two classes called {name} are registered, so that a model file cannot say which of "
            "them to build. Give one of them another name."
        )
    return name


def _find_class(name: str) -> type[nn.Module]:
    """Return the class that descriptions have a name for."""
    if name in CLASSES or "." not in name:
        return CLASSES[name]
    user_classes = _list_user_classes()
    candidates = [kind for kind in user_classes if _qualified_name(kind) == name]
    candidates = candidates or [kind for kind in user_classes if _is_from_script(name, kind)]
    if len(candidates) != 1:
        module, _, bare = name.rpartition(".")
        where = "the script that defined it" if name.startswith(_SCRIPT) else repr(module)
        raise UnknownNameError(
            f"{name!r} is a class of another package than tauflow, and "
            f"{'none' if not candidates else 'more than one'} by that name is registered here. "
            f"Import the module that adds it to a catalog of models ({where}, or one beside it), "
            f"or name it in {PLUGINS_VARIABLE}. If the class was moved or renamed, give its "
            f"new place with tauflow.export.CLASSES.add({name!r}, {bare})."
        )
    return candidates[0]


def _list_user_classes() -> list[type[nn.Module]]:
    """Return the classes in the catalogs of models that are not in :data:`CLASSES`, each once."""
    cells = (entry.cell for entry in MODELS.values())
    whole_models = (entry.model for entry in WHOLE_MODELS.values())
    registered = set(CLASSES.values())
    return [kind for kind in dict.fromkeys([*cells, *whole_models]) if kind not in registered]


def _qualified_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _is_from_script(name: str, kind: type) -> bool:
    """Whether a class has a name but for its module, which is called otherwise as a script."""
    if name.startswith(_SCRIPT):
        return name == f"{_SCRIPT}{kind.__qualname__}"
    return kind.__module__ == "__main__" and name.endswith(f".{kind.__qualname__}")


def _option_to_config(owner: str, option: str, value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_option_to_config(owner, option, item) for item in value]
    if isinstance(value, AbstractWiring):
        return {"wiring": _wiring_to_config(owner, value)}
    if isinstance(value, nn.Module):
        return get_config(value)
    known = f" ({', '.join(sorted(ACTIVATIONS))})" if callable(value) else ""
    raise ArgumentError(
        f"{owner}: the option {option} is {value!r} ({type(value).__name__}), which a model file "
        f"cannot hold. Build it with a name{known}, a number or a wiring, or save the state_dict() "
        "alone."
    )


def _wiring_to_config(owner: str, wiring: AbstractWiring) -> dict[str, Any]:
    name, kind = type(wiring).__name__, str(getattr(wiring, "kind", ""))
    if dict(WIRINGS).get(kind) is not type(wiring):
        raise ArgumentError(
            f"{owner}: the wiring {name} is not registered by its kind, {kind!r}, so that a model "
            f"file cannot say how to build it. Give {name} another kind, and register it with "
            f"tauflow.wirings.WIRINGS.add({name}.kind, {name})."
        )
    return wiring.to_dict()


def _option_from_config(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_option_from_config(item) for item in value)
    if not isinstance(value, dict):
        return value
    if set(value) != {"wiring"}:
        return from_config(value)
    wiring = wiring_from_dict(value["wiring"])
    count_elements(wiring.units)  # which are listed before any synapses are made
    return wiring
