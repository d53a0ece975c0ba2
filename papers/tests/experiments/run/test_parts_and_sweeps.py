"""What a specification may say beyond one data set and one setting per row."""

import copy

import pytest
from tiny_experiment import parsed

from tauflow.data.registry import load_task
from tauflow.errors import SpecificationError, UnknownNameError
from tauflow.runs import results
from tauflow.runs.boosting import fit_boosted_trees
from tauflow.training.evaluation_loop import evaluate
from tauflow_papers.experiments import load_experiment, reproduce
from tauflow_papers.experiments.report import table
from tauflow_papers.experiments.report.grid_page import make_grid_markdown, write_grid_reports
from tauflow_papers.experiments.run import result_file
from tauflow_papers.experiments.run.grid_search import find_best_setting
from tauflow_papers.experiments.run.row_jobs import make_job
from tauflow_papers.experiments.run.run_job import Paths
from tauflow_papers.experiments.spec.parse import experiment_from_dict

SMALL = {"sizes": [12, 6, 6], "steps": 5}
PARTS = [
    {"name": "swing", "dataset": "pendulum", "options": SMALL, "recipe": {"batch_size": 4}},
    {
        "name": "parity",
        "dataset": "xor-dense",
        "loss": "bce",
        "metric": "binary_accuracy",
        "model": {"head_init": "keras"},
        "recipe": {"select": "last"},
        "note": "Bits.",
    },
    {"name": "parity-again", "dataset": "xor-event", "pack_code": "parity"},
]
NOISE = (("calm", 0.05), ("noisy", 0.5))
GRU = {
    "name": "gru",
    "title": "GRU",
    "model": {"cell": "gru"},
    "recipe": {"lr": 0.02},
    "published": {"swing": {"mean": 0.5}, "parity": {"mean": 0.9, "std": 0.1}},
    "note": "Ours.",
    "at": {"parity": {"recipe": {"lr": 0.5}, "model": {"hidden_size": 7}, "note": "Wider."}},
}


def built(**changes):
    table_ = copy.deepcopy({**parsed(), **changes})
    return experiment_from_dict(table_, "tiny.toml")


def of_parts(*parts, **row):
    return built(part=[dict(part) for part in parts or PARTS], row=[{**GRU, **row}])


def test_parts_have_losses_metrics_recipes_and_models_of_their_own():
    swing, parity, again = of_parts().rows
    assert [(row.name, row.loss, row.metric) for row in (swing, parity, again)] == [
        ("gru/swing", "mse", "mse"),
        ("gru/parity", "bce", "binary_accuracy"),
        ("gru/parity-again", "mse", "mse"),
    ]
    assert (swing.recipe.batch_size, parity.recipe.batch_size) == (4, 6)
    assert (swing.recipe.select, parity.recipe.select) == ("best", "last")
    assert (swing.model.head_init, parity.model.head_init) == ("torch", "keras")


def test_the_nearest_word_wins():
    swing, parity, _ = of_parts().rows
    # The table says 0.01, the row 0.02, the row on that part 0.5.
    assert (swing.recipe.lr, parity.recipe.lr) == (0.02, 0.5)
    assert (swing.model.hidden_size, parity.model.hidden_size) == (3, 7)
    assert (swing.note, parity.note) == ("Ours.", "Ours. Bits. Wider.")


def test_a_named_recipe_is_the_ground_that_others_build_on():
    recipes = {"slow": {"lr": 1e-4, "epochs": 9}}
    row = {**GRU, "recipe_from": "slow", "recipe": {"epochs": 8}}
    swing = built(part=PARTS, recipes=recipes, row=[row]).rows[0].recipe
    assert (swing.lr, swing.epochs, swing.batch_size) == (1e-4, 8, 4)


def test_numbers_are_of_a_part_of_another_or_of_all():
    swing, parity, again = of_parts().rows
    assert (swing.published.mean, parity.published.mean) == (0.5, 0.9)
    assert again.published == parity.published
    shared = of_parts(published={"mean": 0.25}).rows
    assert [row.published.mean for row in shared] == [0.25] * 3


def test_a_row_may_be_of_some_parts_only():
    names = [row.name for row in of_parts(parts=["swing"], at={}).rows]
    assert names == ["gru/swing"]


def beside_gru(**changes):
    rows = [{"name": "wide", "title": "Wide", "like": "gru", **changes}, GRU]
    return built(part=PARTS, row=rows).rows[:-3]


