"""What is tried of a model: of its row in the catalog, without what has a value already."""

import pytest

from tauflow.cells.registry import MODELS
from tauflow.errors import ArgumentError
from tauflow.runs.search_space import make_search_space


def test_what_is_tried_is_of_the_models_row():
    space = make_search_space("cfc", {"recipe.lr": [0.1], "model.mode": ["pure"]})
    assert space["recipe.lr"] == (0.1,)
    assert space["model.mode"] == ("pure",)
    assert space["model.backbone_units"] == MODELS["cfc"].tune["backbone_units"]
    assert "model.backbone_units" not in make_search_space("lstm")


@pytest.mark.parametrize("name", [name for name, entry in MODELS.items() if entry.tune])
def test_every_value_that_is_tried_builds(name):
    for option, values in MODELS[name].tune.items():
        for value in values:
            MODELS[name].build(2, 4, **{option: value})


def test_what_has_a_value_is_not_tried():
    fixed = ["recipe.lr", "recipe.epochs", "model.backbone_units", "model.backend"]
    rest = {"model.hidden_size", "model.backbone_layers", "model.backbone_dropout"}
    assert make_search_space("cfc", fixed=fixed).keys() == rest
    with pytest.raises(ArgumentError, match=r"recipe\.lr is given and varied too"):
        make_search_space("cfc", {"recipe.lr": [0.1]}, ["recipe.lr"])
    with pytest.raises(ArgumentError, match="nothing is left to try"):
        make_search_space("lstm", fixed=["recipe.lr", "model.hidden_size"])
    with pytest.raises(ArgumentError, match=r"no option 'lrr'\. Did you mean 'lr'"):
        make_search_space("lstm", fixed=["recipe.lrr"])
