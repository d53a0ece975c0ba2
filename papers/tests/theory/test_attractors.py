import math

import pytest
import torch
from known_systems import LINE, cloud, line, on_circle, ring, turning_ring, two_wells

from tauflow.analysis import Flow, find_fixed_points, visited_states
from tauflow.cells import GNODECell
from tauflow.errors import ArgumentError
from tauflow_papers.theory import continuous_attractor

F64 = torch.float64
ON_LINE = torch.linspace(-2, 2, 80, dtype=F64)[:, None] * LINE


def test_a_ring_attractor():
    attractor = continuous_attractor(Flow(ring), on_circle(100))
    assert attractor.is_attractor
    assert attractor.failures == ()
    assert attractor.dimension == 1
    torch.testing.assert_close(attractor.abscissa, torch.zeros(100, dtype=F64), rtol=0, atol=1e-12)
    torch.testing.assert_close(attractor.transverse_rates, torch.full((100,), -2.0, dtype=F64))
    # a chord leaves the tangent by half the angle between neighbours
    expected = torch.full((100,), math.cos(math.pi / 100), dtype=F64)
    torch.testing.assert_close(attractor.alignment, expected)
    assert attractor.largest_gap == pytest.approx(2 * math.sin(math.pi / 100) / math.sqrt(8))
    # pushed outwards, the radius relaxes as exp(-2 t) over five time constants of 1/2
    assert attractor.recovery.max() < 2 * math.exp(-5)


def test_a_ring_attractor_found_by_search():
    points = find_fixed_points(Flow(ring), cloud(2, count=300))
    assert continuous_attractor(Flow(ring), points.select("marginal")).is_attractor
    # the unstable point in the middle is apart from them
    assert continuous_attractor(Flow(ring), points).failures == ("connected",)
    assert continuous_attractor(Flow(ring), points, share=1.0).failures[0] == "marginal"


@pytest.mark.parametrize("step", [None, 0.1])
def test_a_line_attractor_in_continuous_and_in_discrete_time(step):
    system = Flow(line) if step is None else lambda h: h + step * line(h)
    attractor = continuous_attractor(system, ON_LINE)
    assert attractor.is_attractor
    assert attractor.dimension == 1
    rate = -4.0 if step is None else math.log(1 - 4 * 0.1)
    torch.testing.assert_close(attractor.transverse_rates, torch.full((80,), rate, dtype=F64))
    torch.testing.assert_close(attractor.alignment, torch.ones(80, dtype=F64))


@pytest.mark.parametrize(("damping", "frequency"), [(1e4, 0.0), (1.0, 2e3)])
def test_a_line_attractor_that_is_stiff(damping, frequency):
    """x' = 0, w' = -w and a fast mode: what is left of the slow one is exp(-5)."""

    def field(h):
        x, w, y, z = h.unbind(-1)
        turned = [-damping * y - frequency * z, frequency * y - damping * z]
        return torch.stack([0 * x, -w, *turned], dim=-1)

    points = torch.nn.functional.pad(torch.linspace(-1, 1, 60, dtype=F64)[:, None], (0, 3))
    attractor = continuous_attractor(Flow(field), points)
    assert attractor.is_attractor
    assert attractor.recovery.max() < 1.01 * math.exp(-5)


@pytest.mark.parametrize("pace", [1.0, 1e4])
def test_the_pace_of_other_modes_does_not_decide(pace):
    """A ring that attracts at 2 * pace, and an axis that does at 1, but from one side no further
    than to 1/50 of the ring's radius."""

    def field(h):
        up = h[:, 2:]
        return torch.cat([pace * ring(h[:, :2]), -up * (1 - 50 * up)], dim=1)

    points = torch.nn.functional.pad(on_circle(100), (0, 1))
    attractor = continuous_attractor(Flow(field), points, displacement=0.003)
    assert attractor.is_attractor
    assert attractor.recovery.max() < 0.05
    assert continuous_attractor(Flow(field), points, displacement=0.3).failures == ("returning",)


