"""Look for good settings of a model on a task with Optuna: what ``tauflow tune`` does."""

import hashlib
import json
import math
import os
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from tauflow._internal.atomic_write import add_path_to_errors
from tauflow._internal.checks import check_at_least
from tauflow._internal.locks import lock_folder
from tauflow._internal.optional_deps import require
from tauflow.errors import ArgumentError, CheckpointError, NonFiniteError
from tauflow.models.registry import get_model_info
from tauflow.training.callbacks import Callback, Training
from tauflow.training.metrics import METRICS
from tauflow.training.trainer import derive_seed

from .best_config import write_best_config
from .dask_workers import connect_client
from .job import say_nothing, train_job
from .processes import exit_with_parent
from .run import CsvFile, Run
from .run_data import RunData, load_run_data
from .search_space import (
    SearchSpace,
    apply_settings,
    check_search_space,
    list_combinations,
    make_search_space,
    name_settings_in_errors,
    suggest_settings,
)

BEST_CONFIG_FILE = "best.toml"
JOURNAL_FILE = "study.log"
_NUM_STARTUP_TRIALS = 5
"""Trials before a median is trusted to end others early."""
_ADVICE = (
    "Wait until it ends, or stop it: every finished trial is kept. For several trials at a time, "
    "give one 'tauflow tune' with --jobs; for another study, choose another folder with --runs."
)


@dataclass(frozen=True)
class TuningResult:
    """What was found.

    Args:
        settings: the best, by dotted name.
        score: their validation score.
        metric: what the score is.
        importance: share of the scores' spread that each setting explains, the largest first; empty
            with too few trials to tell.
        trials: that came to an end, of this and of earlier calls: settings, score and state, which
            is ``"complete"``, or ``"pruned"`` if it ended early or was not finite.
        directory: of the study; ``best.toml`` there is a file for ``tauflow run --config``.
    """

    settings: Mapping[str, Any]
    score: float
    metric: str
    importance: Mapping[str, float]
    trials: tuple[tuple[Mapping[str, Any], float | None, str], ...]
    directory: Path

    @property
    def higher_is_better(self) -> bool:
        """Whether a good score is a large one."""
        return METRICS[self.metric].higher_is_better


def tune(
    run: Run,
    *,
    trials: int = 20,
    fixed: Collection[str] = (),
    vary: Mapping[str, Sequence[Any]] | None = None,
    jobs: int = 1,
    cluster: str | None = None,
    storage: str | None = None,
) -> TuningResult:
    """Try settings of a model on a task, and return those with the best validation score.

    Settings are drawn by Optuna's tree-structured Parzen estimator; a trial that is worse than the
    median of the others at an epoch ends there. The test data are not looked at. A study has a
    separate folder below ``runs_dir``, and goes on where it was stopped: called again with the
    same arguments, it adds what is missing to ``trials``. Trials that were stopped do not count.
    Where the values make no more combinations than ``trials``, each is tried once. A trial with an
    error ends the call.

    Args:
        run: what is trained in every trial, but for what is tried. Without ``hidden_size`` sizes
            are tried; ``options`` that are given are not; ``seed`` is also that of the settings.
            Which ones are drawn depends on it, on the trials that there are, and with several
            workers on their pace. Trials are ranked by the first of ``metrics``, and ``say`` gets a
            line for each.
        trials: in all, those of earlier calls included.
        fixed: dotted names of what is not tried, but as the recipe has it: ``"recipe.lr"``.
        vary: lists of values to try, by dotted name, beside or instead of the model's own.
        jobs: processes, one thread each if there are several.
        cluster: try on the workers of a Dask cluster: the address of its scheduler, or ``"local"``
            for ``jobs`` workers on this machine. All of them must see ``runs_dir``, or ``storage``.
            Dask gives the trial of a worker that dies to another one.
        storage: address of a database for the study, such as ``postgresql://...`` (see Optuna's
            RDBStorage); by default a file in the study's folder.

    Raises:
        MissingExtraError: Optuna or scikit-learn is not installed.
        ArgumentError: there are no validation data; something is given and varied too; a value
            cannot be tried; no scheduler answers; or no trial came to an end.
        BusyError: another program works on the same study.
        CheckpointError: the study of earlier calls cannot be read.
        DataError: the data are not finite, or do not suit the loss or the metric.
    """
    require("optuna", extra="tune")
    require("sklearn", extra="tune")
    check_at_least(1, trials=trials)
    check_at_least(1, jobs=jobs)
    if len(run.models) > 1:
        raise ArgumentError(f"tuning varies one model, got {', '.join(run.models)}. Name one.")
    get_model_info(run.spec.cell)
    for name in ("certainty", "log", "callbacks", "resume"):
        if getattr(run, name) not in (getattr(Run, name), []):
            raise ArgumentError(f"trials take no {name}. Leave it out, and train the best with it.")
    size = [] if run.hidden_size is None else ["hidden_size"]
    fixed_names = {*fixed, *(f"model.{name}" for name in (*size, *run.options))}
    space = make_search_space(run.spec.cell, vary, fixed_names)
    run_data = load_run_data(run)
    if run_data.data.valid is None:
        raise ArgumentError(
            f"{run_data.part.dataset} has no validation data to choose settings by. Choose another "
            "task, or a split with a validation split."
        )
    job = run_data.make_job(run.spec, run.recipe, run.seed)
    cell = run.spec.cell
    names = json.dumps({"job": job.hash, "space": {k: str(v) for k, v in space.items()}})
    digest = hashlib.sha256(names.encode()).hexdigest()[:8]
    directory = job.directory(run.runs_dir).with_name(f"tune-{cell}-seed{run.seed}-{digest}")
    search = TuningJob(run, space, directory, storage).make_portable()
    check_search_space(space, run.spec, run.recipe)
    with lock_folder(directory, advice=_ADVICE):
        _repair_journal(directory / JOURNAL_FILE)
        try:
            study = search.open_study(job.metric)
            left = _prepare_trials(study, search, trials)
        except Exception as error:  # Optuna checks nothing of what it reads
            raise CheckpointError(
                f"{storage or directory / JOURNAL_FILE} cannot be read as a study ({error!r}). "
                "Restore it from a copy, or delete it to begin again."
            ) from error
        if left > 0 and (jobs > 1 or cluster is not None):
            _run_in_workers(search, left, jobs, cluster)
        elif left > 0:
            with add_path_to_errors(directory / JOURNAL_FILE):
                run_trials(search, left, 0, run_data, run.say)
        return _collect_result(search, run_data, study, job.metric)


