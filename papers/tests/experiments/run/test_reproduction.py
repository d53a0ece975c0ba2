import errno
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny_experiment import parsed, tiny

from tauflow.errors import ArgumentError, DataError, DataNotFoundError
from tauflow.runs.job import load_dataset, train_job, with_epochs
from tauflow.runs.warm_start import warm_start_from_shorter_run
from tauflow_papers.experiments import collect, load_experiment, reproduce
from tauflow_papers.experiments.report import table
from tauflow_papers.experiments.report.grid_page import make_grid_markdown, write_grid_reports
from tauflow_papers.experiments.report.results_summary import describe_verdicts, summarize_results
from tauflow_papers.experiments.run import result_file, run_jobs
from tauflow_papers.experiments.run.row_jobs import make_job, run_one
from tauflow_papers.experiments.run.run_job import Paths
from tauflow_papers.experiments.spec.experiment import Published
from tauflow_papers.experiments.spec.parse import experiment_from_dict

ROOT = Path(__file__).parents[4]


@pytest.fixture
def places(tmp_path):
    return {"results_dir": tmp_path / "results", "runs_dir": tmp_path / "runs"}


def lines_of(places):
    return (places["results_dir"] / "tiny.jsonl").read_text().splitlines()


def test_every_row_and_seed_is_run_once(places):
    lines = []
    grid = reproduce(tiny(), progress=False, say=lines.append, **places)
    assert [(r.row, r.seed, r.status) for r in grid.records] == [
        (row, seed, "done") for row in ("gru", "elman") for seed in (0, 1)
    ]
    before = lines_of(places)
    again = reproduce(tiny(), progress=False, say=lines.append, **places)
    assert lines[-1] == f"4 of 4 runs are in {places['results_dir'] / 'tiny.jsonl'} already"
    assert lines_of(places) == before
    assert (
        again.records == grid.records == collect(tiny(), results_dir=places["results_dir"]).records
    )


def test_a_record_says_all_there_is_to_know(places):
    (record,) = reproduce(tiny(), models=["gru"], seeds=1, progress=False, **places).records
    content = json.loads(lines_of(places)[0])
    assert content["config"]["recipe"]["lr"] == 0.01
    assert content["config"]["seed"] == content["seed"] == 0
    assert {"tauflow", "torch", "numpy", "python"} <= content["versions"].keys()
    assert {"cpu", "cores", "threads", "platform"} <= content["machine"].keys()
    assert [row["epoch"] for row in content["history"]] == [1, 2]
    assert record.test == content["history"][record.best_epoch - 1]["test"]
    alone = run_one(tiny(), tiny().row("gru"), 0, progress=False)
    assert (alone.test, alone.valid) == (record.test, record.valid)


def test_other_seeds_and_epochs_are_other_runs(places):
    experiment = tiny()
    gru = experiment.row("gru")
    jobs = [make_job(experiment.with_epochs(e), gru, seed) for seed in (0, 1) for e in (None, 1)]
    assert len({job.hash for job in jobs}) == 4
    assert make_job(experiment.with_epochs(2), gru, 0).hash == jobs[0].hash
    # What changes no result is no part of a run's identity.
    recipe = replace(gru.recipe, eval_batch_size=7)
    assert replace(jobs[0], recipe=recipe).hash == jobs[0].hash


def test_a_longer_run_begins_where_a_shorter_one_ended(places, tmp_path):
    def numbers(grid):
        return [
            (r.row, r.test, r.best_epoch, [row["train_loss"] for row in r.history])
            for r in grid.records
        ]

    options = {"models": ["gru"], "progress": False}
    reproduce(tiny(), epochs=1, **options, **places)
    reproduce(tiny(), epochs=3, **options, **places)
    log = next((places["runs_dir"] / "tiny").glob("gru-seed1-*")) / "log.jsonl"
    first_epoch = log.read_text().splitlines()[0]
    longer = reproduce(tiny(), epochs=4, **options, **places)
    elsewhere = {"results_dir": tmp_path / "r", "runs_dir": tmp_path / "elsewhere"}
    assert numbers(longer) == numbers(reproduce(tiny(), epochs=4, **options, **elsewhere))
    logs = [
        path.read_text() for path in (places["runs_dir"] / "tiny").glob("gru-seed1-*/log.jsonl")
    ]
    assert len(logs) == 3
    # The seconds tell that its first epoch was not run again.
    assert all(log.splitlines()[0] == first_epoch for log in logs)
    record = next(r for r in longer.records if r.seed == 1)
    assert record.history[0]["seconds"] == json.loads(first_epoch)["seconds"]


