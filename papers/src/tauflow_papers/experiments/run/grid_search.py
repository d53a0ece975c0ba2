"""Choose settings by their validation score: those a row searches, or a grid of a command's.

Source of the protocol: "Gated Neural ODEs: Trainability, Expressivity and Interpretability",
appendices E and G: every point of the grid is trained, the lowest validation loss of any epoch
decides, and the chosen point is trained again with five seeds, whose test scores are reported.
"""

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import torch

from tauflow._internal.checks import check_at_least
from tauflow.errors import ArgumentError, DataNotFoundError, SpecificationError, TauflowError
from tauflow.models.spec import build_model
from tauflow.runs.job import Job, Say, load_dataset, say_nothing
from tauflow.runs.results import DONE, RunRecord
from tauflow.training.metrics import METRICS
from tauflow_papers.experiments.spec.experiment import Experiment, Row, Setting
from tauflow_papers.experiments.spec.grid import Grids, Settings, invalid_point_error, read_settings

from .row_jobs import make_job
from .run_job import Paths
from .run_jobs import ExecutionOptions, Outcome, read_finished_runs, run_jobs


class ScoredSetting(NamedTuple):
    """A setting with what it came to.

    Args:
        setting: the setting.
        records: its finished runs, by seed.
        score: mean over the seeds of the validation score that selected the epoch; ``None`` as long
            as a seed is missing.
    """

    setting: Setting
    records: tuple[RunRecord, ...]
    score: float | None


def make_search_jobs(experiment: Experiment, row: Row, seeds: int = 1) -> list[Job]:
    """Return the jobs of all settings that a row searches; none if it does not.

    Args:
        experiment: the table.
        row: one of its rows.
        seeds: runs of each setting: seeds 0, 1, ...
    """
    part = row.search_part or row.part
    tried = replace(row, part=part)
    return [
        replace(make_job(experiment, tried, seed, setting), label=setting.label)
        for setting in row.search
        for seed in range(seeds)
    ]


def rank_settings(
    experiment: Experiment, row: Row, known: Mapping[str, RunRecord], seeds: int = 1
) -> list[ScoredSetting]:
    """Return the settings that a row searches, the best first, those without a score last.

    The score is that of the metric that selects epochs, on the validation part. Of settings that
    tie, the first comes first.

    Args:
        experiment: the table.
        row: one of its rows.
        known: finished runs by their keys.
        seeds: runs of each setting.
    """
    settings: list[ScoredSetting] = []
    jobs = make_search_jobs(experiment, row, seeds)
    for setting in row.search:
        of_setting, jobs = jobs[:seeds], jobs[seeds:]
        runs = [known[job.key] for job in of_setting if job.key in known]
        values = [get_validation_score(record) for record in runs]
        scores = [value for value in values if value is not None]
        score = statistics.fmean(scores) if len(scores) == seeds else None
        settings.append(ScoredSetting(setting, tuple(runs), score))
    if not settings:
        return []
    metric = settings[0].setting.recipe.select_by or row.metric
    sign = -1.0 if METRICS[metric].higher_is_better else 1.0
    return sorted(
        settings,
        key=lambda setting: (
            math.inf if setting.score is None or math.isnan(setting.score) else sign * setting.score
        ),
    )


def find_best_setting(
    experiment: Experiment, row: Row, records: Iterable[RunRecord], seeds: int = 1
) -> Setting | None:
    """Return the best of the settings that have a score, the first if several tie.

    Args:
        experiment: the table.
        row: one of its rows.
        records: finished and failed runs.
        seeds: runs of each setting.

    Returns:
        The setting, or ``None`` if the row searches none, or none has a score.
    """
    known = {record.key: record for record in records if record.status == DONE}
    scored = [
        setting
        for setting in rank_settings(experiment, row, known, seeds)
        if setting.score is not None
    ]
    return scored[0].setting if scored else None


def get_validation_score(record: RunRecord) -> float | None:
    """Return the score on validation data that selected the epoch."""
    if record.config["recipe"].get("select_by") is None or record.best_epoch is None:
        return record.valid
    rows = (row for row in record.history if row["epoch"] == record.best_epoch)
    value: float | None = next(rows).get("criterion")
    return value


def check_has_validation(row: Row, data_dir: Path | None) -> None:
    """Refuse a search on data without a validation part; data that are missing are let pass.

    Args:
        row: the row that searches.
        data_dir: folder of the data files.

    Raises:
        ArgumentError: there is nothing to select by.
    """
    part = row.search_part or row.part
    try:
        data = load_dataset(part, data_dir)
    except DataNotFoundError:  # will be told with the runs that need them
        return
    if data.valid is None:
        raise ArgumentError(
            f"{row.name}: {part.dataset!r} has no validation part to select settings by. "
            "Choose a row of another data set, or an option of this one that sets sequences aside."
        )


@dataclass(frozen=True)
class Point:
    """One point of a grid.

    Args:
        settings: its values by dotted name.
        row: the row with these settings.
        records: its finished runs, by seed.
        score: mean over the seeds of the validation score that selected the epoch; ``None`` as long
            as a seed is missing.
    """

    settings: Settings
    row: Row
    records: tuple[RunRecord, ...]
    score: float | None


