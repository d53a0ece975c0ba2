"""Seeds and settings of a row are trained side by side, with the results of single runs."""

import logging
from dataclasses import replace

import pytest
from tiny_experiment import tiny

from tauflow.runs.job import RECORD_FILE, with_epochs
from tauflow.training.run_directory import RunDirectory
from tauflow_papers.experiments import reproduce
from tauflow_papers.experiments.run.job_groups import group_jobs
from tauflow_papers.experiments.run.row_jobs import make_job, run_one

ROW, SEEDS = "gru", 3


def run(folder, seeds=SEEDS, **more):
    places = {"results_dir": folder / "results", "runs_dir": folder / "runs"}
    return reproduce(tiny(), models=[ROW], seeds=seeds, progress=False, **places, **more)


def numbers(record):
    history = [{**row, "seconds": 0} for row in record.history]
    return record.seed, record.valid, record.test, record.best_epoch, history


def test_seeds_are_trained_side_by_side_with_the_results_of_single_runs(tmp_path, caplog):
    with caplog.at_level(logging.INFO, logger="tauflow"):
        records = run(tmp_path / "together").records
    assert "training 3 networks side by side" in caplog.text
    for record in records:
        alone = run_one(
            tiny(), tiny().row(ROW), record.seed, runs_dir=tmp_path / "alone", progress=False
        )
        assert record.key == alone.key
        assert record.best_epoch == alone.best_epoch
        for mine, its in zip(record.history, alone.history, strict=True):
            assert mine.keys() == its.keys()
            for name in ("train_loss", "valid", "test"):
                assert mine[name] == pytest.approx(its[name], rel=1e-4)
        job = make_job(tiny(), tiny().row(ROW), record.seed)
        folders = [job.directory(tmp_path / "alone"), job.directory(tmp_path / "together" / "runs")]
        names = [sorted(file.name for file in folder.iterdir()) for folder in folders]
        assert names[0] == names[1]
        descriptions = [(folder / "run.json").read_text() for folder in folders]
        assert descriptions[0] == descriptions[1]
        assert (folders[1] / RECORD_FILE).read_text() == record.to_json() + "\n"


def test_runs_that_were_stopped_side_by_side_go_on_with_the_same_numbers(tmp_path, monkeypatch):
    whole = run(tmp_path / "whole", epochs=3)
    saved, save = [], RunDirectory.save

    def interrupt(directory, checkpoint):
        save(directory, checkpoint)
        saved.append(directory)
        if len(saved) == SEEDS:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(RunDirectory, "save", interrupt)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "cut", epochs=3)
    assert not (tmp_path / "cut" / "results" / "tiny.jsonl").exists()
    again = run(tmp_path / "cut", epochs=3)
    assert list(map(numbers, again.records)) == list(map(numbers, whole.records))


def test_runs_that_began_alone_go_on_alone(tmp_path, caplog):
    row = tiny().row(ROW)
    for seed in range(SEEDS):
        run_one(tiny(), row, seed, epochs=1, runs_dir=tmp_path / "runs", progress=False)
    with caplog.at_level(logging.INFO, logger="tauflow"):
        found = run(tmp_path, epochs=3)  # begins where the short runs ended
    assert "side by side" not in caplog.text
    for record in found.records:
        alone = run_one(tiny(), row, record.seed, epochs=3, progress=False)
        assert numbers(record) == numbers(alone)


def test_seeds_whose_data_are_split_by_the_seed_are_trained_side_by_side(tmp_path, caplog):
    table = tiny(split_option="seed")
    with caplog.at_level(logging.INFO, logger="tauflow"):
        places = {"results_dir": tmp_path / "results", "runs_dir": tmp_path / "runs"}
        records = reproduce(table, models=[ROW], seeds=2, progress=False, **places).records
    assert "training 2 networks side by side" in caplog.text
    for record in records:
        assert record.config["dataset_options"]["seed"] == record.seed
        alone = run_one(table, table.row(ROW), record.seed, progress=False)
        assert record.key == alone.key
        assert record.test == pytest.approx(alone.test, rel=1e-4)


def test_groups_have_one_shape_and_are_split_for_workers(tmp_path):
    table = tiny()
    jobs = [make_job(table, row, seed) for row in table.rows[:2] for seed in range(5)]
    assert [len(group) for group in group_jobs(jobs, tmp_path)] == [5, 5]
    assert [len(group) for group in group_jobs(jobs, tmp_path, 4)] == [2, 3, 2, 3]
    assert [len(group) for group in group_jobs(jobs[:5], tmp_path, 8)] == [1] * 5
    settings = [replace(jobs[0], recipe=replace(jobs[0].recipe, lr=lr)) for lr in (0.1, 0.2)]
    others = [
        replace(jobs[0], recipe=with_epochs(jobs[0].recipe, 7)),
        replace(jobs[0], model=replace(jobs[0].model, hidden_size=9)),
    ]
    groups = group_jobs([*settings, *others], tmp_path)
    assert [len(group) for group in groups] == [3, 1]
