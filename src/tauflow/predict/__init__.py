"""Predictors: a trained model with the schema, units, scales and classes of its data."""

from .files import load_predictor
from .predictor import Predictor

__all__ = ["Predictor", "load_predictor"]
