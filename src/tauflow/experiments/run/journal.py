"""The journal of a study: opened, put right after a stop, and which of its trials count.

Optuna calls a trial failed whatever it ended with. A trial counts here if it came to an end, or if
its numbers overflowed, which is what its settings lead to. One that was stopped is made up for.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tauflow.errors import NonFiniteError
from tauflow.training.run import mixed

JOURNAL = "study.log"
STARTUP = 5
"""Trials before a median is trusted to end others early."""
_NOT_FINITE, _ERROR, _REPEATS = "not finite", "error", "repeats"
"""What trials are marked with: why they failed, and the number of the stopped one they repeat."""


def open_study(
    folder: Path | None,
    *,
    sampler: Callable[[int], Any],
    higher_is_better: bool,
    epochs: int,
    seed: int,
    worker: int = 0,
) -> Any:
    """Return the study in a folder, a new one if there is none yet.

    Args:
        folder: where its journal is; without one, the study is kept nowhere.
        sampler: makes what draws the settings, of a seed.
        higher_is_better: whether a good score is a large one.
        epochs: of a trial.
        seed: of the settings that it draws.
        worker: number of the process, of those that share the study.
    """
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

    # Its warnings are tracebacks of trials, of which this package says what there is to say.
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    # Of lists and tables to choose from, which a journal does give back.
    warnings.filterwarnings("ignore", "Choices for a categorical distribution", UserWarning)
    storage = None
    if folder is not None:
        # Workers of other machines come through Dask, so that a lock need not be a link, as it is
        # by default: a link dangles where the path is a relative one, and is then waited for
        # without an end.
        file = str((folder / JOURNAL).absolute())
        storage = JournalStorage(JournalFileBackend(file, JournalFileOpenLock(file)))
    study = optuna.create_study(
        storage=storage,
        study_name="study",
        load_if_exists=storage is not None,
        direction="maximize" if higher_is_better else "minimize",
        pruner=optuna.pruners.MedianPruner(STARTUP, n_warmup_steps=epochs // 5),
    )
    # A study that goes on draws other settings than it did when it began.
    study.sampler = sampler(mixed(seed, len(study.trials), worker))
    return study


def put_right(folder: Path) -> None:
    """Undo what a program that was killed left half done; for who holds the folder's lock."""
    for left in folder.glob(f"{JOURNAL}.lock*"):  # Optuna's own, which nobody gives back
        left.unlink()
    file = folder / JOURNAL
    if not file.exists():
        return
    with file.open("r+b") as journal:
        text = journal.read()
        whole = text.rfind(b"\n") + 1
        if whole < len(text):  # half a line, which would join the next one
            journal.truncate(whole)


def try_again(study: Any) -> None:
    """Let the settings of trials that were stopped be the next ones; for who holds the lock."""
    from optuna.trial import TrialState

    trials = [(one, one.state) for one in study.get_trials(deepcopy=False)]
    repeated = {one.user_attrs.get(_REPEATS) for one, _ in trials}
    for trial, state in trials:
        if state is TrialState.RUNNING:  # in a program that was killed
            study.tell(trial.number, state=TrialState.FAIL)
        elif state is not TrialState.FAIL:
            continue
        if trial.params and not explained(trial) and trial.number not in repeated:
            study.enqueue_trial(trial.params, user_attrs={_REPEATS: trial.number})


def ended(study: Any) -> list[Any]:
    """Return the trials of a study that count, in their order."""
    return [one for one in study.get_trials(deepcopy=False) if _counts(one)]


def _counts(trial: Any) -> bool:
    if trial.state.name == "FAIL":
        return _NOT_FINITE in trial.user_attrs
    return bool(trial.state.is_finished())


def explained(trial: Any) -> bool:
    """Whether a trial came to an end that its settings lead to, be it an error."""
    return _counts(trial) or _ERROR in trial.user_attrs


def error_of(trial: Any) -> str:
    """Return what a trial failed with, empty if it did not."""
    return str(trial.user_attrs.get(_ERROR, ""))


@contextmanager
def failure_told(trial: Any) -> Iterator[None]:
    """Mark a trial with why it fails, if it does; one that is stopped gets no mark."""
    import optuna

    try:
        yield
    except optuna.TrialPruned:
        raise
    except NonFiniteError:
        trial.set_user_attr(_NOT_FINITE, True)
        raise
    except Exception as error:  # which the same settings may lead to again: they are not repeated
        trial.set_user_attr(_ERROR, f"{type(error).__name__}: {error}")
        raise
