"""What a program that was killed leaves in the folder of a study keeps nobody from it."""

import errno
import multiprocessing

import pytest

pytest.importorskip("optuna")
pytest.importorskip("resource")
from tauflow.runs.journal import JOURNAL_FILE, mark_failure, open_study, repair_journal


def test_a_folder_is_put_right(tmp_path):
    repair_journal(tmp_path)  # nothing is there yet
    journal = tmp_path / JOURNAL_FILE
    journal.write_bytes(b"one\ntwo\nthr")
    (tmp_path / f"{JOURNAL_FILE}.lock").symlink_to("a relative path that is none from here")
    (tmp_path / f"{JOURNAL_FILE}.lock-on-its-way-out").touch()
    (tmp_path / "best.toml").touch()
    repair_journal(tmp_path)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["best.toml", JOURNAL_FILE]
    assert journal.read_bytes() == b"one\ntwo\n"
    repair_journal(tmp_path)
    assert journal.read_bytes() == b"one\ntwo\n"


def add_trials_until_the_file_is_full(folder, room):
    """Run trials in a study whose file may grow by a few bytes; a process of its own."""
    import resource

    study = open_study(folder, higher_is_better=False, epochs=1)
    size = (folder / JOURNAL_FILE).stat().st_size + room
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    ended = None
    while ended is None:
        try:
            trial = study.ask()
            study.tell(trial, trial.suggest_float("lr", 0, 1))
        except OSError as error:
            ended = error
    assert (ended.errno, ended.filename) == (errno.EFBIG, str(folder / JOURNAL_FILE))


@pytest.mark.parametrize("room", [1, 300, 1000, 1001, 1002, 1003])
def test_a_journal_that_cannot_grow_keeps_whole_lines(tmp_path, room):
    """The error names the file, and another process goes on with the trials that were found."""
    study = open_study(tmp_path, higher_is_better=False, epochs=1)
    study.optimize(lambda trial: trial.suggest_float("lr", 0, 1), n_trials=2)
    values = [trial.value for trial in study.trials]
    child = multiprocessing.get_context("fork").Process(
        target=add_trials_until_the_file_is_full, args=(tmp_path, room)
    )
    child.start()
    child.join()
    assert child.exitcode == 0
    assert (tmp_path / JOURNAL_FILE).read_bytes().endswith(b"}\n")
    study.optimize(lambda trial: trial.suggest_float("lr", 0, 1), n_trials=1)
    again = open_study(tmp_path, higher_is_better=False, epochs=1)
    assert [trial.value for trial in again.trials[:2]] == values
    assert again.trials[-1].state.name == "COMPLETE"


@pytest.mark.parametrize(
    ("error", "marks"), [(OSError(errno.ENOSPC, "full"), 0), (ValueError("bad settings"), 1)]
)
def test_a_trial_that_the_disk_ended_is_repeated(error, marks):
    """Only an error that the settings lead to is kept with the trial."""
    trial = open_study(None, higher_is_better=False, epochs=1).ask()
    with pytest.raises(type(error)), mark_failure(trial):
        raise error
    assert len(trial.user_attrs) == marks
