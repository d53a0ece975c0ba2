"""A trained model with what belongs to it: roles of columns, units, scales, names of classes."""

from .loading import load_predictor
from .predictor import Predictor

__all__ = ["Predictor", "load_predictor"]
