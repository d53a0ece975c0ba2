"""Runs of a table that are stored, for figures that show them instead of training again."""

import math
from pathlib import Path

from tauflow.errors import DataNotFoundError
from tauflow_papers.experiments import load_experiment
from tauflow_papers.experiments.report.results_summary import summarize_table
from tauflow_papers.experiments.report.row_summary import RowSummary
from tauflow_papers.experiments.run.grid_search import ScoredSetting, rank_settings
from tauflow_papers.experiments.run.run_job import Paths

from .paper_figure import FigureJob


def check_is_stored(table: str, results_dir: Path) -> None:
    """Raise DataNotFoundError if a folder of results has no file of a table."""
    if not Paths(results_dir).results_file(table).is_file():
        raise DataNotFoundError(
            f"no run of {table} is stored in {str(results_dir)!r}, and this figure shows them. "
            f"Run 'tauflow reproduce {table}', or name the folder with --results."
        )


class StoredRows:
    """The stored runs of a table.

    Args:
        job: with the folder of results.
        table: a packaged table.

    Raises:
        DataNotFoundError: no run of the table is stored there.
    """

    def __init__(self, job: FigureJob, table: str) -> None:
        check_is_stored(table, job.results_dir)
        self.summary = summarize_table(load_experiment(table), job.results_dir)
        self._entries = {entry.row.name: entry for entry in self.summary.measured}
        job.settings["table"] = table

    def get_row(self, name: str) -> RowSummary | None:
        """Return a row with its runs; ``None`` if it has none."""
        self.summary.experiment.row(name)  # refuses an unknown one
        return self._entries.get(name)

    def get_settings(self, name: str) -> list[ScoredSetting]:
        """Return the settings of a row's search that were run and have a score, the best first."""
        experiment = self.summary.experiment
        known = {record.key: record for record in self.summary.grid.records}
        ranked = rank_settings(experiment, experiment.row(name), known)
        return [
            setting
            for setting in ranked
            if setting.score is not None and math.isfinite(setting.score)
        ]
