import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import norm

from tauflow.cells.activations import ACTIVATIONS
from tauflow.cells.weight_schemes import critical_gain
from tauflow.errors import ArgumentError, UnknownNameError
from tauflow_papers.theory import (
    RandomODE,
    correlation,
    critical_curve,
    mean_field,
    measure_radius,
    sample_network,
)


@pytest.mark.parametrize("kernel", [0.01, 1.0, 30.0])
def test_averages_of_tanh_are_those_of_quadrature(kernel):
    root = math.sqrt(kernel)
    power = quad(lambda z: math.tanh(root * z) ** 2 * norm.pdf(z), -9, 9, epsabs=1e-12)[0]
    slope = quad(lambda z: math.cosh(root * z) ** -4 * norm.pdf(z), -9, 9, epsabs=1e-12)[0]
    assert correlation("tanh", kernel) == pytest.approx((power, slope), rel=1e-6)


@pytest.mark.parametrize("kernel", [900.0, 1e4, 1e7])
def test_averages_over_variables_far_wider_than_the_activation(kernel):
    def average(f):  # what bends lies within 30 of 0
        density = norm(scale=math.sqrt(kernel)).pdf
        return 2 * sum(quad(lambda x: f(x) * density(x), *ends)[0] for ends in ((0, 3), (3, 30)))

    power = 1 - average(lambda x: math.cosh(x) ** -2)
    slope = average(lambda x: math.cosh(x) ** -4)
    assert correlation("tanh", kernel) == pytest.approx((power, slope), rel=1e-9)


@pytest.mark.parametrize("kernel", [1e-3, 0.0123, 0.0124, 0.3, 1.0, 1.7, 10.0, 100.0, 1e4, 1e7])
def test_averages_of_hard_tanh(kernel):
    inside = math.erf(1 / math.sqrt(2 * kernel))
    power = 1 + (kernel - 1) * inside - math.sqrt(2 * kernel / math.pi) * math.exp(-0.5 / kernel)
    assert correlation("hardtanh", kernel) == pytest.approx((power, inside), rel=1e-12)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("kernel", [0.02, 0.7, 3.0, 50.0])
@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_averages_of_every_activation_are_those_of_scipy(name, kernel):
    phi, deviation = ACTIVATIONS[name], math.sqrt(kernel)

    def value(x):
        return float(phi(torch.tensor(x, dtype=torch.float64)))

    def slope(x):
        x = torch.tensor(x, dtype=torch.float64, requires_grad=True)
        return float(torch.autograd.grad(phi(x), x)[0])

    def average(f):  # in pieces that end at every kink
        ends = sorted({e for e in (-9 * deviation, -1.0, 0.0, 1.0, 9 * deviation)
                       if abs(e) <= 9 * deviation})  # fmt: skip
        density = norm(scale=deviation).pdf
        return sum(
            quad(lambda x: f(x) ** 2 * density(x), *piece, epsabs=1e-13, epsrel=1e-11, limit=200)[0]
            for piece in pairwise(ends)
        )

    expected = average(value), average(slope)
    assert correlation(name, kernel) == pytest.approx(expected, rel=1e-10, abs=1e-12)


def test_strongly_coupled_networks_are_not_called_stable():
    """Few units are not saturated, and they are strong. Numbers: SciPy's quadrature, iterated."""
    solution = mean_field(RandomODE(3, 16.0, sigma_b=1.0))
    assert solution.squared_radius**0.5 == pytest.approx(34.42783318, rel=1e-6)
    assert solution.variance == pytest.approx(244.25882847, rel=1e-6)


@pytest.mark.parametrize("kernel", [0.3, 4.0])
def test_averages_of_relu(kernel):
    assert correlation("relu", kernel) == pytest.approx((kernel / 2, 0.5), rel=1e-9)  # Eq. 37


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("layers", "scale"), [(1, 1.0), (2, 1.1892), (3, 1.2599)])
@pytest.mark.parametrize("final", ["identity", "tanh"])
def test_critical_scale_of_relu_is_equation_51(layers, scale, final):
    family = RandomODE(layers, 1.0, activation="relu", final_activation=final)
    curve = critical_curve(family, [0.0])
    assert curve.converged.all()
    assert curve.sigma_w.item() == pytest.approx(math.sqrt(2 ** (1 - 1 / layers)), abs=1e-6)
    assert curve.sigma_w.item() == pytest.approx(scale, abs=1e-4)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("aspect", [0.25, 1.0, 6.0])
