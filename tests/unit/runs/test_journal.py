"""What a program that was killed leaves in the folder of a study keeps nobody from it."""

import pytest

pytest.importorskip("optuna")
from tauflow.runs.journal import JOURNAL_FILE, repair_journal


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
