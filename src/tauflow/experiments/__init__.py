"""Experiments as data: published tables, the runs that measure them again, and reports."""

from .counts import parameter_counts
from .load import list_experiments, load_experiment
from .reproduce import Grid, collect, reproduce
from .results import RunRecord
from .run import Job, run_one
from .spec import Experiment, Row

__all__ = [
    "Experiment",
    "Grid",
    "Job",
    "Row",
    "RunRecord",
    "collect",
    "list_experiments",
    "load_experiment",
    "parameter_counts",
    "reproduce",
    "run_one",
]