@pytest.mark.parametrize("layers", [2, 3])
def test_critical_scale_with_glorot_scaling_is_the_corrected_equation_52(layers, aspect):
    family = RandomODE(layers, 1.0, activation="relu", scaling="glorot", aspect=aspect)
    scale = critical_curve(family, [0.0]).sigma_w.item()
    corrected = 2 ** (1 - 1.5 / layers) * ((1 + aspect) ** 2 / aspect) ** (1 / (2 * layers))
    widths = [400, *[int(400 * aspect)] * (layers - 1), 400]
    printed = 2 ** (1 - 1.5 / layers) * (1 + aspect) ** (1 / layers)
    assert scale == pytest.approx(corrected, rel=1e-6)
    assert (scale == pytest.approx(printed, rel=1e-3)) == (aspect == 1.0)
    assert scale == pytest.approx(critical_gain(widths, 0.5, "glorot"), rel=1e-6)


def test_relu_networks_have_the_closed_form_fixed_point():
    """Eq. 48 with the biases that Eq. 44 leaves out, and no chaos (Eq. 49)."""
    family = RandomODE(
        3, 1.1, sigma_b=0.3, sigma_u=0.7, input_power=2.0, aspect=0.5, activation="relu"
    )
    a, b = 1.1**2 / 2, 0.3**2  # what a layer keeps of the mean square, and what it adds
    inputs = 0.7**2 * 2.0
    # C = a (a (2 a C + inputs + b) + b) + b
    expected = (a * (a * (inputs + b) + b) + b) / (1 - 2 * a**3)
    solution = mean_field(family)
    assert solution.converged
    assert solution.variance == pytest.approx(expected, rel=1e-6)
    assert solution.squared_radius == pytest.approx(2 * a**3)
    grown = mean_field(RandomODE(3, 1.3, sigma_b=0.3, activation="relu"))
    assert not grown.converged
    assert grown.variance == math.inf


@pytest.mark.sampled(3)
@pytest.mark.parametrize("layers", [1, 2, 4])
def test_the_zero_fixed_point_is_equation_36(layers):
    solution = mean_field(RandomODE(layers, 0.9))
    assert solution.variance == 0
    assert solution.squared_radius == pytest.approx(0.9 ** (2 * layers))
    assert solution.abscissa == pytest.approx(0.9**layers - 1)
    assert critical_curve(RandomODE(layers, 1.0), [0.0]).sigma_w.item() == pytest.approx(1.0)


@pytest.mark.parametrize("layers", [2, 3])
def test_the_zero_fixed_point_of_relu_networks_is_as_stable_as_small_ones(layers):
    solution = mean_field(RandomODE(layers, 0.9, activation="relu"))
    assert solution.variance == 0
    assert solution.squared_radius == pytest.approx(
        0.9 ** (2 * layers) / 2 ** (layers - 1)
    )  # Eq. 49


def test_the_fixed_point_solves_its_equation():
    solution = mean_field(RandomODE(2, 1.4, sigma_b=0.2))
    first = 1.4**2 * solution.variance + 0.04
    power, slope = correlation("tanh", first)
    assert solution.kernels == pytest.approx((first, solution.variance), rel=1e-8)
    assert solution.variance == pytest.approx(1.4**2 * power + 0.04, rel=1e-8)
    assert solution.squared_radius == pytest.approx(1.4**4 * slope)


@pytest.mark.thorough
def test_critical_curves_rise_and_separate():
    biases = torch.tensor([0.0, 0.3, 1.0])
    curves = [critical_curve(RandomODE(layers, 1.0), biases) for layers in (2, 3)]
    for curve, layers in zip(curves, (2, 3), strict=True):
        assert (curve.sigma_w.diff() > 0).all()
        for b, w in zip(biases.tolist(), curve.sigma_w.tolist(), strict=True):
            radii = [
                mean_field(RandomODE(layers, w * factor, sigma_b=b)).squared_radius
                for factor in (0.99, 1.0, 1.01)
            ]
            assert radii[0] < radii[1] < radii[2]
            assert radii[1] == pytest.approx(1.0, abs=1e-6)
    assert (curves[1].sigma_w[1:] > curves[0].sigma_w[1:]).all()  # Fig. 4: deeper lies further out


