import io
import json
import time
from dataclasses import replace

import pytest
from tiny_experiment import parsed, tiny

from tauflow_papers.experiments import reproduce
from tauflow_papers.experiments.run import progress
from tauflow_papers.experiments.run.eta import EtaEstimator
from tauflow_papers.experiments.run.row_jobs import make_job
from tauflow_papers.experiments.run.run_job import RUNNING_MARKER_FILE


def jobs_of(*names, epochs=10, seeds=1):
    experiment = tiny(recipe={**parsed()["recipe"], "epochs": epochs})
    return [make_job(experiment, experiment.row(n), seed) for n in names for seed in range(seeds)]


def write_log(job, folder, seconds, torn=""):
    place = job.directory(folder)
    place.mkdir(parents=True, exist_ok=True)
    rows = [{"epoch": e, "seconds": s, "valid": 0.5} for e, s in enumerate(seconds, start=1)]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (place / "log.jsonl").write_text(text + torn)


def test_nothing_is_known_at_first(tmp_path):
    outlook = EtaEstimator(jobs_of("gru", "elman"), tmp_path)
    assert outlook.estimate_seconds_left() is None
    assert str(outlook) == "0 of 2 runs, 0 of 20 epochs, time left not known yet"


def test_what_is_left_follows_from_the_epochs_so_far(tmp_path):
    gru, elman = jobs = jobs_of("gru", "elman")
    outlook = EtaEstimator(jobs, tmp_path)
    write_log(gru, tmp_path, [9.0, 2.0, 2.0], torn='{"epoch": 4, "sec')  # the first one compiled
    outlook.refresh()
    assert outlook.count_finished_epochs(gru) == 3
    assert outlook.estimate_epoch_seconds(elman) == 2.0  # guessed
    assert outlook.estimate_seconds_left() == 7 * 2.0 + 10 * 2.0
    write_log(elman, tmp_path, [30.0])
    outlook.refresh()
    assert outlook.estimate_seconds_left() == 7 * 2.0 + 9 * 30.0
    assert str(outlook) == "0 of 2 runs, 4 of 20 epochs, about 5 min left"
    outlook.mark_ended(elman.key)  # it failed after one epoch
    assert str(outlook) == "1 of 2 runs, 4 of 11 epochs, about 14 s left"
    write_log(gru, tmp_path, [9.0] + [2.0] * 9)
    outlook.mark_ended(gru.key)
    assert str(outlook) == "2 of 2 runs, 11 of 11 epochs, nothing left"


def test_other_seeds_and_earlier_results_tell_the_pace(tmp_path):
    experiment = tiny()
    places = {"results_dir": tmp_path, "runs_dir": tmp_path}
    grid = reproduce(experiment, models=["gru"], seeds=1, progress=False, **places)
    (earlier,) = grid.records
    earlier = replace(earlier, seconds_per_epoch=4.0)
    first, second, other = [*jobs_of("gru", seeds=2), *jobs_of("elman")]
    outlook = EtaEstimator([first, second, other], tmp_path / "none", finished_runs=[earlier])
    assert outlook.estimate_seconds_left() == 30 * 4.0
    write_log(first, tmp_path / "none", [1.0])
    outlook.refresh()
    assert outlook.estimate_epoch_seconds(second) == 1.0
    assert outlook.estimate_seconds_left() == 29 * 1.0


