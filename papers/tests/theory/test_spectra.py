import matplotlib as mpl
import numpy as np
import pytest
import torch
from known_systems import on_circle, ring, turning_ring
from matplotlib import pyplot as plt

from tauflow.analysis import Flow
from tauflow.errors import ArgumentError, UnknownNameError
from tauflow_papers.theory import (
    GATED_NETWORKS,
    RandomODE,
    continuous_attractor,
    critical_curve,
    gating_spectrum,
    measure_radius,
    plot_critical_curves,
    plot_modes,
    plot_spectra,
    sample_network,
)


@pytest.fixture(autouse=True)
def no_window():
    mpl.use("Agg")
    yield
    plt.close("all")


def test_without_gating_and_at_rest_the_spectrum_is_a_disk():
    """At h = 0 the flow is (W - 1) h / 2: a disk around -1/2, its radius half the scale."""
    spectrum = gating_spectrum("mgru", neurons=300, sigma_w=0.6, steps=200)
    assert spectrum.settled
    assert spectrum.final_speed < 1e-9
    away = (spectrum.eigenvalues + 0.5).abs()
    assert away.max().item() == pytest.approx(0.3, rel=0.1)
    # the circular law: uniform on the disk, so that half of it is within 0.707 of the radius
    assert (away < 0.3 * 0.5**0.5).double().mean().item() == pytest.approx(0.5, abs=0.05)


def test_without_gating_the_long_expressive_memory_stays_near_a_circle_of_its_own():
    """At rest y' = (-y + W_y z) / 2, z' = (-z + W_z y) / 2: eigenvalues -1/2 +- sqrt(W_y W_z)/2."""
    spectrum = gating_spectrum("lem", neurons=200, sigma_w=0.6, steps=200)
    values = (2 * spectrum.eigenvalues + 1).numpy()
    assert np.abs(values).max() == pytest.approx(0.6, rel=0.12)
    for value in values:  # they come in pairs
        assert np.abs(values + value).min() < 1e-8


@pytest.mark.parametrize("network", GATED_NETWORKS)
def test_gates_pinch_the_spectrum_to_zero(network):
    plain, gated = (
        gating_spectrum(network, neurons=150, sigma_z=sigma, steps=150) for sigma in (0.0, 5.0)
    )
    size = 300 if network == "lem" else 150
    assert plain.eigenvalues.shape == gated.eigenvalues.shape == (size,)
    assert plain.share_within(0.05) < 0.04
    assert gated.share_within(0.05) > 0.08
    assert gated.eigenvalues.real.min() < plain.eigenvalues.real.min()
    assert not plain.settled  # a scale of 1.5 is beyond the edge of stability


def test_the_seed_decides():
    a, b, c = (gating_spectrum("mgru", neurons=10, steps=5, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(a.eigenvalues, b.eigenvalues)
    assert not torch.equal(a.eigenvalues, c.eigenvalues)


def drawn(name):
    """Return some numbers of what a seed stands for."""
    family, generator = RandomODE(2, 1.2, sigma_b=0.3), torch.Generator().manual_seed(3)
    if name == "sample_network":
        weights = sample_network(family, 10, generator).parameters()
        return torch.cat([weight.detach().double().flatten() for weight in weights])
    if name == "measure_radius":
        radius = measure_radius(family, neurons=10, steps=20, seed=3)
        return torch.tensor([radius.radius, radius.mean_gain, radius.variance]).double()
    return torch.view_as_real(
        gating_spectrum(name, neurons=10, steps=5, sigma_z=1.0, seed=3).eigenvalues
    )


@pytest.fixture
def double_precision():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


SEEDED = ("sample_network", "measure_radius", *GATED_NETWORKS)


@pytest.mark.parametrize("name", SEEDED)
def test_a_seed_leaves_the_global_generator_alone(name):
    before = torch.get_rng_state()
    drawn(name)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", SEEDED)
def test_a_seed_stands_for_one_network_whatever_the_default_dtype(name, request):
    expected = drawn(name)
    request.getfixturevalue("double_precision")
    torch.testing.assert_close(drawn(name), expected, rtol=1e-6, atol=1e-7)


def test_without_a_generator_the_global_one_decides():
    torch.manual_seed(0)
    a, b = (sample_network(RandomODE(1, 1.0), 5).W_h for _ in range(2))
    torch.manual_seed(0)
    assert torch.equal(sample_network(RandomODE(1, 1.0), 5).W_h, a)
    assert not torch.equal(a, b)


def test_unknown_networks_are_refused():
    with pytest.raises(UnknownNameError, match="mgru, gnode, lem"):
        gating_spectrum("lstm")


def test_pictures_of_spectra():
    rows = {
        title: {name: gating_spectrum(name, neurons=8, sigma_z=z, steps=3) for name in ("mgru",)}
        for title, z in (("no gating", 0.0), ("gating", 5.0))
    }
    figure = plot_spectra(rows)
    top, bottom = figure.axes
    assert top.get_title() == "mgru"
    assert bottom.get_xlabel()
    assert bottom.get_ylabel().startswith("gating")
    drawn = top.lines[0].get_xydata()
    values = rows["no gating"]["mgru"].eigenvalues
    np.testing.assert_allclose(drawn, np.stack([values.real, values.imag], axis=1))
    with pytest.raises(ArgumentError, match="the same columns"):
        plot_spectra({"a": rows["gating"], "b": {}})


def test_pictures_of_critical_curves_leave_out_what_was_not_found():
    family = RandomODE(1, 1.0, final_activation="tanh")
    ax = plot_critical_curves([critical_curve(family, [0.0, 0.5, 50.0], largest=4.0)])
    (curve,) = ax.lines
    assert len(curve.get_xydata()) == 2
    assert curve.get_xydata()[0] == pytest.approx([1.0, 0.0])
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["L = 1"]


def test_pictures_of_modes_say_the_verdict():
    ax = plot_modes(continuous_attractor(Flow(ring), on_circle(40)))
    assert ax.get_title(loc="left") == "continuous attractor, d = 1"
    assert len(ax.lines[0].get_xydata()) == 80
    ax = plot_modes(continuous_attractor(Flow(turning_ring), on_circle(40)))
    assert ax.get_title(loc="left").startswith("no continuous attractor (not stationary")
