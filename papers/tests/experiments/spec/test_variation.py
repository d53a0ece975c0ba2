from dataclasses import replace

import pytest
from tiny_experiment import parsed, tiny

from tauflow.errors import SpecificationError
from tauflow_papers.experiments import load_experiment
from tauflow_papers.experiments.spec.parse import experiment_from_dict
from tauflow_papers.experiments.spec.variation import make_variation


def test_without_changes_a_table_is_itself():
    assert make_variation(tiny(), {}) == tiny()


def test_recipe_model_and_data_of_every_row_can_differ():
    variation = make_variation(
        tiny(),
        {"recipe.lr": 0.5, "model.hidden_size": 7, "model.num_layers": 2, "data.noise": 0.25},
    )
    assert variation.name == "tiny-with-noise-0.25-hidden_size-7-num_layers-2-lr-0.5"
    assert variation.title.endswith("with noise=0.25, hidden_size=7, num_layers=2, lr=0.5")
    for row, plain_row in zip(variation.rows, tiny().rows, strict=True):
        if plain_row.model is None:
            assert row == plain_row
            continue
        assert row.recipe == plain_row.recipe.with_changes({"lr": 0.5})
        assert (row.model.hidden_size, row.model.cell) == (7, plain_row.model.cell)
        assert row.model.options == {**plain_row.model.options, "num_layers": 2}
        assert row.part.options == {**plain_row.part.options, "noise": 0.25}


def test_the_order_of_settings_makes_no_other_table():
    settings = {"recipe.lr": 0.5, "model.hidden_size": 7}
    assert make_variation(tiny(), settings) == make_variation(
        tiny(), dict(reversed(settings.items()))
    )


def test_values_that_rows_have_already_are_refused():
    table = tiny()
    same = {"recipe.lr": table.row("gru").recipe.lr}
    with pytest.raises(
        SpecificationError, match=r"^recipe.lr=0\.\d+ changes nothing: gru of tiny is"
    ):
        make_variation(table, same, ["gru"])
    wider = replace(table.row("elman"), recipe=table.row("elman").recipe.with_changes({"lr": 0.5}))
    rows = tuple(wider if row.name == "elman" else row for row in table.rows)
    assert (
        make_variation(replace(table, rows=rows), same).row("elman").recipe.lr == same["recipe.lr"]
    )


def test_every_setting_of_a_search_differs():
    table = load_experiment("gnode-figure-1")
    plain, row = (
        experiment.row("gnode-6")
        for experiment in (table, make_variation(table, {"recipe.epochs": 5}))
    )
    assert [setting.label for setting in row.search] == [setting.label for setting in plain.search]
    assert {setting.recipe.lr for setting in row.search} == {
        setting.recipe.lr for setting in plain.search
    }
    assert {setting.recipe.epochs for setting in row.search} == {5}


def searching(**grid):
    recipe = {**parsed()["recipe"], "clip": "norm", "clip_norm": 1.0}
    return experiment_from_dict({**parsed(), "recipe": recipe, "search": {"recipe": grid}}, "tiny")


def test_what_is_changed_is_not_searched_and_all_else_is():
    table = searching(clip_norm=[0.01, 10.0], lr=[0.1, 0.2], betas=[[0.9, 0.99], [0.8, 0.9]])
    by_kind = (
        make_variation(table, {"recipe.clip": "per_tensor", "recipe.lr": 0.5}).row("gru").search
    )
    assert {setting.recipe.clip for setting in by_kind} == {"per_tensor"}
    assert {setting.recipe.lr for setting in by_kind} == {0.5}
    tried = {(setting.recipe.clip_norm, setting.recipe.betas) for setting in by_kind}
    assert tried == {(c, b) for c in (0.01, 10.0) for b in ((0.9, 0.99), (0.8, 0.9))}
    assert len(by_kind) == len({setting.label for setting in by_kind}) == 4
    assert by_kind[0].label == "clip norm 0.01, betas [0.9, 0.99]"


def test_what_is_searched_is_kept_if_one_setting_is_left():
    table = searching(clip_norm=[0.25], lr=[0.1, 0.2])
    row = make_variation(table, {"recipe.lr": 0.2}).row("gru")
    assert (row.recipe.clip_norm, row.recipe.lr, row.search) == (0.25, 0.2, ())
    row = make_variation(searching(clip_norm=[0.25]), {"recipe.epochs": 5}).row("gru")
    assert (row.recipe.clip_norm, row.recipe.epochs, row.search) == (0.25, 5, ())


def test_settings_with_one_label_stay_two():
    row = make_variation(searching(lr=[0.1, 0.10000001]), {"recipe.batch_size": 3}).row("gru")
    assert [setting.recipe.lr for setting in row.search] == [0.1, 0.10000001]


