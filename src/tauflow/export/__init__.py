"""Models on disk, and weights from elsewhere."""

from .describe import describe, rebuild
from .files import load, save
from .from_ncps import from_ncps

__all__ = ["describe", "from_ncps", "load", "rebuild", "save"]
