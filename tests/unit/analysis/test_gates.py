"""Gates on the velocity: which factors they are, at which time step, and what they hold back."""

import numpy as np
import pytest
import torch
from known_systems import cloud
from scipy.special import expit
from torch import nn

import tauflow
from tauflow.analysis import Flow, as_flow, find_fixed_points, lesion
from tauflow.cells import AbstractCell, HiPPOCell, LSTMCell, PhasedLSTMCell
from tauflow.errors import ArgumentError

N = 3


def gru_shut_at_long_gaps():
    """Return a GRU told dt, whose z is sigmoid(5 dt - 5) or nearly: shut at a dt above 2."""
    torch.manual_seed(0)
    gru = tauflow.GRU(2, N, append_dt=True, backend="reference").double()
    with torch.no_grad():
        gru.cell.W_x[N : 2 * N, -1] = 5.0
        gru.cell.b[N : 2 * N] = -5.0
    return gru


def gru_target(cell, h, dt):
    """Return gate and target of the GRU by its equations, in NumPy; the input is zero."""
    W_x, W_h, b, b_h = (getattr(cell, name).detach().numpy() for name in ("W_x", "W_h", "b", "b_h"))
    from_x, from_h = W_x[:, -1] * dt + b, h.numpy() @ W_h.T + b_h
    r = expit(from_x[:N] + from_h[:, :N])
    gate = expit(-from_x[N : 2 * N] - from_h[:, N : 2 * N])
    return gate, np.tanh(from_x[2 * N :] + r * from_h[:, 2 * N :])


@pytest.mark.parametrize("dt", [0.5, 1.0, 4.0])
def test_the_gate_of_a_gru_is_that_of_the_gap(dt):
    gru, h = gru_shut_at_long_gaps(), cloud(N, count=5, scale=0.5)
    gate, target = gru_target(gru.cell, h, dt)
    flow = as_flow(gru, dt=dt)
    np.testing.assert_allclose(flow.gate(h), gate, rtol=1e-10)
    pull = np.linalg.norm(target - h.numpy(), axis=1) / dt
    np.testing.assert_allclose(flow.open_speed(h), pull, rtol=1e-6)


def test_the_gate_of_a_lesioned_gru_is_that_of_the_gap_from_where_it_is_held():
    gru, h = gru_shut_at_long_gaps(), cloud(N, count=5, scale=0.5)
    held = h.clone()
    held[:, 1] = 0.3
    gate = as_flow(lesion(gru, 1, value=0.3), dt=4.0).gate(h)
    np.testing.assert_allclose(gate, gru_target(gru.cell, held, 4.0)[0], rtol=1e-10)


@pytest.mark.parametrize("dt", [6.0, 40.0])
def test_states_that_a_gate_holds_at_a_long_gap_are_no_fixed_points(dt):
    """At the longer time step the gate is 0 in double precision, and every state rests exactly."""
    gru, starts = gru_shut_at_long_gaps(), cloud(N, count=50, scale=0.5)
    held = find_fixed_points(as_flow(gru, dt=dt), starts, accept="none")
    assert held.converged.all()
    target = gru_target(gru.cell, held.points, dt)[1]
    assert np.linalg.norm(target - held.points.numpy(), axis=1).min() > 0.05
    asked = find_fixed_points(as_flow(gru, dt=dt), starts, accept="none", open_tolerance=1e-3)
    assert len(asked) == 0


def test_without_a_gap_the_gate_of_a_gru_is_that_of_a_gap_of_one():
    cell, h = gru_shut_at_long_gaps().cell, cloud(N, count=5)
    gate = cell.update_gate(torch.zeros(5, 2).double(), h)
    np.testing.assert_allclose(gate.detach(), gru_target(cell, h, 1.0)[0], rtol=1e-10)


