import pytest
import torch

import tauflow
from tauflow.analysis import Flow, as_flow, visited_states
from tauflow.cells import MODELS, CfCCell, GNODECell, LTCCell
from tauflow.errors import ArgumentError, DtypeError, NonFiniteError, ShapeError
from tauflow.models import WHOLE_MODELS

F64 = torch.float64
MISSING = [name for name, entry in MODELS.items() if entry.cell.uses_observed]
FLOWS = [name for name, entry in MODELS.items() if entry.build(1, 2).is_flow]


def numerical_jacobian(velocity, h, eps=1e-6):
    columns = []
    for j in range(h.shape[1]):
        shift = eps * torch.eye(h.shape[1], dtype=F64)[j]
        columns.append((velocity(h + shift) - velocity(h - shift)) / (2 * eps))
    return torch.stack(columns, dim=-1)


@pytest.mark.parametrize("name", FLOWS)
def test_velocity_is_the_limit_of_short_steps(name):
    cell = MODELS[name].build(2, 4).double()
    flow, x = as_flow(cell, torch.tensor([0.3, -0.7])), torch.tensor([[0.3, -0.7]], dtype=F64)
    h = 0.5 * torch.randn(3, cell.state_size, dtype=F64)

    def quotient(gap):
        after = cell.step(x.expand(3, -1), h, torch.full((3, 1), gap, dtype=F64))
        return ((after - h) / gap).detach()

    # Richardson: the quotient's error of first order in the time step cancels
    expected = 2 * quotient(1e-5) - quotient(2e-5)
    x32 = torch.tensor([0.3, -0.7]).double()  # as_flow took the input in single precision
    torch.testing.assert_close(x[0], x32, rtol=1e-6, atol=0)
    torch.testing.assert_close(flow.velocity(h), expected, rtol=1e-5, atol=2e-6)


def test_velocity_of_the_gated_ode_is_its_equation():
    cell = GNODECell(2, 3, layers=2, units=5, tau=0.01).double()
    h, x = torch.randn(4, 3, dtype=F64), torch.tensor([0.5, -1.0], dtype=F64)
    p = {name: value.detach() for name, value in cell.named_parameters()}
    first = h @ p["W_h"].T + x @ p["W_x"].T + p["b"]
    target = torch.relu(first[:, :5]) @ p["W_F.0"].T + p["b_F.0"]
    expected = torch.sigmoid(first[:, 5:]) * (target - h) / 0.01
    torch.testing.assert_close(as_flow(cell, x).velocity(h), expected)
    torch.testing.assert_close(as_flow(cell, x, dt=0.01).velocity(h), expected)


@pytest.mark.parametrize("name", ["gnode", "ltc", "cfc", "gru", "gru-d", "ct-lstm"])
def test_jacobian_is_that_of_differences(name):
    cell = MODELS[name].build(2, 3)
    flow = as_flow(cell, torch.tensor([0.3, -0.7]))
    h = torch.rand(4, cell.state_size, dtype=F64) + 0.1
    velocity, jacobian = flow.linearise(h)
    torch.testing.assert_close(velocity, flow.velocity(h))
    expected = numerical_jacobian(flow.velocity, h)
    torch.testing.assert_close(jacobian, expected, rtol=1e-6, atol=1e-7)
    spectrum = flow.eigenvalues(h)
    torch.testing.assert_close(spectrum.sum(-1).real, jacobian.diagonal(dim1=1, dim2=2).sum(-1))


def test_a_cell_that_is_no_flow_is_a_map():
    cell = CfCCell(2, 4)
    h, x = torch.randn(3, 4), torch.randn(2)
    flow = as_flow(cell, x, dt=0.5)
    expected = cell.double().step(x.double().expand(3, -1), h.double(), torch.full((3, 1), 0.5))
    torch.testing.assert_close(flow.velocity(h.double()), (expected - h) / 0.5)
    assert as_flow(cell).gap == 1.0
    with pytest.raises(ArgumentError, match="CfCCell is no flow"):
        as_flow(cell, dt=0)


