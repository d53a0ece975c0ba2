"""The lane-keeping networks have the published numbers of parameters."""

import pytest
import torch

from tauflow.errors import OptionError, UnknownNameError
from tauflow_papers.theory.driving import DRIVING_MODELS, driving_model

# Table 3 of Hasani et al. 2022: (CNN head + RNN, RNN).
PUBLISHED = {
    "cnn": (2_124_901, None),
    "lstm": (259_733, 33_089),
    "ncp": (233_139, 6_495),
    "cf-s": (227_728, 1_084),
    "cfc": (230_828, 4_184),
    "cfc-nogate": (230_828, 4_184),
    "cfc-mmrnn": (235_052, 8_408),
}


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


def test_the_table_is_complete():
    assert list(DRIVING_MODELS) == list(PUBLISHED)


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_numbers_of_parameters(name):
    model, (total, recurrent) = driving_model(name), PUBLISHED[name]
    assert count(model) == total
    if recurrent is not None:
        assert count(model.head) == 226_644
        assert count(model) - count(model.head) == recurrent


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_driving_model_steers_by_one_number_and_learns_everywhere(name):
    torch.manual_seed(0)
    model = driving_model(name)
    curvature, _ = model(torch.randn(2, 3, 3, 72, 128), dt=1 / 30)
    assert curvature.shape == (2, 3, 1)
    curvature.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_unknown_networks_and_options_are_errors():
    with pytest.raises(UnknownNameError, match=r"driving model 'cfs'.*Did you mean 'cf-s'"):
        driving_model("cfs")
    with pytest.raises(OptionError, match="'cnn' has no recurrent part to take mode"):
        driving_model("cnn", mode="pure")
