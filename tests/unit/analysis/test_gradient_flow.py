"""Jacobians through time against maps solved by hand, the paper's lemmas and autograd."""

import math

import pytest
import torch

import tauflow
from tauflow.analysis import gradient_flow
from tauflow.cells import CTRNNCell, ODELSTMCell
from tauflow.errors import ArgumentError, DtypeError, NonFiniteError, UnknownNameError

D, N, B, T = 2, 3, 2, 6


def linear_cell(W, solver="euler", substeps=1, activation="identity", damping=0.0):
    cell = CTRNNCell(
        1,
        len(W),
        activation=activation,
        solver=solver,
        substeps=substeps,
        damping=damping,
        scale=False,
    ).double()
    with torch.no_grad():
        cell.W_h.copy_(torch.tensor(W))
        cell.W_x.zero_()
        cell.b.zero_()
    return cell


def no_input(steps, batch=1):
    return torch.zeros(batch, steps, 1, dtype=torch.float64)


def test_a_linear_map_by_hand():
    """Euler steps h' = (I + dt W) h."""
    W = [[-0.5, 2.0], [0.0, 1.0]]
    flow = gradient_flow(linear_cell(W), no_input(3), dt=0.5)
    J = torch.eye(2, dtype=torch.float64) + 0.5 * torch.tensor(W, dtype=torch.float64)
    torch.testing.assert_close(flow.row_sums[0], torch.tensor([[1.75, 1.5]] * 3).double())
    for steps in range(4):
        power = torch.linalg.matrix_power(J, steps)
        expected = torch.linalg.svdvals(power)[0]
        torch.testing.assert_close(flow.error_norm[0, 3 - steps], expected)
    torch.testing.assert_close(flow.step_norm[0], torch.linalg.svdvals(J)[:1].expand(3))
    torch.testing.assert_close(flow.t[0], torch.tensor([0.5, 1.0, 1.5]).double())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_errors_beyond_the_floats(dtype):
    """J = diag(4, 1/4): 4**600 is no float, and 4**-600 is 0."""
    steps = 600
    cell = linear_cell([[3.0, 0.0], [0.0, -0.75]]).to(dtype)
    x, h = torch.zeros(1, steps, 1, dtype=dtype), torch.zeros(1, 2, dtype=dtype)
    flow = gradient_flow(cell, x, h)
    exact = torch.tensor([4.0 ** min(n, 511) for n in range(steps, -1, -1)], dtype=torch.float64)
    exact[: steps - 511] = math.inf
    assert torch.equal(flow.error_norm[0], exact.to(dtype))
    assert flow.exploding.tolist() == [True, False]
    assert flow.vanishing.tolist() == [False, True]
    shrinking = gradient_flow(linear_cell([[-0.75]]).to(dtype), x, h[:, :1])
    small = torch.tensor([0.25**n for n in range(steps, -1, -1)], dtype=torch.float64)
    assert torch.equal(shrinking.error_norm[0], small.to(dtype))


def test_a_state_that_is_not_finite_has_no_norms():
    cell = linear_cell([[3.0]]).float()
    with pytest.raises(NonFiniteError, match="overflows in sequence 0"):
        gradient_flow(cell, torch.zeros(1, 80, 1), torch.full((1, 1), 1e30))
    bent = linear_cell([[3.0]], activation="tanh").float()
    flow = gradient_flow(bent, torch.zeros(1, 3, 1), torch.full((1, 1), math.nan))
    assert flow.step_norm.isnan().all()
    assert flow.error_norm[0, :-1].isnan().all()
    assert flow.error_norm[0, -1] == 1


def test_verdicts_unit_by_unit():
    W = [[-0.5, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 1.0]]  # J = diag(0.5, 1, 2)
    flow = gradient_flow(linear_cell(W), no_input(4), dt=1.0)
    assert flow.vanishing.tolist() == [True, False, False]
    assert flow.exploding.tolist() == [False, False, True]
    torch.testing.assert_close(flow.mean_row_sum, torch.tensor([0.5, 1.0, 2.0]).double())
    lenient = gradient_flow(linear_cell(W), no_input(4), dt=0.01, epsilon=0.1)
    assert not lenient.vanishing.any()


