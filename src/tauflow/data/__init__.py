"""Data sets: cards, loaders, and the store where their files live; tables of your own."""

from .card import DatasetCard, TaskData
from .catalog import DATASETS, available, get, load_task, register
from .stored import open_task, write_task
from .table.info import TableInfo
from .table.like import sequences_like
from .table.options import TableOptions
from .table.read import from_table, read_csv

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
