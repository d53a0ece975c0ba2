"""The interface of ``ncps``: import ``tauflow.compat.ncps`` in place of ``ncps``."""

from . import torch, wirings
from .torch import LTC, CfC, CfCCell, LTCCell, WiredCfCCell

__all__ = ["LTC", "CfC", "CfCCell", "LTCCell", "WiredCfCCell", "torch", "wirings"]
