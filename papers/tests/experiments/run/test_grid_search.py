import itertools
from dataclasses import replace

import pytest
from tiny_experiment import tiny, without_times

from tauflow.errors import ArgumentError, SpecificationError, UnknownNameError
from tauflow.runs import results
from tauflow_papers.experiments import grid_search, reproduce
from tauflow_papers.experiments.run import result_file
from tauflow_papers.experiments.run.row_jobs import make_job, run_one
from tauflow_papers.experiments.spec.grid import enumerate_points, make_setting, read_grid
from tauflow_papers.experiments.spec.load import load_grid

GRID = {"recipe": {"lr": [0.01, 0.1]}, "model": {"hidden_size": [2, 3]}}


@pytest.fixture
def places(tmp_path):
    return {"results_dir": tmp_path / "results", "runs_dir": tmp_path / "runs", "progress": False}


def test_the_best_on_validation_data_is_chosen(places):
    search = grid_search(tiny(), "gru", GRID, **places)
    # Worked out again: every combination trained by itself, the lowest validation error wins.
    row, scores = tiny().row("gru"), {}
    for lr, size in itertools.product([0.01, 0.1], [2, 3]):
        changed = replace(
            row, recipe=replace(row.recipe, lr=lr), model=replace(row.model, hidden_size=size)
        )
        record = run_one(tiny(), changed, 0, progress=False)
        scores[lr, size] = min(epoch["valid"] for epoch in record.history)
    ranked = [(p.settings["recipe.lr"], p.settings["model.hidden_size"]) for p in search.points]
    assert ranked == sorted(scores, key=scores.get)
    assert [point.score for point in search.points] == sorted(scores.values())
    assert search.best == search.points[0]
    assert search.outcome.failures == ()


def test_accuracies_are_ranked_from_the_highest(places):
    experiment, scores = tiny(metric="accuracy"), iter([0.5, 0.9, 0.7])
    grid = {"recipe.lr": [0.1, 0.2, 0.3]}
    for lr in grid["recipe.lr"]:
        row = experiment.row("gru")
        point = make_job(experiment, row, 0, make_setting(row, {"recipe.lr": lr}))
        record = results.RunRecord(
            **{"experiment": "tiny", "row": "gru", "seed": 0, "config": point.config},
            **{"config_hash": point.hash, "status": "done", "metric": "accuracy", "started": ""},
            valid=next(scores),
        )
        result_file.append_record(places["results_dir"] / "tiny.jsonl", record)
    search = grid_search(experiment, "gru", grid, **places)
    assert [point.settings["recipe.lr"] for point in search.points] == [0.2, 0.3, 0.1]


def test_a_search_goes_on_and_shares_its_file_with_the_table(places):
    grid = reproduce(tiny(), models=["gru"], seeds=1, **places)
    lines = (places["results_dir"] / "tiny.jsonl").read_text().splitlines()
    values = {"recipe": {"lr": [0.01, 0.1]}}  # the first is the table's own
    seen = []
    for _ in range(3):
        search = grid_search(tiny(), "gru", values, budget=1e-6, **places)
        seen.append(([run.name for run in search.outcome.unfinished], search.best is None))
    assert seen == [(["gru (lr=0.1), seed 0"], True), ([], False), ([], False)]
    after = (places["results_dir"] / "tiny.jsonl").read_text().splitlines()
    assert after[:1] == lines
    assert len(after) == 2
    (shared,) = (point for point in search.points if point.settings["recipe.lr"] == 0.01)
    assert shared.records == grid.records
    # The table is not disturbed by the points of a search.
    assert reproduce(tiny(), models=["gru"], seeds=1, **places).records == grid.records


def test_the_choice_is_confirmed_with_seeds(places):
    search = grid_search(tiny(), "gru", {"recipe.lr": [0.01, 0.1]}, seeds=2, confirm=3, **places)
    assert [record.seed for record in search.confirmed] == [0, 1, 2]
    assert [len(point.records) for point in search.points] == [2, 2]
    best = min(search.points, key=lambda point: sum(r.valid for r in point.records))
    assert search.best == best
    row = replace(tiny(), rows=(search.best.row,))
    places["runs_dir"] = places["runs_dir"] / "others"
    again = reproduce(row, seeds=3, **places)  # finds them, as they are in the file
    assert again.records == search.confirmed
    run = run_one(tiny(), search.best.row, 2, progress=False)
    assert without_times(run) == without_times(search.confirmed[2])


