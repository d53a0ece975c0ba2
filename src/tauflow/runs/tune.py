"""Look for good settings of a model on a task with Optuna: what ``tauflow tune`` does."""

import hashlib
import json
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tauflow._internal.checks import check_at_least
from tauflow._internal.locks import lock_folder
from tauflow._internal.optional_deps import require
from tauflow.errors import ArgumentError
from tauflow.models.registry import get_model_info
from tauflow.models.spec import ModelSpec
from tauflow.training.defaults import DEFAULT_HIDDEN_SIZE, DEFAULT_RECIPE
from tauflow.training.multioutput import is_higher_better
from tauflow.training.recipe import Recipe

from .best_config import write_best_config
from .job import Say, say_nothing
from .journal import (
    NUM_STARTUP_TRIALS,
    get_ended_trials,
    get_error,
    repair_journal,
    requeue_stopped_trials,
)
from .processes import exit_with_parent, worker_processes
from .run_data import CsvFile, RunData, load_run_data
from .search_space import apply_settings, check_search_space, make_search_space, suggest_settings
from .tune_trials import TuningJob, format_trial, mark_draw, run_remote_trial, run_trials
from .worker_pool import connect_workers, describe_worker_failure

BEST_CONFIG_FILE = "best.toml"
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
            is ``"complete"``, ``"pruned"`` if it ended early, or ``"fail"`` if it was not finite.
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
        return is_higher_better(self.metric)


def tune(
    source: str | Path | CsvFile,
    model: str = "cfc",
    *,
    trials: int = 20,
    hidden_size: int | None = None,
    options: Mapping[str, Any] | None = None,
    recipe: Recipe = DEFAULT_RECIPE,
    fixed: Collection[str] = (),
    vary: Mapping[str, Sequence[Any]] | None = None,
    seed: int = 0,
    jobs: int = 1,
    cluster: str | None = None,
    device: str | None = None,
    runs_dir: Path = Path("runs"),
    data_dir: Path | None = None,
    metrics: Sequence[str] = (),
    say: Say = say_nothing,
) -> TuningResult:
    """Try settings of a model on a task, and return those with the best validation score.

    Settings are drawn by Optuna's tree-structured Parzen estimator; a trial that is worse than the
    median of the others at an epoch ends there. The test data are not looked at. A study has a
    folder of its own below ``runs_dir``, and goes on where it was stopped: called again with the
    same arguments, it adds what is missing to ``trials``, first those that were stopped. No trial
    repeats another's settings: where they are so few that all have been tried, the study ends. A
    trial with an error ends the call, but on a cluster that trial alone, and counts in neither.

    Args:
        source: as for :func:`tauflow.runs.task.run_task`.
        model: name of the model, a cell or a whole one.
        trials: in all, those of earlier calls included.
        hidden_size: of every trial; by default sizes are tried.
        options: of the model's constructor, in every trial: those given here are not tried.
        recipe: of every trial, but for what is tried.
        fixed: dotted names of what is not tried, but as the recipe has it: ``"recipe.lr"``.
        vary: lists of values to try, by dotted name, beside or instead of the model's own.
        seed: of settings, weights, shuffling and dropout. With one worker, a study that was
            stopped goes on with the settings that it would have tried. Several workers share a
            study as their pace has it, which no seed decides.
        jobs: processes, one thread each if there are several.
        cluster: try on the workers of a Dask cluster: the address of its scheduler, or ``"local"``
            for ``jobs`` workers on this machine. The study stays here; a trial knows of those that
            had ended when it began.
        device: where to train; by default the CPU.
        runs_dir: folder under which the study has its directory.
        data_dir: folder of the data files of the catalog.
        metrics: names of metrics, as of a run; trials are ranked by the first one.
        say: called with a line per trial.

    Raises:
        MissingExtraError: Optuna or scikit-learn is not installed.
        ArgumentError: there are no validation data; something is given and varied too; a value
            cannot be tried, and nothing has been made then; or no trial came to an end.
        BusyError: another program works on the same study.
        DataError: the data are not finite, or do not suit the loss or the metric.
    """
    require("optuna", extra="tune")
    require("sklearn", extra="tune")
    check_at_least(1, trials=trials)
    check_at_least(1, jobs=jobs)
    get_model_info(model)
    size = {} if hidden_size is None else {"hidden_size": hidden_size}
    given = {*fixed, *(f"model.{name}" for name in (*size, *(options or {})))}
    space = make_search_space(model, vary, given)
    spec = ModelSpec(
        model, size.get("hidden_size", DEFAULT_HIDDEN_SIZE), options=dict(options or {})
    )
    found = load_run_data(source, spec, data_dir, metrics=metrics, say=say)
    if found.data.valid is None:
        raise ArgumentError(
            f"{found.part.dataset} has no validation data to choose settings by. Choose another "
            "task, or a split with a validation split."
        )
    job = found.make_job(spec, recipe, seed)
    names = json.dumps({"job": job.hash, "space": {k: str(v) for k, v in space.items()}})
    digest = hashlib.sha256(names.encode()).hexdigest()[:8]
    directory = job.directory(runs_dir).with_name(f"tune-{spec.cell}-seed{seed}-{digest}")
    search = TuningJob(
        *(source, spec, recipe, space, seed, data_dir, device, directory), metrics=tuple(metrics)
    )
    check_search_space(space, spec, recipe, found, search.read)
    from .unique_sampler import count_pending_trials

    with lock_folder(directory, advice=_ADVICE):
        repair_journal(directory)
        study = search.open_study(job.metric)
        requeue_stopped_trials(study, search.space.keys())
        left = count_pending_trials(study, trials, space, say)
        if left > 0 and cluster is not None:
            _run_on_workers(search, study, left, cluster, jobs, say)
        elif left > 0 and jobs > 1:
            _run_in_processes(search, left, jobs)
        elif left > 0:
            run_trials(search, left, 0, found, say)
        return _collect_result(search, found, study, job.metric)


