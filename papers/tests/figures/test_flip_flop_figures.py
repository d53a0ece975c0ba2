"""Networks that remember pulses, and what the figures say of them."""

import pytest
import torch
from small_figures import RESULTS

from tauflow.analysis import find_fixed_points
from tauflow_papers.figures import FigureJob, find_figure
from tauflow_papers.figures.flip_flop_training import GridPoint, train_network
from tauflow_papers.theory import abscissa_quartiles

SETTING = GridPoint(1e-2, 1e-3, 10)


def square(job):
    return train_network(job, "gnode-figure-2", "gnode/square", SETTING)


def test_outputs_are_the_states_seen_in_the_plane_of_the_outputs():
    job = FigureJob("small", seed=3)
    network = square(job)
    seen = network.view.project(network.states)
    torch.testing.assert_close(seen, network.compute_outputs(network.trials), rtol=1e-4, atol=1e-5)
    error = (seen - network.trials.y).square().mean()
    assert network.valid == pytest.approx(float(error), rel=1e-3)
    assert job.settings["gnode/square"]["validation MSE"] == network.valid


def test_a_network_is_trained_once_and_the_same_for_the_same_seed():
    first, again = square(FigureJob("small", seed=3)), square(FigureJob("small", seed=3))
    assert first is again
    other = square(FigureJob("small", seed=4))
    assert other.valid != first.valid


def test_pictured_velocities_are_those_of_a_small_step_of_the_network():
    result = find_figure("gnode-figure-10").compute(FigureJob("small"))
    network = train_network(
        FigureJob("small"), "gnode-figure-2", "gnode/ring", GridPoint(1e-3, 1e-3, 10)
    )
    at = torch.as_tensor(result.arrays["ring_at"]).reshape(-1, 2)
    cell, view, gap = network.rnn.cells[0].double(), network.view, 1e-6
    start = view.lift(at)
    with torch.no_grad():
        after = cell.step(torch.zeros_like(at), start, torch.full_like(at[:, :1], gap))
    cell.float()
    velocity = (view.project(after) - at) / gap
    pictured = torch.as_tensor(result.arrays["ring_velocity"]).reshape(-1, 2)
    torch.testing.assert_close(pictured, velocity, rtol=1e-3, atol=1e-3)
    coloured = torch.as_tensor(result.arrays["ring_speed"]).flatten()
    speed = torch.linalg.vector_norm((after - start) / gap, dim=-1)  # of the state, not the outputs
    torch.testing.assert_close(coloured, speed, rtol=1e-3, atol=1e-3)


def test_quartiles_stand_beside_published_ones():
    result = find_figure("gnode-table-2").compute(FigureJob("small"))
    assert result.table is not None
    names = [row[0] for row in result.table.rows]
    assert names == ["RNN", "mGRU", "GRU", "nODE", "gnODE"]
    assert result.table.rows[-1][-1] == "0.002 [0.002, 0.003]"
    for _, valid, median, lower, upper, starts, points, _ in result.table.rows:
        assert 0 < valid < 2
        assert lower <= median <= upper or starts == 0
        assert points <= starts <= 20


def test_abscissas_and_what_counts_as_fixed_are_per_second():
    """A bin and a time constant last 10 ms; Kim et al. 2022, E.3 has 1/tau in the velocity."""
    result = find_figure("gnode-figure-7").compute(FigureJob("small"))
    for name, row in (("RNN", "rnn-6"), ("gnODE", "gnode-6")):
        setting = {"RNN": GridPoint(1e-2, 1e-1, 100), "gnODE": GridPoint(1e-3, 1e-2, 10)}[name]
        network = train_network(FigureJob("small"), "gnode-figure-1", row, setting)
        # per time constant: 0.01 per second are 1e-4 of these, 1 of these is 100 per second
        fixed_points = find_fixed_points(network.flow, network.states, starts=20, tolerance=1e-4)
        assert len(fixed_points)
        shown = torch.as_tensor(result.arrays[f"{name}_abscissa"]).double()
        torch.testing.assert_close(shown, 100 * fixed_points.abscissa, rtol=1e-3, atol=1e-3)
        median = next(row for row in result.table.rows if row[0] == name)[2]
        assert median == pytest.approx(100 * abscissa_quartiles(fixed_points).median, rel=1e-6)


def test_training_counts_for_every_figure_that_shows_the_network():
    jobs = [FigureJob("small", seed=5) for _ in range(2)]
    for job in jobs:
        with job.timed("all"):
            square(job)
    first, again = (job.seconds for job in jobs)
    assert again["training"] == first["training"] > 0.01
    assert again["all"] == pytest.approx(first["all"], abs=0.5 * first["all"])


@pytest.mark.thorough
def test_a_figure_of_searches_shows_stored_settings_beside_trained_networks():
    result = find_figure("gnode-figure-1").compute(FigureJob("small", results_dir=RESULTS))
    findings = result.findings
    assert findings["N = 6, gnODE"]["settings"] == 27
    for name in ("RNN", "mGRU", "GRU", "nODE", "gnODE"):
        wide = findings[f"N = 100, {name}"]
        explained = torch.as_tensor(result.arrays[f"{name} explained"])
        count = wide["components for 0.9 of the variance"]
        assert float(explained[:count].sum()) >= 0.9 > float(explained[: count - 1].sum())
        shown = [r for r in result.table.rows if r[:2] == ("N = 100", name)]
        assert len(shown) == wide["settings"]
        assert wide["validation MSE"] == pytest.approx(
            next(r[-1] for r in shown if r[2:5] == (1e-3, 1e-3, 10)), rel=1e-4
        )
