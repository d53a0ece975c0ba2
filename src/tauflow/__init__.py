"""Continuous-time recurrent neural networks for PyTorch."""

import importlib as _importlib
from typing import Any as _Any

from tauflow._internal.plugins import find_published as _find_published
from tauflow.batch import SequenceBatch
from tauflow.export import from_ncps, from_torch, load, save
from tauflow.models import SequenceModel
from tauflow.predict import Predictor, load_predictor
from tauflow.sequence import RNN, build
from tauflow.sequence import SEQUENCE_MODULES as _SEQUENCE_MODULES
from tauflow.training import Recipe, attach_constraints, train
from tauflow.version import VERSION as _VERSION
from tauflow.wirings import NCP, AutoNCP, ExplicitWiring, FullyConnected, RandomSparse

__version__ = _VERSION

# CfC, LTC and the others are here by their names; __init__.pyi tells them to tools.
globals().update({module.__name__: module for module in _SEQUENCE_MODULES})

__all__ = [
    "NCP",
    "RNN",
    "AutoNCP",
    "ExplicitWiring",
    "FullyConnected",
    "Predictor",
    "RandomSparse",
    "Recipe",
    "SequenceBatch",
    "SequenceModel",
    "attach_constraints",
    "build",
    "from_ncps",
    "from_torch",
    "load",
    "load_predictor",
    "save",
    "train",
    *(module.__name__ for module in _SEQUENCE_MODULES),
]

_IMPORTED_LATE = ("analysis", "compat", "estimators", "zoo")  # packages that load more than torch


def __getattr__(name: str) -> _Any:
    if name in _IMPORTED_LATE:
        return _importlib.import_module(f"tauflow.{name}")
    return _find_published(__name__, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_IMPORTED_LATE})
