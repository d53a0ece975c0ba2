"""Lengths and principal components with known answers, and the conventions of Table 2."""

import math

import numpy as np
import pytest
import torch

from tauflow.errors import ArgumentError, ShapeError, UnknownNameError
from tauflow_papers.theory import (
    RELEASED_ACTIVATIONS,
    NetworkDistribution,
    PathSettings,
    arc_length,
    circular_input,
    length_study,
    principal_scores,
    sample_random_networks,
    trajectory_lengths,
)
from tauflow_papers.theory.driven_paths import PATH_SOLVERS, solve_path


@pytest.mark.parametrize("radius", [0.5, 3.0])
def test_a_circle_has_the_length_of_its_polygon(radius):
    points = 200
    curve = radius * circular_input(points).values
    polygon = 2 * radius * (points - 1) * math.sin(math.pi / (points - 1))
    assert float(arc_length(curve)) == pytest.approx(polygon, rel=1e-12)
    assert polygon == pytest.approx(2 * math.pi * radius, rel=1e-4)


def test_a_line_is_as_long_as_its_ends_are_apart():
    share = torch.rand(50, 1, dtype=torch.float64).sort(dim=0).values
    share[0], share[-1] = 0, 1
    ends = torch.tensor([[1.0, -2.0, 0.0], [4.0, 2.0, 12.0]], dtype=torch.float64)
    line = ends[0] + share * (ends[1] - ends[0])
    assert float(arc_length(line)) == pytest.approx(13.0)
    scores, explained = principal_scores(line)
    assert float(arc_length(scores)) == pytest.approx(13.0)
    torch.testing.assert_close(explained, torch.tensor([1.0, 0, 0]).double(), atol=1e-9, rtol=0)


def test_principal_scores_are_those_of_a_singular_value_decomposition():
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(60, 7, generator=generator, dtype=torch.float64)
    points = points * torch.arange(1, 8) + 5
    scores, explained = principal_scores(points, 3)
    centred = points.numpy() - points.numpy().mean(axis=0)
    U, S, _ = np.linalg.svd(centred, full_matrices=False)
    np.testing.assert_allclose(explained.numpy(), S**2 / (S**2).sum(), rtol=1e-9)
    np.testing.assert_allclose(np.abs(scores.numpy()), np.abs(U[:, :3] * S[:3]), atol=1e-9)


def test_a_circle_in_many_dimensions_keeps_its_length():
    plane, _ = torch.linalg.qr(torch.randn(9, 2, dtype=torch.float64))
    curve = circular_input(400).values
    scores, explained = principal_scores(2.0 * curve @ plane.T + 3.0)
    assert float(arc_length(scores)) == pytest.approx(4 * math.pi, rel=1e-4)
    assert float(explained[:2].sum()) == pytest.approx(1.0)


def test_points_that_do_not_differ_explain_nothing_and_single_columns_are_padded():
    scores, explained = principal_scores(torch.ones(5, 1, dtype=torch.float64))
    assert scores.shape == (5, 2)
    assert not scores.any()
    assert not explained.any()
    with pytest.raises(ShapeError, match=r"points has shape \(3,\), expected \(P, k\)"):
        principal_scores(torch.ones(3))


def test_a_neural_ode_without_weights_moves_along_a_line_of_known_length():
    """With W = 0 the rate is tanh(b), constant, so that the length is 2 pi |tanh(b)|."""
    law = NetworkDistribution(width=5, weight_variance=0.0)
    trajectories = trajectory_lengths("neural-ode", law, tries=3, seed=4)
    generator = torch.Generator().manual_seed(4)
    for length in trajectories.lengths[:, 0]:
        for size in ((2, 5), (5, 5)):
            torch.randn(*size, generator=generator, dtype=torch.float64)
        b = torch.randn(2, 1, 5, generator=generator, dtype=torch.float64)[0, 0]
        torch.randn(3, 5, generator=generator, dtype=torch.float64)
        torch.testing.assert_close(length, 2 * math.pi * b.tanh().norm())


def contractive_path(solver, **settings):
    law = NetworkDistribution(width=6, weight_variance=1.0, tau_law="paper")
    drawn = sample_random_networks(law, 2, generator=torch.Generator().manual_seed(0))
    signal = circular_input()

    def field_for(rows):
        return drawn.take(rows).field("ct-rnn", signal)

    start = torch.zeros(2, 6, dtype=torch.float64)
    return solve_path(field_for, start, signal, PathSettings(solver, **settings))


@pytest.fixture(scope="module")
def exact():
    return contractive_path("ode45", rtol=1e-8, atol=1e-10)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("solver", PATH_SOLVERS)
def test_every_solver_follows_the_same_path(solver, exact):
    path = contractive_path(solver, rtol=1e-4, atol=1e-6, max_step=0.02)
    assert path.converged.all()
    assert path.accepted.all()
    tolerance = 0.1 if solver == "euler" else 0.005
    for row in range(2):
        assert path.t[row][0] == 0
        assert float(path.t[row][-1]) == pytest.approx(math.tau)
        torch.testing.assert_close(path.y[row][-1], exact.y[row][-1], atol=tolerance, rtol=0)
        length = float(arc_length(exact.y[row]))
        assert float(arc_length(path.y[row])) == pytest.approx(length, rel=0.02)


