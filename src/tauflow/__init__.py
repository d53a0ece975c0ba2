"""Continuous-time recurrent neural networks for PyTorch."""

from ._internal import import_path as _import_path  # noqa: F401  # before what could be shadowed

# isort: split
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


def __getattr__(name: str) -> _Any:
    return _find_published(__name__, name)
