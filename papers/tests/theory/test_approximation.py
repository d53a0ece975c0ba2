"""Systems with known invariants, and networks that imitate them."""

import math
from dataclasses import replace

import matplotlib as mpl
import numpy as np
import pytest
import torch
from matplotlib import pyplot as plt
from scipy.integrate import solve_ivp

from tauflow.errors import ArgumentError, ShapeError, UnknownNameError
from tauflow_papers.theory import (
    SYSTEMS,
    AutonomousLTC,
    approximate_system,
    plot_approximation,
    plot_approximation_errors,
)

EQUATIONS = {
    "lorenz": lambda t, x: [
        10 * (x[1] - x[0]),
        x[0] * (28 - x[2]) - x[1],
        x[0] * x[1] - 8 / 3 * x[2],
    ],
    "van-der-pol": lambda t, x: [x[1], (1 - x[0] ** 2) * x[1] - x[0]],
    "lotka-volterra": lambda t, x: [
        2 / 3 * x[0] - 4 / 3 * x[0] * x[1],
        x[0] * x[1] - x[1],
    ],
}
TINY = {"trajectories": 24, "held_out": 6, "points": 20, "batch_size": 12, "lr": 0.05}


@pytest.fixture(autouse=True)
def no_window():
    mpl.use("Agg")
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def fitted():
    return approximate_system("van-der-pol", (0, 6), span=1.5, steps=200, **TINY)


def starts(system, count=3):
    return system.initial_values(count, torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", sorted(SYSTEMS))
def test_trajectories_solve_the_equations(name):
    system = SYSTEMS[name]
    start = starts(system)
    t, x = system.trajectories(start, 15)
    for row in range(3):
        exact = solve_ivp(
            EQUATIONS[name],
            (0, system.span),
            start[row].numpy(),
            t_eval=t.numpy().clip(max=system.span),
            rtol=1e-10,
            atol=1e-10,
        )
        np.testing.assert_allclose(x[row].numpy(), exact.y.T, rtol=1e-4, atol=1e-4)


def test_known_facts_about_the_systems():
    prey, predators = (
        SYSTEMS["lotka-volterra"].trajectories(starts(SYSTEMS["lotka-volterra"]), 30)[1].unbind(-1)
    )
    conserved = prey - prey.log() + 4 / 3 * predators - 2 / 3 * predators.log()
    torch.testing.assert_close(conserved, conserved[:, :1].expand_as(conserved), atol=1e-6, rtol=0)
    root = math.sqrt(8 / 3 * 27)
    rest = torch.tensor([[root, root, 27.0], [-root, -root, 27.0]], dtype=torch.float64)
    assert SYSTEMS["lorenz"].field(rest).abs().max() < 1e-12
    _, cycle = SYSTEMS["van-der-pol"].trajectories(starts(SYSTEMS["van-der-pol"]), 240, span=24.0)
    amplitude = cycle[:, 120:, 0].amax(dim=1)
    torch.testing.assert_close(amplitude, torch.full_like(amplitude, 2.009), atol=0.01, rtol=0)


def test_initial_values_fill_the_box():
    system = SYSTEMS["lorenz"]
    drawn = system.initial_values(4000, torch.Generator().manual_seed(1))
    for corner, extremes in ((system.low, drawn.amin(0)), (system.high, drawn.amax(0))):
        np.testing.assert_allclose(extremes.numpy(), corner, atol=0.05)
    middle = (np.array(system.low) + np.array(system.high)) / 2
    np.testing.assert_allclose(drawn.mean(0).numpy(), middle, atol=0.4)


def test_the_network_is_autonomous_and_starts_affinely():
    torch.manual_seed(0)
    network = AutonomousLTC(2, 3)
    x0 = torch.randn(4, 2)
    long, short = network(x0, 9), network(x0, 4)
    torch.testing.assert_close(long[:, :4], short)
    state = network.start(x0)
    torch.testing.assert_close(network(x0, 1)[:, 0], network.rnn.cell.readout(state))
    # Time does not matter, only the state: half-way states go on alike.
    _, half = network.rnn(torch.zeros(4, 4, 1), state, dt=0.1)
    onward, _ = network.rnn(torch.zeros(4, 4, 1), half, dt=0.1)
    torch.testing.assert_close(onward, long[:, 5:])


@pytest.mark.slow
def test_more_neurons_and_training_bring_the_network_closer(fitted):
    none, six = fitted.rms_error
    assert six < 0.7 * none
    untrained = approximate_system("van-der-pol", (6,), span=1.5, steps=1, **TINY)
    assert six < 0.5 * untrained.rms_error[0]


def test_errors_are_those_of_the_trajectories(fitted):
    assert fitted.neurons == (0, 6)
    assert fitted.target.shape == fitted.networks[1].shape == (6, 20, 2)
    system = SYSTEMS["van-der-pol"]
    start = system.initial_values(30, torch.Generator().manual_seed(0))
    _, x = system.trajectories(start, 20, span=1.5)
    torch.testing.assert_close(fitted.target, x[24:])
    scale = x[:24].reshape(-1, 2).numpy().reshape(24, 20, 2).std(axis=(0, 1), ddof=1)
    for network, largest, rms in zip(
        fitted.networks, fitted.largest_error, fitted.rms_error, strict=True
    ):
        error = (network - fitted.target).numpy() / scale
        assert largest == pytest.approx(np.linalg.norm(error, axis=-1).max(), rel=1e-4)
        assert rms == pytest.approx(np.sqrt((error**2).mean()), rel=1e-4)


def test_seeds_decide_and_leave_the_global_generator_alone():
    short = {**TINY, "steps": 3}
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = approximate_system("lorenz", (2,), seed=1, **short)
    assert torch.equal(torch.get_rng_state(), before)
    again = approximate_system("lorenz", (2,), seed=1, **short)
    other = approximate_system("lorenz", (2,), seed=2, **short)
    assert torch.equal(first.networks[0], again.networks[0])
    assert first.rms_error != other.rms_error


def test_pictures_show_the_numbers(fitted, tmp_path):
    lines = plot_approximation(fitted, network=1, trajectories=2).lines
    np.testing.assert_allclose(lines[0].get_ydata(), fitted.target[0, :, 1])
    np.testing.assert_allclose(lines[1].get_xdata(), fitted.networks[1][0, :, 0])
    lines[0].figure.savefig(tmp_path / "approximation.png")
    ax = plot_approximation_errors([fitted])
    np.testing.assert_allclose(ax.lines[0].get_ydata(), fitted.largest_error)
    np.testing.assert_allclose(ax.lines[1].get_ydata(), fitted.rms_error)
    ax.figure.savefig(tmp_path / "errors.png")
    with pytest.raises(ArgumentError, match="approximations is empty"):
        plot_approximation_errors([])


def test_bad_arguments_are_refused():
    with pytest.raises(UnknownNameError, match="unknown dynamical system 'lorentz'"):
        approximate_system("lorentz")
    with pytest.raises(ArgumentError, match="neurons is empty"):
        approximate_system("lorenz", ())
    still = replace(SYSTEMS["van-der-pol"], field=lambda x: torch.zeros_like(x))
    with pytest.raises(ArgumentError, match="component 0 is the same all along 1 traj"):
        approximate_system(still, (2,), trajectories=1, held_out=1, points=5)
    with pytest.raises(ShapeError, match=r"start has shape \(2, 2\), expected \(B, 3\)"):
        SYSTEMS["lorenz"].trajectories(torch.zeros(2, 2), 5)
