import re
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_experiment import tiny

from tauflow._internal.locks import LOCK_FILE, lock_folder
from tauflow.errors import BusyError
from tauflow_papers.experiments import reproduce

HOLD = """
import sys
from pathlib import Path
from tauflow._internal.locks import lock_folder
with lock_folder(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def holder_of(folder: Path) -> subprocess.Popen:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "held\n"
    return process


@pytest.mark.slow
def test_two_commands_do_not_share_a_folder_of_runs(tmp_path):
    places = {"results_dir": tmp_path / "results", "progress": False}
    runs = tmp_path / "runs"
    process = holder_of(runs / "tiny")
    try:
        with pytest.raises(BusyError, match=rf"in use by process {process.pid}, since 20.*--jobs"):
            reproduce(tiny(), runs_dir=runs, **places)
        assert not list(runs.glob("tiny/*/run.json"))
        assert not (tmp_path / "results").exists()
        other = reproduce(tiny(), seeds=1, runs_dir=tmp_path / "others", **places)
        assert len(other.records) == 2
    finally:
        process.kill()
        process.communicate()
    # What was killed leaves no lock behind.
    assert len(reproduce(tiny(), runs_dir=runs, **places).records) == 4
    # Nothing is locked when nothing is to be run.
    with lock_folder(runs / "tiny", advice=""):
        assert len(reproduce(tiny(), runs_dir=runs, **places).records) == 4


def test_a_lock_is_given_back(tmp_path):
    for _ in range(2):
        with lock_folder(tmp_path, advice=""):
            text = (tmp_path / LOCK_FILE).read_text(encoding="utf-8")
            assert re.fullmatch(r"process \d+, since 20[\d-]+ [\d:]+ UTC", text)
            with (
                pytest.raises(BusyError, match="is in use by process"),
                lock_folder(tmp_path, advice=""),
            ):
                pass
