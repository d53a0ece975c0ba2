"""Fields of the recipe, a file of settings, a device and logs on the command line."""

import json

import pytest

SMALL = ("--model", "elman", "--hidden-size", "2", "--epochs", "1", "--runs", "runs")


def recipe_in(folder):
    (file,) = folder.rglob("run.json")
    return json.loads(file.read_text(encoding="utf-8"))["recipe"]


def test_any_field_of_the_recipe_is_set(call, tmp_path):
    call(
        *("run", "pendulum", *SMALL, "--device", "cpu"),
        *("--set", "recipe.optimizer=sgd", "--set", "recipe.optimizer_options.momentum=0.5"),
        *("--set", "recipe.accumulate=2"),
    )
    recipe = recipe_in(tmp_path)
    assert recipe["optimizer"] == "sgd"
    assert recipe["optimizer_options"] == {"momentum": 0.5}
    assert recipe["accumulate"] == 2


def test_a_file_holds_the_same_and_the_command_line_goes_first(call, tmp_path):
    (tmp_path / "my.toml").write_text(
        'task = "pendulum"\nmodel = "elman"\nhidden_size = 3\nepochs = 5\n'
        "[recipe]\nlr = 0.25\nschedule = 'cosine'\n[options]\nbackend = 'reference'\n",
        encoding="utf-8",
    )
    call("run", "--config", "my.toml", "--epochs", "1", "--set", "recipe.lr=0.125")
    recipe = recipe_in(tmp_path)
    assert (recipe["epochs"], recipe["lr"], recipe["schedule"]) == (1, 0.125, "cosine")
    (record,) = tmp_path.rglob("record.json")
    model = json.loads(record.read_text(encoding="utf-8"))["config"]["model"]
    assert (model["hidden_size"], model["options"]) == (3, {"backend": "reference"})


def test_an_entry_that_is_set_leaves_the_others_of_the_file(call, tmp_path):
    (tmp_path / "my.toml").write_text(
        "[recipe]\noptimizer = 'sgd'\noptimizer_options = { momentum = 0.75, nesterov = true }\n",
        encoding="utf-8",
    )
    words = ("--config", "my.toml", "--set", "recipe.optimizer_options.momentum=0.5")
    call("run", "pendulum", *SMALL, *words)
    assert recipe_in(tmp_path)["optimizer_options"] == {"momentum": 0.5, "nesterov": True}


def test_a_file_describes_a_table_of_ones_own(call, tmp_path):
    rows = [f"{id_},{step},{step * id_}" for id_ in range(9) for step in range(3)]
    (tmp_path / "own.csv").write_text(
        "\n".join(['who,when,"pulse, left"', *rows]), encoding="utf-8"
    )
    (tmp_path / "my.toml").write_text(
        'csv = "own.csv"\nmodel = "elman"\nhidden_size = 2\nepochs = 1\n'
        '[table]\nid = "who"\ntime = "when"\nfeatures = ["pulse, left"]\n',
        encoding="utf-8",
    )
    assert "Report: " in call("run", "--config", "my.toml").output
    pytest.importorskip("optuna")
    text = (tmp_path / "my.toml").read_text(encoding="utf-8").replace("hidden_size = 2\n", "")
    (tmp_path / "tuned.toml").write_text(text, encoding="utf-8")
    output = call("tune", "--config", "tuned.toml", "--trials", "1").output
    (best,) = tmp_path.rglob("best.toml")
    assert 'features = ["pulse, left"]' in best.read_text(encoding="utf-8")
    assert "tauflow run --config" in output
    assert f"Study:  {best.parent}" in output
    assert "Report: " in call("run", "--config", best).output  # wherever it is called from
    (tmp_path / "my.toml").write_text('[table]\nidd = "who"\n', encoding="utf-8")
    message = call("run", "--config", "my.toml", code=1).stderr
    assert "unknown entry 'idd'. Did you mean 'id'?" in message


@pytest.mark.slow
def test_settings_are_tuned_and_then_run(call, tmp_path):
    pytest.importorskip("optuna")
    words = ("tune", "pendulum", "--model", "elman", "--trials", "1", "--epochs", "1")
    output = call(*words, "--vary", "model.hidden_size=[2]", "--vary", "recipe.lr=[0.01]").output
    assert "1 trial: 1 completed, 0 pruned" in output
    assert "Train with them: tauflow run --config" in output
    (best,) = tmp_path.rglob("best.toml")
    call("run", "--config", best)
    recipe = recipe_in(tmp_path)
    assert (recipe["epochs"], recipe["lr"]) == (1, 0.01)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--set", "recipe.lrr=1"), "a recipe has no option 'lrr'. Did you mean 'lr'?"),
        (("--set", "recipe.lr=high"), "lr must be a finite number > 0, got 'high'"),
        (("--set", "hidden=3"), "--set hidden: settings are of the recipe, such as recipe.hidden"),
        (("--set", "lr"), "Write for example --set recipe.lr=0.01"),
        (("--log", "tensorbord"), "log='tensorbord' is unknown. Did you mean 'tensorboard'?"),
        (("--device", "nowhere"), "device='nowhere' cannot be used here"),
        (("--config", "bad.toml"), "unknown entry 'modle'. Did you mean 'model'?"),
        (("--config", "table.toml"), "recipe must be a table, [recipe]"),
        (("--config", "none.toml"), "none.toml does not exist"),
        (("--config", "type.toml"), "type.toml: hidden_size: "),
    ],
)
def test_what_is_wrong_is_named(call, tmp_path, words, message):
    (tmp_path / "bad.toml").write_text("modle = 'cfc'\n", encoding="utf-8")
    (tmp_path / "table.toml").write_text("recipe = 3\n", encoding="utf-8")
    (tmp_path / "type.toml").write_text("hidden_size = [3]\n", encoding="utf-8")
    assert message in call("run", "pendulum", *SMALL, *words, code=1).stderr