def test_layers_are_one_state():
    rnn = tauflow.LTC(2, 3, num_layers=2, proj_size=4).double()
    x, h = torch.randn(2, dtype=F64), torch.randn(5, 6, dtype=F64)
    flow = as_flow(rnn, x, dt=0.3)
    _, after = rnn(x.expand(5, 1, 2), h, dt=0.3)
    torch.testing.assert_close(flow.velocity(h), ((after - h) / 0.3).detach())
    assert flow.state_size == 6


def test_the_network_is_left_alone():
    cell = LTCCell(2, 3).train()
    flow = as_flow(cell)
    before = flow.velocity(torch.ones(1, 3, dtype=F64))
    torch.nn.init.zeros_(next(cell.parameters()).data)
    assert cell.training
    assert next(cell.parameters()).dtype == torch.float32
    assert next(cell.parameters()).requires_grad
    torch.testing.assert_close(flow.velocity(torch.ones(1, 3, dtype=F64)), before)


@pytest.mark.parametrize("rows", [1, 7])
def test_visited_states_are_those_of_the_run(rows):
    cell = MODELS["lstm"].build(2, 3)
    x, dt = torch.randn(rows, 5, 2), torch.rand(rows, 5) + 0.1
    states = visited_states(cell, x, dt=dt)
    y, h = tauflow.RNN(cell)(x, dt=dt)
    torch.testing.assert_close(states[:, -1], h)
    torch.testing.assert_close(states[..., :3], y)


def test_visited_states_leaves_modes_alone_and_takes_models():
    torch.manual_seed(0)
    x = torch.randn(2, 3, 2)
    for training in (False, True):
        cell = MODELS["cfc"].build(2, 4, backbone_dropout=0.5).train(training)
        visited_states(cell, x)
        assert [part.training for part in cell.modules()] == [training] * len(list(cell.modules()))
    model = tauflow.SequenceModel(tauflow.CfC(2, 4), 1)
    model.rnn.cell.eval()  # a part that is frozen stays so
    states = visited_states(model, x)
    assert model.rnn.training
    assert not model.rnn.cell.training
    torch.testing.assert_close(states[:, -1], model.rnn(x)[1])


@pytest.mark.parametrize("shape", [(2, 6), (2, 6, 1), (3, 5), (2, 4)])
def test_visited_states_refuses_gaps_of_other_sequences(shape):
    with pytest.raises(ShapeError, match=r"visited_states: dt has shape"):
        visited_states(LTCCell(2, 3), torch.randn(2, 5, 2), dt=torch.ones(shape))


def test_another_unit_of_time_rescales_rates_and_gaps():
    flow = Flow(lambda h: -3 * h)
    h = torch.tensor([[1.0, 2.0]], dtype=F64)
    per_second = flow.rescale_time(0.01)  # its unit lasts 10 ms
    torch.testing.assert_close(per_second.velocity(h), -300 * h)
    torch.testing.assert_close(per_second.eigenvalues(h).real, torch.full((1, 2), -300.0).double())
    step = as_flow(lambda h: 0.5 * h, dt=2.0)
    slower = step.rescale_time(0.01)
    assert slower.gap == pytest.approx(0.02)
    torch.testing.assert_close(slower.velocity(h) * slower.gap, step.velocity(h) * step.gap)
    with pytest.raises(ArgumentError, match="unit must be a number above 0"):
        flow.rescale_time(0)


def test_a_nan_jacobian_has_nan_eigenvalues_alone():
    flow = Flow(lambda h: h.sqrt())
    spectrum = flow.eigenvalues(torch.tensor([[4.0], [-1.0]], dtype=F64))
    assert spectrum[0].item() == 0.25
    assert spectrum[1].isnan()


