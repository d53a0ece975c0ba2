"""Sequence estimators for the data sets of pyrregular."""

from .classifier import PyrregularClassifier

__all__ = ["PyrregularClassifier"]
