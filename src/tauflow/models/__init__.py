"""Models made of sequence modules."""

from .sequence_model import SequenceModel

__all__ = ["SequenceModel"]