def test_a_curve_that_ends_is_marked():
    always_stable = RandomODE(1, 1.0, final_activation="tanh")
    curve = critical_curve(always_stable, [0.0, 50.0], largest=4.0)
    assert curve.converged.tolist() == [True, False]
    assert curve.sigma_w[1].isnan()


FAMILIES = {
    "tanh-2": RandomODE(2, 1.1, sigma_b=0.3),
    "tanh-3-wide": RandomODE(3, 1.2, sigma_b=0.8, aspect=1.5),
    "glorot": RandomODE(2, 1.6, sigma_b=0.5, scaling="glorot", aspect=2.0),
    "relu-tanh": RandomODE(2, 1.0, sigma_b=0.3, activation="relu", final_activation="tanh"),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", FAMILIES)
def test_sampled_networks_have_the_radius_of_the_theory(name):
    """400 neurons, four samples: 4 % for the mean gain; the outermost eigenvalue lies above."""
    samples = [measure_radius(FAMILIES[name], neurons=400, steps=300, seed=s) for s in range(4)]
    assert all(sample.settled for sample in samples)
    gain, radius, variance = (
        np.mean([getattr(sample, key) for sample in samples])
        for key in ("mean_gain", "radius", "variance")
    )
    expected = samples[0].expected_radius
    assert gain == pytest.approx(expected, rel=0.04)
    assert 0.97 * expected < radius < 1.10 * expected
    assert variance == pytest.approx(samples[0].expected_variance, rel=0.15)


def test_sampled_networks_at_the_edge_of_stability():
    curve = critical_curve(RandomODE(2, 1.0), [0.4])
    for factor, settled in ((0.85, True), (1.3, False)):
        family = RandomODE(2, factor * curve.sigma_w.item(), sigma_b=0.4)
        assert measure_radius(family, neurons=300, steps=400).settled is settled


def test_samples_are_drawn_as_the_family_says():
    family = RandomODE(3, 1.5, sigma_b=0.2, scaling="glorot", aspect=2.0, sigma_u=0.7)
    cell = sample_network(family, 500, torch.Generator().manual_seed(0))
    variances = [1.5**2 / 1500, 1.5**2 / 2000, 1.5**2 / 1500]
    for weight, variance in zip([cell.W_h, *cell.W_F], variances, strict=True):
        assert weight.var().item() == pytest.approx(variance, rel=0.02)
    assert cell.b.std().item() == pytest.approx(0.2, rel=0.1)
    assert cell.W_x.std().item() == pytest.approx(0.7, rel=0.1)


def test_bad_calls_are_refused():
    with pytest.raises(ArgumentError, match="sigma_w must be"):
        RandomODE(2, -1.0)
    with pytest.raises(UnknownNameError, match="scaling='xavier'"):
        RandomODE(2, 1.0, scaling="xavier")
    with pytest.raises(ArgumentError, match="run without input"):
        measure_radius(RandomODE(2, 1.0, sigma_u=1.0, input_power=1.0), neurons=4)


@pytest.mark.parametrize(("activation", "layers"), [("gelu", 2), ("silu", 2), ("gelu", 1)])
def test_zero_is_taken_where_it_is_stable_though_large_states_grow(activation, layers):
    family = RandomODE(layers, 1.3, activation=activation)
    solution = mean_field(family)
    slope = correlation(activation, 0.0)[1] if layers > 1 else 1.0
    assert solution.converged == (1.3 ** (2 * layers) * slope ** (layers - 1) < 1)
    if layers > 1:
        assert solution.variance == 0.0
        edge = (1 / slope) ** (1 / (2 * layers))
        curve = critical_curve(family, [0.0])
        assert float(curve.sigma_w) == pytest.approx(edge, rel=1e-6)


@pytest.mark.parametrize("largest", [1.9, 3.0, 16.0])
def test_a_curve_is_looked_for_up_to_the_scale_that_is_said(largest):
    family = RandomODE(1, 1.0)
    curve = critical_curve(family, [0.0, 0.5, 1.0], largest=largest)
    expected = critical_curve(family, [0.0, 0.5, 1.0])
    torch.testing.assert_close(curve.sigma_w, expected.sigma_w, rtol=1e-9, atol=0)
    assert critical_curve(family, [0.0], largest=0.5).sigma_w.isnan().all()
