"""Random networks: what they are drawn from, and their equations neuron by neuron."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from tauflow.errors import ArgumentError, ShapeError, UnknownNameError
from tauflow_papers.theory import NetworkDistribution, circular_input
from tauflow_papers.theory.random_networks import MODEL_NAMES, InputSignal, sample_random_networks


def networks(count=4, seed=0, **law):
    return sample_random_networks(
        NetworkDistribution(**law), count, generator=torch.Generator().manual_seed(seed)
    )


def normal_with(deviation, values, mean=0.0):
    sample = values.flatten().numpy()
    return stats.kstest(sample, stats.norm(mean, deviation).cdf).pvalue > 1e-3


@pytest.mark.parametrize("width", [7, 40])
@pytest.mark.parametrize(
    ("law", "weight", "bias"),
    [
        ("released", lambda k: 3.0, 0.5),
        ("paper", lambda k: math.sqrt(3.0 / k), math.sqrt(0.5)),
    ],
)
def test_weights_and_biases_follow_the_law(width, law, weight, bias):
    drawn = networks(30, width=width, weight_variance=3.0, bias_variance=0.5, weight_law=law)
    assert normal_with(weight(width), drawn.W[0])
    assert normal_with(weight(width), drawn.V[0])
    assert normal_with(bias, torch.stack([drawn.b, drawn.c]))
    # Sums of k reversal potentials, each drawn like a weight.
    assert normal_with(weight(width) * math.sqrt(width), torch.stack([drawn.A, drawn.B]))
    assert not normal_with(1.3 * weight(width), drawn.V[0])


@pytest.mark.parametrize(("law", "power"), [("released", 1), ("paper", -1)])
def test_time_constants_or_their_inverses_are_folded_normal(law, power):
    tau = networks(60, width=30, tau_law=law, bias_variance=2.0).tau.flatten().numpy()
    assert stats.kstest(tau**power, stats.halfnorm(scale=2.0).cdf).pvalue > 1e-3
    assert stats.kstest(tau**-power, stats.halfnorm(scale=2.0).cdf).pvalue < 1e-6


def test_draws_of_one_network_do_not_depend_on_how_many_follow():
    few, many = networks(2, layers=2, width=3), networks(5, layers=2, width=3)
    for name in ("b", "c", "A", "B", "tau"):
        assert torch.equal(getattr(few, name), getattr(many, name)[:2])
    for weight, other in zip(few.W + few.V, many.W + many.V, strict=True):
        assert torch.equal(weight, other[:2])
    assert not torch.equal(many.W[1][0], many.W[1][1])


def reference(drawn, row, model, phi, signal, y):
    """The equations neuron by neuron, in plain Python."""
    n_layers, k = drawn.law.layers, drawn.law.width
    below, rates = [float(v) for v in signal], []
    for layer in range(n_layers):
        potentials = [float(v) for v in y[layer * k : (layer + 1) * k]]
        W, V = drawn.W[layer][row], drawn.V[layer][row]
        for i in range(k):
            n = sum(float(W[j, i]) * below[j] for j in range(len(below)))
            n = phi(n + float(drawn.b[row, layer, i]))
            r = phi(
                sum(float(V[j, i]) * potentials[j] for j in range(k))
                + float(drawn.c[row, layer, i])
            )
            tau = float(drawn.tau[row, layer, i])
            if model == "neural-ode":
                rates.append(n)
            elif model == "ct-rnn":
                rates.append(-potentials[i] / tau + n)
            else:
                A, B = float(drawn.A[row, layer, i]), float(drawn.B[row, layer, i])
                rates.append(-potentials[i] * (1 / tau + abs(n) + abs(r)) + A * n + B * r)
        below = potentials
    return rates


@pytest.mark.parametrize("model", MODEL_NAMES)
@pytest.mark.parametrize(("activation", "phi"), [("tanh", math.tanh), ("identity", float)])
def test_fields_are_the_equations(model, activation, phi):
    drawn = networks(3, layers=2, width=4, activation=activation)
    signal = circular_input()
    t = torch.tensor([0.0, 1.7, 5.0], dtype=torch.float64)
    y = torch.randn(3, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    rates = drawn.field(model, signal)(t, y)
    for row in range(3):
        at = signal.at(t)[row]
        expected = reference(drawn, row, model, phi, at, y[row])
        np.testing.assert_allclose(rates[row].numpy(), expected, rtol=1e-10, atol=1e-10)
    picked = drawn.take(torch.tensor([2, 0])).field(model, signal)(t[[2, 0]], y[[2, 0]])
    torch.testing.assert_close(picked, rates[[2, 0]])


def test_the_input_is_linear_between_its_samples():
    signal = circular_input(20)
    t = torch.linspace(0, 2 * math.pi, 77, dtype=torch.float64)
    for column, function in enumerate((np.sin, np.cos)):
        grid = np.linspace(0, 2 * np.pi, 20)
        expected = np.interp(t.numpy(), grid, function(grid))
        np.testing.assert_allclose(signal.at(t)[:, column].numpy(), expected, atol=1e-12)


def test_bad_laws_and_inputs_are_refused():
    with pytest.raises(UnknownNameError, match="weight_law='papers' is unknown"):
        NetworkDistribution(weight_law="papers")
    with pytest.raises(UnknownNameError, match="unknown activation 'htanh'"):
        NetworkDistribution(activation="htanh")
    with pytest.raises(ArgumentError, match="width must be at least 1"):
        NetworkDistribution(width=0)
    with pytest.raises(UnknownNameError, match="model='node' is unknown"):
        networks().field("node", circular_input())
    t = torch.tensor([0.0, 2.0, 1.0])
    with pytest.raises(ShapeError, match="times that rise from 0"):
        InputSignal(t, torch.zeros(3, 2))
    with pytest.raises(ShapeError, match=r"expected \(T,\) and \(T, D\)"):
        InputSignal(t.abs().sort().values, torch.zeros(4, 2))
