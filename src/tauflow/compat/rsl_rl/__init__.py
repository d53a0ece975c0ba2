"""Recurrent actors and critics for rsl_rl."""

from .model import RecurrentModel

__all__ = ["RecurrentModel"]
