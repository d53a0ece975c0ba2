"""Adaptive solvers against known solutions and SciPy, sample by sample."""

import sys

import numpy as np
import pytest
import torch
from torch import Tensor

import tauflow
from tauflow.errors import (
    ArgumentError,
    DtypeError,
    MissingExtraError,
    ShapeError,
    SolverError,
    TimeError,
    UnknownNameError,
)
from tauflow.solvers import (
    ADAPTIVE_METHODS,
    integrate_adaptive,
    integrate_path,
    solver_statistics,
)

pytest.importorskip("torchode", reason="the adaptive solvers need the extra 'ode'")

A = torch.tensor([[-0.5, 1.0, 0.2], [-1.0, -0.3, 0.1], [0.0, 0.4, -0.8]], dtype=torch.float64)
GAPS = torch.tensor([[0.0], [0.5], [2.0], [3.0]], dtype=torch.float64)
# How far the end may be off per unit of tolerance: a step's error is held, not the whole path's.
SLACK = 60


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def logistic(h: Tensor) -> Tensor:
    return h * (1 - h)


def van_der_pol(h: Tensor) -> Tensor:
    x, v = h.unbind(-1)
    return torch.stack([v, 5 * (1 - x * x) * v - x], dim=-1)


def column(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64).unsqueeze(-1)


@pytest.mark.parametrize("method", ADAPTIVE_METHODS)
@pytest.mark.parametrize("tolerance", [1e-3, 1e-6])
def test_linear_flow_to_the_matrix_exponential(method, tolerance):
    h = normal(4, 3)
    exact = torch.stack([torch.linalg.matrix_exp(g * A) @ r for g, r in zip(GAPS, h, strict=True)])
    options = {"method": method, "rtol": tolerance, "atol": tolerance, "max_steps": 10_000}
    got, statistics = integrate_adaptive(lambda v: v @ A.T, h, GAPS, **options)
    torch.testing.assert_close(got, exact, rtol=0, atol=SLACK * tolerance)
    assert torch.equal(got[0], h[0])
    assert statistics.accepted[0] == 1
    assert (statistics.accepted.diff() > 0).all()


@pytest.mark.parametrize("method", ADAPTIVE_METHODS)
def test_logistic_flow_to_its_solution_in_single_precision(method):
    h, gap = torch.tensor([[0.1], [0.5], [2.0]]), torch.tensor([[3.0], [0.0], [1.0]])
    exact = h * gap.exp() / (1 + h * (gap.exp() - 1))
    got, _ = integrate_adaptive(logistic, h, gap, method=method, rtol=1e-4, atol=1e-5)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got, exact, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("method", ["dopri5", "tsit5"])
def test_van_der_pol_as_scipy_solves_it(method):
    scipy_integrate = pytest.importorskip("scipy.integrate")
    h, gaps = torch.tensor([[2.0, 0.0], [0.5, -1.0]]).double(), column(7.0, 11.0)
    expected = [
        scipy_integrate.solve_ivp(
            lambda _, v: van_der_pol(torch.from_numpy(v)).numpy(),
            (0.0, float(gap)),
            start.numpy(),
            method="DOP853",
            rtol=1e-12,
            atol=1e-12,
        ).y[:, -1]
        for start, gap in zip(h, gaps, strict=True)
    ]
    options = {"method": method, "rtol": 1e-9, "atol": 1e-9}
    got, statistics = integrate_adaptive(van_der_pol, h, gaps, **options)
    np.testing.assert_allclose(got.numpy(), np.stack(expected), rtol=1e-6, atol=1e-6)
    assert (statistics.rejected > 0).all()


@pytest.mark.parametrize("method", ADAPTIVE_METHODS)
def test_a_batch_takes_the_steps_of_its_rows_one_by_one(method):
    """A row beside it that is a hundred times as hard changes nothing."""
    h, gaps = 2 * normal(4, 2), column(0.0, 0.3, 8.0, 1.0)
    got, counted = integrate_adaptive(van_der_pol, h, gaps, method=method)
    for row in range(4):
        rows = slice(row, row + 1)
        alone, statistics = integrate_adaptive(van_der_pol, h[rows], gaps[rows], method=method)
        torch.testing.assert_close(got[rows], alone, rtol=1e-10, atol=1e-10)
        assert statistics.accepted == counted.accepted[row]
        assert statistics.rejected == counted.rejected[row]


