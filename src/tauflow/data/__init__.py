"""Data: data sets by name, their loaders and files, and tables of your own."""

from .card import DatasetCard, TaskData
from .memory_mapped import open_task, write_task
from .registry import DATASETS, fetch_dataset, is_available, load_task, register
from .table.options import TableOptions
from .table.read import from_table, read_csv
from .table.schema import Schema
from .table.transform import transform_table

__all__ = [
    "DATASETS",
    "DatasetCard",
    "Schema",
    "TableOptions",
    "TaskData",
    "fetch_dataset",
    "from_table",
    "is_available",
    "load_task",
    "open_task",
    "read_csv",
    "register",
    "transform_table",
    "write_task",
]