def line_network():
    """F(h) = u (relu(u h) - relu(-u h)) = u u^T h: the line along u rests, all else decays."""
    cell = GNODECell(1, 3, layers=2, units=2, gate_layers=1)
    u = LINE.float()
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.zero_()
        cell.W_h[:2] = torch.stack([u, -u])
        cell.W_F[0].copy_(torch.stack([u, -u], dim=1))
        cell.W_x[:2] = torch.tensor([[1.0], [-1.0]])
    return cell


def test_a_network_that_integrates_has_a_line_attractor():
    cell = line_network()
    pulses = torch.zeros(20, 40, 1)
    pulses[:, ::10] = torch.randn(20, 4, 1)
    visited = visited_states(cell, pulses)
    points = find_fixed_points(cell, visited, merge_distance=1e-2)
    attractor = continuous_attractor(cell, points, link=0.2)
    assert attractor.is_attractor
    torch.testing.assert_close(attractor.transverse_rates, torch.full_like(attractor.speeds, -0.5))


def test_an_isolated_stable_point_is_none():
    attractor = continuous_attractor(Flow(lambda h: -h), 1e-3 * cloud(2, count=200))
    assert attractor.dimension == 0
    assert {"marginal", "tangent"} <= set(attractor.failures)


def test_a_limit_cycle_is_none():
    assert "stationary" in continuous_attractor(Flow(turning_ring), on_circle(100)).failures


def test_a_repelling_ring_is_none():
    attractor = continuous_attractor(Flow(lambda h: -ring(h)), on_circle(100))
    assert {"marginal", "attracting", "returning"} == set(attractor.failures)
    assert attractor.dimension == 1


def test_an_overshooting_line_is_none():
    # the abscissa is zero and the rates are -24, but a step multiplies what is off by -1.4
    attractor = continuous_attractor(lambda h: h + 0.6 * line(h), ON_LINE)
    assert {"attracting", "returning"} == set(attractor.failures)


def test_a_centre_is_none_though_its_abscissa_is_zero():
    turn = Flow(lambda h: torch.stack([h[:, 1], -h[:, 0]], dim=-1))
    attractor = continuous_attractor(turn, 1e-3 * cloud(2), speed_tolerance=1.0)
    torch.testing.assert_close(attractor.abscissa, torch.zeros(200, dtype=F64), rtol=0, atol=1e-12)
    assert {"marginal", "attracting", "returning"} <= set(attractor.failures)


def test_separate_pieces_are_not_connected():
    pieces = on_circle(200)[torch.cat([torch.arange(40), torch.arange(100, 140)])]
    assert continuous_attractor(Flow(ring), pieces).failures == ("connected",)
    assert continuous_attractor(Flow(ring), pieces[:40]).is_attractor


def test_the_wells_of_a_memory_are_none():
    wells = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [1.0, 1e-4]], dtype=F64)
    assert {"marginal", "connected"} <= set(continuous_attractor(Flow(two_wells), wells).failures)


def test_a_whole_plane_may_rest():
    def square(h):  # a plane square of rest, as of the flip-flop networks of two neurons
        return -(h - h.clamp(-1, 1))

    inside = 2 * torch.rand(300, 2, dtype=F64) - 1
    attractor = continuous_attractor(Flow(square), inside)
    assert attractor.dimension == 2
    assert attractor.is_attractor
    assert (attractor.transverse_rates == -math.inf).all()


def test_neighbours_off_the_resting_directions_are_no_manifold():
    # points along a direction that decays, on which the speed is merely small
    slow = Flow(lambda h: torch.stack([-(h[:, 0] ** 3), -h[:, 1]], dim=-1))
    points = torch.linspace(-0.005, 0.005, 50, dtype=F64)[:, None] * torch.tensor([0.0, 1.0])
    assert continuous_attractor(slow, points).failures == ("tangent",)


def test_too_few_points_are_refused():
    with pytest.raises(ArgumentError, match="do not show a manifold"):
        continuous_attractor(Flow(ring), on_circle(2))