def test_bad_calls_are_refused():
    both_ways = tauflow.LTC(2, 3, bidirectional=True)
    with pytest.raises(ArgumentError, match="bidirectional"):
        as_flow(both_ways)
    with pytest.raises(ArgumentError, match="bidirectional"):
        visited_states(both_ways, torch.randn(1, 2, 2))
    with pytest.raises(ShapeError, match=r"expected \(2,\)"):
        as_flow(LTCCell(2, 3), torch.zeros(1, 2))
    with pytest.raises(ShapeError, match=r"expected \(B, T, I\)"):
        visited_states(LTCCell(2, 3), torch.zeros(4, 2))
    with pytest.raises(ArgumentError, match="got Linear"):
        visited_states(torch.nn.Linear(2, 2), torch.zeros(4, 1, 2))
    with pytest.raises(ShapeError, match="T >= 1"):
        visited_states(LTCCell(2, 3), torch.zeros(4, 0, 2))
    with pytest.raises(ArgumentError, match="observed and dt belong to a cell"):
        as_flow(Flow(torch.sin), dt=1.0)
    with pytest.raises(ArgumentError, match="observed and dt belong to a cell"):
        as_flow(torch.sin, observed=torch.ones(2, dtype=torch.bool))
    with pytest.raises(ShapeError, match=r"observed has shape \(3,\), expected \(2,\)"):
        as_flow(tauflow.GRUD(2, 3), observed=torch.ones(3, dtype=torch.bool))
    with pytest.raises(ArgumentError, match="does not model missing features"):
        as_flow(LTCCell(2, 3), observed=torch.ones(2, dtype=torch.bool))
    with pytest.raises(NonFiniteError, match="as_flow: x is NaN"):
        as_flow(LTCCell(2, 3), torch.tensor([0.0, float("nan")]))
    with pytest.raises(ArgumentError, match="wrap it"):
        as_flow(torch.sin, dt=0)
    with pytest.raises(ArgumentError, match="got int"):
        as_flow(3)
    with pytest.raises(ShapeError, match=r"expected \(\.\.\., 3\)"):
        as_flow(LTCCell(2, 3)).states("here", torch.zeros(4))
    with pytest.raises(DtypeError, match="floating"):
        as_flow(LTCCell(2, 3)).states("here", torch.zeros(4, 3, dtype=torch.long))


def test_a_model_with_a_readout_is_its_body():
    torch.manual_seed(0)
    model = tauflow.SequenceModel(tauflow.LTC(3, 4), 1)
    h = torch.randn(5, 4, dtype=torch.float64)
    torch.testing.assert_close(as_flow(model).velocity(h), as_flow(model.rnn).velocity(h))


@pytest.mark.parametrize("name", MISSING)
def test_a_held_feature_may_be_missing(name):
    torch.manual_seed(0)
    rnn = tauflow.build(name, 2, 4, num_layers=2).double()
    x = torch.tensor([float("nan"), 0.3], dtype=F64)
    h = torch.rand(5, rnn.state_size, dtype=F64)
    expected = (rnn(x.expand(5, 1, 2), h, dt=0.5)[1] - h).detach() / 0.5
    assert expected.isfinite().all()
    observed = torch.tensor([False, True])
    for flow in (
        as_flow(rnn, x, dt=0.5),
        as_flow(rnn, x.nan_to_num(7.0), observed=observed, dt=0.5),
    ):
        torch.testing.assert_close(flow.velocity(h), expected)


def test_visited_states_are_told_what_was_measured():
    torch.manual_seed(0)
    rnn = tauflow.GRUD(2, 4)
    x, observed = torch.randn(3, 6, 2), torch.rand(3, 6, 2) > 0.5
    states = visited_states(rnn, x, observed=observed)
    torch.testing.assert_close(states[:, -1], rnn(x, observed=observed)[1])
    gone = x.masked_fill(~observed, float("nan"))
    torch.testing.assert_close(visited_states(rnn, gone), states)


@pytest.mark.parametrize("name", list(WHOLE_MODELS))
def test_a_whole_model_is_no_map_of_states(name):
    if WHOLE_MODELS[name].model.takes_images:
        model = WHOLE_MODELS[name].build((1, 8, 8), 3, features=2, layers=((2, 3, 2),))
        h = torch.randn(4, 3, dtype=F64)
        for around in (model, tauflow.SequenceModel(model, 1)):  # of whose features it is one
            torch.testing.assert_close(as_flow(around).velocity(h), as_flow(model.rnn).velocity(h))
        return
    model = WHOLE_MODELS[name].build(2, 8)
    models = [model] if model.has_head else [model, tauflow.SequenceModel(model, 1)]
    for refused in models:
        with pytest.raises(ArgumentError, match=f"as_flow: {type(model).__name__} is no network"):
            as_flow(refused)
        with pytest.raises(ArgumentError, match=f"states: {type(model).__name__} is no network"):
            visited_states(refused, torch.randn(1, 3, 2))
