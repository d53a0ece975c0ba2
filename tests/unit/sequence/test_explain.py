"""Which kernel serves a call, and why the others do not, as ``explain`` tells."""

import pytest
import torch

import tauflow
from tauflow.cells.registry import MODELS
from tauflow.errors import ArgumentError, ShapeError
from tauflow.kernels import KernelCall, get_kernels, select_kernel


@pytest.mark.parametrize("name", list(MODELS))
@pytest.mark.parametrize("steps", [3, 12])
def test_it_names_what_serves_and_every_other(name, steps):
    rnn, x, dt = tauflow.build(name, 4, 8), torch.randn(2, steps, 4), torch.ones(2, steps, 1)
    explained = rnn.explain(x, dt=dt)
    cell = rnn.cell
    row = select_kernel(KernelCall(cell, x, cell.initial_state(x[:, 0]), dt), "auto")
    (serving,) = [kernel for kernel in explained.kernels if kernel.serves]
    assert serving[1:3] == (
        ("reference", "step") if row is None else (row.backend, row.function.__name__)
    )
    assert len(explained.kernels) == len(get_kernels(cell)) + 1
    assert all(bool(kernel.reason) != kernel.serves for kernel in explained.kernels)


def test_reasons_are_those_of_the_kernels():
    rnn = tauflow.CfC(4, 6).double()
    x = torch.randn(2, 5, 4).double()
    call = KernelCall(rnn.cell, x, x.new_zeros(2, 6), x.new_ones(2, 5, 1))
    reasons = {kernel.loop: kernel.reason for kernel in rnn.explain(x).kernels}
    for kernel in get_kernels(rnn.cell):
        if kernel.function.__name__ == "run_traced":
            assert reasons["run_traced"] == kernel.unsupported_reason(call)
    assert "run_traced" in reasons


def test_episodes_are_explained_as_rows_that_end():
    rnn, x = tauflow.LSTM(4, 6), torch.randn(2, 5, 4)
    starts = torch.zeros(2, 5, dtype=torch.bool)
    starts[0, 3] = True
    masked = rnn.explain(x, mask=torch.ones(2, 5, dtype=torch.bool))
    assert rnn.explain(x, episode_start=starts).kernels == masked.kernels
    assert rnn.explain(x).kernels != masked.kernels
    assert rnn.explain(x, episode_start=starts).plan == "episodes start within the sequences"


def test_every_layer_and_direction_is_told():
    rnn = tauflow.CfC(4, 6, num_layers=2, bidirectional=True)
    explained = rnn.explain(torch.randn(2, 5, 4), lengths=[5, 3])
    assert [kernel.cell for kernel in explained.kernels if kernel.serves] == [
        f"{index} CfCCell" for index in range(4)
    ]
    assert not explained.plan
    rnn = tauflow.CfC(4, 6, checkpoint_every=2)
    assert "checkpoint_every" in rnn.explain(torch.randn(2, 5, 4)).plan


def test_it_prints_a_table():
    table = str(tauflow.CfC(4, 6).explain(torch.randn(2, 5, 4))).splitlines()
    assert table[0].split() == ["cell", "backend", "loop"]
    assert any("run_traced" in line and line.endswith("serves the call") for line in table)
    assert table[-1].startswith("call plan: ")


def test_a_backend_that_cannot_serve_is_told_and_wrong_calls_raise():
    rnn, x = tauflow.CfC(4, 6, backend="graph"), torch.randn(2, 5, 4)
    explained = rnn.explain(x)
    assert not any(kernel.serves for kernel in explained.kernels)
    assert "BackendError" in explained.kernels[-1].reason
    with pytest.raises(ShapeError):
        rnn.explain(x[..., :3])


@pytest.mark.parametrize("name", ["cfc", "gru", "ltc"])
def test_a_call_that_forward_refuses_is_refused(name):
    rnn, x = tauflow.build(name, 4, 6), torch.randn(2, 5, 4)
    for call in (rnn, rnn.explain):
        with pytest.raises(ArgumentError, match="does not model missing features"):
            call(x, observed=torch.ones(2, 5, 4, dtype=torch.bool))
