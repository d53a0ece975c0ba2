"""Look for good settings of a model on a task with Optuna: what ``tauflow tune`` does."""

import hashlib
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from tauflow.cells.catalog import MODELS
from tauflow.checks import at_least
from tauflow.data.table.options import TableOptions
from tauflow.errors import ArgumentError, NonFiniteError
from tauflow.extras import require
from tauflow.import_path import safe_path_of_children
from tauflow.lock import make_folder
from tauflow.models.registry import entry_of
from tauflow.models.specified import ModelSpec
from tauflow.tensorfile import write_atomically
from tauflow.training.callbacks import Callback, Training
from tauflow.training.metrics import METRICS
from tauflow.training.recipe import Recipe
from tauflow.training.run import mixed

from .cluster import crew_of, words
from .job import execute
from .task import RECIPE, CsvFile, Source, read_source
from .workers import end_with_parent

JOURNAL, BEST = "study.log", "best.toml"
_STARTUP = 5
"""Trials before a median is trusted to end others early."""


@dataclass(frozen=True)
class Span:
    """Numbers from low to high, tried evenly on a logarithmic scale; whole ones if both are."""

    low: float
    high: float


Space = dict[str, Span | tuple[Any, ...]]
"""What is tried, by dotted name: ``recipe.lr``, ``model.hidden_size``, ``model.NAME``."""

COMMON: Space = {"recipe.lr": Span(1e-4, 3e-2), "model.hidden_size": Span(16, 128)}
"""What is tried of every model."""


