"""What a program that was killed leaves in the folder of a study keeps nobody from it."""

import pytest

pytest.importorskip("optuna")
from tauflow.runs.journal import JOURNAL, put_right


def test_a_folder_is_put_right(tmp_path):
    put_right(tmp_path)  # nothing is there yet
    journal = tmp_path / JOURNAL
    journal.write_bytes(b"one\ntwo\nthr")
    (tmp_path / f"{JOURNAL}.lock").symlink_to("a relative path that is none from here")
    (tmp_path / f"{JOURNAL}.lock-on-its-way-out").touch()
    (tmp_path / "best.toml").touch()
    put_right(tmp_path)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["best.toml", JOURNAL]
    assert journal.read_bytes() == b"one\ntwo\n"
    put_right(tmp_path)
    assert journal.read_bytes() == b"one\ntwo\n"
