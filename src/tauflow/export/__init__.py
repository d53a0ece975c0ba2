"""Models on disk, weights from elsewhere, and models that leave Python."""

from .c_files import to_c
from .describe import CLASSES, describe, rebuild
from .facts import start_state
from .files import load, save
from .from_ncps import from_ncps
from .from_torch import from_torch
from .labels import Labels
from .onnx_files import to_onnx
from .pretrained import from_pretrained, save_pretrained
from .program import program, program_step
from .program_files import to_program

__all__ = [
    "CLASSES",
    "Labels",
    "describe",
    "from_ncps",
    "from_pretrained",
    "from_torch",
    "load",
    "program",
    "program_step",
    "rebuild",
    "save",
    "save_pretrained",
    "start_state",
    "to_c",
    "to_onnx",
    "to_program",
]
