"""A network that skorch builds by name and trains."""

from .network import SequenceNet

__all__ = ["SequenceNet"]
