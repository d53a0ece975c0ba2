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
from collections.abc import Callable
from functools import cache, partial
from importlib import metadata

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
    finally:
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
