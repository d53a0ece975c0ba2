"""Data sets: cards, loaders, and the store where their files live; tables of your own."""

from .card import DatasetCard, TaskData
from .catalog import DATASETS, available, get, load_task, register
from .own.apply import sequences_like
from .own.info import TableInfo
from .own.options import TableOptions
from .stored import open_task, write_task
from .tables import from_table, read_csv

__all__ = [
    "DATASETS",
    "DatasetCard",
    "TableInfo",
    "TableOptions",
    "TaskData",
    "available",
    "from_table",
    "get",
    "load_task",
    "open_task",
    "read_csv",
    "register",
    "sequences_like",
    "write_task",
]
