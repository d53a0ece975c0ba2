import math

import numpy as np
import pytest
import torch
from known_systems import cloud, line, turning_ring, two_wells
from scipy.integrate import solve_ivp

from tauflow.analysis import (
    Flow,
    find_fixed_points,
    flow_field,
    output_projection,
    principal_components,
    simulate,
    visited_states,
)
from tauflow.cells import MODELS
from tauflow.errors import ArgumentError, ShapeError

F64 = torch.float64
BOX = ((-2.0, 2.0), (-1.0, 1.5))


def test_paths_of_a_flow_are_those_of_another_solver():
    start = torch.tensor([[0.3, -0.4], [1.5, 0.2]], dtype=F64)
    simulation = simulate(Flow(turning_ring), start, steps=100, step_size=0.05)
    assert simulation.states.shape == (2, 101, 2)
    assert simulation.times[-1] == pytest.approx(5.0)
    for row in range(2):
        other = solve_ivp(
            lambda _, h: turning_ring(torch.tensor(h)[None])[0].numpy(),
            (0, 5),
            start[row].numpy(),
            t_eval=simulation.times.numpy(),
            rtol=1e-10,
            atol=1e-12,
        )
        np.testing.assert_allclose(simulation.states[row], other.y.T, atol=1e-6)
    torch.testing.assert_close(simulation.final_speeds, torch.ones(2, dtype=F64), rtol=1e-3, atol=0)
    assert not simulation.settled.any()


def test_paths_of_a_map_are_its_iterates():
    start = torch.tensor([[1.0], [-3.0]], dtype=F64)
    simulation = simulate(lambda h: 0.5 * h + 1, start, steps=40)
    expected = 2 + (start - 2) * 0.5 ** torch.arange(41.0, dtype=F64)
    torch.testing.assert_close(simulation.states[..., 0], expected)
    assert simulation.settled.all()
    assert simulation.times.tolist() == list(range(41))


def test_paths_of_a_cell_are_its_runs():
    cell = MODELS["gru"].build(2, 3)
    x = torch.zeros(4, 10, 2)
    visited = visited_states(cell, x)
    simulation = simulate(cell, visited[:, 0], steps=9)
    torch.testing.assert_close(simulation.states.float(), visited)


def test_the_field_of_a_plane_is_the_velocity():
    fixed = find_fixed_points(Flow(two_wells), cloud(2))
    field = flow_field(Flow(two_wells), box=BOX, fixed_points=fixed, resolution=5)
    assert field.at[0, 0].tolist() == [-2.0, -1.0]
    assert field.at[0, -1].tolist() == [2.0, -1.0]
    assert field.at[-1, 0].tolist() == [-2.0, 1.5]
    x, y = field.at.unbind(-1)
    torch.testing.assert_close(field.velocity, torch.stack([x - x**3, -3 * y], dim=-1))
    torch.testing.assert_close(field.speed, field.velocity.norm(dim=-1))
    assert field.off_plane.abs().max() < 1e-12
    torch.testing.assert_close(field.points, fixed.points)
    assert sorted(field.stability) == ["stable", "stable", "unstable"]
    assert field.is_finite


def test_output_coordinates_move_as_outputs_do():
    cell, head = MODELS["mgru"].build(1, 2), torch.nn.Linear(2, 2)
    view = output_projection(lambda h: head(cell.readout(h)), 2)
    field = flow_field(cell, view, box=BOX, resolution=4)
    states = view.lift(field.at.reshape(-1, 2))
    torch.testing.assert_close(
        head.double()(states).detach().reshape(4, 4, 2), field.at, rtol=1e-6, atol=1e-6
    )
    short = simulate(cell, states, steps=1, step_size=1e-6).states
    change = (head(short[:, 1]) - head(short[:, 0])).detach() / 1e-6
    torch.testing.assert_close(field.velocity.reshape(-1, 2), change, rtol=1e-4, atol=1e-5)


def test_off_the_plane_of_a_slice():
    states = cloud(3) * torch.tensor([3.0, 2.0, 0.0], dtype=F64)  # the plane of h_1 and h_2
    view = principal_components(states).projection()
    field = flow_field(Flow(line), view, trajectories=states[:5, None], resolution=6)
    velocity = line(view.lift(field.at.reshape(-1, 2)))
    torch.testing.assert_close(field.off_plane.reshape(-1), velocity[:, 2].abs())
    torch.testing.assert_close(field.speed.reshape(-1), velocity.norm(dim=1))
    inside = field.velocity.reshape(-1, 2).norm(dim=1)
    torch.testing.assert_close(inside, velocity[:, :2].norm(dim=1))


def test_the_box_holds_what_is_shown():
    paths = torch.tensor([[[0.0, 1.0], [10.0, 1.0]], [[5.0, 3.0], [math.nan, math.nan]]], dtype=F64)
    field = flow_field(Flow(two_wells), trajectories=paths, resolution=3)
    assert field.at[0, 0].tolist() == pytest.approx([-1.0, 0.8])
    assert field.at[-1, -1].tolist() == pytest.approx([11.0, 3.2])
    torch.testing.assert_close(field.trajectories, paths, equal_nan=True)


def test_bad_calls_are_refused():
    with pytest.raises(ArgumentError, match="3 dimensions"):
        flow_field(MODELS["gru"].build(1, 3), box=BOX)
    with pytest.raises(ArgumentError, match="how large the picture is"):
        flow_field(Flow(two_wells))
    with pytest.raises(ShapeError, match=r"expected \(2, 3\)"):
        flow_field(MODELS["gru"].build(1, 3), output_projection(lambda h: h, 2), box=BOX)
    with pytest.raises(ArgumentError, match="Give a length"):
        simulate(Flow(two_wells), cloud(2), steps=3)
    with pytest.raises(ArgumentError, match="Leave it out"):
        simulate(torch.sin, cloud(2), steps=3, step_size=0.1)