def test_a_row_like_another_differs_in_what_it_says():
    swing, parity, _ = beside_gru(model={"hidden_size": 9}, recipe={"epochs": 8}, note="Wide.")
    assert (swing.name, swing.title, swing.note) == ("wide/swing", "Wide", "Wide.")
    assert (swing.model.cell, swing.model.hidden_size) == ("gru", 9)
    assert (swing.recipe.lr, swing.recipe.epochs, swing.published.mean) == (0.02, 8, 0.5)
    assert (parity.recipe.lr, parity.model.hidden_size) == (0.5, 7)  # what is said of a part wins
    (alone,) = beside_gru(parts=["swing"])
    assert alone.model == of_parts().rows[0].model


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"like": "gur"}, r"row 'wide': like = 'gur' names no row .* Did you mean 'gru'\?"),
        ({"like": "wide"}, "like = 'wide' names no row that is like no other. There are: gru"),
        ({"like": 3}, "like must be a str, got 3"),
        ({"modle": {}}, "unknown key 'modle'"),
        ({"model": {"cell": "gru"}, "planned": "x"}, "only one of 'planned', 'untrained'"),
    ],
)
def test_a_row_like_none_is_refused(changes, message):
    with pytest.raises(SpecificationError, match=message):
        beside_gru(**changes)


@pytest.mark.parametrize(("key", "value"), [("model", 3), ("at", "parity"), ("name", ["gru"])])
def test_a_fault_of_the_other_row_is_told_as_its_own(key, value):
    wide = {"name": "wide", "title": "Wide", "like": "gru", "parts": ["swing"]}
    with pytest.raises(SpecificationError, match=f"{key} must be a") as error:
        built(part=PARTS, row=[wide, {**GRU, key: value}])
    assert "gru" in str(error.value)
    assert "wide" not in str(error.value)


def test_a_row_like_another_has_a_name_and_a_title_of_its_own():
    with pytest.raises(SpecificationError, match="the key 'title' is missing"):
        built(part=PARTS, row=[GRU, {"name": "wide", "like": "gru"}])


def test_a_part_names_its_rows():
    experiment = of_parts()
    assert [row.name for row in experiment.select(["parity"])] == ["gru/parity"]
    assert len(experiment.select(["gru"])) == 3


def test_a_row_of_that_very_name_is_chosen_alone():
    experiment = load_experiment("cfc-table-6")
    assert [row.name for row in experiment.select(["cfc-mmrnn"])] == ["cfc-mmrnn"]
    both = experiment.select(["cfc-mmrnn", "no-time"])
    assert [row.name for row in both] == ["cfc-mmrnn", "cfc-mmrnn/no-time"]


def swept(**changes):
    grid = {"model": {"hidden_size": [2, 3]}, "recipe": {"lr": [0.1, 0.001]}}
    row = {"name": "gru", "title": "GRU", "model": {"cell": "gru"}, "sweep": grid}
    return built(row=[{**row, "published": {"figure": "Fig. 9"}, **changes}])


def test_a_sweep_makes_a_row_of_every_combination():
    rows = swept().rows
    assert [(row.model.hidden_size, row.recipe.lr) for row in rows] == [
        *((2, 0.1), (2, 0.001)),
        *((3, 0.1), (3, 0.001)),
    ]
    assert rows[1].name == "gru-hidden-size-2-lr-0.001"
    assert rows[1].title == "GRU, hidden size 2, lr 0.001"


def test_bounds_and_figures_stand_where_no_number_is_printed():
    shown = [
        table.format_published(swept(published=numbers).rows[0].published, "mse")
        for numbers in ({"figure": "Fig. 9"}, {"below": 0.01}, {"above": 0.025})
    ]
    assert shown == ["Fig. 9", "< 0.01", "≥ 0.025"]


def test_the_nearest_search_wins():
    lists = [{"recipe": {"lr": [10.0**-power for power in range(n)]}} for n in (1, 2, 3)]
    row = {**GRU, "search": lists[1], "at": {"parity": {"search": lists[2]}}}
    other = {**GRU, "name": "other", "at": {}}
    rows = built(part=PARTS, row=[row, other], search=lists[0]).rows
    assert [len(row.search) for row in rows] == [2, 3, 2, 1, 1, 1]


SEARCH = {"recipe": {"lr": [1e-6, 0.03], "batch_size": [6]}, "model": {"hidden_size": [4]}}


def searching(**changes):
    rows = copy.deepcopy(parsed()["row"][:2])
    rows[0]["search"] = SEARCH
    return built(row=rows, **changes)


