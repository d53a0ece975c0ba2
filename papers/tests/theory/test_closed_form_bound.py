"""Lemma 1: bounds for every input, reached by some."""

import math

import matplotlib as mpl
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib import pyplot as plt
from scipy.integrate import solve_ivp

import tauflow
from tauflow.errors import ArgumentError, ShapeError, UnknownNameError
from tauflow_papers.theory import (
    closed_form,
    closed_form_tightness,
    plot_closed_form,
    plot_tightness,
    worst_signal,
)

SYNAPSES = {
    "sigmoid": torch.sigmoid,
    "steep": lambda z: torch.sigmoid(20 * z - 3),
    "ramp": lambda z: (z / 4 + 0.5).clamp(0, 1),
    "step": lambda z: (z > 0.3).to(z),
}


@pytest.fixture(autouse=True)
def no_window():
    mpl.use("Agg")
    yield
    plt.close("all")


def row(values):
    return torch.tensor([values], dtype=torch.float64)


@settings(max_examples=200, deadline=None)
@given(
    pieces=st.lists(
        st.tuples(st.floats(-1e6, 1e6) | st.floats(-4, 4), st.floats(0, 5)), min_size=1, max_size=8
    ),
    w=st.floats(0, 10),
    x0=st.floats(-5, 5),
    A=st.floats(-5, 5),
    name=st.sampled_from(sorted(SYNAPSES)),
)
def test_the_bounds_hold_for_every_input(pieces, w, x0, A, name):
    signal, dt = (row(list(values)) for values in zip(*pieces, strict=True))
    tightness = closed_form_tightness(signal, dt, w=w, x0=x0, A=A, f=SYNAPSES[name])
    assert tightness.holds
    size = abs(x0 - A) * tightness.upper
    assert ((tightness.exact - tightness.approximate).abs() <= size + 1e-12).all()


@pytest.mark.parametrize("t", [0.2, 1.0, 4.0])
@pytest.mark.parametrize("w", [0.0, 0.7])
def test_the_bounds_are_reached(t, w):
    """A bound that were closer by a millionth would fail."""
    for bound in ("upper", "lower"):
        tightness = closed_form_tightness(*worst_signal(t, bound=bound), w=w)
        limit = math.exp(-w * t) * (1.0 if bound == "upper" else math.expm1(-t))
        assert float(tightness.error[0, -1]) == pytest.approx(limit, abs=1e-6)
        assert tightness.holds


def test_the_exact_state_solves_the_ode():
    signal, dt = row([1.0, -2.0, 0.5]), row([0.7, 1.1, 0.4])
    tightness = closed_form_tightness(signal, dt, w=0.3, x0=2.0, A=-1.0)
    h = 2.0
    for k in range(3):
        f = 1 / (1 + math.exp(-float(signal[0, k])))
        solution = solve_ivp(
            lambda t, y, f=f: -(0.3 + f) * (y + 1.0),
            (0, float(dt[0, k])),
            [h],
            rtol=1e-10,
            atol=1e-12,
        )
        h = solution.y[0, -1]
        assert float(tightness.exact[0, k]) == pytest.approx(h, rel=1e-8)
    time, f = 2.2, 1 / (1 + math.exp(-0.5))
    expected = 3.0 * math.exp(-(0.3 + f) * time) * (1 - f) - 1.0
    assert float(tightness.approximate[0, -1]) == pytest.approx(expected)


def test_bad_arguments_are_refused():
    with pytest.raises(
        ArgumentError, match=r"f has values from -0.76\d+ to 0.76\d+; the bounds need values from 0"
    ):
        closed_form_tightness(row([1.0, -1.0]), row([1.0, 1.0]), f=torch.tanh)
    with pytest.raises(ArgumentError, match=r"f has values from 0.367\d+ to 2.71"):
        closed_form_tightness(row([-1.0, -0.5]), row([1.0, 1.0]), f=torch.exp)  # f(-I) is above 1
    with pytest.raises(ArgumentError, match=r"dt must be 0 or more, but its least is -1"):
        closed_form_tightness(row([1.0, -1.0]), row([1.0, -1.0]))
    with pytest.raises(ShapeError, match=r"dt has shape \(1, 3\)"):
        closed_form_tightness(row([1.0, -1.0]), row([1.0, 1.0, 1.0]))
    with pytest.raises(UnknownNameError, match="bound='left' is unknown"):
        worst_signal(1.0, bound="left")


def test_pictures_show_the_numbers(tmp_path):
    generator = torch.Generator().manual_seed(0)
    signal = torch.randn(3, 20, generator=generator, dtype=torch.float64)
    tightness = closed_form_tightness(signal, torch.full_like(signal, 0.2))
    ax = plot_tightness(tightness)
    np.testing.assert_allclose(ax.lines[2].get_ydata(), tightness.error[0])
    np.testing.assert_allclose(ax.lines[0].get_ydata(), tightness.upper[0])
    ax.figure.savefig(tmp_path / "tightness.png")
    rnn = tauflow.LTC(2, 4)
    trace = closed_form(rnn, torch.rand(2, 15, 2, generator=generator), form="corrected")
    ax = plot_closed_form(trace, neuron=1, row=1)
    np.testing.assert_allclose(ax.lines[0].get_ydata(), trace.solved[1, :, 1])
    np.testing.assert_allclose(ax.lines[1].get_ydata(), trace.closed[1, :, 1])
    assert f"{float(trace.squared_error[1]):.2g}" in ax.get_title()
    with pytest.raises(ArgumentError, match="neuron=4, row=0: the trace has 4 neurons and 2"):
        plot_closed_form(trace, neuron=4)
