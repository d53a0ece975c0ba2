"""The journal of a study: opened, put right after a stop, and which of its trials count.

Optuna calls a trial failed whatever it ended with. A trial counts here if it came to an end, or if
its numbers overflowed, which is what its settings lead to. One that was stopped is made up for.
"""

import json
import os
import warnings
from collections.abc import Iterator, Set
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Any

from tauflow._internal.atomic_write import add_path_to_errors
from tauflow.errors import NonFiniteError

JOURNAL_FILE = "study.log"
NUM_STARTUP_TRIALS = 5
"""Trials before a median is trusted to end others early."""
DRAW_ATTRIBUTE = "draw"
_NON_FINITE_ATTRIBUTE, _ERROR_ATTRIBUTE, _REPEATS_ATTRIBUTE = "not finite", "error", "repeats"
"""What trials are marked with: which of the study's draws their settings are, see
:func:`get_next_draw`, why they failed, and the number of the stopped one they repeat."""


def open_study(
    folder: Path | None,
    *,
    higher_is_better: bool,
    epochs: int,
) -> Any:
    """Return the study in a folder, a new one if there is none yet.

    Args:
        folder: where its journal is; without one, the study is kept nowhere.
        higher_is_better: whether a good score is a large one.
        epochs: of a trial.
    """
    import optuna
    from optuna.storages import JournalStorage

    # Its warnings are tracebacks of trials, of which this package says what there is to say.
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    # Of lists and tables to choose from, which a journal does give back.
    warnings.filterwarnings("ignore", "Choices for a categorical distribution", UserWarning)
    storage = None
    if folder is not None:
        # Workers of other machines come through Dask, so that a lock need not be a link, as it is
        # by default: a link dangles where the path is a relative one, and is then waited for
        # without an end.
        storage = JournalStorage(_make_journal_backend((folder / JOURNAL_FILE).absolute()))
    return optuna.create_study(
        storage=storage,
        study_name="study",
        load_if_exists=storage is not None,
        direction="maximize" if higher_is_better else "minimize",
        pruner=optuna.pruners.MedianPruner(NUM_STARTUP_TRIALS, n_warmup_steps=epochs // 5),
    )


def _make_journal_backend(path: Path) -> Any:
    """Return Optuna's journal in a file, which an error of writing leaves as it was."""
    from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

    lock = JournalFileOpenLock(str(path))

    class Journal(JournalFileBackend):
        """Whole lines or none are appended: half a line would join the next worker's."""

        def append_logs(self, logs: list[dict[str, Any]]) -> None:
            """Append a line per entry.

            Raises:
                OSError: the file cannot be written; the error names it.
            """
            lines = "".join(f"{json.dumps(one, separators=(',', ':'))}\n" for one in logs)
            lock.acquire()
            try:
                with add_path_to_errors(path), path.open("ab", buffering=0) as journal:
                    _append_whole(journal, lines.encode())
            finally:
                lock.release()

    return Journal(str(path), lock)


def _append_whole(journal: FileIO, data: bytes) -> None:
    size, rest = journal.seek(0, os.SEEK_END), memoryview(data)
    try:
        while rest:
            rest = rest[journal.write(rest) :]
        os.fsync(journal.fileno())
    except BaseException:
        journal.truncate(size)
        raise


def repair_journal(folder: Path) -> None:
    """Undo what a program that was killed left half done; for who holds the folder's lock."""
    for left in folder.glob(f"{JOURNAL_FILE}.lock*"):  # Optuna's own, which nobody gives back
        left.unlink()
    file = folder / JOURNAL_FILE
    if not file.exists():
        return
    with file.open("r+b") as journal:
        text = journal.read()
        whole = text.rfind(b"\n") + 1
        if whole < len(text):  # half a line, which would join the next one
            journal.truncate(whole)


def requeue_stopped_trials(study: Any, names: Set[str]) -> None:
    """Let the settings of trials that were stopped be the next ones; for who holds the lock.

    Those of a trial that was stopped before it had all of them, by these names, are drawn again.
    """
    from optuna.trial import TrialState

    # What still waits goes behind what began before it, as the order of trials counts.
    for _ in study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
        study.tell(study.ask(), state=TrialState.FAIL)
    trials = [(one, one.state) for one in study.get_trials(deepcopy=False)]
    repeated = {one.user_attrs.get(_REPEATS_ATTRIBUTE) for one, _ in trials}
    for trial, state in trials:
        if state is TrialState.RUNNING:  # in a program that was killed
            study.tell(trial.number, state=TrialState.FAIL)
        elif state is not TrialState.FAIL:
            continue
        settings = trial.system_attrs.get("fixed_params", trial.params)
        if settings.keys() == names and not is_conclusive(trial) and trial.number not in repeated:
            marks = {
                _REPEATS_ATTRIBUTE: trial.number,
                DRAW_ATTRIBUTE: trial.user_attrs.get(DRAW_ATTRIBUTE, trial.number),
            }
            study.enqueue_trial(settings, user_attrs=marks)


def get_next_draw(study: Any) -> int:
    """Return the number of the draw that gives the next trial its settings.

    It is the first whose trial neither came to an end nor is under way: the settings of a study
    depend on its seed and the trials that ended, and not on those that were stopped in between.
    """
    drawn = {
        one.user_attrs.get(
            DRAW_ATTRIBUTE, one.number
        )  # the studies of older versions have no such mark
        for one in study.get_trials(deepcopy=False)
        if is_conclusive(one) or not one.state.is_finished()
    }
    return next(number for number in range(len(drawn) + 1) if number not in drawn)


def get_ended_trials(study: Any) -> list[Any]:
    """Return the trials of a study that count, in their order."""
    return [one for one in study.get_trials(deepcopy=False) if _is_counted(one)]


def _is_counted(trial: Any) -> bool:
    if trial.state.name == "FAIL":
        return _NON_FINITE_ATTRIBUTE in trial.user_attrs
    return bool(trial.state.is_finished())


def is_conclusive(trial: Any) -> bool:
    """Whether a trial came to an end that its settings lead to, be it an error."""
    return _is_counted(trial) or _ERROR_ATTRIBUTE in trial.user_attrs


def get_error(trial: Any) -> str:
    """Return what a trial failed with, empty if it did not."""
    return str(trial.user_attrs.get(_ERROR_ATTRIBUTE, ""))


@contextmanager
def mark_failure(trial: Any) -> Iterator[None]:
    """Mark a trial with why it fails, if it does; one that is stopped gets no mark."""
    import optuna

    try:
        yield
    except optuna.TrialPruned:
        raise
    except NonFiniteError:
        trial.set_user_attr(_NON_FINITE_ATTRIBUTE, True)
        raise
    except OSError:  # of a disk, and not of the settings: the trial can be repeated
        raise
    except Exception as error:  # which the same settings may lead to again: they are not repeated
        trial.set_user_attr(_ERROR_ATTRIBUTE, f"{type(error).__name__}: {error}")
        raise