@dataclass(frozen=True)
class TuningJob:
    """Everything that a worker needs; plain values, so that it travels to other processes."""

    run: Run
    space: SearchSpace
    directory: Path
    storage: str | None = None

    def open_study(self, metric: str) -> Any:
        """Return the study, a new one the first time."""
        import optuna
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

        # Its warnings are tracebacks of trials, of which this package says what there is to say.
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        # Of lists and tables to choose from, which a journal does give back.
        warnings.filterwarnings("ignore", "Choices for a categorical distribution", UserWarning)
        path = str(self.directory / JOURNAL_FILE)
        storage = self.storage or JournalStorage(
            JournalFileBackend(path, JournalFileOpenLock(path))
        )
        return optuna.create_study(
            storage=storage,
            study_name="study" if self.storage is None else self.directory.name,
            load_if_exists=True,
            direction="maximize" if METRICS[metric].higher_is_better else "minimize",
            pruner=optuna.pruners.MedianPruner(
                _NUM_STARTUP_TRIALS, n_warmup_steps=self.run.recipe.epochs // 5
            ),
        )

    def make_portable(self) -> "TuningJob":
        """Return the same with whole paths: workers may be in other folders, and machines."""
        source, data = self.run.source, self.run.data_dir
        if isinstance(source, CsvFile):
            source = replace(source, path=source.path.resolve())
        elif isinstance(source, Path):
            source = source.resolve()
        data = None if data is None else data.resolve()
        run = replace(self.run, source=source, data_dir=data, say=say_nothing)
        return replace(self, run=run, directory=self.directory.resolve())


def _repair_journal(file: Path) -> None:
    """Remove what a program that was killed left: half a line, and Optuna's lock."""
    for left in file.parent.glob(f"{file.name}.lock*"):
        left.unlink()
    if file.exists():
        with file.open("r+b") as journal:
            journal.truncate(journal.read().rfind(b"\n") + 1)


def get_ended_trials(study: Any) -> list[Any]:
    """Return the trials of a study that came to an end, in their order."""
    return [trial for trial in study.get_trials(deepcopy=False) if trial.state.name in _ENDED]


_ENDED = ("COMPLETE", "PRUNED")


def _prepare_trials(study: Any, search: TuningJob, trials: int) -> int:
    """Return how many trials are to come; settings of a small space, each once, are queued.

    Trials that a program had when it was killed are marked as failed. No other program may run.
    """
    from optuna.trial import TrialState

    queued = []
    for trial in study.get_trials(deepcopy=False):
        float(trial.value or 0)  # it may be of any type in a damaged journal
        if trial.state is TrialState.RUNNING:
            study.tell(trial.number, state=TrialState.FAIL)
        elif trial.state is TrialState.WAITING:
            queued.append(trial.system_attrs["fixed_params"])
    ended = get_ended_trials(study)
    combinations = list_combinations(search.space, trials)
    if combinations is None:
        return trials - len(ended)
    tried = [trial.params for trial in ended]
    left = [combination for combination in combinations if combination not in tried]
    for settings in left:
        if settings not in queued:
            study.enqueue_trial(settings)
    return len(left)