@pytest.mark.parametrize("method", ADAPTIVE_METHODS)
def test_tighter_tolerances_cost_more_and_give_more(method):
    h, gaps = normal(2, 3), column(1.0, 2.0)
    exact = torch.stack([torch.linalg.matrix_exp(g * A) @ r for g, r in zip(gaps, h, strict=True)])
    errors, counts = [], []
    for tolerance in (1e-2, 1e-4, 1e-6):
        calls = []

        def field(v: Tensor, calls: list[Tensor] = calls) -> Tensor:
            calls.append(v)
            return v @ A.T

        options = {"method": method, "rtol": tolerance, "atol": tolerance, "max_steps": 10_000}
        got, statistics = integrate_adaptive(field, h, gaps, **options)
        assert statistics.evaluations == len(calls)
        counts.append(statistics.evaluations)
        errors.append(float((got - exact).abs().max()))
    assert counts == sorted(set(counts))
    assert errors[0] > errors[1] > errors[2]


def test_dormand_prince_evaluates_once_per_stage():
    """Two evaluations find the first step; the last stage of a step is the first of the next."""
    _, statistics = integrate_adaptive(van_der_pol, normal(1, 2), column(5.0))
    steps = int(statistics.accepted + statistics.rejected)
    assert statistics.evaluations == 2 + 6 * steps
    _, statistics = integrate_adaptive(lambda v: v @ A.T, normal(1, 3), column(3.0), method="bosh3")
    assert statistics.evaluations == 2 + 3 * int(statistics.accepted + statistics.rejected)


def test_a_backward_pass_that_takes_the_steps_again_is_not_counted():
    rnn = tauflow.CTRNN(2, 4, solver="dopri5", checkpoint_every=2)
    with solver_statistics() as solves:
        rnn(torch.randn(3, 8, 2))[0].sum().backward()
    assert len(solves) == 8


def test_statistics_of_the_solves_inside_a_module_come_to_its_caller():
    calls = []
    phi = lambda z: calls.append(z) or torch.tanh(z)  # noqa: E731
    rnn = tauflow.CTRNN(2, 3, solver="dopri5", activation=phi).double()
    with solver_statistics() as outer:
        with solver_statistics() as solves:
            rnn(normal(4, 5, 2), dt=0.5)
        integrate_adaptive(van_der_pol, normal(1, 2), column(1.0), adjoint=True)
        integrate_path(van_der_pol, normal(1, 2), column(1.0))
    integrate_adaptive(van_der_pol, normal(1, 2), column(1.0))
    assert len(solves) == 5
    assert sum(solve.evaluations for solve in solves) == len(calls)
    assert all(solve.accepted.shape == (4,) for solve in solves)
    assert len(outer) == 7
    assert outer[:5] == solves


