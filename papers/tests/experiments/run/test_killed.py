import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from tiny_experiment import tiny, without_times

from tauflow.training import read_checkpoint
from tauflow.training.checkpoint import read_tensors
from tauflow_papers.experiments import collect, reproduce
from tauflow_papers.experiments.run import run_in_processes

HERE = Path(__file__).parent
TINY = str(HERE.parent)  # where the tiny experiment is
PATH = os.pathsep.join((TINY, os.environ.get("PYTHONPATH", "")))
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": PATH}


def assert_equal_tensors(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the program forks")
def test_a_command_killed_at_random_moments_ends_as_one_left_in_peace(tmp_path):
    done = subprocess.run(
        [sys.executable, str(HERE / "kill_reproduce.py"), str(tmp_path), "8", "3"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=ENVIRONMENT,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) >= 3, "too few kills to tell anything"
    roots = [tmp_path / name for name in ("peace", "killed")]
    lines = [(root / "results" / "tiny.jsonl").read_text().splitlines() for root in roots]
    assert len(lines[0]) == len(lines[1]) == 4, "a run was recorded twice, or not at all"
    records, other = (collect_longer(root / "results").records for root in roots)
    assert [without_times(r) for r in records] == [without_times(r) for r in other]
    runs = sorted(path.name for path in (roots[0] / "runs" / "tiny").iterdir() if path.is_dir())
    assert len(runs) == 4
    for run in runs:
        places = [root / "runs" / "tiny" / run for root in roots]
        last = [read_checkpoint(place / "last.safetensors") for place in places]
        assert_equal_tensors(last[0].model, last[1].model)
        best = [read_tensors(place / "best.safetensors", "weights file") for place in places]
        assert_equal_tensors(best[0][0], best[1][0])


def collect_longer(results_dir):
    from kill_reproduce import RECIPE

    return collect(tiny(recipe=RECIPE), results_dir=results_dir)


LONG = """
import sys
from pathlib import Path
from tiny_experiment import parsed, tiny
from tauflow_papers.experiments import reproduce
recipe = {**parsed()["recipe"], "epochs": 100_000}
where = {"results_dir": Path(sys.argv[1]), "runs_dir": Path(sys.argv[1])}
reproduce(tiny(recipe=recipe), jobs=2, **where)
"""


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not tell who a parent is")
def test_workers_end_with_the_command_that_started_them(tmp_path):
    command = subprocess.Popen([sys.executable, "-c", LONG, str(tmp_path)], env=ENVIRONMENT)
    wait_for_two_runs(command, tmp_path)
    command.send_signal(signal.SIGKILL)
    command.wait()
    deadline = time.monotonic() + 60
    before, now = None, sizes_of_logs(tmp_path)
    while now != before:  # the workers train on
        assert time.monotonic() < deadline
        time.sleep(2.0)
        before, now = now, sizes_of_logs(tmp_path)


def wait_for_two_runs(command, folder):
    deadline = time.monotonic() + 120
    while len(list(folder.glob("tiny/*/log.jsonl"))) < 2:
        assert time.monotonic() < deadline
        assert command.poll() is None
        time.sleep(0.05)


def sizes_of_logs(folder):
    return [log.stat().st_size for log in sorted(folder.glob("tiny/*/log.jsonl"))]


def wait_for(path):
    deadline = time.monotonic() + 120
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.thorough
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the program forks")
def test_a_worker_whose_parent_died_before_it_could_watch_ends(tmp_path):
    program = [sys.executable, str(HERE / "outlive_parent.py"), str(tmp_path)]
    subprocess.run(program, check=True, env=ENVIRONMENT)
    for name in ("own/orphaned", "strange/orphaned", "strange/alive"):
        wait_for(tmp_path / name)
    time.sleep(0.5)
    assert not (tmp_path / "own" / "alive").exists()


run_job_in_worker = run_in_processes._run_job_in_worker


def die_of_one_run(job, **options):
    if (job.row, job.seed) == ("gru", 1):
        (job.directory(options["places"].runs)).mkdir(parents=True, exist_ok=True)
        (job.directory(options["places"].runs) / "running").write_text(options["token"])
        os.kill(os.getpid(), signal.SIGKILL)
    return run_job_in_worker(job, **options)


@pytest.mark.thorough
@pytest.mark.slow
def test_a_worker_that_dies_takes_no_other_run_with_it(tmp_path, monkeypatch):
    places = {"results_dir": tmp_path / "results", "runs_dir": tmp_path / "runs"}
    with monkeypatch.context() as patch:
        patch.setattr(run_in_processes, "_run_job_in_worker", die_of_one_run)
        grid = reproduce(tiny(), jobs=2, progress=False, **places)
    assert {(r.row, r.seed) for r in grid.records} == {("gru", 0), ("elman", 0), ("elman", 1)}
    (failure,) = grid.failures
    assert (failure.row, failure.seed) == ("gru", 1)
    assert "its process was killed, often for want of memory" in failure.error
    assert len(reproduce(tiny(), progress=False, **places).records) == 4
