"""Parametrized weights are computed at every call; hooks that compute weights are refused."""

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune

import tauflow
from tauflow.errors import ArgumentError
from tauflow.sequence import Chunks, run_in_parallel

X = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0))
PLACES = {"gru": ("", "W_h"), "ltc": ("", "w"), "cfc": ("heads", "weight"), "lmu": ("", "W_h")}
NORMALISATIONS = (parametrizations.spectral_norm, parametrizations.weight_norm)


def built(name, **options):
    torch.manual_seed(0)
    rnn = tauflow.build(name, 3, 5, **options)
    part, attribute = PLACES[name]
    return rnn, rnn.cell.get_submodule(part), attribute


@pytest.mark.parametrize("normalise", NORMALISATIONS)
@pytest.mark.parametrize("name", PLACES)
def test_normalised_weights_are_trained_and_streamed(name, normalise):
    rnn, part, attribute = built(name)
    rnn(X)
    normalise(part, attribute)
    rnn(X)[0].square().sum().backward()
    trained = list(part.parametrizations.parameters())
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in trained)
    rnn.eval()
    with torch.no_grad():
        for p in trained:
            p.mul_(1.5)
    stream = rnn.stream(2)
    for step in range(5):
        y = stream.step(X[:, step])
    torch.testing.assert_close(y, rnn(X)[0][:, -1].detach())
    before = rnn(X)[0]
    rnn.backend = "reference"
    torch.testing.assert_close(before, rnn(X)[0])


@pytest.mark.parametrize("how", ["chunks", "checkpoints"])
@pytest.mark.parametrize("name", ["gru", "cfc"])
def test_steps_that_are_run_once_more_learn_what_is_normalised(name, how):
    rnn, part, attribute = built(name, checkpoint_every=10 if how == "checkpoints" else None)
    parametrizations.weight_norm(part, attribute)
    x = torch.randn(2, 230, 3)
    expected = torch.autograd.grad(rnn(x, dt=0.5)[0].square().sum(), [*rnn.parameters()])
    chunks = Chunks(length=40, burn_in=20)
    y, _ = (
        rnn(x, dt=0.5) if how == "checkpoints" else run_in_parallel(rnn, x, dt=0.5, chunks=chunks)
    )
    gradients = torch.autograd.grad(y.square().sum(), [*rnn.parameters()])
    for gradient, other in zip(gradients, expected, strict=True):
        torch.testing.assert_close(gradient, other, rtol=1e-3, atol=1e-4 * float(other.abs().max()))


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated")
@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_hooks_that_compute_weights_are_refused(backend):
    for change in (
        lambda part, name: prune.l1_unstructured(part, name, 0.5),
        nn.utils.spectral_norm,
        nn.utils.weight_norm,
    ):
        rnn, part, attribute = built("cfc", backend=backend)
        for where, name in ((part, attribute), (rnn.cell.backbone.layers[0], "weight")):
            before = {key: value.clone() for key, value in rnn.state_dict().items()}
            with pytest.raises(ArgumentError, match=r"takes no hooks.*\.utils\.parametrize"):
                change(where, name)
            assert isinstance(where._parameters[name], nn.Parameter)
            torch.testing.assert_close(dict(rnn.state_dict()), before)
