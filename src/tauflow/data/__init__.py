"""Data: data sets by name, their loaders and files, and tables of your own."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .card import DatasetCard, TaskData
from .memory_mapped import open_task, write_task
from .registry import DATASETS, fetch_dataset, is_available, load_task, register

if TYPE_CHECKING:
    from tauflow.tabular.meds import read_meds
    from tauflow.tabular.options import TableOptions
    from tauflow.tabular.read import from_table, read_csv
    from tauflow.tabular.schema import Schema

_TABULAR = {
    "Schema": "schema",
    "TableOptions": "options",
    "from_table": "read",
    "read_meds": "meds",
    "read_csv": "read",
}
"""Names of the package of tables, which is above this one."""

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
    "read_meds",
    "register",
    "write_task",
]


def __getattr__(name: str) -> Any:
    """Import a name of the package of tables when it is first used."""
    if name not in _TABULAR:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"tauflow.tabular.{_TABULAR[name]}"), name)
