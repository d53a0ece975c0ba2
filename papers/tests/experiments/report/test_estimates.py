"""What rows without results would take: which runs count as missing, and what is kept and told."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tiny_experiment import TINY, parsed, tiny

from tauflow.errors import ArgumentError, DataError, NonFiniteError
from tauflow.training.recipe import Recipe
from tauflow_papers.experiments import reproduce, run_one
from tauflow_papers.experiments.report.remaining_time import (
    ESTIMATES_FILE,
    _store_estimate,
    count_missing_runs,
    estimate_remaining_times,
    find_row_estimate,
    read_estimates,
)
from tauflow_papers.experiments.report.results_summary import summarize_results
from tauflow_papers.experiments.report.summary_page import make_summary_markdown, make_summary_page
from tauflow_papers.experiments.run.reproduce import collect
from tauflow_papers.experiments.run.row_jobs import make_job
from tauflow_papers.experiments.run.time_estimate import (
    Estimate,
    count_whole_epochs,
    estimate_row,
    make_row_jobs,
)


def searching():
    """Return the tiny table with a row that searches two rates."""
    first_row, *rest = parsed()["row"]
    return tiny(row=[{**first_row, "search": {"recipe": {"lr": [0.01, 0.1]}}}, *rest])


def test_a_curriculum_counts_by_its_steps():
    assert count_whole_epochs(Recipe(epochs=10), 50) == 10
    staged = Recipe(epochs=10, curriculum=(10, 40), curriculum_epochs=3)
    assert count_whole_epochs(staged, 50) == pytest.approx(3 * 0.2 + 3 * 0.8 + 4)
    assert count_whole_epochs(staged, 20) == pytest.approx(
        3 * 0.5 + 3 + 4
    )  # no longer than the data
    cut = Recipe(epochs=4, curriculum=(10, 40), curriculum_epochs=3)
    assert count_whole_epochs(cut, 50) == pytest.approx(3 * 0.2 + 0.8)


@pytest.fixture
def clock(monkeypatch):
    """A training that takes 0.125 s a sequence, and a look at a part of 0.5 s a sequence."""
    module, seen, now = "tauflow_papers.experiments.run.time_estimate", [], [0.0]
    finished = run_one(tiny(), tiny().row("gru"), 0, progress=False)

    def executed(job, data, **options):
        seen.append(job.recipe.batch_size * 1000 + len(data.train))
        assert job.recipe.epochs == 1
        assert (data.valid, options["score_test"]) == (None, False)
        for watch in options.get("callbacks", ()):
            watch.on_start(None)
            now[0] += 0.125 * len(data.train)
            watch.on_epoch(None)
        return finished, None

    def looked_at(model, part, **options):
        now[0] += 0.5 * len(part)

    monkeypatch.setattr(f"{module}.train_job", executed)
    monkeypatch.setattr(f"{module}.evaluate_all", looked_at)
    monkeypatch.setattr(f"{module}.time.process_time", lambda: now[0])
    return seen


def test_the_seconds_of_steps_and_of_scoring_add_up_to_those_of_a_run(clock):
    part = {"name": "", "dataset": "pendulum", "options": {"sizes": [500, 100, 400], "steps": 5}}
    table = tiny(part=[part])
    row = estimate_row(table, table.row("gru"))
    assert clock == [6018, 6018]  # three batches of six, twice: the first compiles
    assert row.epoch == pytest.approx(500 * 0.125 + (100 + 400) * 0.5)
    assert (row.seconds, row.epochs) == (pytest.approx(2 * row.epoch), 2)
    clock.clear()
    first_row, *_ = parsed()["row"]
    gathered = tiny(part=[part], row=[{**first_row, "recipe": {"accumulate": 2}}])
    assert estimate_row(gathered, gathered.row("gru")).epoch == pytest.approx(row.epoch)
    assert clock == [6036, 6036]


def test_every_batch_size_and_network_of_a_search_is_timed_once(clock):
    first_row, *_ = parsed()["row"]
    grid = {
        "recipe": {"lr": [0.01, 0.1], "batch_size": [2, 4]},
        "model": {"hidden_size": [3, 4]},
    }
    table = tiny(row=[{**first_row, "search": grid}])
    row = estimate_row(table, table.row("gru"))
    assert sorted(clock) == sorted([2006, 4012] * 4)
    assert row.config_hash not in {job.hash for job in make_row_jobs(table, table.row("gru"))}


@pytest.mark.parametrize(
    "recipe",
    [
        {"patience": 3, "select_by": "mae", "on_divergence": "stop", "accumulate": 2},
        {"curriculum": [2, 3], "curriculum_epochs": 5, "drop_last": True, "batch_size": 500},
        {"schedule": "plateau"},
        {"schedule": "exponential", "decay": 0.9, "schedule_interval": "step", "min_lr": 1e-5},
        {"schedule": "one_cycle"},
        {"schedule": "StepLR", "schedule_options": {"step_size": 3}},
        {"schedule": "cosine", "warmup_steps": 3, "ema": 0.9, "clip": "norm", "clip_norm": 1.0},
    ],
    ids=lambda recipe: "-".join(recipe),
)
def test_recipes_of_every_kind_can_be_timed(recipe):
    first_row, *_ = parsed()["row"]
    table = tiny(row=[{**first_row, "recipe": {"epochs": 40, **recipe}}])
    row = estimate_row(table, table.row("gru"))
    assert row.epochs == 40
    assert 0 < row.epoch < row.seconds


def test_a_network_that_needs_its_curriculum_is_timed_on_the_first_stage(monkeypatch):
    lengths = []

    def executed(job, data, **options):
        lengths.append(data.train.x.shape[1])
        if lengths[-1] > 2:
            raise NonFiniteError("too long")
        for watch in options.get("callbacks", ()):
            watch.seconds = 0.5
        return finished, None

    finished = run_one(tiny(), tiny().row("gru"), 0, progress=False)
    monkeypatch.setattr("tauflow_papers.experiments.run.time_estimate.train_job", executed)
    monkeypatch.setattr(
        "tauflow_papers.experiments.run.time_estimate.evaluate_all", lambda *_, **__: []
    )
    first_row, *_ = parsed()["row"]
    recipe = {"epochs": 10, "curriculum": [2, 4], "curriculum_epochs": 3}
    table = tiny(row=[{**first_row, "recipe": recipe}])
    row = estimate_row(table, table.row("gru"))
    assert lengths == [5, 2, 2]
    assert row.seconds == pytest.approx(0.5 * 5 / 2 * (3 * 0.4 + 3 * 0.8 + 4), abs=0.1)
    with pytest.raises(NonFiniteError):
        estimate_row(tiny(), tiny().row("gru"))


def test_runs_that_are_missing_are_those_that_reproduce_makes(tmp_path):
    places = {"results_dir": tmp_path, "runs_dir": tmp_path / "runs", "progress": False}
    for table in (tiny(), searching()):
        places["results_dir"] = tmp_path / ("searching" if table.row("gru").search else "plain")
        row = table.row("gru")

        def counted(table=table, row=row):
            return count_missing_runs(collect(table, results_dir=places["results_dir"]), row)

        before = counted()
        reproduce(table, models=["gru"], seeds=1, **places)
        between = counted()
        reproduce(table, models=["gru"], **places)
        made = (places["results_dir"] / "tiny.jsonl").read_text(encoding="utf-8").splitlines()
        assert before == len(made)
        assert between == 1  # the second seed
        assert counted() == 0


def test_a_search_on_other_data_runs_every_seed_again():
    table = searching()
    row = replace(table.row("gru"), search_part=replace(table.rows[0].part, name="other"))
    table = replace(table, rows=(row, *table.rows[1:]))
    assert count_missing_runs(collect(table, results_dir=Path("nowhere")), row) == 2 + 2


def test_estimates_are_kept_until_settings_or_machine_change(tmp_path, monkeypatch):
    lines = []

    def again():
        (cost,) = estimate_remaining_times(tiny(), ["gru"], results_dir=tmp_path, say=lines.append)
        return cost

    first = again()
    assert lines == ["gru: a few batches ..."]
    assert first.missing == 2
    assert first.seconds_left == 2 * first.seconds
    assert again().seconds == pytest.approx(first.seconds, abs=0.05)  # rounded in the file
    assert len(lines) == 1
    estimates = read_estimates(tmp_path / ESTIMATES_FILE)
    assert find_row_estimate(estimates, tiny(), tiny().row("gru")) is not None
    changed = tiny(recipe={"lr": 0.5, "epochs": 2, "batch_size": 6})
    assert find_row_estimate(estimates, changed, changed.row("gru")) is None
    assert find_row_estimate(estimates, tiny(), tiny().row("elman")) is None
    assert find_row_estimate(estimates, tiny(), tiny().row("future")) is None
    monkeypatch.setattr("tauflow.runs.results.describe_machine", lambda *_: {"cpu": "another"})
    again()
    assert len(lines) == 2


def test_what_another_program_has_estimated_meanwhile_is_kept(tmp_path, monkeypatch):
    other = Estimate("tiny", "elman", "0", 2, 1.0, 2.0)

    def slow(*arguments):
        _store_estimate(tmp_path / ESTIMATES_FILE, other)
        return Estimate("tiny", "gru", "1", 2, 1.0, 2.0)

    monkeypatch.setattr("tauflow_papers.experiments.report.remaining_time.estimate_row", slow)
    estimate_remaining_times(tiny(), ["gru"], results_dir=tmp_path)
    assert set(read_estimates(tmp_path / ESTIMATES_FILE)) == {("tiny", "elman"), ("tiny", "gru")}


def test_where_nothing_can_be_kept_nothing_is_timed(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setattr(
        "tauflow_papers.experiments.report.remaining_time.estimate_row", pytest.fail
    )
    with pytest.raises((OSError, ArgumentError)):
        estimate_remaining_times(tiny(), ["gru"], results_dir=tmp_path / "file" / "results")


def test_rows_with_nothing_to_do_are_not_timed(tmp_path):
    places = {"results_dir": tmp_path, "runs_dir": tmp_path / "runs", "progress": False}
    reproduce(tiny(), models=["gru"], seeds=1, **places)
    (cost,) = estimate_remaining_times(
        tiny(), ["gru"], seeds=1, results_dir=tmp_path, say=pytest.fail
    )
    assert (cost.missing, cost.seconds, cost.seconds_left) == (0, None, 0.0)
    (cost,) = estimate_remaining_times(tiny(), ["gru"], seeds=3, results_dir=tmp_path)
    assert cost.missing == 2


def test_what_cannot_be_timed_is_told_and_the_rest_goes_on(tmp_path):
    first, two, _ = parsed()["row"]
    table = tiny(row=[first, two])
    rows = (
        replace(table.rows[0], part=replace(table.rows[0].part, dataset="person-activity")),
        replace(table.rows[1], part=replace(table.rows[1].part, options={"sizes": "many"})),
        replace(table.rows[1], name="fine"),
    )
    lines = []
    remaining_times = estimate_remaining_times(
        replace(table, rows=rows), results_dir=tmp_path, data_dir=tmp_path, say=lines.append
    )
    assert [cost.seconds is None for cost in remaining_times] == [True, True, False]
    assert [cost.seconds_left is None for cost in remaining_times] == [True, True, False]
    assert lines[0] == "gru: person-activity is not here, see 'tauflow data get person-activity'."
    assert lines[2].startswith("elman: sizes")


def test_a_row_that_breaks_leaves_the_others_alone(tmp_path, monkeypatch):
    def breaking(experiment, row, data_dir):
        if row.name == "gru":
            raise RuntimeError("not enough memory")
        return Estimate("tiny", row.name, "0", 2, 1.0, 2.0)

    lines = []
    monkeypatch.setattr("tauflow_papers.experiments.report.remaining_time.estimate_row", breaking)
    remaining_times = estimate_remaining_times(tiny(), results_dir=tmp_path, say=lines.append)
    assert [cost.seconds for cost in remaining_times] == [None, 2.0]
    assert "gru: RuntimeError: not enough memory" in lines


def test_the_report_says_how_long_rows_without_results_take(tmp_path):
    (tmp_path / "tiny.toml").write_text(TINY, encoding="utf-8")
    results = tmp_path / "results"
    reproduce(
        tiny(),
        models=["elman"],
        seeds=1,
        results_dir=results,
        runs_dir=tmp_path,
        progress=False,
    )
    job = make_job(tiny(), tiny().row("gru"), 0)
    machine = {"cpu": "Abacus 9", "cores": 3}
    known = Estimate("tiny", "gru", job.hash, 2, 3600.0, 7200.0, machine=machine)
    (results / ESTIMATES_FILE).write_text(json.dumps([vars(known)]), encoding="utf-8")
    summary = summarize_results(results, [tmp_path / "tiny.toml"])
    line = "Not run: GRU 0.500 ± 0.100 (5), about 2.0 h a run."
    assert line in make_summary_markdown(summary)
    assert line in make_summary_page(summary)
    assert "\n\nEstimated on Abacus 9 with 3 cores.\n" in make_summary_markdown(summary)
    assert "Elman <b> 0.700, about" not in make_summary_markdown(summary)


def test_a_damaged_file_of_estimates_is_named(tmp_path):
    values = vars(Estimate("tiny", "gru", "0", 2, 1.0, 2.0))
    wrong = [{"seconds": "27 min"}, {"epoch": True}, {"seconds": -1.0}, {"row": 3}, {"more": 1}]
    texts = [json.dumps([{**values, **change}]) for change in wrong]
    nan = json.dumps([{**values, "seconds": float("nan")}])
    for text in ("{", "3", "[1]", '[{"experiment": "x"}]', nan, *texts):
        (tmp_path / ESTIMATES_FILE).write_text(text, encoding="utf-8")
        with pytest.raises(DataError, match=r"estimates\.json holds no estimates .*estimate TABLE"):
            read_estimates(tmp_path / ESTIMATES_FILE)
