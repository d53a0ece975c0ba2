"""Choose a row's settings from a grid by their validation score, and run the choice with seeds.

Source of the protocol: "Gated Neural ODEs: Trainability, Expressivity and Interpretability",
appendices E and G: every point of the grid is trained, the lowest validation loss of any epoch
decides, and the chosen point is trained again with five seeds, whose test scores are reported.
"""

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import torch

from tauflow.checks import at_least
from tauflow.errors import ArgumentError, DataNotFoundError, SpecificationError, TauflowError
from tauflow.experiments.spec.experiment import Experiment, ModelSpec, Row
from tauflow.experiments.spec.grid import Settings, points, read_grid, show
from tauflow.training.metrics import METRICS

from .job import Job, build_model, job_of, load_part
from .results import RunRecord
from .schedule import Effort, Outcome, Say, finished, run_jobs, say_nothing
from .search import check_validation, selected_by, validation_score

Grids = Mapping[str, Any] | Sequence[Mapping[str, Any]]


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
    """What a search found.

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
) -> Search:
    """Train every point of a grid that has no result yet, and choose the best on validation data.

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
        budget: seconds for everything, see :class:`tauflow.experiments.run.schedule.Effort`.
        results_dir: where results go.
        runs_dir: where checkpoints and logs go.
        data_dir: folder of the data files.
        say: is told one line per run, and now and then how much time is left.
        progress: whether to draw bars; by default on a terminal only.

    Raises:
        SpecificationError: the grid names an unknown setting, or a value is impossible; nothing
            has been run then.
        ArgumentError: there is no grid, or nothing to select by.
    """
    began = time.monotonic()
    at_least(1, seeds=seeds)
    at_least(0, confirm=confirm)
    base = _only(experiment, row)
    rows = _rows(base, _points(base, grid))
    check_validation(base, data_dir)
    _check_models(rows, data_dir)
    effort = Effort(jobs, budget, runs_dir, data_dir, say, progress)
    path = results_dir / f"{experiment.name}.jsonl"
    wanted = [
        _job(experiment, varied, settings, seed, epochs)
        for settings, varied in rows
        for seed in range(seeds)
    ]
    metric = _metric(wanted)
    known = finished(path)
    outcome = run_jobs(wanted, path, effort)
    found = _scored(experiment, rows, seeds, epochs, path)
    ranked = sorted(found, key=lambda p: _rank(p.score, METRICS[metric].higher_is_better))
    done = not outcome.unfinished and ranked[0].score is not None
    best = ranked[0] if done else None
    result = Search(experiment, base, metric, tuple(ranked), best, (), outcome)
    if result.best is None or not confirm:
        return result
    jobs_left = [
        job_of(experiment, result.best.row, seed, epochs=epochs) for seed in range(confirm)
    ]
    spent, advance = time.monotonic() - began, all(job.key in known for job in wanted)
    outcome = outcome.then(run_jobs(jobs_left, path, effort, spent=spent, advance=advance))
    known = finished(path)
    confirmed = tuple(known[job.key] for job in jobs_left if job.key in known)
    return replace(result, confirmed=confirmed, outcome=outcome)


def _only(experiment: Experiment, name: str) -> Row:
    matches = experiment.select([name])
    if len(matches) > 1:
        raise ArgumentError(
            f"{name!r} stands for several rows of {experiment.name}; name one: "
            f"{', '.join(row.name for row in matches)}."
        )
    return matches[0]


def _points(row: Row, grid: Grids) -> list[Settings]:
    given = [grid] if isinstance(grid, Mapping) else list(grid)
    read = [read_grid(f"the grid of {row.name!r}", one) for one in given]
    found: list[Settings] = []
    for settings in (point for one in read if one for point in points(one)):
        if settings not in found:
            found.append(settings)
    if not found:
        raise ArgumentError(
            f"there is nothing to vary for {row.name!r}: the grid is empty. Give one, such as "
            '{"recipe": {"lr": [0.001, 0.01]}}.'
        )
    return found


def _rows(row: Row, settings: Sequence[Settings]) -> list[tuple[Settings, Row]]:
    return [(point, with_settings(row, point)) for point in settings]


def _check_models(rows: Sequence[tuple[Settings, Row]], data_dir: Path | None) -> None:
    """Refuse a point whose model cannot be built, before others are run; missing data pass."""
    for settings, row in rows:
        assert row.model is not None, "only rows that are ready are searched"
        try:
            with torch.random.fork_rng(devices=[]):
                build_model(row.model, load_part(row.part, data_dir))
        except DataNotFoundError:  # will be told with the runs that need them
            return
        except TauflowError as error:
            raise _impossible(row, settings, error) from error


def _impossible(row: Row, settings: Settings, error: Exception) -> SpecificationError:
    return SpecificationError(f"the point {show(settings)} of {row.name!r}: {error}")


def with_settings(row: Row, settings: Settings) -> Row:
    """Return a row with other settings.

    Args:
        row: a row whose model exists.
        settings: values by dotted name, as in :attr:`Point.settings`.

    Raises:
        SpecificationError: a value is impossible.
    """
    assert row.recipe is not None, "only rows that are ready are searched"
    assert row.model is not None, "only rows that are ready are searched"
    split: dict[str, dict[str, Any]] = {"recipe": {}, "model": {}}
    for name, value in settings.items():
        place, _, setting = name.partition(".")
        split[place][setting] = value
    own = {f.name for f in fields(ModelSpec)} - {"options"}
    places = {key: value for key, value in split["model"].items() if key in own}
    options = {key: value for key, value in split["model"].items() if key not in own}
    try:
        recipe = type(row.recipe).from_dict({**row.recipe.to_dict(), **split["recipe"]})
        model = replace(row.model, **places, options={**row.model.options, **options})
    except (TauflowError, TypeError) as error:
        raise _impossible(row, settings, error) from error
    return replace(row, recipe=recipe, model=model, search=())


def _metric(jobs: Sequence[Job]) -> str:
    metrics = sorted({selected_by(job) for job in jobs})
    if len(metrics) > 1:
        raise SpecificationError(
            f"points that are selected by different metrics, {', '.join(metrics)}, cannot be "
            "compared. Give recipe.select_by a single value."
        )
    return metrics[0]


def _job(
    experiment: Experiment, row: Row, settings: Settings, seed: int, epochs: int | None
) -> Job:
    return replace(job_of(experiment, row, seed, epochs=epochs), label=show(settings))


def _scored(
    experiment: Experiment,
    rows: Sequence[tuple[Settings, Row]],
    seeds: int,
    epochs: int | None,
    path: Path,
) -> list[Point]:
    known = finished(path)
    found = []
    for settings, row in rows:
        jobs = [_job(experiment, row, settings, seed, epochs) for seed in range(seeds)]
        runs = [(job, known[job.key]) for job in jobs if job.key in known]
        records = tuple(record for _, record in runs)
        values = [validation_score(job, record) for job, record in runs]
        scores = [value for value in values if value is not None]
        score = statistics.fmean(scores) if len(scores) == seeds else None
        found.append(Point(settings, row, records, score))
    return found


def _rank(score: float | None, higher_is_better: bool) -> tuple[bool, float]:
    """Return what sorts the best score first and missing ones last."""
    if score is None:
        return True, 0.0
    return False, -score if higher_is_better else score