def test_runs_that_are_no_beginning_of_a_longer_one_are_left_alone(tmp_path):
    curriculum = replace(tiny().row("gru").recipe, epochs=4, curriculum=(2,), curriculum_epochs=2)
    job = replace(make_job(tiny(), tiny().row("gru"), 0), recipe=curriculum)
    for recipe in (with_epochs(curriculum, 2), replace(curriculum, lr=0.5, epochs=3)):
        other = replace(job, recipe=recipe)
        train_job(other, load_dataset(job.part), run_dir=other.directory(tmp_path), progress=False)
    unfinished = replace(job, recipe=replace(curriculum, epochs=3)).directory(tmp_path)
    unfinished.mkdir()
    (unfinished / "run.json").write_text(json.dumps({"recipe": {"epochs": 3}}))
    torn = unfinished.with_name(f"{unfinished.name[:-8]}00000000")
    torn.mkdir()
    (torn / "run.json").write_text("{")
    (torn / "record.json").write_text("{")
    assert warm_start_from_shorter_run([job], [load_dataset(job.part)], tmp_path) == 0
    assert not job.directory(tmp_path).exists()


@pytest.mark.parametrize(("epochs", "stage"), [(1300, 100), (26, 2), (5, 1)])
def test_a_shortened_run_still_comes_to_whole_sequences(epochs, stage):
    written = load_experiment("gnode-table-4")
    recipe = make_job(written.with_epochs(epochs), written.row("gru/drop-30"), 0).recipe
    assert (recipe.epochs, recipe.curriculum_epochs) == (epochs, stage)
    trained_whole = epochs > stage * len(recipe.curriculum)
    assert (recipe.get_stage_length(epochs) is None) == trained_whole == (epochs >= 26)


def test_a_shorter_run_of_other_data_is_no_beginning(places, monkeypatch):
    reproduce(tiny(), models=["gru"], seeds=1, epochs=1, progress=False, **places)
    job = make_job(tiny(), tiny().row("gru"), 0)
    data = load_dataset(job.part)
    moved = replace(data, train=replace(data.train, x=data.train.x + 1e-3))
    runs = places["runs_dir"]
    assert warm_start_from_shorter_run([job], [moved], runs) == 0
    monkeypatch.setattr(
        "tauflow_papers.experiments.run.row_jobs.load_dataset", lambda part, data_dir: moved
    )
    grid = reproduce(tiny(), models=["gru"], seeds=1, progress=False, **places)
    assert [r.epochs for r in grid.records] == [2]
    assert not grid.failures
    (shorter,) = (path.parent for path in runs.glob("*/*/log.jsonl") if len(_lines(path)) == 1)
    (shorter / "last.safetensors").write_bytes(b"torn")
    longer = replace(job, recipe=replace(job.recipe, epochs=3))
    assert warm_start_from_shorter_run([longer], [data], runs) == 0


def test_a_shorter_run_of_several_processes_is_no_beginning_of_one_of_one(places):
    reproduce(tiny(), models=["gru"], seeds=1, progress=False, **places)
    job = make_job(tiny(), tiny().row("gru"), 0)
    longer = replace(job, recipe=replace(job.recipe, epochs=3))
    (path,) = places["runs_dir"].glob("*/*/run.json")
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "ranks": 2}))
    assert warm_start_from_shorter_run([longer], [load_dataset(job.part)], places["runs_dir"]) == 0
    path.write_text(json.dumps(content))
    assert warm_start_from_shorter_run([longer], [load_dataset(job.part)], places["runs_dir"]) == 2


def _lines(path):
    return path.read_text().splitlines()


@pytest.mark.thorough
def test_published_results_can_be_surveyed_and_belong_to_their_specifications():
    summary = summarize_results(ROOT / "papers" / "results")
    assert {
        table_summary.experiment.name: table_summary.num_unmatched
        for table_summary in summary.tables
        if table_summary.num_unmatched
    } == {}
    assert not summary.warnings
    assert (
        sum(
            len(entry.records)
            for table_summary in summary.tables
            for entry in table_summary.entries
        )
        > 100
    )
    counts = {table.experiment.name: len(table.measured) for table in summary.tables}
    assert counts["ltc-table-6"] >= 2
    assert counts["cfc-table-7"] >= 4


