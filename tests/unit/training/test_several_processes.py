"""Two processes that share the batches train as one does."""

import json
import os
import runpy
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch.distributed

SCRIPT = Path(__file__).with_name("process_group.py")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not torch.distributed.is_available() or not torch.distributed.is_gloo_available(),
        reason="this build of PyTorch has no process groups with gloo",
    ),
]


TOGETHER = (
    "curves",
    "areas",
    "accumulated",
    "resumed",
    "weighted",
    "stopping",
    "command",
)
ALONE = ("curves", "areas", "accumulated", "weighted", "other_number_of_ranks")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return where two processes, and one afterwards, left what they found in every case.

    Of the workers that run these tests the first to come here starts them, the others wait.
    """
    path = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        path = path.parent  # which they share
    path /= "processes"
    try:
        path.mkdir()
    except FileExistsError:
        for _ in range(6000):
            if (path / "ended").exists():
                return path
            time.sleep(0.1)
        pytest.fail("the processes that another worker started have not ended")
    try:
        start_all(path)
    finally:
        (path / "ended").touch()
    return path


def start_all(path):
    processes = [
        subprocess.Popen([sys.executable, str(SCRIPT), str(rank), "2", str(path), *TOGETHER])
        for rank in range(2)
    ]
    for process in processes:
        assert process.wait(timeout=600) == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [str(SCRIPT), "0", "1", str(path), *ALONE])
        runpy.run_path(str(SCRIPT))


def run(folder, case, world):
    """Return what every process of a group found."""
    return [
        json.loads((folder / f"{case}-{world}-{rank}.json").read_text(encoding="utf-8"))
        for rank in range(world)
    ]


def numbers(history, name):
    return [row[name] for row in history]


def test_loss_curves_are_those_of_one_process(folder):
    (alone,) = run(folder, "curves", 1)
    first, second = run(folder, "curves", 2)
    assert first == second
    for name, expected in alone.items():
        history = first[name]["history"]
        assert history[-1]["step"] == 8 * 7
        for score in ("train_loss", "valid", "test"):
            ours, theirs = numbers(history, score), numbers(expected["history"], score)
            # A CfC makes 3e-6 of its sums' rounding in 56 steps; 1e-5 is what is promised.
            bound = {"abs": 1e-5} if name == "cfc" else {"rel": 1e-5, "abs": 1e-6}
            assert ours == pytest.approx(theirs, **bound)


def test_accumulated_steps_and_averaged_weights_are_those_of_one_process(folder):
    (alone,) = run(folder, "accumulated", 1)
    first, second = run(folder, "accumulated", 2)
    assert first == second
    assert first["history"][-1]["step"] == 4 * 7
    for score in ("train_loss", "valid", "test", "lr"):
        scores, expected = numbers(first["history"], score), numbers(alone["history"], score)
        assert scores == pytest.approx(expected, rel=1e-5)


def test_areas_are_of_all_predictions_and_a_process_without_a_row_keeps_step(folder):
    (alone,) = run(folder, "areas", 1)
    first, second = run(folder, "areas", 2)
    assert first == second
    for score in ("train_loss", "valid", "test"):
        scores, expected = numbers(first["history"], score), numbers(alone["history"], score)
        assert scores == pytest.approx(expected, rel=1e-5)


def test_a_run_that_was_cut_off_resumes_to_the_same_bits(folder):
    first, second = run(folder, "resumed", 2)
    for process in (first, second):
        assert process["whole"] == process["resumed"]
        assert "last.safetensors" in process["writes"]
    log = (folder / "cut" / "log.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["epoch"] for line in log] == [1, 2, 3, 4]
    (alone,) = run(folder, "other_number_of_ranks", 1)
    assert alone["error"] == "CheckpointError"
    assert "ranks was 2, is 'absent'" in alone["message"]


def test_class_weights_that_divide_by_their_sum_are_those_of_one_process(folder):
    (alone,) = run(folder, "weighted", 1)
    first, second = run(folder, "weighted", 2)
    assert first == second
    for score in ("train_loss", "valid", "test"):
        scores, expected = numbers(first["history"], score), numbers(alone["history"], score)
        assert scores == pytest.approx(expected, rel=1e-5)


def test_a_command_in_several_processes_leaves_one_run(folder):
    assert run(folder, "command", 2) == [{"exit": 0}] * 2
    (left,) = (folder / "runs").glob("*/*")
    assert {"record.json", "predictor.safetensors"} <= {path.name for path in left.iterdir()}
    assert json.loads((left / "record.json").read_text("utf-8"))["status"] == "done"


def test_what_one_process_alone_would_stop_at_is_refused(folder):
    for report in run(folder, "stopping", 2):
        assert report["error"] == "ArgumentError"
        assert "is for one process" in report["message"]


@pytest.mark.thorough
def test_a_failure_in_one_process_ends_the_others(tmp_path):
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    program = tmp_path / "fails.py"
    program.write_text(FAILING, encoding="utf-8")
    done = subprocess.run([*command, program], capture_output=True, timeout=120, check=False)
    assert done.returncode == 1
    assert b"only this one fails" in done.stderr


FAILING = """
import torch, torch.distributed as dist, tauflow
dist.init_process_group("gloo")
x = torch.ones(8, 4, 1)
def fail(batch, *_, **__):
    raise ValueError("only this one fails")
model = tauflow.SequenceModel(tauflow.GRU(1, 2), 1)
if dist.get_rank() == 1:
    model.register_forward_pre_hook(fail)
tauflow.train(model, train=tauflow.SequenceBatch(x, x))
"""
