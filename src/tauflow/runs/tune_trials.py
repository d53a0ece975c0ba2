"""The trials of ``tauflow tune``: settings drawn, networks trained, scores told to the study."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tauflow.errors import NonFiniteError
from tauflow.models.spec import ModelSpec
from tauflow.training.callbacks import Callback, Training
from tauflow.training.multioutput import is_higher_better
from tauflow.training.recipe import Recipe
from tauflow.training.trainer import derive_seed

from .job import Job, train_job
from .journal import (
    DRAW_ATTRIBUTE,
    get_error,
    get_next_draw,
    mark_failure,
    open_study,
)
from .run_data import CsvFile, RunData, load_run_data
from .search_space import SearchSpace, apply_settings, suggest_settings


@dataclass(frozen=True)
class TuningJob:
    """Everything that a worker needs; plain values, so that it travels to other processes."""

    source: str | Path | CsvFile
    spec: ModelSpec
    recipe: Recipe
    space: SearchSpace
    seed: int
    data_dir: Path | None
    device: str | None
    directory: Path
    metrics: tuple[str, ...] = ()

    def read(self, spec: ModelSpec | None = None) -> RunData:
        """Return the data, as a model takes them."""
        return load_run_data(self.source, spec or self.spec, self.data_dir, metrics=self.metrics)

    def open_study(self, metric: str, *, is_stored: bool = True) -> Any:
        """Return the study in the search's folder, or a new one that is not kept."""
        return open_study(
            self.directory if is_stored else None,
            higher_is_better=is_higher_better(metric),
            epochs=self.recipe.epochs,
        )

    def prepare_draw(self, study: Any, worker: int = 0) -> int:
        """Return the number of the draw of a study's next trial, whose sampler is then ready."""
        from .unique_sampler import make_sampler

        draw = get_next_draw(study)
        study.sampler = make_sampler(self.space, derive_seed(self.seed, draw, worker))
        return draw

    def make_job(self, run_data: RunData, trial: Any) -> Job:
        """Return the job of a trial, whose settings are drawn if they are not yet."""
        settings = suggest_settings(trial, self.space)
        spec, recipe = apply_settings(settings, self.spec, self.recipe)
        return run_data.make_job(spec, recipe, self.seed)

    def make_portable(self) -> "TuningJob":
        """Return the same with whole paths: workers may be in other folders, and machines."""
        source, data = self.source, self.data_dir
        if isinstance(source, CsvFile):
            source = replace(source, path=source.path.resolve())
        elif isinstance(source, Path):
            source = source.resolve()
        data = None if data is None else data.resolve()
        return replace(self, source=source, data_dir=data, directory=self.directory.resolve())


def run_trials(
    search: TuningJob,
    trials: int,
    worker: int,
    run_data: RunData | None = None,
    say: Callable[[str], None] | None = None,
) -> None:
    """Run some trials of the study, in this process."""
    from optuna.trial import TrialState

    if say is None:
        import torch

        torch.set_num_threads(1)
    run_data = run_data or search.read()
    study = search.open_study(run_data.data.card.metric)
    for _ in range(trials):
        draw = search.prepare_draw(study, worker)
        trial = study.ask()
        try:
            mark_draw(trial, draw)
            suggest_settings(trial, search.space)
            ended = _run_trial(search, run_data, study, trial)
            if say is not None:
                say(format_trial(ended))
        except BaseException:  # what is left of it is repeated
            study.tell(trial, state=TrialState.FAIL, skip_if_finished=True)
            raise


def _run_trial(search: TuningJob, run_data: RunData, study: Any, trial: Any) -> Any:
    """Run a trial of a study; return it as it ended."""
    # Not study.optimize, which ends in an AssertionError where the journal cannot be written.
    import optuna
    from optuna.trial import TrialState

    try:
        score = _compute_objective(search, run_data, trial)
    except optuna.TrialPruned:
        return study.tell(trial, state=TrialState.PRUNED)
    except NonFiniteError:
        return study.tell(trial, state=TrialState.FAIL)
    except BaseException:
        study.tell(trial, state=TrialState.FAIL)
        raise
    return study.tell(trial, score)


def format_trial(trial: Any) -> str:
    """Return the line that is said of a trial that has ended."""
    value = "no score" if trial.value is None else f"{trial.value:.4g}"
    settings = ", ".join(f"{name} = {_format_value(one)}" for name, one in trial.params.items())
    if error := get_error(trial):
        return f"trial {trial.number + 1} failed with {settings}: {error}"
    return f"trial {trial.number + 1}, {trial.state.name.lower()}: {value} with {settings}"


def run_remote_trial(
    search: TuningJob, draw: int, settings: Mapping[str, Any], ended_trials: Sequence[Any]
) -> Any:
    """Run a trial on a worker, beside those that have ended; return it as it ended."""
    found = search.read()
    study = search.open_study(found.data.card.metric, is_stored=False)
    study.add_trials(ended_trials)
    study.enqueue_trial(settings)
    trial = study.ask()
    mark_draw(trial, draw)
    try:
        return _run_trial(search, found, study, trial)
    except Exception:
        if not get_error(study.trials[-1]):  # which the trial takes home
            raise
    return study.trials[-1]


def _format_value(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


class PruningCallback(Callback):
    """Tells the study how a trial does, and ends it if it does worse than others did."""

    def __init__(self, trial: Any) -> None:
        self.trial = trial

    def on_epoch(self, training: Training) -> None:
        """Report the score of the epoch.

        Raises:
            optuna.TrialPruned: the trial is not worth going on.
        """
        import optuna

        row = training.history[-1]
        if row["valid"] is None:
            return
        self.trial.report(row["valid"], row["epoch"])
        if self.trial.should_prune():
            raise optuna.TrialPruned


def mark_draw(trial: Any, draw: int) -> int:
    """Return which draw the settings of a trial are, of one that repeats another the same."""
    if DRAW_ATTRIBUTE not in trial.user_attrs:
        trial.set_user_attr(DRAW_ATTRIBUTE, draw)
    return int(trial.user_attrs[DRAW_ATTRIBUTE])


def _compute_objective(search: TuningJob, run_data: RunData, trial: Any) -> float:
    """Train with the settings of a trial; return the validation score."""
    with mark_failure(trial):
        record, _ = train_job(
            *(search.make_job(run_data, trial), run_data.data),
            progress=False,
            callbacks=[PruningCallback(trial)],
            device=search.device,
            score_test=False,
        )
        if record.valid is None or math.isnan(record.valid):
            raise NonFiniteError("no epoch has a validation score that is finite")
        return record.valid