def test_a_failing_point_is_no_choice(places):
    grid = {"recipe": {"lr": [1e38, 0.01]}}
    search = grid_search(tiny(), "gru", grid, **places)
    assert [point.score is None for point in search.points] == [False, True]
    assert search.best.settings == {"recipe.lr": 0.01}
    assert len(search.outcome.failures) == 1
    assert grid_search(tiny(), "gru", {"recipe": {"lr": [1e38]}}, **places).best is None


def test_a_grid_from_a_file(tmp_path):
    file = tmp_path / "grid.toml"
    file.write_text('name = "other"\n[grid]\nrecipe.lr = [0.1, 0.2]\nmodel = {hidden_size = [5]}')
    assert load_grid(file) == {"recipe.lr": (0.1, 0.2), "model.hidden_size": (5,)}
    file.write_text("[grid]\nrecipe.learn = [0.3]")
    with pytest.raises(
        SpecificationError, match=r"grid.toml, \[grid\]: a recipe has no option 'lea"
    ):
        load_grid(file)
    file.write_text("grids = 1")
    with pytest.raises(SpecificationError, match=r"has no table \[grid\]\. Add one"):
        load_grid(file)


def test_several_grids_are_joined(places):
    search = grid_search(tiny(), "gru", [{"recipe.lr": [0.1, 0.2]}, {"recipe.lr": [0.2]}], **places)
    assert sorted(point.settings["recipe.lr"] for point in search.points) == [0.1, 0.2]


def test_points_are_every_combination_in_order():
    grid = read_grid("here", {"recipe": {"lr": [1, 2]}, "model.init": ["a", "b"]})
    assert enumerate_points(grid) == [
        {"recipe.lr": lr, "model.init": init} for lr in (1, 2) for init in ("a", "b")
    ]


def test_settings_reach_recipe_model_and_options():
    row = make_setting(
        tiny().row("gru"),
        {"recipe.batch_size": 3, "model.hidden_size": 7, "model.init": "keras"},
    )
    assert (row.recipe.batch_size, row.recipe.lr) == (3, 0.01)
    assert (row.model.hidden_size, row.model.options) == (7, {"init": "keras"})


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ({}, "there is nothing to vary"),
        ({"lr": [1]}, r"a grid has no 'lr'\. Name a setting"),
        ({"recipe": {"lrr": [1]}}, "no option 'lrr'. Did you mean 'lr'"),
        ({"recipe": {"lr": 0.1}}, "recipe.lr must be a list of values to try, got 0.1"),
        ({"recipe": {"lr": []}}, "must be a list of values"),
        ({"recipe": {"lr": [1]}, "recipe.lr": [2]}, "recipe.lr is given twice"),
        ({"recipe": {"lr": [-1.0]}}, r"the point lr=-1\.0 of 'gru': lr must be"),
        ({"model": {"input_size": [1]}}, "'input_size' follows from the data set"),
        ({"model": {"init": ["torch", "kaimin"]}}, "the point init=kaimin of 'gru': init"),
        ({"model": {"hiden": [4]}}, "the point hiden=4 of 'gru': GRUCell has no option 'hiden'"),
    ],
)
def test_impossible_grids_are_refused(places, grid, message):
    with pytest.raises((SpecificationError, ArgumentError), match=message):
        grid_search(tiny(), "gru", grid, **places)
    assert not places["runs_dir"].exists()


def test_there_must_be_one_row_and_validation_data(places):
    with pytest.raises(UnknownNameError, match=r"has no row 'gruu'\. Did you mean 'gru'"):
        grid_search(tiny(), "gruu", GRID, **places)
    small = {"dataset": "pendulum", "options": {"sizes": [12, 6, 6], "steps": 5}}
    both = [{"name": name, **small} for name in ("a", "b")]
    numbers = {"a": {"mean": 1.0}, "b": {"mean": 1.0}}
    row = {"name": "gru", "title": "GRU", "model": {"cell": "gru"}, "published": numbers}
    with pytest.raises(ArgumentError, match="stands for several rows of tiny; name one: gru/a, gr"):
        grid_search(tiny(part=both, row=[row]), "gru", GRID, **places)
    blind = [{"name": "", "dataset": "xor-dense", "options": {}}]
    with pytest.raises(ArgumentError, match="'xor-dense' has no validation part to"):
        grid_search(tiny(part=blind, metric="binary_accuracy", loss="bce"), "gru", GRID, **places)