def test_the_printed_definition_lets_entries_cancel():
    W = [[0.5, -1.5], [0.0, 0.0]]  # the first row of J is (1.5, -1.5)
    sound = gradient_flow(linear_cell(W), no_input(2), dt=1.0)
    assert sound.exploding.tolist() == [True, False]
    printed = gradient_flow(linear_cell(W), no_input(2), dt=1.0, convention="printed")
    assert printed.exploding.tolist() == [False, False]
    assert printed.vanishing.tolist() == [True, False]


def test_lemma_1_holds_and_lemma_2_lacks_the_stages_own_derivatives():
    """h' = tanh(1.3 h) from 0.4 over 0.5: with Heun the derivative is 1.5127, not 1.4252."""
    start = torch.tensor([[0.4]], dtype=torch.float64)
    slope = 1.3 / math.cosh(1.3 * 0.4) ** 2
    for solver, expected in (("euler", 1 + 0.5 * slope), ("heun", 1.5127)):
        cell = linear_cell([[1.3]], solver, activation="tanh")
        flow = gradient_flow(cell, no_input(1), start, dt=0.5)
        assert float(flow.step_norm) == pytest.approx(expected, abs=5e-5)
    second = 0.4 + 0.5 * math.tanh(1.3 * 0.4)
    lemma_2 = 1 + 0.5 * (slope + 1.3 / math.cosh(1.3 * second) ** 2) / 2
    assert lemma_2 == pytest.approx(1.4252, abs=5e-5)
    damped = linear_cell([[1.3]], activation="tanh", damping=0.7)
    flow = gradient_flow(damped, no_input(1), start, dt=0.5)
    assert float(flow.step_norm) == pytest.approx(1 + 0.5 * slope - 0.5 * 0.7)
    generator = torch.Generator().manual_seed(0)
    W = torch.randn(4, 4, dtype=torch.float64, generator=generator)
    h = torch.randn(1, 4, dtype=torch.float64, generator=generator)
    jacobian = (1 - (h @ W.T).tanh().square()).T * W  # of tanh(W h)
    euler = torch.eye(4, dtype=torch.float64) * (1 - 0.3 * 0.7) + 0.3 * jacobian
    result = gradient_flow(
        linear_cell(W.tolist(), activation="tanh", damping=0.7), no_input(1), h, dt=0.3
    )
    assert float(result.step_norm) == pytest.approx(float(torch.linalg.matrix_norm(euler, 2)))


def test_the_memory_of_an_ode_lstm_keeps_its_errors_at_first():
    """Theorem 3: at recurrent weights near 0 and a forget bias of 1, dc'/dc is sigmoid(1)."""
    cell = ODELSTMCell(D, N, forget_bias=1.0).double()
    with torch.no_grad():
        for parameter in (cell.W_h, cell.W_x, cell.b, cell.flow.W_h):
            parameter.mul_(1e-6)
    flow = gradient_flow(cell, torch.randn(B, 40, D, dtype=torch.float64))
    memory = flow.by_part(flow.mean_row_sum)["c"]
    torch.testing.assert_close(memory, torch.full_like(memory, 0.7310586), atol=1e-4, rtol=0)
    assert not flow.exploding[N:].any()
    c = list(flow.parts).index("c")
    decay = (flow.part_norm[:, 0, c] / flow.part_norm[:, 10, c]).pow(1 / 10)
    torch.testing.assert_close(decay, torch.full_like(decay, 0.7310586), atol=1e-3, rtol=0)