def test_a_search_keeps_the_best_setting_and_repeats_it(tmp_path):
    places = {"results_dir": tmp_path / "results", "runs_dir": tmp_path / "runs"}
    experiment = searching()
    gru = experiment.row("gru")
    assert [setting.label for setting in gru.search] == [
        "lr 1e-06, batch size 6, hidden size 4",
        "lr 0.03, batch size 6, hidden size 4",
    ]
    grid = reproduce(experiment, progress=False, **places)
    # Two settings with seed 0, the better one with seed 1, and the other row with both.
    assert len(grid.records) == 2 + 1 + 2
    best = grid.get_best_setting(gru)
    tried = {r.config["recipe"]["lr"]: r.valid for r in grid.records if r.row == "gru"}
    assert best.recipe.lr == min(tried, key=tried.get)
    assert [(r.seed, r.config["recipe"]["lr"]) for r in grid.get_runs(gru)] == [
        (seed, best.recipe.lr) for seed in (0, 1)
    ]
    before = (tmp_path / "results" / "tiny.jsonl").read_text()
    reproduce(experiment, progress=False, **places)
    assert (tmp_path / "results" / "tiny.jsonl").read_text() == before
    assert f"| {best.label} (best of 2) |" in make_grid_markdown(grid)
    _, page = write_grid_reports(grid, Paths(places["results_dir"], places["runs_dir"]))
    text = page.read_text(encoding="utf-8")
    assert "Learning curves" in text
    assert f">{best.label} (best of 2)</td>" in text


def test_a_search_on_other_data_repeats_the_best_setting_with_every_seed(tmp_path):
    rows = copy.deepcopy(parsed()["row"][:1])
    rows[0]["search"] = {**SEARCH, "options": {"sizes": [8, 4, 4]}}
    experiment = built(row=rows)
    gru, sizes = experiment.row("gru"), parsed()["part"][0]["options"]["sizes"]
    grid = reproduce(
        experiment, progress=False, results_dir=tmp_path / "results", runs_dir=tmp_path / "runs"
    )
    tried = [r for r in grid.records if r.config["dataset_options"]["sizes"] == [8, 4, 4]]
    assert {r.config["recipe"]["lr"] for r in tried} == {1e-6, 0.03}
    best = grid.get_best_setting(gru)
    assert best.recipe.lr == min(tried, key=lambda r: r.valid).config["recipe"]["lr"]
    runs = grid.get_runs(gru)
    assert [r.seed for r in runs] == [0, 1]
    assert {r.config["recipe"]["lr"] for r in runs} == {best.recipe.lr}
    assert all(r.config["dataset_options"]["sizes"] == sizes for r in runs)
    assert (len(grid.records), grid.count_tried_settings(gru)) == (4, 2)


def record(experiment, lr, **scores):
    row = experiment.row("gru")
    setting = next(s for s in row.search if s.recipe.lr == lr)
    job = make_job(experiment, row, 0, setting=setting)
    return results.RunRecord("tiny", "gru", 0, job.config, job.hash, "done", "mse", "", **scores)


def test_the_metric_that_selects_epochs_selects_settings():
    experiment = searching(metric="mae")
    pair = [record(experiment, 1e-6, valid=0.2), record(experiment, 0.03, valid=0.3)]
    assert find_best_setting(experiment, experiment.row("gru"), pair).recipe.lr == 1e-6
    by_mse = searching(recipe={**parsed()["recipe"], "select_by": "mse"})
    pair = [
        record(by_mse, lr, valid=valid, best_epoch=1, history=(epoch,))
        for lr, valid, epoch in (
            (1e-6, 0.2, {"epoch": 1, "criterion": 5.0}),
            (0.03, 0.3, {"epoch": 1, "criterion": 4.0}),
        )
    ]
    assert find_best_setting(by_mse, by_mse.row("gru"), pair).recipe.lr == 0.03
    assert find_best_setting(by_mse, by_mse.row("gru"), []) is None


def test_what_is_not_trained_says_so(tmp_path):
    rows = [{"name": "deep", "title": "Deep", "untrained": "Counted.", "published": {"mean": 3}}]
    experiment = built(row=rows, command="python count.py")
    with pytest.raises(UnknownNameError, match="row 'deep' is not trained: Counted"):
        experiment.select(["deep"])
    grid = reproduce(experiment, progress=False, results_dir=tmp_path, runs_dir=tmp_path)
    (line,) = table.make_lines(grid)
    assert (line.ours, line.note) == ("not trained", "Counted.")
    assert "python count.py" in make_grid_markdown(grid)


