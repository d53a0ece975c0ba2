"""Models on disk, weights from elsewhere, and models that leave Python."""

from .describe import describe, rebuild
from .files import load, save
from .from_ncps import from_ncps
from .program import program, program_step

__all__ = ["describe", "from_ncps", "load", "program", "program_step", "rebuild", "save"]