def test_longer_stages_of_a_curriculum_take_longer(tmp_path):
    """Where an epoch takes a second, and half of one more per step that it trains on."""
    recipe = {"curriculum": [2, 4], "curriculum_epochs": 3, "epochs": 9}
    experiment = tiny(recipe={**parsed()["recipe"], **recipe})
    first, second = (make_job(experiment, experiment.row("gru"), seed) for seed in range(2))
    outlook = EtaEstimator([first, second], tmp_path)
    write_log(first, tmp_path, [9.0, 2.0, 2.0])
    outlook.refresh()
    # One stage of two steps: four steps are taken for twice, whole sequences for three times as
    # long.
    assert outlook.get_required_seconds(first, in_any_case=False) == 4.0
    assert outlook.estimate_epoch_seconds(second) == pytest.approx(
        (3 * 2.0 + 3 * 4.0 + 3 * 6.0) / 9
    )
    write_log(first, tmp_path, [9.0, 2.0, 2.0, 3.0])
    outlook.refresh()
    assert outlook.get_required_seconds(first, in_any_case=False) == 3.0
    assert outlook.estimate_seconds_left() == 2 * 3.0 + 3 * 4.0 + (3 * 2.0 + 3 * 3.0 + 3 * 4.0)
    write_log(first, tmp_path, [9.0, 2.0, 2.0, 3.0, 3.0, 3.0, 7.0])  # whole ones are longer still
    outlook.refresh()
    assert outlook.get_required_seconds(first, in_any_case=False) == 7.0


def test_workers_share_the_work(tmp_path):
    jobs = jobs_of("gru", "elman", seeds=2)
    write_log(jobs[0], tmp_path, [5.0] * 2)
    write_log(jobs[3], tmp_path, [1.0] * 6)
    # 8 x 5 = 40 s, 50 s, 10 s, 4 s: two workers in this order are busy for 40 + 10 + 4 and 50 s.
    assert EtaEstimator(jobs, tmp_path, workers=2).estimate_seconds_left() == 54.0
    assert EtaEstimator(jobs, tmp_path, workers=1).estimate_seconds_left() == 104.0
    assert EtaEstimator(jobs, tmp_path, workers=9).estimate_seconds_left() == 50.0
    # If the last has begun, it goes before: 4 + 50 and 40 + 10.
    (jobs[3].directory(tmp_path) / RUNNING_MARKER_FILE).write_text("mine")
    outlook = EtaEstimator(jobs, tmp_path, workers=2, token="mine")
    assert outlook.estimate_seconds_left() == 54.0
    assert [job.key for job in outlook.get_running_jobs()] == [jobs[3].key]
    assert "; under way: elman, seed 1" in str(outlook)
    assert EtaEstimator(jobs, tmp_path, token="another's").get_running_jobs() == []


def test_a_line_is_told_now_and_then(tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "_FIRST_PAUSE", 0.02)
    monkeypatch.setattr(progress, "_MAX_PAUSE", 0.04)
    lines = []
    outlook = EtaEstimator(jobs_of("gru"), tmp_path)
    with progress.show_progress(outlook, say=lines.append, enabled=False):
        deadline = time.monotonic() + 20
        while len(lines) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
    assert lines[0] == "0 of 1 runs, 0 of 10 epochs, time left not known yet"
    count = len(lines)
    time.sleep(0.1)
    assert len(lines) == count >= 3


def test_bars_are_drawn_on_request(tmp_path, monkeypatch):
    terminal = io.StringIO()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(progress, "_REFRESH", 0.02)
    (job,) = jobs_of("gru")
    outlook = EtaEstimator([job], tmp_path, token="mine")
    write_log(job, tmp_path, [2.0])
    (job.directory(tmp_path) / RUNNING_MARKER_FILE).write_text("mine")
    expected = ("all epochs", "1/10", "0 of 1 runs, about 18 s left", "gru, seed 0", "valid 0.5")
    with progress.show_progress(outlook, say=pytest.fail, enabled=True):
        deadline = time.monotonic() + 20
        while any(words not in terminal.getvalue() for words in expected):
            assert time.monotonic() < deadline, terminal.getvalue()
            time.sleep(0.01)


def test_every_finished_run_says_how_much_is_left(tmp_path):
    lines = []
    places = {"results_dir": tmp_path / "results", "runs_dir": tmp_path / "runs"}
    reproduce(tiny(), seeds=1, progress=False, say=lines.append, **places)
    assert lines[0].startswith("[1/2] gru, seed 0: test mse ")
    assert lines[0].endswith(" s left")
    assert lines[1].startswith("[2/2] elman, seed 0: ")
    assert lines[1].endswith("; nothing left")