def test_a_path_passes_through_the_exact_states():
    t = torch.tensor([[0.0, 0.0, 0.4, 3.0], [0.5, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0]]).double()
    h = normal(3, 3).requires_grad_()
    exact = torch.stack(
        [
            torch.stack([torch.linalg.matrix_exp(time * A) @ row for time in times])
            for times, row in zip(t, h, strict=True)
        ]
    )
    got, statistics = integrate_path(lambda v: v @ A.T, h, t, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(got, exact, rtol=0, atol=1e-6)
    assert statistics.accepted[2] == 1
    pull = normal(*got.shape, seed=3)
    grads = [torch.autograd.grad((path * pull).sum(), h)[0] for path in (got, exact)]
    torch.testing.assert_close(*grads, rtol=0, atol=1e-5)
    end, _ = integrate_adaptive(lambda v: v @ A.T, h, t[:, -1:], rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(got[:, -1], end, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("field", "gap", "options", "message"),
    [
        (lambda v: v * v, 2.0, {}, r"step size fell below .* in sample 1 at time (1|0\.99)"),
        (van_der_pol, 50.0, {"max_steps": 20}, r"max_steps=20 was not enough in sample 1"),
        (lambda v: v / (v - v), 1.0, {}, r"infinite in sample 1 at time 0 .*before any step. Look"),
        (lambda v: torch.where(v > 1.5, torch.nan, v), 1.0, {}, r"NaN or infinite in sample 1 at"),
    ],
    ids=["blow-up", "too-many-steps", "nan-at-once", "nan-later"],
)
def test_a_failed_solve_says_which_sample_when_and_why(field, gap, options, message):
    h = torch.ones(2, 2).double()
    fields = torch.tensor([[0.0], [1.0]]).double()  # the first sample rests

    def only_second(v: Tensor) -> Tensor:
        return torch.where(fields > 0, field(v), torch.zeros_like(v))

    with pytest.raises(SolverError, match=message):
        integrate_adaptive(only_second, h, column(gap, gap), **options)


@pytest.mark.parametrize("method", ADAPTIVE_METHODS)
@pytest.mark.parametrize("value", [torch.inf, torch.nan])
def test_a_sample_with_a_gap_of_zero_stays_where_its_field_is_infinite(method, value):
    h = torch.ones(2, 2).double().requires_grad_()
    infinite = torch.tensor([[True], [False]])

    def field(v: Tensor) -> Tensor:
        return torch.where(infinite, value, -v)

    end, _ = integrate_adaptive(field, h, column(0.0, 1.0), method=method, rtol=1e-4, atol=1e-6)
    assert torch.equal(end[0], h[0])
    torch.testing.assert_close(end[1], torch.exp(-h[1]), rtol=1e-3, atol=1e-5)
    end.sum().backward()
    assert h.grad is not None
    assert torch.equal(h.grad[0], torch.ones(2).double())


def test_the_limit_counts_the_steps_tried():
    h, gap = normal(2, 2), column(3.0, 6.0)
    _, statistics = integrate_adaptive(van_der_pol, h, gap)
    needed = int((statistics.accepted + statistics.rejected).max())
    integrate_adaptive(van_der_pol, h, gap, max_steps=needed)
    with pytest.raises(SolverError, match=f"max_steps={needed - 1} was not enough"):
        integrate_adaptive(van_der_pol, h, gap, max_steps=needed - 1)


def test_without_the_library_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchode", None)
    with pytest.raises(MissingExtraError, match=r"torchode is not installed.*pip install"):
        integrate_adaptive(torch.tanh, H, DT)


H, DT = torch.zeros(2, 3), torch.ones(2, 1)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        ({"method": "dopri6"}, UnknownNameError, "Did you mean 'dopri5'"),
        ({"rtol": -1.0}, ArgumentError, "rtol must be a number of 0 or more, got -1"),
        ({"atol": 0.0}, ArgumentError, "atol must be greater than 0"),
        ({"max_steps": 0}, ArgumentError, "max_steps must be at least 1"),
        ({"adjoint": 1}, ArgumentError, "adjoint must be True or False"),
        ({"dt": DT[:, 0]}, ShapeError, r"dt has shape \(2,\), expected \(B, 1\) = \(2, 1\)"),
        ({"dt": DT.double()}, DtypeError, r"dt has dtype torch.float64.*dt\.to\(h\.dtype\)"),
        ({"dt": -DT}, TimeError, "dt is -1 in sample 0"),
        ({"dt": DT / 0}, TimeError, "dt is inf in sample 0"),
        ({"h": H[0]}, ShapeError, r"h has shape \(3,\), expected \(B, S\)"),
        ({"h": H.long()}, DtypeError, "h has dtype torch.int64"),
        ({"field": lambda v: v[:, :1]}, ShapeError, r"field\(h\) has shape \(2, 1\)"),
    ],
)
@pytest.mark.untyped  # wrong on purpose; the checker of shapes would speak first
def test_wrong_calls_are_refused(call, error, message):
    arguments = {"field": torch.tanh, "h": H, "dt": DT, **call}
    with pytest.raises(error, match=message):
        integrate_adaptive(**arguments)


@pytest.mark.untyped
def test_wrong_paths_are_refused():
    with pytest.raises(TimeError, match="t runs backwards within a row"):
        integrate_path(torch.tanh, H, torch.tensor([[1.0, 2.0], [2.0, 1.0]]))
    with pytest.raises(ShapeError, match=r"t has shape \(2,\), expected \(B, T\) with T >= 1"):
        integrate_path(torch.tanh, H, torch.ones(2))
