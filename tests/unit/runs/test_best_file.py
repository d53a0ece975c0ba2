"""A file of settings says what was meant, whatever the values are."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from tauflow.cli.shared_options import read_config_table
from tauflow.runs.best_config import to_toml, write_best_config
from tauflow.runs.run import DEFAULT_RECIPE, CsvFile, Run
from tauflow.runs.run_data import load_run_data
from tauflow.runs.toml_files import read_toml
from tauflow.tabular.options import TableOptions
from tauflow.training import Recipe

VALUES = {
    "whole": -3,
    "number": 1e-05,
    "large": 1e300,
    "infinite": float("inf"),
    "yes": True,
    "no": False,
    "text": 'a "quoted" \\ path,\ttab\nline\x7f\x00',
    "umlauts": "Größe 😀",
    "list": [1, 2.5, "three", [4, []]],
    "table": {"momentum": 0.9, "deep": {"nesterov": True, "a key": "with spaces"}, "none": {}},
    "a key": 1,
    "größe": 2,
    'quo"ted': 3,
    "": 4,
}


def test_what_is_written_is_read_back(tmp_path):
    file = tmp_path / "some.toml"
    file.write_bytes(to_toml(VALUES, {"one": VALUES, "empty": {}, "an other": VALUES}).encode())
    assert read_toml(file) == {**VALUES, "one": VALUES, "an other": VALUES}


SETTINGS = dict(
    hidden_size=7, seed=5, options={"backbone_units": None, "solver": {"kind": "rk4", "at": None}}
)


def test_a_recipe_and_options_are_read_back_with_none(tmp_path):
    recipe = Recipe(optimizer="sgd", epochs=3, optimizer_options={"momentum": 0.9, "foreach": None})
    assert (DEFAULT_RECIPE.clip_norm, recipe.clip_norm) == (1.0, None)
    file = tmp_path / "best.toml"
    run_data = SimpleNamespace(requested_metrics=("rmse", "r2"))
    write_best_config(file, Run("pendulum", recipe=recipe, **SETTINGS), run_data)
    assert DEFAULT_RECIPE.with_changes(read_config_table(file, "recipe")) == recipe
    assert read_config_table(file, "options") == SETTINGS["options"]
    top = {
        "task": "pendulum",
        "model": "cfc",
        "hidden_size": 7,
        "seed": 5,
        "metric": ["rmse", "r2"],
    }
    assert {name: read_toml(file)[name] for name in top} == top


@pytest.mark.parametrize("dates", [False, True])
def test_a_table_is_read_back_with_its_gaps(tmp_path, dates):
    file = tmp_path / "own.csv"
    when = "2024-05-{:02}" if dates else "{}"
    rows = [f"{id_},{when.format(3 * day + 1)},{day}" for id_ in range(9) for day in range(4)]
    file.write_text("\n".join(["who,when,pulse", *rows]), encoding="utf-8")
    options = TableOptions(id="who", time="when", features=["pulse"], time_unit=None, split_seed=3)
    source = CsvFile(file, options)
    run = Run(source, **SETTINGS)
    run_data = load_run_data(run)
    write_best_config(tmp_path / "best.toml", run, run_data)
    best = read_toml(tmp_path / "best.toml")
    again = replace(source, table=TableOptions(**best["table"]))
    data = load_run_data(replace(run, source=again)).data
    assert data.train.dt.equal(run_data.data.train.dt)
    assert data.train.dt.max() == (72 if dates else 3)
    assert best["csv"] == str(file)
