"""The forward pass and back through a solver, on a decay whose steps are known numbers."""

import math

import matplotlib as mpl
import numpy as np
import pytest
import torch
from matplotlib import pyplot as plt

import tauflow
from tauflow.errors import ArgumentError, UnknownNameError
from tauflow_papers.theory import certify_ltc, plot_certificate, plot_round_trip, round_trip

STEP, STEPS = 0.25, 6


@pytest.fixture(autouse=True)
def no_window():
    mpl.use("Agg")
    yield
    plt.close("all")


def trip(solver="heun"):
    start = torch.tensor([[1.0, 2.0], [-1.0, 0.5]], dtype=torch.float64)
    return start, round_trip(lambda h: -h, start, STEP * STEPS, steps=STEPS, solver=solver)


@pytest.mark.parametrize(
    ("solver", "there", "back"),
    [
        ("euler", 1 - STEP, 1 + STEP),
        ("heun", 1 - STEP + STEP**2 / 2, 1 + STEP + STEP**2 / 2),
    ],
)
def test_a_decay_is_multiplied_by_the_factor_of_each_step(solver, there, back):
    start, paths = trip(solver)
    n = torch.arange(STEPS + 1, dtype=torch.float64).view(-1, 1)
    h = start[:, None]
    torch.testing.assert_close(paths.truth, h * torch.exp(-n * STEP))
    torch.testing.assert_close(paths.forward, h * there**n)
    torch.testing.assert_close(paths.oracle, h * there ** n[:-1] * math.exp(-STEP))
    torch.testing.assert_close(paths.backward, h * there**STEPS * back ** (STEPS - n))
    size = float(start.square().sum(dim=1).mean().sqrt())
    expected = size * abs(there**STEPS * back**STEPS - 1)
    assert float(paths.backward_error[0]) == pytest.approx(expected)
    assert float(paths.local_error[0]) == pytest.approx(size * abs(there - math.exp(-STEP)))
    assert float(paths.forward_error[0]) == float(paths.backward_error[-1]) == 0


def test_bad_arguments():
    with pytest.raises(UnknownNameError, match="heun"):
        trip("hein")
    with pytest.raises(ArgumentError, match="steps"):
        round_trip(lambda h: -h, torch.ones(1, 1), 1.0, steps=0)
    with pytest.raises(ArgumentError, match="span"):
        round_trip(lambda h: -h, torch.ones(1, 1), -1.0)


def test_the_picture_holds_the_paths():
    _, paths = trip()
    there, back, errors = plot_round_trip(paths, row=1, component=1).axes
    np.testing.assert_allclose(there.lines[1].get_ydata(), paths.forward[1, :, 1])
    assert len(there.lines) == 2 + STEPS
    np.testing.assert_allclose(back.lines[1].get_ydata(), paths.backward[1, :, 1])
    np.testing.assert_allclose(errors.lines[0].get_ydata(), paths.forward_error[1:])


def test_bounds_enclose_what_is_drawn():
    certificate = certify_ltc(tauflow.LTC(2, 5), torch.randn(3, 20, 2))
    left, right = plot_certificate(certificate).axes
    for ax, values in ((left, certificate.tau), (right, certificate.states)):
        possible, measured = (
            np.array([segment[:, 1] for segment in bars.get_segments()]) for bars in ax.collections
        )
        assert possible.shape == measured.shape == (5, 2)
        assert (possible[:, 0] <= measured[:, 0] + 1e-6).all()
        assert (measured[:, 1] <= possible[:, 1] + 1e-6).all()
        np.testing.assert_allclose(measured[:, 1], values.detach().amax(dim=(0, 1)), rtol=1e-6)