def test_several_metrics_are_named_with_their_parts(tmp_path):
    grid = reproduce(of_parts(), models=["swing"], seeds=1, results_dir=tmp_path, runs_dir=tmp_path)
    assert table.make_caption(grid).startswith(
        "Test mean squared error (swing, parity-again); binary accuracy, % (parity): mean"
    )
    assert [line.published for line in table.make_lines(grid)] == [
        "0.500",
        "90.00 ± 10.00",
        "0.900 ± 0.100",
    ]
    write_grid_reports(grid, Paths(tmp_path, tmp_path))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: of_parts(PARTS[0], PARTS[0]), "two parts are named 'swing'"),
        (lambda: of_parts(at={"pariti": {}}), "unknown key 'pariti'. Did you mean 'parity'"),
        (lambda: of_parts(at={"parity": {"title": "x"}}), "at: unknown key 'title'"),
        (lambda: of_parts(parts=["swings"]), "unknown key 'swings'. Did you mean 'swing'"),
        (lambda: of_parts(published={"swing": {"mean": 1.0}}), "the key 'parity' is missing"),
        (lambda: of_parts(published={}), "the key 'mean' is missing; add it, or 'below'"),
        (lambda: swept(sweep={"modle": {}}), "sweep: unknown key 'modle'. Did you mean 'model'"),
        (lambda: swept(sweep={"model": {"tau": 3}}), "tau must be a list of values, got 3"),
        (lambda: swept(search={"recipe": {"lr": []}}), "lr must be a list of values"),
        (lambda: swept(search={"recipe": {"lr": [-1.0]}}), "search.*recipe: lr|recipe: lr must"),
        (lambda: swept(search={"recipe": {"epochs": [2, 4]}}), "epochs cannot be searched"),
        (lambda: built(part=PARTS, dataset="pendulum"), "either 'dataset' or"),
        (lambda: swept(planned="x"), "only one of"),
    ],
)
def test_what_is_wrong_is_said(build, message):
    with pytest.raises(SpecificationError, match=message):
        build()


def test_a_loss_and_a_metric_are_needed_to_train():
    without = {k: v for k, v in parsed().items() if k != "loss"}
    with pytest.raises(SpecificationError, match="the key 'loss' is missing"):
        experiment_from_dict(without, "tiny.toml")


def test_published_tables_are_as_before():
    row = load_experiment("cfc-table-4").row("cfc/event")
    assert (row.loss, row.metric, row.published.minutes_per_epoch) == (
        "bce",
        "binary_accuracy",
        0.75,
    )


def test_a_seed_draws_the_parts_and_baselines_are_rows(tmp_path):
    swings = [
        {"name": n, "dataset": "pendulum", "options": {**SMALL, "noise": k}} for n, k in NOISE
    ]
    rows = [{**GRU, "published": {"mean": 0.5}, "at": {}, "search": SEARCH}]
    rows += [
        {"name": n, "title": n, "model": {"cell": n}, "published": {"mean": 0.5}}
        for n in ("boosting", "naive")
    ]
    table_ = built(part=swings, row=rows, split_option="seed")
    first, second = (make_job(table_, table_.row("gru/calm"), seed) for seed in (0, 1))
    assert [job.part.options["seed"] for job in (first, second)] == [0, 1]
    assert "seed" not in table_.row("gru/calm").part.options
    places = Paths(tmp_path / "results", tmp_path / "runs")
    grid = reproduce(table_, progress=False, results_dir=places.results, runs_dir=places.runs)
    made, _ = result_file.read_records(places.results_file("tiny"))
    assert [(r.seed, r.row) for r in made[:6]] == [
        (0, f"{cell}/{part}")
        for part in ("calm", "noisy")
        for cell in ("gru", "gru", "boosting", "naive")
    ][:6]
    assert len(grid.records) == len(made) == 2 * (3 + 2 + 2)
    assert all(r.config["dataset_options"]["seed"] == r.seed for r in made)
    data = load_task("pendulum", **SMALL, noise=0.05, seed=1)
    naive = next(r for r in made if r.row == "naive/calm" and r.seed == 1)
    still = data.test.x[..., : data.card.target_size]  # persistence is better than the mean
    assert naive.parameters == 0
    assert naive.test == pytest.approx(float((data.test.y - still).square().mean()), rel=1e-5)
    boosting = next(r for r in made if r.row == "boosting/calm" and r.seed == 1)
    trees = fit_boosted_trees(data)
    assert boosting.valid == pytest.approx(evaluate(trees, data.valid, metric="mse"))
    page, _ = write_grid_reports(grid, places)
    assert "| boosting, noisy |" in page.read_text(encoding="utf-8")