def test_a_search_needs_data_to_select_by(places):
    part = {"name": "bits", "dataset": "xor-dense"}
    recipe = {"select": "last", "epochs": 1, "batch_size": 4}
    row = {
        **{"name": "gru", "title": "GRU", "model": {"cell": "gru"}, "published": {"mean": 0.9}},
        "search": {"recipe": {"lr": [0.1, 0.2]}},
    }
    table_ = {**parsed(), "loss": "bce", "metric": "binary_accuracy", "recipe": recipe}
    experiment = experiment_from_dict({**table_, "part": [part], "row": [row]}, "tiny.toml")
    with pytest.raises(ArgumentError, match="no validation part to select settings by"):
        reproduce(experiment, progress=False, **places)


def test_a_failing_run_leaves_the_others_alone(places):
    experiment = tiny()
    broken = replace(experiment.rows[0].model, options={"init": "unknown"})
    rows = (replace(experiment.rows[0], model=broken), *experiment.rows[1:])
    grid = reproduce(replace(experiment, rows=rows), seeds=1, progress=False, **places)
    assert [r.row for r in grid.records] == ["elman"]
    assert [r.row for r in grid.failures] == ["gru"]
    assert "UnknownNameError: init='unknown'" in grid.failures[0].error
    # A failed run is tried again once its cause is gone.
    assert len(reproduce(experiment, seeds=1, progress=False, **places).records) == 2


def test_missing_data_of_one_part_leave_the_others_alone(places, monkeypatch):
    def refuse(part, data_dir=None):
        if part.name == "far":
            raise DataNotFoundError("far away")
        return load_dataset(part, data_dir)

    monkeypatch.setattr(run_jobs, "load_dataset", refuse)
    (near,) = parsed()["part"]
    parts = [{**near, "name": name} for name in ("near", "far")]
    numbers = {"near": {"mean": 0.5}, "far": {"mean": 0.5}}
    row = {"name": "gru", "title": "GRU", "model": {"cell": "gru"}, "published": numbers}
    grid = reproduce(tiny(part=parts, row=[row]), seeds=2, progress=False, **places)
    assert [(r.row, r.seed) for r in grid.records] == [("gru/near", 0), ("gru/near", 1)]
    assert [r.error for r in grid.failures] == ["DataNotFoundError: far away"] * 2
    with pytest.raises(DataNotFoundError, match="far away"):
        reproduce(tiny(part=parts, row=[row]), models=["gru/far"], progress=False, **places)


@pytest.mark.thorough
def test_processes_give_the_results_of_one(places, tmp_path):
    alone = reproduce(tiny(), progress=False, **places)
    other = {"results_dir": tmp_path / "r2", "runs_dir": tmp_path / "runs2"}
    both = reproduce(tiny(), jobs=2, **other)
    for row in tiny().rows[:2]:
        tests = [[r.test for r in grid.get_runs(row)] for grid in (alone, both)]
        assert tests[0] == pytest.approx(tests[1], rel=1e-5)


def test_a_single_job_of_many_processes_has_one_thread_too(places):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        grid = reproduce(tiny(), models=["gru"], seeds=1, jobs=2, progress=False, **places)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert [record.machine["threads"] for record in grid.records] == [1]


def test_a_torn_line_is_reported_and_not_lost(places):
    reproduce(tiny(), models=["gru"], progress=False, **places)
    path = places["results_dir"] / "tiny.jsonl"
    text = path.read_text()
    path.write_text(text[:-40])  # killed while writing the second line
    lines = []
    grid = reproduce(tiny(), models=["gru"], progress=False, say=lines.append, **places)
    assert "warning: " in lines[0]
    assert "line 2 is torn" in lines[0]
    assert len(grid.records) == 2
    assert path.read_text().startswith(text[:-40] + "\n")