def _run_in_workers(search: TuningJob, trials: int, jobs: int, cluster: str | None) -> None:
    """Run trials in several processes or on a cluster; they share the study's storage."""
    from joblib import Parallel, delayed, parallel_config

    if cluster is None:
        shares = [trials // jobs + (k < trials % jobs) for k in range(jobs)]
        Parallel(n_jobs=jobs, initializer=exit_with_parent, initargs=(os.getpid(),))(
            delayed(run_trials)(search, share, k) for k, share in enumerate(shares) if share
        )
        return
    with (
        connect_client(cluster, jobs) as client,
        client.as_current(),
        parallel_config(backend="dask"),
    ):
        Parallel()(delayed(run_trials)(search, 1, k) for k in range(trials))


def run_trials(
    search: TuningJob,
    trials: int,
    worker: int,
    run_data: RunData | None = None,
    say: Callable[[str], None] | None = None,
) -> None:
    """Run some trials of the study, in this process."""
    import optuna
    from optuna.trial import TrialState

    if say is None:
        torch.set_num_threads(1)
    run_data = run_data or load_run_data(search.run)
    study = search.open_study(run_data.data.card.metric)
    begun = len(study.get_trials(deepcopy=False))
    study.sampler = optuna.samplers.TPESampler(seed=derive_seed(search.run.seed, begun, worker))
    for _ in range(trials):
        # Not study.optimize, which ends in an AssertionError where the journal cannot be written.
        trial, score, state = study.ask(), None, TrialState.FAIL
        try:
            score = _compute_objective(search, run_data, trial)
            state = TrialState.COMPLETE
        except (optuna.TrialPruned, NonFiniteError):
            state = TrialState.PRUNED
        finally:
            ended = study.tell(trial, score, state=state)
        if say is not None:
            say(_format_trial(ended))


def _format_trial(trial: Any) -> str:
    value = "no score" if trial.value is None else f"{trial.value:.4g}"
    settings = ", ".join(
        f"{name} = {value:.4g}" if isinstance(value, float) else f"{name} = {value}"
        for name, value in trial.params.items()
    )
    return f"trial {trial.number + 1}, {trial.state.name.lower()}: {value} with {settings}"


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


def _compute_objective(search: TuningJob, run_data: RunData, trial: Any) -> float:
    """Train with the settings of a trial; return the validation score."""
    settings = suggest_settings(trial, search.space)
    with name_settings_in_errors(settings):
        run = search.run
        spec, recipe = apply_settings(settings, run.spec, run.recipe)
        is_causal = get_model_info(spec.cell).is_causal
        if is_causal(run.options) and not is_causal(spec.options):
            load_run_data(run, spec)  # refuses data that the model would see ahead in
        record, _ = train_job(
            *(run_data.make_job(spec, recipe, run.seed), run_data.data),
            progress=False,
            callbacks=[PruningCallback(trial)],
            device=run.device,
            score_test=False,
        )
    if record.valid is None or math.isnan(record.valid):
        raise NonFiniteError("no epoch has a validation score that is finite")
    return record.valid


def _collect_result(search: TuningJob, run_data: RunData, study: Any, metric: str) -> TuningResult:
    """Gather what the study holds, and write the best settings where a run can read them."""
    import optuna

    ended = get_ended_trials(study)
    complete = [trial for trial in ended if trial.state.name == "COMPLETE"]
    if not complete:
        raise ArgumentError(
            "no trial came to an end with a score that is finite. Try smaller learning rates: "
            "vary={'recipe.lr': [...]}."
        )
    importance: dict[str, float] = {}
    scores = {trial.value for trial in complete}
    if len(complete) > _NUM_STARTUP_TRIALS and len(scores) > 1:
        evaluator = optuna.importance.FanovaImportanceEvaluator(seed=search.run.seed)
        shares = optuna.importance.get_param_importances(study, evaluator=evaluator)
        importance = {name: float(share) for name, share in shares.items()}
    best = study.best_trial
    spec, recipe = apply_settings(best.params, search.run.spec, search.run.recipe)
    chosen = replace(search.run, hidden_size=spec.hidden_size, options=spec.options, recipe=recipe)
    write_best_config(search.directory / BEST_CONFIG_FILE, chosen, run_data)
    trials = tuple((trial.params, trial.value, trial.state.name.lower()) for trial in ended)
    return TuningResult(best.params, best.value, metric, importance, trials, search.directory)
