"""Modules of others that add models, data sets and the like to the catalogs when imported.

They are named by the environment variable ``TAUFLOW_PLUGINS``, with commas between, which worker
processes inherit, and by the entry points of installed packages in the group ``tauflow.plugins``.
"""

import importlib
import multiprocessing
import os
import sys
import warnings
from collections.abc import Callable
from functools import cache, partial
from importlib import metadata

from .forks import building

VARIABLE = "TAUFLOW_PLUGINS"
GROUP = "tauflow.plugins"

_begun: set[str] = set()
_ended: set[str] = set()
_failed: dict[str, str] = {}


def load_plugins() -> None:
    """Import every plugin that was not imported before; warn of one that cannot be.

    Nothing happens while tauflow itself is being imported, whose catalogs are not whole by then.
    """
    if not hasattr(sys.modules.get("tauflow"), "__all__"):  # the last thing that it defines
        return
    named = {**_installed(), **_asked_for()}
    if named.keys() <= _ended:
        return
    with building:  # no fork in the middle; and other threads wait until all names are there
        for name, load in named.items():
            if name not in _begun:  # a plugin may itself look for what another one adds
                _begun.add(name)
                _load(name, load)


def told_of_plugins() -> str:
    """Return what an error about an unknown name says of plugins; mostly nothing."""
    told = "".join(f" {failure}" for failure in _failed.values())
    if multiprocessing.parent_process() is not None:
        told += (
            " This is a worker process, which knows what tauflow and its plugins add and nothing "
            f"that the program that started it added itself: name the module in {VARIABLE}."
        )
    return told


def _load(name: str, load: Callable[[], object]) -> None:
    try:
        load()
    except (Exception, SystemExit) as error:  # whatever a stranger's module raises
        _failed[name] = f"{name} could not be loaded: {type(error).__name__}: {error}."
        advice = (
            f" What it adds is missing. Correct it, or leave it out of {VARIABLE}; a module is "
            "found if it is installed, or if PYTHONPATH names its folder."
        )
        warnings.warn(_failed[name] + advice, stacklevel=2)
    finally:
        _ended.add(name)


def _asked_for() -> dict[str, Callable[[], object]]:
    names = map(str.strip, os.environ.get(VARIABLE, "").split(","))
    return {
        f"The plugin {name!r} of {VARIABLE}": partial(importlib.import_module, name)
        for name in names
        if name
    }


@cache
def _installed() -> dict[str, Callable[[], object]]:
    return {
        f"The plugin {point.name!r} ({point.value}) of an installed package": point.load
        for point in metadata.entry_points(group=GROUP)
    }