@pytest.mark.parametrize("form", ["released", "paper"])
@pytest.mark.parametrize("dt", [0.2, 1.0, 6.0])
def test_with_open_gates_a_phased_lstm_moves_as_an_lstm(form, dt):
    torch.manual_seed(0)
    phased = PhasedLSTMCell(2, N, form=form, ratio=0.4).double()
    lstm = LSTMCell(2, N, forget_bias=1.0).double()
    lstm.load_state_dict({name: phased.state_dict()[name] for name in ("W_x", "W_h", "b")})
    x = torch.tensor([0.5, -1.0])
    flow, h = as_flow(phased, x, dt=dt), cloud(phased.state_size, count=4, scale=0.5)
    gate, velocity = flow.gate(h), flow.velocity(h)
    k = phased.time_gate(dt + h[:, 2 * N :].sum(dim=1, keepdim=True))  # 0 in the released form
    assert (gate[:, :N] == gate[:, N : 2 * N]).all()
    assert (gate[:, :N] - k).abs().max() < 1e-12
    assert (gate[:, 2 * N :] == 1).all()  # time goes on, whatever the gates
    expected = as_flow(lstm, x, dt=dt).velocity(h[:, : 2 * N])
    torch.testing.assert_close((velocity / gate)[:, : 2 * N], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "options",
    [
        {"measure": "lagt"},
        {"measure": "lagt", "append_dt": True},
        {"measure": "legs", "timestamped": True},
    ],
)
def test_behind_its_gate_a_hippo_cell_is_drawn_to_what_its_new_memory_says(options):
    torch.manual_seed(0)
    cell, x, dt = HiPPOCell(2, N, order=4, **options).double(), torch.tensor([0.5, -1.0]), 3.0
    flow, h = as_flow(cell, x, dt=dt), cloud(cell.state_size, count=5, scale=0.5).abs()
    features = torch.cat([x, torch.tensor([dt] * cell.append_dt)]).double()
    after = h + dt * flow.velocity(h)
    candidate, gate = (features @ cell.W_x.T + after[:, N : N + 4] @ cell.W_m.T + cell.b).chunk(
        2, dim=-1
    )
    torch.testing.assert_close(flow.gate(h)[:, :N], torch.sigmoid(gate))
    assert (flow.gate(h)[:, N:] == 1).all()
    pull = (flow.velocity(h) / flow.gate(h))[:, :N]
    torch.testing.assert_close(pull, (torch.tanh(candidate) - h[:, :N]) / dt)


class Gated(AbstractCell):
    """h' = h + g (target - h) with its gate."""

    def __init__(self, input_size, hidden_size):
        super().__init__(input_size, hidden_size)
        self.target = nn.Parameter(torch.linspace(-1, 1, hidden_size))

    def step(self, x, h, dt):
        return h + self.time_gate(dt) * (self.target - h)

    def time_gate(self, dt):
        return torch.full_like(dt, 0.25)


class TwoArguments(Gated):
    def update_gate(self, x, h):
        return torch.full_like(h, 0.25)


class WithGap(Gated):
    def time_gate(self, dt):
        return torch.exp(-dt)

    def update_gate(self, x, h, dt):
        return self.time_gate(dt).expand_as(h)


class AnotherOption(TwoArguments):
    def update_gate(self, x, h, sharpness=1.0):
        assert sharpness == 1.0
        return super().update_gate(x, h)


@pytest.mark.parametrize("cell_class", [TwoArguments, WithGap, AnotherOption])
@pytest.mark.parametrize("layers", [1, 2])
def test_custom_cells_say_their_gates_with_the_gap_or_without(cell_class, layers):
    cell = cell_class(2, 2)
    flow = as_flow(tauflow.RNN(cell, num_layers=layers).double(), dt=2.0)
    h = cloud(2 * layers, count=4)
    targets = torch.cat([torch.tensor([-1.0, 1.0])] * layers).double()
    pull = torch.linalg.vector_norm(targets - h, dim=1) / 2.0
    torch.testing.assert_close(flow.open_speed(h), pull)
    assert (flow.gate(h) < 0.3).all()


def test_a_gate_that_takes_other_arguments_is_refused_when_asked_for():
    class Helper(Gated):
        def update_gate(self, gates):
            return gates

    flow = as_flow(Helper(2, 2), dt=1.0)
    with pytest.raises(ArgumentError, match=r"Helper\.update_gate .*called as update_gate\(x, h\)"):
        flow.open_speed(cloud(2))

    class Required(Gated):
        def update_gate(self, x, h, dt, sharpness):
            return h

    with pytest.raises(ArgumentError, match=r"called as update_gate\(x, h, dt=dt\)"):
        as_flow(Required(2, 2), dt=1.0).open_speed(cloud(2))


def test_only_the_gate_of_a_map_is_lost_in_rounding():
    """In continuous time there is no difference h' - h, so that any gate above 0 is felt."""
    gate = {"gate": lambda h: torch.full_like(h, 1e-15)}
    flow, step = (Flow(lambda h: -1e-15 * h, gap, **gate) for gap in (0.0, 1.0))
    h = cloud(2, count=3)
    torch.testing.assert_close(flow.open_speed(h), torch.linalg.vector_norm(h, dim=1))
    assert step.open_speed(h).isinf().all()
