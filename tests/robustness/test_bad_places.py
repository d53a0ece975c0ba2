"""Where a command cannot write, read or print as it would, it says so or does without."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("bad_places.py")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
COMMAND = (sys.executable, "-m", "tauflow")
posix = pytest.mark.skipif(not hasattr(os, "fork"), reason="the program forks")


def disks_can_be_mounted(folder):
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(folder)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return False
    subprocess.run(["umount", str(folder)], check=True)
    return True


@posix
@pytest.mark.thorough
@pytest.mark.parametrize(("kind", "full"), [("other", 40), ("disk", 20)])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_command_in_trouble_ends_with_a_message(tmp_path, tries, kind, full, seed):
    number = tries(f"commands in trouble ({kind})", few=1, full=full)
    if kind == "disk" and not disks_can_be_mounted(tmp_path):
        pytest.skip("only root can mount a small disk")
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(number), str(seed), kind],
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
        env=ENVIRONMENT,
    )
    assert done.returncode == 0, f"{kind}, seed {seed}:\n{done.stderr[-5000:]}"


@pytest.mark.parametrize(
    "changes",
    [
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"MPLCONFIGDIR": "/dev/null/matplotlib"},
        {"HOME": "/dev/null/home", "XDG_CACHE_HOME": "/dev/null/cache", "TMPDIR": "/nowhere"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_process_that_starts_in_trouble_runs(tmp_path, tries, changes):
    """What is read once, at the start of a process, or when a module is imported."""
    if not tries("processes started in trouble", few=0, full=1):
        pytest.skip("only under --full")
    words = ("run", "pendulum", "--model", "elman", "--hidden-size", "3", "--epochs", "1")
    environment = {**ENVIRONMENT, **changes}
    for command in (words, (*words, "--resume"), ("data", "list")):
        done = subprocess.run(
            [*COMMAND, *command],
            capture_output=True,
            timeout=600,
            check=False,
            cwd=tmp_path,
            env=environment,
        )
        assert done.returncode == 0, done.stderr.decode("utf-8", "replace")
