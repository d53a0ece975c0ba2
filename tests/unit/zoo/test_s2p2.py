"""S2P2 against its equations in NumPy, with a dense sum for the integral."""

import math

import numpy as np
import torch

import tauflow
from tauflow.zoo import S2P2

K, H, P, L = 2, 3, 4, 2
END = 4.0


def make():
    torch.manual_seed(0)
    model = S2P2(K, H, states=P, layers=L).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def gelu(z):
    return z * 0.5 * (1 + np.vectorize(math.erf)(z / math.sqrt(2)))


def intensities(model, types, times, at):
    """Return the intensities at ``at``, each followed from event to event."""
    p = {name: value.detach().numpy() for name, value in model.named_parameters()}

    def layer(k, name):
        return p[f"layers.{k}.{name}"]

    def emit(k, x, u):
        C = layer(k, "C")[:, :P] - 1j * layer(k, "C")[:, P:]
        y = 2 * (C @ x).real + layer(k, "D") * u
        z = gelu(y) + u
        z = (z - z.mean()) / np.sqrt(z.var() + 1e-5)
        return z * layer(k, "norm.weight") + layer(k, "norm.bias")

    def complex_of(k, name):
        return layer(k, name)[..., :P] + 1j * layer(k, name)[..., P:]

    eigenvalues = [-np.exp(layer(k, "log_rate")) + 1j * layer(k, "frequency") for k in range(L)]
    B = [layer(k, "B")[:P] + 1j * layer(k, "B")[P:] for k in range(L)]

    def move(xs, held, dt):
        return [
            np.exp(eigenvalues[k] * dt) * xs[k]
            + (np.exp(eigenvalues[k] * dt) - 1) * (B[k] @ held[k])
            for k in range(L)
        ]

    def inputs(xs):
        us = [np.zeros(H)]
        for k in range(L):
            us.append(emit(k, xs[k], us[-1]))
        return us

    marks, stamps = [K, *types], [0.0, *times]
    intensities_of_types, place = [], 0
    xs = [complex_of(k, "E")[K] for k in range(L)]
    held, now = inputs(xs), 0.0
    for t in at:
        while place + 1 < len(marks) and stamps[place + 1] < t:
            place += 1
            xs = move(xs, held, stamps[place] - now)
            xs = [xs[k] + complex_of(k, "E")[marks[place]] for k in range(L)]
            held, now = inputs(xs), stamps[place]
        z = p["weight"] @ inputs(move(xs, held, t - now))[-1]
        scale = np.exp(p["log_scale"])
        intensities_of_types.append(scale * np.logaddexp(0, z / scale))
    return np.array(intensities_of_types)


def test_intensities_and_likelihood_are_those_of_the_equations():
    model, types, times = make(), [0, 1, 1, 0], [0.4, 0.9, 2.5, 3.1]
    at = np.array([0.2, 0.9, 1.7, 3.05, 3.9])
    events = torch.tensor([types]), torch.tensor([times], dtype=torch.float64)
    intensity = model.intensity(*events, torch.tensor(at)[None])
    np.testing.assert_allclose(
        intensity[0].detach(), intensities(model, types, times, at), rtol=1e-9
    )
    middles = (np.arange(4000) + 0.5) * END / 4000
    compensator = intensities(model, types, times, middles).sum() * END / 4000
    chosen = intensities(model, types, times, np.array(times))[range(4), types]
    likelihood = model.log_likelihood(*events, END).item()
    np.testing.assert_allclose(likelihood, np.log(chosen).sum() - compensator, rtol=1e-4)


def test_padding_and_the_next_event():
    model = make()
    types, times = torch.tensor([[0, 1, 0]]), torch.tensor([[0.5, 1.0, 2.0]]).double()
    both = torch.tensor([[0, 1, 0], [1, 0, 0]]), torch.cat([times, times])
    padded = model.log_likelihood(*both, END, lengths=torch.tensor([2, 3]))
    alone = model.log_likelihood(types[:, :2], times[:, :2], END)
    torch.testing.assert_close(padded[:1], alone)
    following = model.predict_next(types, times)
    fine = torch.linspace(2.0, 60.0, 60001, dtype=torch.float64)
    rates = model.intensity(types, times, fine[None] + 1e-12)[0].detach()
    hazard = torch.cumulative_trapezoid(rates.sum(1), fine)
    survival = torch.cat([torch.ones(1).double(), torch.exp(-hazard)])
    expected = 2.0 + torch.trapezoid(survival, fine)
    torch.testing.assert_close(following.time, expected[None], rtol=1e-3, atol=1e-3)
    shares = torch.trapezoid(rates * survival[:, None], fine, dim=0)
    torch.testing.assert_close(following.probabilities, shares[None], rtol=1e-3, atol=1e-3)


def test_it_is_saved(tmp_path):
    model = make()
    tauflow.save(model, tmp_path / "model.safetensors")
    loaded = tauflow.load(tmp_path / "model.safetensors")
    events = torch.tensor([[0, 1]]), torch.tensor([[0.5, 1.0]]).double()
    torch.testing.assert_close(
        loaded.log_likelihood(*events, END), model.log_likelihood(*events, END)
    )


def test_training_raises_the_likelihood():
    torch.manual_seed(0)
    model = S2P2(K, 4)
    times = torch.rand(4, 6).cumsum(1)
    types = torch.arange(6).remainder(2).expand(4, -1)  # in turn
    optimizer = torch.optim.Adam(model.parameters(), 0.05)
    losses = []
    for _ in range(8):
        optimizer.zero_grad()
        losses.append(-model.log_likelihood(types, times, times[:, -1]).mean())
        losses[-1].backward()
        optimizer.step()
    assert losses[-1] < losses[0] - 0.5
    assert all(parameter.grad is not None for parameter in model.parameters())
