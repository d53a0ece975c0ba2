"""Cells: one time step of each model, with its equations and source."""

from typing import Any

from tauflow._internal.plugins import find_published

from .activations import ACTIVATIONS
from .base import AbstractCell, Precomputed
from .ltc import LTC_VARIANTS
from .registry import CELLS, MODELS, ModelEntry

# The cells' classes are here by their names; __init__.pyi, made of the same, tells them to tools.
globals().update({cell.__name__: cell for cell in CELLS})

__all__ = [
    "ACTIVATIONS",
    "LTC_VARIANTS",
    "MODELS",
    "AbstractCell",
    "Precomputed",
    "ModelEntry",
    *(cell.__name__ for cell in CELLS),
]


def __getattr__(name: str) -> Any:
    return find_published(__name__, name)