@pytest.mark.parametrize("name", ["LTC", "CfC", "ODELSTM", "GRUD", "LEM", "PhasedLSTM"])
def test_jacobians_are_those_of_autograd(name):
    torch.manual_seed(0)
    rnn = getattr(tauflow, name)(D, N).double()
    x = torch.randn(B, T, D, dtype=torch.float64)
    dt = torch.rand(B, T, dtype=torch.float64) + 0.1
    h = 0.5 * torch.randn(B, rnn.state_size, dtype=torch.float64)
    observed = torch.rand(B, T, D) > 0.3 if rnn.cell.uses_observed else None
    flow = gradient_flow(rnn, x, h, dt=dt, observed=observed)
    for start in (0, 3):
        for row in range(B):
            rest = {"dt": dt[row : row + 1, start:]}
            if observed is not None:
                rest["observed"] = observed[row : row + 1, start:]
            before = h[row : row + 1]
            if start:
                early = {name: value for name, value in (("dt", dt[row : row + 1, :start]),)}
                if observed is not None:
                    early["observed"] = observed[row : row + 1, :start]
                before = rnn(x[row : row + 1, :start], before, **early)[1]

            def last(state, row=row, start=start, rest=rest):
                return rnn(x[row : row + 1, start:], state, **rest)[1]

            J = torch.autograd.functional.jacobian(last, before.detach())[0, :, 0]
            torch.testing.assert_close(flow.error_norm[row, start], torch.linalg.svdvals(J)[0])
            at = 0
            for index, width in enumerate(flow.parts.values()):
                part = torch.linalg.svdvals(J[:, at : at + width])[0]
                torch.testing.assert_close(flow.part_norm[row, start, index], part)
                at += width


@pytest.mark.parametrize(
    ("name", "solver", "options"),
    [("gnode", "tsit5", {"activation": "tanh"}), ("ode-lstm", "dopri5", {})],
)
def test_adaptive_solvers_have_the_jacobians_of_short_steps(name, solver, options):
    torch.manual_seed(0)
    tight = {"rtol": 1e-9, "atol": 1e-9}
    adaptive = tauflow.build(name, D, N, solver=solver, **tight, **options).double()
    stepped = tauflow.build(name, D, N, solver="rk4", substeps=40, **options).double()
    stepped.load_state_dict(adaptive.state_dict())
    x, dt = torch.randn(B, T, D).double(), torch.rand(B, T).double() + 0.1
    flow, expected = (gradient_flow(rnn, x, dt=dt) for rnn in (adaptive, stepped))
    torch.testing.assert_close(flow.error_norm, expected.error_norm, rtol=1e-5, atol=1e-7)


def test_dropout_is_off_and_the_mode_is_kept():
    rnn = tauflow.CfC(D, N, backbone_dropout=0.5, backbone_layers=2)
    assert rnn.training
    x = torch.randn(B, T, D)
    first, second = gradient_flow(rnn, x), gradient_flow(rnn, x)
    assert torch.equal(first.row_sums, second.row_sums)
    assert all(part.training for part in rnn.modules())


def test_bad_arguments_are_refused():
    x = torch.zeros(B, T, D)
    with pytest.raises(UnknownNameError, match="convention='signed' is unknown"):
        gradient_flow(tauflow.CfC(D, N), x, convention="signed")
    with pytest.raises(ArgumentError, match="epsilon must be a number from 0 to 1"):
        gradient_flow(tauflow.CfC(D, N), x, epsilon=2.0)
    with pytest.raises(ArgumentError, match="CfCCell does not model missing features"):
        gradient_flow(tauflow.CfC(D, N), x, observed=x > 0)
    with pytest.raises(DtypeError, match=r"x has dtype torch\.float32, but the parameters"):
        gradient_flow(tauflow.CTRNN(D, N).double(), x)


def test_nan_is_what_was_not_measured():
    torch.manual_seed(0)
    x, observed = torch.randn(B, T, D), torch.rand(B, T, D) > 0.4
    rnn = tauflow.GRUD(D, N)
    masked = gradient_flow(rnn, x, observed=observed)
    flow = gradient_flow(rnn, x.masked_fill(~observed, float("nan")))
    assert masked.error_norm.isfinite().all()
    torch.testing.assert_close(flow.error_norm, masked.error_norm)
