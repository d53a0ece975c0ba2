"""What is tried of a model: of its row in the catalog, without what has a value already."""

import pytest

from tauflow.cells.catalog import MODELS
from tauflow.errors import ArgumentError
from tauflow.runs.trial_space import space_of


def test_what_is_tried_is_of_the_models_row():
    space = space_of("cfc", {"recipe.lr": [0.1], "model.mode": ["pure"]})
    assert space["recipe.lr"] == (0.1,)
    assert space["model.mode"] == ("pure",)
    assert space["model.backbone_units"] == MODELS["cfc"].tune["backbone_units"]
    assert "model.backbone_units" not in space_of("lstm")


@pytest.mark.parametrize("name", [name for name, entry in MODELS.items() if entry.tune])
def test_every_value_that_is_tried_builds(name):
    for option, values in MODELS[name].tune.items():
        for value in values:
            MODELS[name].build(2, 4, **{option: value})


def test_what_has_a_value_is_not_tried():
    given = ["recipe.lr", "recipe.epochs", "model.backbone_units", "model.backend"]
    rest = {"model.hidden_size", "model.backbone_layers", "model.backbone_dropout"}
    assert space_of("cfc", given=given).keys() == rest
    with pytest.raises(ArgumentError, match=r"recipe\.lr is given and varied too"):
        space_of("cfc", {"recipe.lr": [0.1]}, ["recipe.lr"])
    with pytest.raises(ArgumentError, match="nothing is left to try"):
        space_of("lstm", given=["recipe.lr", "model.hidden_size"])
    with pytest.raises(ArgumentError, match=r"no option 'lrr'\. Did you mean 'lr'"):
        space_of("lstm", given=["recipe.lrr"])
