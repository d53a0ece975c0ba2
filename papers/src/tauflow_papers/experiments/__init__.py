"""Experiments as data: published tables, the runs that measure them again, and reports."""

from tauflow.runs.job import Job
from tauflow.runs.results import RunRecord

from .run.grid_search import Point, Search, grid_search
from .run.reproduce import Grid, collect, reproduce
from .run.row_jobs import run_one
from .run.run_jobs import Outcome
from .spec.experiment import Experiment, Row
from .spec.load import list_experiments, load_experiment
from .spec.parameter_counts import parameter_counts

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
