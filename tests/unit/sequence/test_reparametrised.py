"""Pruned and normalised parameters are computed at every call, as in layers of torch."""

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

import tauflow
from tauflow.analysis import (
    as_flow,
    find_fixed_points,
    gradient_flow,
    lyapunov_exponents,
    visited_states,
)
from tauflow.sequence import Chunks, run_in_parallel

X = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0))
PLACES = {"gru": ("", "W_h"), "ltc": ("", "w"), "cfc": ("heads", "weight"), "lmu": ("", "W_h")}


def built(name, seed=0, **options):
    torch.manual_seed(seed)
    rnn = tauflow.build(name, 3, 5, **options)
    part, attribute = PLACES[name]
    return rnn, rnn.cell.get_submodule(part), attribute


@pytest.mark.parametrize("backend", ["auto", "reference"])
@pytest.mark.parametrize("name", PLACES)
def test_a_pruned_module_loads_another_ones_parameters(name, backend):
    rnn, part, attribute = built(name, backend=backend)
    prune.l1_unstructured(part, attribute, 0.5)
    want = rnn(X)[0]
    plain, place, _ = built(name, backend=backend)
    with torch.no_grad():  # the same by hand
        getattr(place, attribute).copy_(getattr(part, attribute))
    torch.testing.assert_close(want, plain(X)[0])
    other, place, _ = built(name, seed=1, backend=backend)
    prune.identity(place, attribute)
    other.load_state_dict(rnn.state_dict())
    torch.testing.assert_close(other(X)[0], want)


@pytest.mark.parametrize("name", PLACES)
def test_a_pruned_module_trains(name):
    rnn, part, attribute = built(name)
    prune.random_unstructured(part, attribute, 0.5)
    for _ in range(2):  # each with a graph of its own
        rnn(X)[0].square().sum().backward()
    gradient = getattr(part, f"{attribute}_orig").grad
    kept = getattr(part, f"{attribute}_mask").bool()
    assert gradient[kept].abs().max() > 0
    assert not gradient[~kept].any()


@pytest.mark.parametrize("normalise", [nn.utils.spectral_norm, nn.utils.weight_norm])
@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated")
def test_normalised_weights_are_trained_and_streamed(normalise):
    rnn, part, attribute = built("cfc")
    normalise(part, attribute)
    rnn(X)[0].square().sum().backward()
    trained = [p for name, p in part.named_parameters() if name.startswith(f"{attribute}_")]
    assert trained
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in trained)
    rnn.eval()
    with torch.no_grad():
        for p in trained:
            p.mul_(1.5)
    stream = rnn.stream(2)
    for step in range(5):
        y = stream.step(X[:, step])
    torch.testing.assert_close(y, rnn(X)[0][:, -1].detach())


@pytest.mark.parametrize("name", ["gru", "ltc"])
def test_analyses_read_what_a_pass_would_compute(name):
    rnn, part, attribute = built(name)
    prune.l1_unstructured(part, attribute, 0.5)
    rnn(X)[0].sum().backward()
    torch.optim.SGD(rnn.parameters(), lr=0.1).step()
    permanent = built(name)[0]
    values = {k.removesuffix("_orig"): v for k, v in rnn.state_dict().items()}
    mask = values.pop(f"cells.0.{attribute}_mask")
    values[f"cells.0.{attribute}"] = values[f"cells.0.{attribute}"] * mask
    permanent.load_state_dict(values)
    for analysis in (
        lambda one: gradient_flow(one, X).error_norm,
        lambda one: lyapunov_exponents(one, X[0], count=2, generator=torch.manual_seed(0)),
        lambda one: as_flow(one, dt=1.0).velocity(torch.ones(1, 5).double()),
        lambda one: find_fixed_points(one, visited_states(one, X), starts=3).final_speeds,
    ):
        torch.testing.assert_close(analysis(rnn), analysis(permanent))


@pytest.mark.parametrize("name", ["gnode", "cfc"])
@pytest.mark.parametrize("how", ["chunks", "checkpoints"])
def test_steps_that_are_run_once_more_learn_what_is_pruned(name, how):
    """In spite of calls without gradients before, in between and after."""
    torch.manual_seed(0)
    rnn = tauflow.build(name, 2, 5, checkpoint_every=10 if how == "checkpoints" else None)
    cell, x = rnn.cell, torch.randn(2, 230, 2)
    for part in cell.modules():
        for weight in [n for n, p in part.named_parameters(recurse=False) if p.ndim == 2]:
            prune.random_unstructured(part, weight, amount=0.4)
    chunks = Chunks(length=40, burn_in=20)
    expected = torch.autograd.grad(rnn(x, dt=0.5)[0].square().sum(), [*rnn.parameters()])
    y, _ = (
        rnn(x, dt=0.5) if how == "checkpoints" else run_in_parallel(rnn, x, dt=0.5, chunks=chunks)
    )
    with torch.no_grad():
        rnn(x, dt=0.5)
    found = torch.autograd.grad(y.square().sum(), [*rnn.parameters()])
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4 * float(other.abs().max()))