@dataclass(frozen=True)
class Tuned:
    """What was found.

    Args:
        settings: the best, by dotted name.
        score: their validation score.
        metric: what the score is.
        importance: share of the scores' spread that each setting explains, the largest first; empty
            with too few trials to tell.
        trials: finished trials, of this and of earlier calls: settings, score and state.
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


def space_of(model: str, vary: Mapping[str, Sequence[Any]] | None = None) -> Space:
    """Return what is tried of a model: of its row in the catalog, and what a caller wants.

    Raises:
        ArgumentError: a name is neither of the recipe nor of the model, or has no values.
    """
    own = MODELS[model].tune if model in MODELS else {}
    space: Space = {**COMMON, **{f"model.{name}": values for name, values in own.items()}}
    for name, values in (vary or {}).items():
        if name.partition(".")[0] not in ("recipe", "model") or "." not in name:
            raise ArgumentError(f"{name!r} is not tuned; name recipe.FIELD or model.OPTION.")
        if not isinstance(values, list | tuple) or not values:
            raise ArgumentError(f"{name} needs a list of values to try, got {values!r}.")
        space[name] = tuple(values)
    return space


@dataclass(frozen=True)
class _Search:
    """Everything that a worker needs; plain values, so that it travels to other processes."""

    source: str | Path | CsvFile
    spec: ModelSpec
    recipe: Recipe
    space: Space
    seed: int
    data_dir: Path | None
    device: str | None
    directory: Path

    def read(self) -> Source:
        return read_source(self.source, self.spec, self.data_dir)

    def for_other_machines(self) -> "_Search":
        """Return the same with whole paths."""
        source, data = self.source, self.data_dir
        if isinstance(source, CsvFile):
            source = replace(source, path=source.path.resolve())
        elif isinstance(source, Path):
            source = source.resolve()
        return replace(self, source=source, data_dir=None if data is None else data.resolve())


def tune(
    source: str | Path | CsvFile,
    model: str = "cfc",
    *,
    trials: int = 20,
    hidden_size: int = 64,
    options: Mapping[str, Any] | None = None,
    recipe: Recipe = RECIPE,
    vary: Mapping[str, Sequence[Any]] | None = None,
    seed: int = 0,
    jobs: int = 1,
    cluster: str | None = None,
    device: str | None = None,
    runs_dir: Path = Path("runs"),
    data_dir: Path | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Tuned:
    """Try settings of a model on a task, and return those with the best validation score.

    Settings are drawn by Optuna's tree-structured Parzen estimator; a trial that is worse than the
    median of the others at an epoch ends there. The test data are not looked at. A study has a
    folder of its own below ``runs_dir``, and goes on where it was stopped: called again with the
    same arguments, it adds what is missing to ``trials``.

    Args:
        source: as for :func:`tauflow.experiments.run.task.run_task`.
        model: name of the model, a cell or a whole one.
        trials: in all, those of earlier calls included.
        hidden_size: where the space does not say it.
        options: of the model's constructor, where the space does not say them.
        recipe: of every trial, where the space does not say it.
        vary: lists of values to try, by dotted name, beside or instead of the model's own.
        seed: of settings, weights, shuffling and dropout. Several workers share a study as their
            pace has it, which no seed decides.
        jobs: processes, one thread each if there are several.
        cluster: try on the workers of a Dask cluster: the address of its scheduler, or ``"local"``
            for ``jobs`` workers on this machine. The study stays here; a trial knows of those that
            had ended when it began.
        device: where to train; by default the CPU.
        runs_dir: folder under which the study has its directory.
        data_dir: folder of the data files of the catalog.
        say: is told a line per trial.

    Raises:
        MissingExtraError: Optuna or scikit-learn is not installed.
        ArgumentError: there are no validation data, or no trial came to an end.
    """
    optuna = require("optuna", extra="tune")
    require("sklearn", extra="tune")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    at_least(1, trials=trials)
    at_least(1, jobs=jobs)
    entry_of(model)
    space = space_of(model, vary)
    spec = ModelSpec(model, hidden_size, options=dict(options or {}))
    found = read_source(source, spec, data_dir, say=say)
    if found.data.valid is None:
        raise ArgumentError(
            f"{found.part.dataset} has no validation data to choose settings by. Choose another "
            "task, or a split with a validation part."
        )
    job = found.job(spec, recipe, seed)
    names = json.dumps({"job": job.hash, "space": {k: str(v) for k, v in space.items()}})
    digest = hashlib.sha256(names.encode()).hexdigest()[:8]
    directory = job.directory(runs_dir).with_name(f"tune-{spec.cell}-seed{seed}-{digest}")
    make_folder(directory)
    search = _Search(source, spec, recipe, space, seed, data_dir, device, directory)
    study = _study(search, METRICS[job.metric].higher_is_better)
    left = trials - len(_ended(study))
    if left > 0 and cluster is not None:
        _on_workers(search, study, left, cluster, jobs, say)
    elif left > 0 and jobs > 1:
        from joblib import Parallel, delayed

        shares = [left // jobs + (k < left % jobs) for k in range(jobs)]
        work = (delayed(_work)(search, share, k) for k, share in enumerate(shares) if share)
        with safe_path_of_children():
            Parallel(n_jobs=jobs, initializer=end_with_parent, initargs=(os.getpid(),))(work)
    elif left > 0:
        _work(search, left, 0, found, say)
    return _found(search, study, job.metric)


def _study(search: _Search, higher_is_better: bool, worker: int = 0, *, kept: bool = True) -> Any:
    """Return the study in the search's folder, or a new one that is not kept."""
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    file = search.directory / JOURNAL
    study = optuna.create_study(
        storage=JournalStorage(JournalFileBackend(str(file))) if kept else None,
        study_name="study",
        load_if_exists=kept,
        direction="maximize" if higher_is_better else "minimize",
        pruner=optuna.pruners.MedianPruner(_STARTUP, n_warmup_steps=search.recipe.epochs // 5),
    )
    # A study that goes on draws other settings than it did when it began.
    drawn = mixed(search.seed, len(study.trials), worker)
    study.sampler = optuna.samplers.TPESampler(seed=drawn)
    return study


def _ended(study: Any) -> list[Any]:
    return [trial for trial in study.get_trials(deepcopy=False) if trial.state.is_finished()]


def _work(
    search: _Search,
    trials: int,
    worker: int,
    found: Source | None = None,
    say: Callable[[str], None] | None = None,
) -> None:
    """Run some trials of the study, in this process."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    if say is None:
        import torch

        torch.set_num_threads(1)
    found = found or search.read()
    study = _study(search, METRICS[found.data.card.metric].higher_is_better, worker)
    _optimise(search, found, study, trials, say)


def _optimise(
    search: _Search, found: Source, study: Any, trials: int, say: Callable[[str], None] | None
) -> None:
    objective = partial(_objective, search, found)
    tell = [] if say is None else [lambda _, trial: say(_line(trial))]
    study.optimize(objective, n_trials=trials, catch=(NonFiniteError,), callbacks=tell)


def _line(trial: Any) -> str:
    value = "no score" if trial.value is None else f"{trial.value:.4g}"
    settings = ", ".join(f"{name} = {_short(one)}" for name, one in trial.params.items())
    return f"trial {trial.number + 1}, {trial.state.name.lower()}: {value} with {settings}"


def _on_workers(
    search: _Search, study: Any, trials: int, cluster: str, jobs: int, say: Callable[[str], None]
) -> None:
    """Run trials on the workers of a cluster, each with settings that the study here draws."""
    from optuna.trial import TrialState

    there = search.for_other_machines()

    def drawn() -> Any:
        trial = study.ask()
        for name, one in search.space.items():
            _suggest(trial, name, one)
        return trial, partial(_trial_there, there, trial.params, _ended(study))

    with crew_of(cluster, jobs) as crew:
        for trial, found in crew.run(drawn() for _ in range(trials)):
            if isinstance(found, BaseException):
                study.tell(trial, state=TrialState.FAIL)
                say(f"trial {trial.number + 1}: {words(found)}")
                continue
            for epoch, score in found.intermediate_values.items():
                trial.report(score, epoch)
            complete = found.state is TrialState.COMPLETE
            study.tell(trial, found.value if complete else None, state=found.state)
            say(_line(study.get_trials(deepcopy=False)[trial.number]))


def _trial_there(search: _Search, settings: Mapping[str, Any], ended: Sequence[Any]) -> Any:
    """Run a trial on a worker, beside those that have ended; return it as it ended."""
    found = search.read()
    study = _study(search, METRICS[found.data.card.metric].higher_is_better, kept=False)
    study.add_trials(ended)
    study.enqueue_trial(settings)
    _optimise(search, found, study, 1, None)
    return study.trials[-1]


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


class _Pruning(Callback):
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


def _objective(search: _Search, found: Source, trial: Any) -> float:
    """Train with the settings of a trial; return the validation score."""
    settings = {name: _suggest(trial, name, one) for name, one in search.space.items()}
    spec, recipe = _with(search, settings)
    job = found.job(spec, recipe, search.seed)
    record, _ = execute(
        *(job, found.data),
        progress=False,
        callbacks=[_Pruning(trial)],
        device=search.device,
        tested=False,
    )
    return math.nan if record.valid is None else record.valid


def _suggest(trial: Any, name: str, one: Span | tuple[Any, ...]) -> Any:
    if isinstance(one, tuple):
        return trial.suggest_categorical(name, one)
    if isinstance(one.low, int) and isinstance(one.high, int):
        return trial.suggest_int(name, one.low, one.high, log=True)
    return trial.suggest_float(name, one.low, one.high, log=True)


def _with(search: _Search, settings: Mapping[str, Any]) -> tuple[ModelSpec, Recipe]:
    said: dict[str, dict[str, Any]] = {"recipe": {}, "model": {}}
    for name, value in settings.items():
        place, _, inner = name.partition(".")
        said[place][inner] = value
    hidden_size = said["model"].pop("hidden_size", search.spec.hidden_size)
    options = {**search.spec.options, **said["model"]}
    spec = replace(search.spec, hidden_size=hidden_size, options=options)
    return spec, search.recipe.changed(said["recipe"])


def _found(search: _Search, study: Any, metric: str) -> Tuned:
    """Gather what the study holds, and write the best settings where a run can read them."""
    import optuna

    complete = [one for one in _ended(study) if one.state.name == "COMPLETE"]
    if not complete:
        raise ArgumentError(
            "no trial came to an end with a score that is finite. Try smaller learning rates: "
            "vary={'recipe.lr': [...]}."
        )
    importance: dict[str, float] = {}
    scores = {one.value for one in complete}
    if len(complete) > _STARTUP and len(scores) > 1:
        evaluator = optuna.importance.FanovaImportanceEvaluator(seed=search.seed)
        shares = optuna.importance.get_param_importances(study, evaluator=evaluator)
        importance = {name: float(share) for name, share in shares.items()}
    best = study.best_trial
    spec, recipe = _with(search, best.params)
    write_atomically(search.directory / BEST, _as_toml(search, spec, recipe).encode())
    trials = tuple((one.params, one.value, one.state.name.lower()) for one in _ended(study))
    return Tuned(best.params, best.value, metric, importance, trials, search.directory)


def _as_toml(search: _Search, spec: ModelSpec, recipe: Recipe) -> str:
    """Return the settings as ``tauflow run --config`` reads them."""
    top: dict[str, Any] = {"model": spec.cell, "hidden_size": spec.hidden_size}
    table: dict[str, Any] = {}
    if isinstance(search.source, CsvFile):
        top = {"csv": str(search.source.path.absolute()), **top}
        said = asdict(search.source.table)
        table = {k: v for k, v in said.items() if v != asdict(TableOptions())[k]}
    else:
        top = {"task": str(search.source), **top}
    changed = {k: v for k, v in recipe.to_dict().items() if v != RECIPE.to_dict()[k]}
    text = ""
    tables = {"[recipe]": changed, "[options]": dict(spec.options), "[table]": table}
    for head, values in {"": top, **tables}.items():
        lines = [f"{k} = {json.dumps(v)}" for k, v in values.items() if v is not None]
        text += "\n".join([head, *lines]) + "\n" if lines else ""
    return text.lstrip()
