"""Sequence modules: a cell applied to every step of a batch of sequences."""

from typing import Any

from tauflow._internal.plugins import find_published

from .catalog_rnn import CatalogRNN
from .explain import CallExplanation
from .modules import SEQUENCE_MODULES, build
from .parallel.chunks import Chunks, ParallelReport
from .parallel.multiple_shooting import run_in_parallel
from .rnn import RNN
from .sequence_module import SequenceModule
from .streaming.stream import Stream
from .unroll import reference_loop, unroll

# The modules are here by their names; __init__.pyi, made of the same, tells them to tools.
globals().update({module.__name__: module for module in SEQUENCE_MODULES})

__all__ = [
    "RNN",
    "SEQUENCE_MODULES",
    "CatalogRNN",
    "Chunks",
    "CallExplanation",
    "ParallelReport",
    "SequenceModule",
    "Stream",
    "build",
    "reference_loop",
    "run_in_parallel",
    "unroll",
    *(module.__name__ for module in SEQUENCE_MODULES),
]


def __getattr__(name: str) -> Any:
    return find_published(__name__, name)
