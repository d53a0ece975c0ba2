"""A command that was killed, whenever, goes on as if it had not been, and leaves no process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("kill_commands.py")


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are found in /proc")
@pytest.mark.parametrize(
    ("kind", "few", "full", "seed"),
    [
        ("run", 1, 30, 0),
        ("reproduce", 0, 15, 1),
        ("reproduce", 0, 15, 2),
        ("search", 0, 15, 3),
        ("search", 0, 15, 4),
        ("tune", 0, 12, 9),
        *(("reproduce --jobs 2", 0, 5, seed) for seed in range(5, 9)),
    ],
)
def test_a_killed_command_ends_as_one_left_in_peace(tmp_path, tries, kind, few, full, seed):
    kills = tries(f"kills of {kind}", few=few, full=full)
    if not kills:
        pytest.skip("only under --full")
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(tmp_path), kind, str(kills), str(seed)],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, f"{kind}, seed {seed}:\n{done.stderr[-5000:]}"
    assert int(done.stdout.split()[0]) >= kills