def test_a_disk_that_fills_up_within_a_line_is_told(places, monkeypatch):
    (record,) = reproduce(tiny(), models=["gru"], seeds=1, progress=False, **places).records
    path, write, left = places["results_dir"] / "other.jsonl", os.write, [100]

    def write_what_fits(handle, data):  # as POSIX says of a disk with room for a part
        if not left[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = write(handle, data[: left[0]])
        left[0] -= written
        return written

    monkeypatch.setattr(os, "write", write_what_fits)
    with pytest.raises(OSError, match=r"No space left.*other\.jsonl"):
        result_file.append_record(path, record)


def test_a_place_that_takes_no_results_is_told_before_anything_is_run(places, tmp_path):
    (tmp_path / "taken").write_text("not a folder")
    with pytest.raises(OSError, match="taken"):
        reproduce(tiny(), models=["gru"], **{**places, "results_dir": tmp_path / "taken"})
    (places["results_dir"] / "tiny.jsonl").mkdir(parents=True)
    with pytest.raises(OSError, match=r"tiny\.jsonl"):
        reproduce(tiny(), models=["gru"], **places)
    assert not list(places["runs_dir"].rglob("run.json"))


def test_a_line_of_something_else_is_refused(places):
    path = places["results_dir"] / "tiny.jsonl"
    path.parent.mkdir()
    path.write_text('{"colour": "red"}\n')
    with pytest.raises(DataError, match="line 1 is not a run record"):
        reproduce(tiny(), progress=False, **places)


def test_means_and_deviations():
    assert table.compute_mean_std([1.0, 2.0, 6.0], 1) == pytest.approx((3.0, 7.0**0.5))
    assert table.compute_mean_std([1.0, 2.0, 6.0], 0) == pytest.approx((3.0, (14 / 3) ** 0.5))
    assert table.compute_mean_std([2.5], 1) == (2.5, None)
    assert table.format_mean_std(0.9876, 0.0123, 5, "accuracy") == "98.76 ± 1.23 (5)"
    assert table.format_mean_std(2.2147, 0.0302, 3, "mse") == "2.215 ± 0.030 (3)"
    assert table.format_mean_std(0.08, 0.004, 5, "mse") == "0.0800 ± 0.0040 (5)"
    assert table.format_mean_std(0.01003, 0.0004, None, "mse") == "0.0100 ± 0.0004"
    assert table.format_mean_std(0.5, 0.00042, None, "mse") == "0.5000 ± 0.0004"
    assert table.format_mean_std(0.5, 1e-9, None, "mse") == "0.50000 ± 0.00000"
    assert table.format_mean_std(2e-7, 3e-8, None, "mse") == "2.00e-07 ± 3e-08"


def test_the_table_sets_ours_beside_published(places):
    grid = reproduce(tiny(), models=["gru"], progress=False, **places)
    gru, elman, future = table.make_lines(grid)
    mean = sum(r.test for r in grid.records) / 2
    assert gru.published == "0.500 ± 0.100 (5)"
    assert gru.ours.startswith(f"{mean:.3f} ± ")
    assert gru.epochs == "2 / 2"
    assert (elman.ours, elman.note) == ("not run", "quoted from Somebody 2019")
    assert future.ours == "not implemented yet"
    fewer = reproduce(tiny(), models=["gru"], epochs=1, progress=False, **places)
    assert table.make_lines(fewer)[0].epochs == "1 / 2 (fewer)"
    assert describe_verdicts(fewer)[0].startswith("not measured (")
    markdown = make_grid_markdown(grid)
    assert "| GRU | 0.500 ± 0.100 (5) |" in markdown
    assert "- Invented." in markdown


@pytest.mark.slow
def test_the_page_needs_nothing_else_and_escapes_text(places):
    grid = reproduce(tiny(), seeds=1, progress=False, **places)
    markdown, html = write_grid_reports(grid, Paths(places["results_dir"], places["runs_dir"]))
    page = html.read_text(encoding="utf-8")
    assert markdown.read_text(encoding="utf-8") == make_grid_markdown(grid)
    assert "Elman &lt;b&gt;" in page
    assert "Elman <b>" not in page
    assert "<script" not in page
    for attribute in ('src="http', "src='http", 'href="http', "url(http", "@import"):
        assert attribute not in page
    assert page.count("data:image/svg+xml;base64,") == 2  # learning curves, and predictions


@pytest.mark.parametrize(
    ("numbers", "metric", "text"),
    [
        ({"mean": 0.099, "std": 0.0095, "n": 5}, "mse", "0.099 ± 0.0095 (5)"),
        ({"mean": 0.302, "std": 0.0155}, "f1", "0.302 ± 0.0155"),
        ({"mean": 0.9567, "std": 0.00575}, "accuracy", "95.67 ± 0.575"),
        ({"mean": 0.64, "std": 0.006}, "mse", "0.640 ± 0.006"),
        ({"mean": 0.6477, "std": 0.01}, "auroc", "0.6477 ± 0.0100"),
        ({"mean": 1.0, "std": 0.0}, "binary_accuracy", "100.00 ± 0.00"),
        ({"mean": 3.2e-08}, "mse", "3.2e-08"),
        ({"mean": 0.000191}, "mse", "0.000191"),
        ({"below": 0.01}, "mse", "< 0.01"),
        ({"above": 0.025}, "mse", "≥ 0.025"),
    ],
)
def test_published_numbers_keep_their_digits(numbers, metric, text):
    assert table.format_published(Published(**numbers), metric) == text
