"""Export: model files, ``torch.export`` programs, ONNX and C; weights of other libraries."""

from .c_files import to_c
from .config import CLASSES, from_config, get_config
from .files import load, save
from .from_ncps import from_ncps
from .from_torch import from_torch
from .io_schema import IOSchema
from .metadata import exported_initial_state
from .onnx_files import to_onnx
from .program_files import to_program
from .torch_program import program, program_step

__all__ = [
    "CLASSES",
    "IOSchema",
    "exported_initial_state",
    "from_config",
    "from_ncps",
    "from_torch",
    "get_config",
    "load",
    "program",
    "program_step",
    "save",
    "to_c",
    "to_onnx",
    "to_program",
]
