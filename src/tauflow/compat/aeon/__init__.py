"""Sequence estimators with the interface of aeon."""

from .classifier import AeonClassifier

__all__ = ["AeonClassifier"]
