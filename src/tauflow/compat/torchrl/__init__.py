"""Recurrent modules for TorchRL."""

from .module import RecurrentModule

__all__ = ["RecurrentModule"]
