from functools import cache

import pytest
import torch

from tauflow.cells.registry import MODELS
from tauflow.errors import ArgumentError
from tauflow.models import WHOLE_MODELS, summarise_models
from tauflow.wirings import AutoNCP


@cache
def summaries(**sizes):
    return {f.name: f for kind in summarise_models(**sizes) for f in kind}


def test_every_model_is_listed_once_in_the_order_of_its_catalog():
    cells, models = summarise_models()
    assert [f.name for f in cells] == list(MODELS)
    assert [f.name for f in models] == list(WHOLE_MODELS)
    assert all(f.title and f.paper and f.parameters > 0 for f in (*cells, *models))


def test_parameters_are_those_of_the_formulas():
    """Formulas of the papers and docstrings, at I = 18 and N = 64, written out."""
    inputs, n = 18, 64
    counts = {name: f.parameters for name, f in summaries().items()}
    assert counts["lstm"] == 4 * n * (inputs + n + 1)
    assert counts["gru"] == 3 * n * (inputs + n + 2)
    assert counts["elman"] == n * (inputs + n + 1)
    assert counts["transformer"] == (inputs + 4) * n + 2 * (12 * n**2 + 13 * n)
    assert counts["ip-net"] == inputs + inputs**2 + 9 * inputs * n + 3 * n**2 + 6 * n
    assert summaries(input_size=2, hidden_size=4)["elman"].parameters == 4 * (2 + 4 + 1)


def test_what_they_take():
    takes = {name: f.capabilities for name, f in summaries().items()}
    assert takes["lstm"] == ()
    assert takes["augmented-lstm"] == ("time steps",)
    assert takes["ltc"] == takes["wired-cfc"] == ("time steps", "wiring")
    assert takes["gru-d"] == ("time steps", "missing features")
    assert takes["latent-ode-ode"] == ("time steps", "missing features", "non-causal")
    assert takes["seft"] == (
        "time steps",
        "missing features",
        "one output per sequence",
        "non-causal",
    )
    assert takes["t-patchgnn"] == ("time steps", "missing features", "queries only", "non-causal")
    assert takes["grafiti"] == ("time steps", "missing features", "queries only", "non-causal")
    assert takes["brits"] == ("time steps", "missing features", "non-causal")
    assert takes["convolutional"] == ("images of 3 × 72 × 128", "time steps")


@pytest.mark.parametrize("name", MODELS)
def test_wirings_are_taken_exactly_where_it_says_so(name):
    if "wiring" in summaries()[name].capabilities:
        assert MODELS[name].build(3, AutoNCP(8, 2)).output_size == 2
    else:
        with pytest.raises(ArgumentError, match="takes a number as hidden_size"):
            MODELS[name].build(3, AutoNCP(8, 2))


def test_a_mixed_memory_takes_what_its_core_takes():
    assert MODELS["cfc-mmrnn"].build(3, 4, core="wired-cfc").takes_wiring
    assert not MODELS["cfc-mmrnn"].build(3, 4).takes_wiring


def test_listing_leaves_the_random_generator_alone():
    before = torch.get_rng_state()
    summarise_models()
    assert torch.equal(torch.get_rng_state(), before)