def test_a_network_that_explodes_ends_there_and_spares_the_others():
    """Steps of 2 pi / 99 make y' = -1000 y grow 62-fold, and y' = -y shrink."""
    rates = torch.tensor([[-1e3, -2e3], [-1.0, -2.0]], dtype=torch.float64)
    start, signal = torch.ones(2, 2, dtype=torch.float64), circular_input()
    path = solve_path(lambda rows: lambda t, y: rates[rows] * y, start, signal, PathSettings("rk4"))
    assert path.converged.tolist() == [False, True]
    assert 1 < len(path.t[0]) == len(path.y[0]) == path.accepted[0] + 1 < 100 == len(path.t[1])
    decayed = torch.exp(rates[1] * math.tau)
    torch.testing.assert_close(path.y[1][-1], decayed, rtol=1e-3, atol=0)
    stiff = trajectory_lengths("ct-rnn", tries=30, solver="rk4")
    assert not stiff.converged.all()
    assert stiff.lengths.isfinite().all()
    assert stiff.explained.isfinite().all()
    fine = trajectory_lengths("ct-rnn", tries=30).lengths
    tame = stiff.lengths.flatten() < 100
    torch.testing.assert_close(stiff.lengths[tame], fine[tame], rtol=0.05, atol=0)


def test_results_depend_neither_on_chunks_nor_on_the_number_of_tries():
    law = NetworkDistribution(width=4, layers=2, tau_law="paper")
    full = trajectory_lengths("ltc", law, tries=5, examples=3)
    parts = trajectory_lengths("ltc", law, tries=4, examples=3, at_once=2)
    torch.testing.assert_close(parts.lengths, full.lengths[:4])
    assert torch.equal(parts.output_points, full.output_points[:4])
    assert len(parts.examples) == len(full.examples) == 3
    for example, other in zip(parts.examples, full.examples, strict=True):
        torch.testing.assert_close(example.scores, other.scores)


def test_the_published_depths_of_neural_odes_come_out():
    """Table 2: 0.56, 0.56, 1.29 and 0.61, set by the longest step and four points a step."""
    published = {"tanh": (0.56, 0.03), "sigmoid": (0.56, 0.0), "ReLU": (1.29, 0.1)}
    for name, (depth, tolerance) in (published | {"Hard-tanh": (0.61, 0.03)}).items():
        law = NetworkDistribution(width=100, activation=RELEASED_ACTIVATIONS[name])
        trajectories = trajectory_lengths("neural-ode", law, tries=10)
        assert float(trajectories.depth().mean()) == pytest.approx(depth, abs=tolerance + 1e-9)
        steps = trajectories.accepted.double() / 99
        assert torch.equal(trajectories.depth("paper"), steps)
        torch.testing.assert_close(trajectories.depth(), 4 * steps * 99 / 100)
        summary, depths = trajectories.depth_summary(), trajectories.depth().numpy()
        assert summary.mean == pytest.approx(depths.mean())
        assert summary.std == pytest.approx(depths.std())
        quartiles = (summary.low, summary.median, summary.high)
        assert quartiles == pytest.approx(np.quantile(depths, [0.25, 0.5, 0.75]))


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.paper
def test_the_published_depth_of_the_released_hard_tanh_ltc_comes_out():
    """Table 2: 81.01 +- 10.05; the mean of our draws is pulled up by stiff neurons."""
    law = NetworkDistribution(width=100, activation=RELEASED_ACTIVATIONS["Hard-tanh"])
    released = trajectory_lengths("ltc", law, tries=7).depth().median()
    assert 71 <= float(released) <= 91
    true = trajectory_lengths("ltc", NetworkDistribution(width=100, activation="hardtanh"), tries=5)
    assert float(true.depth().median()) < 40


def test_a_study_is_its_single_measurements():
    study = length_study("width", [3, 6], models=["ltc", "ct-rnn"], tries=2)
    assert list(study.results) == ["ltc", "ct-rnn"]
    alone = trajectory_lengths("ct-rnn", NetworkDistribution(width=6), tries=2)
    assert torch.equal(study.results["ct-rnn"][1].lengths, alone.lengths)
    points = length_study("input_points", [10, 50], models=["neural-ode"], tries=1)
    assert [len(r.signal.t) for r in points.results["neural-ode"]] == [10, 50]
    solvers = length_study("solver", ["rk4"], models=["neural-ode"], tries=1)
    assert solvers.results["neural-ode"][0].solver == PathSettings("rk4")


def test_bad_arguments_are_refused():
    with pytest.raises(UnknownNameError, match="model='rnn' is unknown"):
        trajectory_lengths("rnn")
    with pytest.raises(UnknownNameError, match=r"solver='ode15s' is unknown"):
        trajectory_lengths("ltc", solver="ode15s")
    with pytest.raises(UnknownNameError, match="vary='depth' is unknown"):
        length_study("depth", [1])
    with pytest.raises(ArgumentError, match="values is empty; name at least one value of width"):
        length_study("width", [])
    with pytest.raises(UnknownNameError, match="convention='draft' is unknown"):
        trajectory_lengths("neural-ode", tries=1).depth("draft")
