"""Explicit tables that a user adds: cells take them by name, compiled loops follow them."""

import pytest
import torch

import tauflow
from tauflow.errors import ArgumentError, UnknownNameError
from tauflow.kernels import KernelCall, select_kernel
from tauflow.kernels.engine import requirements
from tauflow.sequence import reference_loop
from tauflow.solvers import FLOW_SOLVERS, SOLVERS, TABLEAUS, ButcherTableau

# Its third stage reads the first one too, as no table of the library does.
KUTTA3 = ButcherTableau(
    "kutta3", 3, ((), (1 / 2,), (-1.0, 2.0)), (1 / 6, 2 / 3, 1 / 6), 2.51, "Kutta 1901"
)
HERE = pytest.mark.skipif(
    not requirements.TRITON_INTERPRETED or not requirements._TRITON_VERSION,
    reason="needs triton and TRITON_INTERPRET=1",
)


@pytest.fixture
def kutta3(monkeypatch):
    """Return the name of a table that is there for one test."""
    monkeypatch.setattr(TABLEAUS, "_entries", dict(TABLEAUS))
    TABLEAUS.add("kutta3", KUTTA3)
    return "kutta3"


def test_names_are_those_that_there_are_now(kutta3):
    for names in (SOLVERS, FLOW_SOLVERS):
        assert kutta3 in names
        assert list(names).count(kutta3) == 1 == repr(names).count(kutta3)
        assert len(names) == len(set(names)) == len(names[:])
    assert tuple(FLOW_SOLVERS)[:5] == ("euler", "midpoint", "heun", "rk4", "kutta3")


def test_a_cell_takes_the_steps_of_the_table(kutta3):
    torch.manual_seed(0)
    cell = tauflow.cells.CTRNNCell(2, 3, solver=kutta3, substeps=1, damping=0.5, scale=False)
    x, h, dt = torch.randn(4, 2), torch.randn(4, 3), torch.rand(4, 1)

    def f(at):
        return torch.tanh(x @ cell.W_x.T + at @ cell.W_h.T + cell.b) - 0.5 * at

    a = f(h)
    b = f(h + dt * a / 2)
    c = f(h - dt * a + 2 * dt * b)
    torch.testing.assert_close(cell.step(x, h, dt), h + dt * (a + 4 * b + c) / 6)
    assert cell.max_stable_dt() == pytest.approx(2.51 / 0.5)


@pytest.mark.parametrize(
    "kind",
    [
        tauflow.cells.CTRNNCell,
        tauflow.cells.ODELSTMCell,
        tauflow.cells.GRUODECell,
        tauflow.cells.LTCCell,
        tauflow.cells.NeuronalLTCCell,
        tauflow.cells.RubanovaODERNNCell,
    ],
)
def test_whatever_serves_a_call_follows_the_table(kind, kutta3):
    torch.manual_seed(0)
    cell = kind(3, 5, solver=kutta3)
    x, dt = torch.randn(2, 7, 3), 0.2 * torch.rand(2, 7, 1)
    call = KernelCall(cell, x, torch.randn(2, cell.state_size), dt)
    results = []
    for run in (reference_loop, select_kernel(call, "numba").run):
        y, h = run(call)
        loss = y.square().sum() + h.sin().sum()
        results.append([y, h, *torch.autograd.grad(loss, list(cell.parameters()))])
    for value, compiled in zip(*results, strict=True):
        unit = max(1.0, value.abs().max().item())
        torch.testing.assert_close(compiled, value, rtol=1e-5, atol=1e-5 * unit)
    stream = tauflow.RNN(cell).stream(2)
    stream.reset(call.h)
    for k in range(7):
        out = stream.step(x[:, k], dt[:, k, 0])
    torch.testing.assert_close(out, results[0][0][:, -1].detach(), rtol=1e-4, atol=1e-5)


@HERE
def test_the_triton_kernel_is_generated_from_its_steps(kutta3):
    cell = tauflow.cells.CTRNNCell(3, 4, solver=kutta3)
    call = KernelCall(cell, torch.zeros(2, 5, 3), torch.zeros(2, 4), torch.ones(2, 5, 1))
    assert select_kernel(call, "triton").unsupported_reason(call) is None


def test_what_is_no_new_table_is_refused(kutta3):
    for name in ("fused", "exponential", "dopri5"):
        table = ButcherTableau(name, 1, ((),), (1.0,), 2.0, "a test")
        with pytest.raises(ArgumentError, match=f"there is a solver '{name}' already"):
            TABLEAUS.add(name, table)
    with pytest.raises(ArgumentError, match="added as 'third' has the name 'kutta3'"):
        TABLEAUS.add("third", KUTTA3)
    with pytest.raises(ArgumentError, match="'euler2' must be a ButcherTableau, got 'euler'"):
        TABLEAUS.add("euler2", "euler")
    with pytest.raises(ArgumentError, match="interval must be a number above 0, got -2"):
        ButcherTableau("backward", 1, ((),), (1.0,), -2.0, "a test")
    with pytest.raises(UnknownNameError, match="Did you mean 'kutta3'"):
        tauflow.LTC(3, 4, solver="kuta3")
