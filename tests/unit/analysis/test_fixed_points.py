import math

import numpy as np
import pytest
import torch
from known_systems import LINE, cloud, line, pitchfork, two_wells, van_der_pol
from scipy.optimize import brentq, root

import tauflow
from tauflow.analysis import (
    KIM_2023,
    Flow,
    as_flow,
    find_fixed_points,
    find_roots,
    visited_states,
)
from tauflow.cells import MODELS, GNODECell
from tauflow.errors import ArgumentError, DtypeError, ShapeError, UnknownNameError

F64 = torch.float64


def test_linear_map():
    A = torch.tensor([[0.5, 0.3], [-0.2, 0.1]], dtype=F64)
    b = torch.tensor([1.0, -2.0], dtype=F64)
    fixed_points = find_fixed_points(lambda h: h @ A.T + b, cloud(2), accept="none")
    expected = np.linalg.solve(np.eye(2) - A.numpy(), b.numpy())
    np.testing.assert_allclose(fixed_points.points[0].numpy(), expected, atol=1e-9)
    assert fixed_points.multiplicity.tolist() == [200]
    assert fixed_points.iterations.max() <= 2  # one step solves a linear system
    eigenvalues = np.linalg.eigvals(A.numpy())
    assert fixed_points.growth_rate.item() == pytest.approx(math.log(abs(eigenvalues).max()))
    assert fixed_points.abscissa.item() == pytest.approx((eigenvalues.real - 1).max())
    assert fixed_points.stability == ("stable",)


def test_an_overshooting_map_is_unstable_though_its_abscissa_is_negative():
    fixed_points = find_fixed_points(lambda h: -1.5 * h, cloud(1))
    assert fixed_points.abscissa.item() == pytest.approx(-2.5)
    assert fixed_points.stability == ("unstable",)
    assert fixed_points.growth_rate.item() == pytest.approx(math.log(1.5))


@pytest.mark.parametrize("parameter", [0.5, 2.0])
def test_pitchfork(parameter):
    fixed_points = find_fixed_points(pitchfork(parameter), cloud(1))
    assert fixed_points.converged.all()
    order = fixed_points.points[:, 0].argsort()
    expected = torch.tensor([-1.0, 0.0, 1.0], dtype=F64) * math.sqrt(parameter)
    torch.testing.assert_close(fixed_points.points[order, 0], expected, rtol=0, atol=1e-8)
    slopes = torch.tensor([-2.0, 1.0, -2.0], dtype=F64) * parameter
    torch.testing.assert_close(fixed_points.abscissa[order], slopes)
    assert [fixed_points.stability[i] for i in order] == ["stable", "unstable", "stable"]
    assert fixed_points.multiplicity.sum() == len(fixed_points.starts) == 200
    for start in range(200):
        assert fixed_points.multiplicity[fixed_points.membership[start]] > 1
    torch.testing.assert_close(fixed_points.select("unstable"), torch.zeros(1, 1, dtype=F64))


def test_pitchfork_at_and_below_its_threshold():
    below = find_fixed_points(pitchfork(-1.0), cloud(1))
    assert (len(below), below.stability, below.converged.all()) == (1, ("stable",), True)
    # there the speed falls with the cube of the distance, so that 1e-8 is reached at 2e-3
    at = find_fixed_points(pitchfork(0.0), cloud(1), merge_distance=0.01)
    assert at.stability == ("marginal",)
    assert at.points.abs().item() < 2.2e-3


def test_two_wells_and_the_saddle_between():
    fixed_points = find_fixed_points(Flow(two_wells), cloud(2))
    kinds = dict(
        zip(fixed_points.points[:, 0].round().int().tolist(), fixed_points.stability, strict=True)
    )
    assert kinds == {-1: "stable", 0: "unstable", 1: "stable"}
    for point, eigenvalues in zip(fixed_points.points, fixed_points.eigenvalues, strict=True):
        expected = [-3.0, 1.0] if point[0].abs() < 0.5 else [-3.0, -2.0]
        assert sorted(eigenvalues.real.tolist()) == pytest.approx(expected)
        assert eigenvalues.imag.abs().max() == 0


