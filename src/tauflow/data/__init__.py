"""Data sets: cards, loaders, and the store where their files live."""

from .card import DatasetCard, TaskData
from .catalog import DATASETS, available, get, load_task, register

__all__ = [
    "DATASETS",
    "DatasetCard",
    "TaskData",
    "available",
    "get",
    "load_task",
    "register",
]