@dataclass(frozen=True)
class Search:
    """Result of a search.

    Args:
        experiment: the table.
        row: the row as it stands in the table.
        metric: what was selected by, which a recipe may set apart with ``select_by``.
        points: every point, the best first, those without a score last.
        best: the chosen point; ``None`` while a point is left to run, or if all failed.
        confirmed: finished runs of the best point with the seeds asked for.
        outcome: what failed, and what the budget left over.
    """

    experiment: Experiment
    row: Row
    metric: str
    points: tuple[Point, ...]
    best: Point | None
    confirmed: tuple[RunRecord, ...] = ()
    outcome: Outcome = field(default_factory=Outcome)


def grid_search(
    experiment: Experiment,
    row: str,
    grid: Grids,
    *,
    seeds: int = 1,
    confirm: int = 0,
    epochs: int | None = None,
    jobs: int = 1,
    budget: float | None = None,
    results_dir: Path = Path("results"),
    runs_dir: Path = Path("runs"),
    data_dir: Path | None = None,
    say: Say = say_nothing,
    progress: bool | None = None,
    cluster: str | None = None,
) -> Search:
    """Train all points of a grid without a result, and choose the best by validation score.

    Results go to the table's own file, ``results_dir/<experiment>.jsonl``; a search that was
    stopped continues where it was, and a point that is the published one is not run twice. Of
    points that tie, the first in the grid's order is chosen.

    Args:
        experiment: the table.
        row: name of the row whose settings are varied.
        grid: lists of values, such as ``{"recipe": {"lr": [0.01, 0.1]}}`` or
            ``{"model.hidden_size": [32, 64]}``; of several grids, every point of each is tried.
        seeds: runs of each point: seeds 0, 1, ...
        confirm: runs of the chosen point afterwards; 0 for none.
        epochs: instead of the recipe's.
        jobs: processes; with more than one each uses a single thread.
        budget: seconds for everything, see
            :class:`~tauflow_papers.experiments.run.run_jobs.ExecutionOptions`.
        results_dir: where results go.
        runs_dir: where checkpoints and logs go.
        data_dir: folder of the data files.
        say: called with one line per run, and now and then how much time is left.
        progress: whether to draw bars; by default on a terminal only.
        cluster: of :class:`~tauflow_papers.experiments.run.run_jobs.ExecutionOptions`.

    Raises:
        SpecificationError: the grid names an unknown setting, or a value is impossible; nothing
            has been run then.
        ArgumentError: there is no grid, or nothing to select by.
    """
    effort = ExecutionOptions(
        jobs, budget, Paths(results_dir, runs_dir, data_dir), say, progress, cluster
    )
    check_at_least(1, seeds=seeds)
    check_at_least(0, confirm=confirm)
    experiment = experiment.with_epochs(epochs)
    base = _select_single_row(experiment, row)
    varied = replace(base, search=read_settings(base, grid), search_part=None)
    check_has_validation(varied, data_dir)
    _check_models(varied, data_dir)
    metric = _get_common_metric(varied)
    path = effort.paths.results_file(experiment.name)
    outcome = run_jobs(make_search_jobs(experiment, varied, seeds), effort)
    ranked = rank_settings(experiment, varied, read_finished_runs(path), seeds)
    rows = [
        Point(
            setting.setting.values,
            replace(base, model=setting.setting.model, recipe=setting.setting.recipe, search=()),
            setting.records,
            setting.score,
        )
        for setting in ranked
    ]
    chosen = not outcome.unfinished and ranked[0].score is not None
    later = [make_job(experiment, base, n, ranked[0].setting) for n in range(confirm * chosen)]
    outcome = outcome.combine(run_jobs(later, effort, force_start=not outcome.ran))
    known = read_finished_runs(path) if later else {}
    confirmed = tuple(known[job.key] for job in later if job.key in known)
    best = rows[0] if chosen else None
    return Search(experiment, base, metric, tuple(rows), best, confirmed, outcome)


def _select_single_row(experiment: Experiment, name: str) -> Row:
    matches = experiment.select([name])
    if len(matches) > 1:
        raise ArgumentError(
            f"{name!r} stands for several rows of {experiment.name}; name one: "
            f"{', '.join(row.name for row in matches)}."
        )
    return matches[0]


def _check_models(row: Row, data_dir: Path | None) -> None:
    """Refuse a point whose model cannot be built, before others are run; missing data pass."""
    for setting in row.search:
        try:
            with torch.random.fork_rng(devices=[]):
                build_model(setting.model, load_dataset(row.part, data_dir).card)
        except DataNotFoundError:  # will be told with the runs that need them
            return
        except TauflowError as error:
            raise invalid_point_error(row, setting.values, error) from error


def _get_common_metric(row: Row) -> str:
    """Return the metric by which the settings of a row are compared."""
    metrics = sorted({setting.recipe.select_by or row.metric for setting in row.search})
    if len(metrics) > 1:
        raise SpecificationError(
            f"points that are selected by different metrics, {', '.join(metrics)}, cannot be "
            "compared. Give recipe.select_by a single value."
        )
    return metrics[0]
