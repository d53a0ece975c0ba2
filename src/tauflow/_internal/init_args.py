"""Record constructor arguments, and suggest ours for the names of other libraries."""

import inspect
from abc import ABCMeta
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from tauflow.errors import ArgumentError, OptionError, TauflowError

from .checks import find_type_mismatch
from .fixed_options import is_method


def format_changed_options(instance: Any) -> str:
    """Return the recorded options that differ from their defaults, as arguments of a call."""
    parameters = inspect.signature(type(instance).__init__).parameters
    changes = []
    for name, value in instance.options.items():
        default = parameters[name].default if name in parameters else inspect.Parameter.empty
        same = type(value) is type(default) and value == default
        if not same and not hasattr(value, "named_modules"):  # parts show themselves
            changes.append(f"{name}={value!r}")
    return ", ".join(changes)


def check_settable(instance: Any, name: str, options: Mapping[str, Any] | None) -> None:
    """Raise unless setting an attribute has an effect: options that are not kept by name have none.

    Args:
        instance: an object of a class of tauflow; others are let through.
        name: of the attribute.
        options: that the object was built with; ``None`` before it is.

    Raises:
        ArgumentError: it is an option that was only read while the object was built.
    """
    kind = type(instance)
    if options is None or name not in options:
        return
    if hasattr(instance, name) and not is_method(kind, name):
        return
    if kind.__module__.partition(".")[0] == "tauflow":
        raise ArgumentError(
            f"{kind.__name__}: {name} is fixed when it is built, with {options[name]!r} here. "
            f"module.replace({name}=...) returns the module with another value and the same "
            "parameters."
        )


def to_python_number(value: Any) -> Any:
    """Return a NumPy number as Python's, which is as good and which JSON knows; others as is."""
    return value.item() if isinstance(value, np.generic) else value


class _InitSignature:
    """The signature of a class's own constructor, which the metaclass's ``__call__`` would hide.

    Not a data descriptor, so that a class may have another one, and none of its instances, which
    are called otherwise, has any.
    """

    def __get__(self, cls: Any, owner: type) -> inspect.Signature:
        if cls is None:
            raise AttributeError("__signature__")
        signature = inspect.signature(cls.__init__)
        parameters = list(signature.parameters.values())[1:]
        return signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty)


class CaptureInitArgs(ABCMeta):
    """Metaclass that stores every constructor argument, defaults included, in ``options``.

    Saving a model, stacking layers and printing all need to know how a module was built. Recording
    it in the one place that every construction passes keeps forty cells free of book-keeping.

    The same place refuses, with :class:`OptionError`, an argument of a tauflow class that is not of
    the annotated type. The constructor goes first, whose own messages say more.
    """

    __signature__ = _InitSignature()

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """Build the object, then record its arguments."""
        build: Any = inspect.unwrap(cls.__init__)  # type: ignore[misc]  # of this very class
        signature = inspect.signature(build)
        try:
            instance = super().__call__(*args, **kwargs)
        except TauflowError:
            raise
        except Exception as error:
            check_argument_aliases(cls.__name__, kwargs, cls)
            if wrong := cls._find_type_mismatch(build, signature, args, kwargs):
                raise OptionError(wrong) from error
            raise
        if wrong := cls._find_type_mismatch(build, signature, args, kwargs):
            raise OptionError(wrong)
        bound = signature.bind(instance, *args, **kwargs)
        bound.apply_defaults()
        options: dict[str, Any] = {}
        for name, value in list(bound.arguments.items())[1:]:
            if signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
                options.update(value)
            else:
                options[name] = value
        instance.options = {name: to_python_number(value) for name, value in options.items()}
        return instance

    def _find_type_mismatch(
        cls,
        build: Any,
        signature: inspect.Signature,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> str:
        """Say which argument is of the wrong type; nothing if none is, or if they do not bind.

        ``build`` is the constructor itself, of one that wraps it to show more arguments.
        """
        if build.__module__.partition(".")[0] != "tauflow":
            return ""  # annotations of others may mean something else
        try:
            arguments = signature.bind(None, *args, **kwargs).arguments
        except TypeError:
            return ""
        wrong = find_type_mismatch(build, arguments)
        return f"{cls.__name__}: {wrong}. Give the option such a value." if wrong else ""


_MOVE_ADVICE = "build the module, then move it with .to(device, dtype)"
_REPLACEMENTS = {
    "units": "write hidden_size=",
    "timespans": "write dt=",
    "mixed_memory": "use tauflow.MixedMemory(input_size, hidden_size, core='cfc'), or core='ltc'",
    "ode_unfolds": "write substeps=",
    "implicit_param_constraints": "write constraint='softplus-raw' for True, 'relu' for False",
    "bias": "cells have biases: for none, zero them and call requires_grad_(False) on them",
    "input": "write x=",
    "device": _MOVE_ADVICE,
    "dtype": _MOVE_ADVICE,
    "inter_neurons": "write inter=",
    "command_neurons": "write command=",
    "motor_neurons": "write motor=",
    "output_dim": "write output_size=",
    "sparsity_level": "write sparsity=",
    "random_seed": "write seed=",
    "erev_init_seed": "write seed=",
}


def suggest_argument(name: str) -> str:
    """Return what to write instead of a word of other libraries, as a sentence, or ``""``."""
    return f" In tauflow {_REPLACEMENTS[name]}." if name in _REPLACEMENTS else ""


def check_argument_aliases(
    where: str, names: Iterable[str], callee: Callable[..., object] | None = None
) -> None:
    """Raise if an argument goes by a name that other libraries give it.

    Args:
        where: who is called, for messages.
        names: names of arguments.
        callee: takes the arguments that are right by these names.

    Raises:
        OptionError: one does.
    """
    for name in names:
        if not (advice := suggest_argument(name)):
            continue
        if callee is None or name not in inspect.signature(callee).parameters:
            raise OptionError(f"{where} has no option {name!r}.{advice}")


def resolve_alias(where: str, name: str, value: Any, alias: str, alias_value: Any) -> Any:
    """Return an argument that was given by another library's name for it.

    Args:
        where: who is called, for messages.
        name: our name of the argument.
        value: what was given by it, or ``None``.
        alias: the other name.
        given: what was given by that.

    Raises:
        OptionError: it was given by both names.
    """
    if value is not None:
        raise OptionError(f"{where} got {name} and {alias}, two names of one argument. Give one.")
    return alias_value