def _run_in_processes(search: TuningJob, trials: int, jobs: int) -> None:
    """Run trials in several processes, which share the study through its journal."""
    from joblib import Parallel, delayed

    there = search.make_portable()
    shares = [trials // jobs + (k < trials % jobs) for k in range(jobs)]
    work = (delayed(run_trials)(there, share, k) for k, share in enumerate(shares) if share)
    with worker_processes():
        Parallel(n_jobs=jobs, initializer=exit_with_parent, initargs=(os.getpid(),))(work)


def _run_on_workers(
    search: TuningJob, study: Any, trials: int, cluster: str, jobs: int, say: Callable[[str], None]
) -> None:
    """Run trials on the workers of a cluster, each with settings that the study here draws."""
    from optuna.trial import TrialState

    there = search.make_portable()

    def drawn() -> Any:
        draw = search.prepare_draw(study)
        trial = study.ask()
        settings = suggest_settings(trial, search.space)
        marked = mark_draw(trial, draw)
        return trial, partial(run_remote_trial, there, marked, settings, get_ended_trials(study))

    with connect_workers(cluster, jobs) as crew:
        for trial, found in crew.run_calls(drawn() for _ in range(trials)):
            if isinstance(found, BaseException):  # of Dask, or of what comes before a trial
                study.tell(trial, state=TrialState.FAIL)
                say(f"trial {trial.number + 1}: {describe_worker_failure(found)}")
                continue
            for epoch, score in found.intermediate_values.items():
                trial.report(score, epoch)
            for mark, value in found.user_attrs.items():
                trial.set_user_attr(mark, value)
            complete = found.state is TrialState.COMPLETE
            study.tell(trial, found.value if complete else None, state=found.state)
            say(format_trial(study.get_trials(deepcopy=False)[trial.number]))


def _collect_result(search: TuningJob, run_data: RunData, study: Any, metric: str) -> TuningResult:
    """Gather what the study holds, and write the best settings where a run can read them."""
    import optuna

    whole = get_ended_trials(study)
    complete = [one for one in whole if one.state.name == "COMPLETE"]
    if not whole:
        errors = [error for one in study.get_trials(deepcopy=False) if (error := get_error(one))]
        why = f", the last one for {errors[-1].rstrip('.')}" if errors else ""
        raise ArgumentError(f"no trial came to an end{why}. The same command tries again.")
    if not complete:
        raise ArgumentError(
            "no trial came to an end with a score that is finite. Try smaller learning rates: "
            "vary={'recipe.lr': [...]}."
        )
    importance: dict[str, float] = {}
    scores = {one.value for one in complete}
    if len(complete) > NUM_STARTUP_TRIALS and len(scores) > 1:
        evaluator = optuna.importance.FanovaImportanceEvaluator(seed=search.seed)
        shares = optuna.importance.get_param_importances(study, evaluator=evaluator)
        importance = {name: float(share) for name, share in shares.items()}
    best = study.best_trial
    spec, recipe = apply_settings(best.params, search.spec, search.recipe)
    write_best_config(
        search.directory / BEST_CONFIG_FILE, search.source, run_data, spec, recipe, search.seed
    )
    trials = tuple((one.params, one.value, one.state.name.lower()) for one in whole)
    return TuningResult(best.params, best.value, metric, importance, trials, search.directory)