def test_an_entry_that_is_changed_leaves_the_others():
    options = {"optimizer": "sgd", "optimizer_options": {"momentum": 0.75, "nesterov": True}}
    recipe = {**parsed()["recipe"], **options}
    change = {"recipe.optimizer_options.momentum": 0.5}
    row = make_variation(tiny(recipe=recipe), change).row("gru")
    assert row.recipe.optimizer_options == {"momentum": 0.5, "nesterov": True}
    grid = {
        "optimizer_options": [
            {"momentum": m, "nesterov": n} for m, n in ((0.9, True), (0.8, True), (0.7, False))
        ]
    }
    row = make_variation(tiny(recipe=recipe, search={"recipe": grid}), change).row("gru")
    left = [{"momentum": 0.5, "nesterov": True}, {"momentum": 0.5, "nesterov": False}]
    assert [setting.recipe.optimizer_options for setting in row.search] == left
    assert [setting.values["recipe.optimizer_options"] for setting in row.search] == left


def test_names_that_files_cannot_have_are_shortened():
    first, other = (
        make_variation(
            tiny(), {"recipe.curriculum": list(range(1, n)), "recipe.curriculum_epochs": 1}
        )
        for n in (90, 91)
    )
    assert len(first.name) == len(other.name) == 200
    assert first.name != other.name


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lr": 0.5}, "'lr' is no setting of a row.* recipe.lr, model.hidden_size, data.split"),
        ({"recipe": 0.5}, r"'recipe' is no setting of a row\. Name one"),
        ({"model.layers": 3}, "has no option 'layers'. Did you mean 'num_layers'"),
        ({"recipes.lr": 0.5}, "'recipes.lr' is no setting.*Did you mean 'recipe'"),
        ({"recipe.lrr": 0.5}, "a recipe has no option 'lrr'. Did you mean 'lr'"),
        ({"recipe.lr": "high"}, "lr must be a finite number > 0"),
        ({"model.input_size": 3}, "'input_size' follows from the data set"),
    ],
)
def test_a_wrong_setting_is_named(changes, message):
    with pytest.raises(SpecificationError, match=message):
        make_variation(tiny(), changes)


def test_only_the_rows_that_are_run_have_to_be_possible():
    table = load_experiment("cfc-table-5")
    with pytest.raises(SpecificationError, match="of 'rnn-impute/observed': min_lr must be"):
        make_variation(table, {"recipe.lr": 3e-4})
    variation = make_variation(table, {"recipe.lr": 3e-4}, ["phased-lstm"])
    recipe = table.row("phased-lstm").recipe
    assert variation.row("phased-lstm").recipe == recipe.with_changes({"lr": 3e-4})
    assert variation.row("rnn-impute/observed") == table.row("rnn-impute/observed")


def test_an_option_means_what_it_means_to_the_model_of_the_row():
    """Another row's model has an option of the same name, and other values."""
    table = load_experiment("cfc-table-5")
    row = make_variation(table, {"model.form": "released"}, ["phased-lstm"]).row("phased-lstm")
    assert row.model.options["form"] == "released"
    changed = make_variation(table, {"model.ratio": 0.5}, ["phased-lstm"])  # no other model has it
    others = [(new, old) for new, old in zip(changed.rows, table.rows, strict=True) if new != old]
    assert [new.name for new, _ in others] == ["phased-lstm"]
    with pytest.raises(SpecificationError, match=r"of 'phased-lstm': form='input' is unknown"):
        make_variation(table, {"model.form": "input"}, ["phased-lstm"])


def test_what_is_changed_is_not_searched():
    table = load_experiment("one-budget")
    row = make_variation(table, {"recipe.lr": 0.5}, ["lstm/gesture"]).row("lstm/gesture")
    assert not row.search
    assert row.recipe.lr == 0.5
    table = load_experiment("gnode-figure-1")
    row, plain = make_variation(table, {"recipe.lr": 0.5}).row("gnode-6"), table.row("gnode-6")
    assert {setting.recipe.lr for setting in row.search} == {0.5}
    assert (
        len({setting.label for setting in row.search}) == len(row.search) == len(plain.search) / 3
    )
    assert not any("lr" in setting.label for setting in row.search)


def test_the_data_of_a_search_change_too():
    table = load_experiment("gnode-table-1")
    row = make_variation(table, {"data.fill": "skip"}, ["gru/characters"]).row("gru/characters")
    plain = table.row("gru/characters")
    assert row.part.options == {**plain.part.options, "fill": "skip"}
    assert row.search_part.options == {**plain.search_part.options, "fill": "skip"}


def test_a_table_that_is_not_trained_has_no_settings():
    with pytest.raises(SpecificationError, match=r"no row that is trained.*Leave out recipe\.lr"):
        make_variation(load_experiment("ltc-table-2"), {"recipe.lr": 0.5})