@pytest.mark.parametrize("mu", [0.5, 3.0])
def test_a_limit_cycle_holds_one_unstable_point(mu):
    fixed_points = find_fixed_points(van_der_pol(mu), cloud(2))
    assert fixed_points.stability == ("unstable",)
    torch.testing.assert_close(fixed_points.points, torch.zeros(1, 2, dtype=F64), rtol=0, atol=1e-8)
    expected = sorted(np.roots([1, -mu, 1]), key=lambda v: (v.real, v.imag))
    got = sorted(fixed_points.eigenvalues[0].tolist(), key=lambda v: (v.real, v.imag))
    np.testing.assert_allclose(got, expected, atol=1e-7)
    assert (fixed_points.membership[~fixed_points.converged] == -1).all()


def test_no_fixed_point_is_an_empty_result():
    fixed_points = find_fixed_points(Flow(lambda h: h**2 + 1), cloud(1))
    assert len(fixed_points) == 0
    assert not fixed_points.converged.any()
    assert (fixed_points.final_speeds >= 1).all()
    assert fixed_points.stability == ()
    assert len(find_fixed_points(Flow(lambda h: h * math.nan), cloud(1))) == 0


def test_on_a_continuum_each_start_finds_the_nearest_point():
    # A plain Newton step would run along the line by the noise of a singular Jacobian.
    starts = cloud(3)
    roots = find_roots(Flow(line), starts, tolerance=1e-8, max_iterations=20)
    assert roots.converged.all()
    expected = (starts @ LINE)[:, None] * LINE
    torch.testing.assert_close(roots.states, expected, rtol=0, atol=1e-8)


def test_a_hopfield_network_has_nine_points_of_which_four_are_its_memories():
    cell = GNODECell(1, 4, layers=1, gate_layers=0, final_activation="tanh")
    patterns = torch.tensor([[1.0, 1, 1, 1], [1, 1, -1, -1]])
    with torch.no_grad():
        cell.W_h.copy_(2 * patterns.T @ patterns / 4)
        cell.b.zero_()
    fixed_points = find_fixed_points(cell, cloud(4, count=400, scale=0.7))
    # h = tanh(W h) falls into two pairs of neurons, each at 0 or +-m
    m = brentq(lambda u: math.tanh(2 * u) - u, 0.5, 1)
    expected = [[u, u, v, v] for u in (-m, 0.0, m) for v in (-m, 0.0, m)]
    order = np.lexsort(fixed_points.points.round(decimals=6).numpy().T[::-1])
    np.testing.assert_allclose(fixed_points.points[order], expected, atol=1e-7)
    assert len(fixed_points.select("stable")) == 4
    assert fixed_points.select("stable").abs().min() > 0.9
    slopes = {0.0: 1.0, m: 2 * (1 - m**2) - 1}  # of u' = tanh(2 u) - u, twice; the others decay
    for point, abscissa in zip(expected, fixed_points.abscissa[order].tolist(), strict=True):
        assert abscissa == pytest.approx(max(slopes[abs(u)] for u in point))


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", MODELS)
def test_every_cell_rests_where_the_search_converged(name):
    cell = MODELS[name].build(2, 4)
    visited = visited_states(cell, torch.randn(3, 8, 2))
    fixed_points = find_fixed_points(cell, visited)
    assert len(fixed_points.starts) == 24
    assert fixed_points.multiplicity.sum() == fixed_points.accepted.sum()
    gap = fixed_points.gap or 1e-3
    h, x = fixed_points.points, torch.zeros(len(fixed_points), 2, dtype=F64)
    after = cell.double().step(x, h, torch.full((len(h), 1), gap, dtype=F64))
    speeds = torch.linalg.vector_norm((after - h) / gap, dim=-1)
    assert (speeds < 2e-8).all()
    assert fixed_points.eigenvalues.isfinite().all()


