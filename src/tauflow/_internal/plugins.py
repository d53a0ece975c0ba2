"""Plugins: modules that add models, data sets and the like to the registries when imported.

They are named by the environment variable ``TAUFLOW_PLUGINS``, with commas between, which worker
processes inherit, and by the entry points of installed packages in the group
``tauflow.plugins``.
"""

import importlib
import multiprocessing
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from importlib import metadata
from importlib.util import find_spec
from typing import Any

from .fork_safety import compile_lock

PLUGINS_VARIABLE = "TAUFLOW_PLUGINS"
ENTRY_POINT_GROUP = "tauflow.plugins"

_ZOO: dict[str, Callable[[], object]] = {"The zoo": partial(importlib.import_module, "tauflow.zoo")}
"""What the library registers as plugins do."""

_started: set[str] = set()
_finished: set[str] = set()
_failures: dict[str, str] = {}


def load_plugins() -> None:
    """Import every plugin that was not imported before; warn of one that cannot be.

    Nothing happens while tauflow itself or its zoo is being imported, whose catalogs are not whole
    by then.
    """
    if not hasattr(sys.modules.get("tauflow"), "__all__"):  # the last thing that it defines
        return
    zoo = sys.modules.get("tauflow.zoo")
    if zoo is not None and not hasattr(zoo, "__all__"):
        return
    named = {**_ZOO, **_plugins_from_entry_points(), **_plugins_from_environment()}
    if named.keys() <= _finished:
        return
    with compile_lock:  # no fork in the middle; and other threads wait until all names are there
        for name, load in named.items():
            if name not in _started:  # a plugin may itself look for what another one adds
                _started.add(name)
                _load_plugin(name, load)


def publish(values: Iterable[Any], *modules: str) -> None:
    """Add classes and functions to what modules of the library export, under their own names."""
    for module in modules:
        exported = vars(sys.modules[module])
        exported.update({value.__name__: value for value in values})
        exported["__all__"] += [value.__name__ for value in values]


def find_published(module: str, name: str) -> Any:
    """Return what the zoo published in a module under a name, for a module's ``__getattr__``.

    Raises:
        AttributeError: nothing has that name.
    """
    exported = vars(sys.modules[module])
    is_ready = hasattr(sys.modules.get("tauflow"), "__all__")
    is_special = name.startswith("_")
    zoo: Mapping[str, Any] = {}
    if is_ready and not is_special and not _is_module(exported, name):
        zoo = vars(importlib.import_module("tauflow.zoo"))
    if name in exported:
        return exported[name]
    where = f". The zoo has it: tauflow.zoo.{name}" if name in zoo else ""
    raise AttributeError(f"module {module!r} has no attribute {name!r}{where}")


def _is_module(package: Mapping[str, Any], name: str) -> bool:
    """Whether a name is a module in a package, which an import is about to look for."""
    return "__path__" in package and find_spec(f"{package['__name__']}.{name}") is not None


def describe_plugin_problems() -> str:
    """Return what an error about an unknown name says of plugins; mostly nothing."""
    text = "".join(f" {failure}" for failure in _failures.values())
    if multiprocessing.parent_process() is not None:
        text += (
            " This is a worker process, which knows what tauflow and its plugins add and nothing "
            f"that the program that started it added itself: name the module in {PLUGINS_VARIABLE}."
        )
    return text


def _load_plugin(name: str, load: Callable[[], object]) -> None:
    try:
        load()
    except (Exception, SystemExit) as error:  # whatever a stranger's module raises
        _failures[name] = f"{name} could not be loaded: {type(error).__name__}: {error}."
        advice = (
            f" What it adds is missing. Correct it, or leave it out of {PLUGINS_VARIABLE}; a "
            "module is "
            "found if it is installed, or if PYTHONPATH names its folder."
        )
        warnings.warn(_failures[name] + advice, stacklevel=2)
    except BaseException:  # an interrupt: the next call tries again
        _started.discard(name)
        raise
    _finished.add(name)


def _plugins_from_environment() -> dict[str, Callable[[], object]]:
    names = map(str.strip, os.environ.get(PLUGINS_VARIABLE, "").split(","))
    return {
        f"The plugin {name!r} of {PLUGINS_VARIABLE}": partial(importlib.import_module, name)
        for name in names
        if name
    }


@cache
def _plugins_from_entry_points() -> dict[str, Callable[[], object]]:
    return {
        f"The plugin {point.name!r} ({point.value}) of an installed package": point.load
        for point in metadata.entry_points(group=ENTRY_POINT_GROUP)
    }
