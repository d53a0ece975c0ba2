"""Experiments as data: published tables, the runs that measure them again, and reports."""

from .counts import parameter_counts
from .grid_search import Point, Search, grid_search
from .load import list_experiments, load_experiment
from .reproduce import Grid, collect, reproduce
from .results import RunRecord
from .run import Job, run_one
from .schedule import Outcome
from .spec import Experiment, Row

__all__ = [
    "Experiment",
    "Grid",
    "Job",
    "Outcome",
    "Point",
    "Row",
    "RunRecord",
    "Search",
    "collect",
    "grid_search",
    "list_experiments",
    "load_experiment",
    "parameter_counts",
    "reproduce",
    "run_one",
]