def test_box():
    states = torch.tensor([[-1.0, 2.0], [0.5, 0.0]], dtype=F64)  # q = -1, r = 2
    inside, outside = find_fixed_points(lambda h: h, torch.cat([states, states])), []
    assert inside.accepted.all()
    for place in ([-2.1, 0.0], [0.0, 4.1], [-1.9, 3.9]):
        target = torch.tensor(place, dtype=F64)
        outside.append(find_fixed_points(lambda h, t=target: 0 * h + t, states).accepted.any())
    assert outside == [False, False, True]
    positive = find_fixed_points(Flow(lambda h: h - 1.0), torch.tensor([[1.5], [0.5]], dtype=F64))
    assert positive.accepted.all()  # twice the smallest coordinate would leave 1 out


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_box_of_states_of_one_sign_reaches_to_zero(sign):
    states = sign * torch.tensor([[1.0], [2.0]], dtype=F64)
    for place, inside in ((0.5, True), (3.9, True), (-0.1, False), (4.1, False)):
        fixed_points = find_fixed_points(lambda h, p=place: 0 * h + sign * p, states)
        assert fixed_points.accepted.all().item() is inside
        assert fixed_points.accepted.any().item() is inside


@pytest.mark.parametrize("lost", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("accept", ["box", "distance"])
def test_a_run_that_diverged_does_not_decide_what_is_near(accept, lost):
    states = torch.tensor([[0.9], [-0.2], [-0.8]], dtype=F64)
    diverged = torch.cat([states, torch.tensor([[lost]], dtype=F64)])
    field = pitchfork(1.0)
    clean = find_fixed_points(field, states, accept=accept)
    fixed_points = find_fixed_points(field, diverged, accept=accept)
    torch.testing.assert_close(fixed_points.points, clean.points)
    assert fixed_points.accepted.tolist() == [True, True, True]
    away = find_fixed_points(lambda h: 0 * h + 7.0, diverged, accept=accept)
    assert not away.accepted.any()
    assert not find_fixed_points(field, diverged[3:], accept=accept).accepted.any()


def test_a_fixed_point_at_an_extreme_of_zero_is_in_the_box():
    W, b = torch.tensor([[0.5, 0.0], [-3.0, 0.5]], dtype=F64), torch.tensor([0.5, 0.1], dtype=F64)
    visited = [torch.zeros(1, 2, dtype=F64)]
    for _ in range(200):  # comes to rest at (1, 0), the second unit dead
        visited.append(torch.relu(visited[-1] @ W.T + b))
    fixed_points = find_fixed_points(lambda h: torch.relu(h @ W.T + b), torch.cat(visited))
    torch.testing.assert_close(fixed_points.points, torch.tensor([[1.0, 0.0]], dtype=F64))
    resting = find_fixed_points(lambda h: h / 2, torch.zeros(3, 2, dtype=F64))
    assert len(resting) == 1


def test_distance():
    starts = torch.tensor([[0.0, 0.0]], dtype=F64)
    for x, accepted in ((0.9, True), (1.1, False)):
        target = torch.tensor([x, 0.0], dtype=F64)
        fixed_points = find_fixed_points(lambda h, t=target: 0 * h + t, starts, accept="distance")
        assert fixed_points.converged.all()
        assert fixed_points.accepted.item() is accepted


def wide_gnode(seed):
    """A gated ODE whose large weights shut its gates in wide parts of the space."""
    cell = GNODECell(1, 2 + seed % 2, layers=2, units=8, activation="tanh", tau=0.01).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in (cell.W_h, *cell.W_F, *cell.W_G):
            weight.normal_(std=2.3 / weight.shape[1] ** 0.5, generator=generator)
        for bias in (cell.b, *cell.b_F, *cell.b_G):
            bias.normal_(std=0.3, generator=generator)
    return cell


def true_roots(cell, starts):
    """Return the distinct solutions of F(h) = h by SciPy, from the weights alone."""
    H = cell.W_F[0].shape[1]
    W, b = cell.W_h[:H].detach().numpy(), cell.b[:H].detach().numpy()
    V, c = cell.W_F[0].detach().numpy(), cell.b_F[0].detach().numpy()
    roots = []
    for start in starts.numpy():
        end = root(lambda h: V @ np.tanh(W @ h + b) + c - h, start, tol=1e-12)
        distances = [np.linalg.norm(end.x - other) for other in roots]
        if end.success and min(distances, default=1.0) > 1e-5:
            roots.append(end.x)
    return np.array(roots)


@pytest.mark.sampled(9)
@pytest.mark.parametrize("seed", range(4))
def test_with_open_gates_asked_for_only_true_roots_are_left(seed):
    cell = wide_gnode(seed)
    starts = cloud(cell.hidden_size, count=100, scale=4.0, seed=seed)
    expected = true_roots(cell, starts)
    fixed_points = find_fixed_points(cell, starts, accept="none", open_tolerance=1e-4)
    assert len(fixed_points) == len(expected)
    for point in fixed_points.points.numpy():
        assert np.linalg.norm(expected - point, axis=1).min() < 1e-6
    assert (fixed_points.open_residuals <= 1e-4).all()


@pytest.mark.thorough
def test_states_that_a_shut_gate_holds_are_accepted_by_the_speed_alone():
    held = passed = 0
    for seed in range(4):
        cell = wide_gnode(seed)
        starts = cloud(cell.hidden_size, count=50, scale=4.0, seed=seed)
        fixed_points = find_fixed_points(
            cell, starts, **KIM_2023
        )  # as in the paper, times in seconds
        shut = fixed_points.open_residuals > 1.0  # 1 per second: |F - h| = 0.01
        held += int(shut.sum())
        filtered = find_fixed_points(cell, starts, **KIM_2023, open_tolerance=1.0)
        assert len(filtered) == int((~shut).sum())
        passed += len(filtered)
    assert held > 10
    assert passed > 10


@pytest.mark.parametrize(
    ("name", "gated"),
    [("gnode", True), ("mgru", True), ("gru-euler", True), ("gru-ode", True), ("lem", True),
     ("gru", True), ("node", False), ("ltc", False)],
)  # fmt: skip
def test_velocity_over_gate_is_the_pull_to_the_target(name, gated):
    """Doubling the gate's logit changes the gate and the velocity alike, the pull not at all."""
    network = MODELS[name].build(2, 4).double()
    cell = getattr(network, "cell", network)
    flow = as_flow(cell, torch.tensor([0.5, -1.0]))
    h = cloud(cell.state_size, count=5, scale=0.5)
    assert flow.gate is not None
    gate, velocity = flow.gate(h), flow.velocity(h)
    assert bool((gate < 0.999).all()) == gated
    torch.testing.assert_close(
        flow.open_speed(h), torch.linalg.vector_norm(velocity / gate, dim=-1), rtol=1e-12, atol=0
    )
    rows = {"gru-ode": slice(4, 8), "lem": slice(0, 8), "mgru": slice(4, 8),
            "gru-euler": slice(0, 4), "gru": slice(4, 8)}.get(name)  # fmt: skip
    if rows is None:
        return
    with torch.no_grad():
        for parameter in ("W_x", "W_h", "b", *(["b_h"] if name == "gru" else [])):
            getattr(cell, parameter)[rows] *= 2
    other = as_flow(cell, torch.tensor([0.5, -1.0]))
    assert not torch.allclose(other.gate(h), gate)
    torch.testing.assert_close(other.velocity(h) / other.gate(h), velocity / gate)


def test_a_gru_whose_gate_is_shut_rests_nowhere():
    rnn = tauflow.GRU(1, 2).double()
    with torch.no_grad():
        rnn.cell.b[2:4] = 25.0  # z = 1 - 1e-11: the state is kept wherever it is
    starts = cloud(2, count=20, scale=0.5)
    assert len(find_fixed_points(rnn, starts)) > 1
    assert len(find_fixed_points(rnn, starts, open_tolerance=1e-6)) == 0


def test_a_map_that_is_a_module_is_converted():
    torch.manual_seed(0)
    linear = torch.nn.Linear(2, 2)
    fixed_points = find_fixed_points(linear, cloud(2), accept="none")
    W, b = linear.weight.double().detach(), linear.bias.double().detach()
    expected = torch.linalg.solve(torch.eye(2, dtype=F64) - W, b)
    torch.testing.assert_close(fixed_points.points, expected.unsqueeze(0))
    assert linear.weight.dtype is torch.float32


def test_a_point_whose_jacobian_is_no_number_has_no_known_stability():
    def field(h):
        return -h.square().sum(-1, keepdim=True).sqrt() * h.sign()  # 0 / 0 is its slope at 0

    fixed_points = find_fixed_points(Flow(field), torch.zeros(3, 2, dtype=F64))
    assert fixed_points.stability == ("unknown",)
    assert len(fixed_points.select("marginal")) == 0
    assert len(fixed_points.select("unknown")) == 1


def test_merging_joins_what_is_near_and_nothing_else():
    torch.manual_seed(0)
    centres = torch.randn(50, 4, dtype=F64)
    nudges = 1e-4 * torch.nn.functional.normalize(torch.randn(50, 7, 4, dtype=F64), dim=-1)
    states = (centres[:, None] + nudges).reshape(-1, 4)
    resting = Flow(lambda h: 0 * h)
    fixed_points = find_fixed_points(resting, states, merge_distance=2e-4)
    assert fixed_points.multiplicity.tolist() == [7] * 50
    members = fixed_points.membership.reshape(50, 7)
    assert (members == members[:, :1]).all()
    assert len(members[:, 0].unique()) == 50
    assert len(find_fixed_points(resting, states, **KIM_2023)) == 350


def test_starts_are_drawn_by_the_seed():
    states = cloud(1, count=1000)
    first, again, other = (
        find_fixed_points(pitchfork(1.0), states, starts=20, seed=seed).starts for seed in (0, 0, 1)
    )
    torch.testing.assert_close(first, again, rtol=0, atol=0)
    assert not torch.equal(first, other)
    assert len(first.unique()) == 20
    assert torch.isin(first, states).all()


def test_bad_calls_are_refused():
    with pytest.raises(UnknownNameError, match="accept='bix' is unknown"):
        find_fixed_points(Flow(torch.sin), cloud(1), accept="bix")
    with pytest.raises(ArgumentError, match="tolerance must be a number above 0"):
        find_fixed_points(Flow(torch.sin), cloud(1), tolerance=0.0)
    with pytest.raises(ArgumentError, match="no state"):
        find_fixed_points(Flow(torch.sin), torch.zeros(0, 1))
    with pytest.raises(ShapeError, match="expected"):
        find_fixed_points(GNODECell(2, 3), torch.zeros(5, 2))


def test_a_summary_says_how_complete_the_search_is():
    field = Flow(lambda h: h - h**3)
    fixed_points = find_fixed_points(field, torch.linspace(-1.5, 1.5, 30).unsqueeze(1))
    kinds = "2 stable, 1 unstable" if len(fixed_points) == 3 else ""
    assert kinds
    alone = int((fixed_points.multiplicity == 1).sum())
    assert repr(fixed_points).startswith(
        f"FixedPoints(3 points: {kinds}; 30 of 30 starts converged, "
    )
    assert f"{alone} point" in repr(fixed_points)
    nothing = find_fixed_points(Flow(lambda h: 1 + h**2), torch.randn(4, 1), max_iterations=3)
    assert repr(nothing).startswith("FixedPoints(0 points; 0 of 4 starts converged")


def test_a_field_of_another_dtype_is_named():
    layer = torch.nn.Linear(3, 3)
    torch.nn.init.orthogonal_(layer.weight)  # so that the point is near the starts
    visited = torch.randn(5, 3)
    with pytest.raises(DtypeError, match=r"does not take states of torch\.float64 .*give Flow"):
        find_fixed_points(Flow(layer, state_size=3), visited)
    single = Flow(layer, dtype=torch.float32)
    fixed_points = find_fixed_points(single, visited, accept="none", tolerance=1e-6)
    torch.testing.assert_close(
        fixed_points.points[0],
        torch.linalg.solve(layer.weight, -layer.bias).detach(),
        rtol=1e-3,
        atol=1e-4,
    )
