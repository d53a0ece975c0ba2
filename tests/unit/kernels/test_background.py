"""Which calls are served by cells' own steps while kernels are compiled."""

import copy
import importlib
import threading

import pytest
import torch

pytest.importorskip("numba")

import tauflow
from tauflow._internal import compile_mode
from tauflow.errors import UnknownNameError
from tauflow.kernels.engine import background
from tauflow.training.eval_mode import evaluation_mode


@pytest.fixture
def compiled(monkeypatch):
    """Let calls not wait, and compile nothing before this event."""
    event, compile_kernel = threading.Event(), background._compile

    def compile_later(*arguments):
        event.wait(60)
        compile_kernel(*arguments)

    monkeypatch.setattr(background, "_compile", compile_later)
    monkeypatch.setattr(background, "_threads", {})
    with compile_mode.wait_for_kernels(False):
        yield event
    event.set()
    for thread in background._threads.values():
        thread.join()


@pytest.mark.parametrize("model", ["cfc", "gnode"])
def test_steps_serve_calls_without_gradients_until_the_kernel_is_compiled(compiled, model, caplog):
    caplog.set_level("INFO", logger="tauflow")
    rnn, x = tauflow.build(model, 3, 8), torch.randn(4, 20, 3)
    with torch.no_grad():
        with compile_mode.wait_for_kernels():
            of_kernel = copy.deepcopy(rnn)(x)[0]
        first = rnn(x)[0]
        torch.testing.assert_close(first, of_kernel, rtol=0, atol=1e-5)
        steps = copy.deepcopy(rnn)
        steps.backend = "reference"
        assert torch.equal(first, steps(x)[0])
        assert "it is being compiled (TAUFLOW_COMPILE=background)" in str(rnn.explain(x))
        (thread,) = background._threads.values()
        compiled.set()
        thread.join()
        assert "being compiled" not in str(rnn.explain(x))
        assert torch.equal(rnn(x)[0], of_kernel)
    said = [record.getMessage() for record in caplog.records if "serve" in record.getMessage()]
    assert len(said) == 2


def test_calls_with_gradients_and_evaluations_wait(compiled):
    rnn, x = tauflow.CfC(3, 8), torch.randn(4, 20, 3)
    rnn(x)[0].sum().backward()
    with evaluation_mode(rnn), torch.no_grad():
        rnn(x)
    assert not background._threads


def test_no_kernel_asked_for_by_name_is_replaced(compiled):
    rnn = tauflow.CfC(3, 8, backend="numba")
    with torch.no_grad():
        rnn(torch.randn(4, 20, 3))
    assert not background._threads


def test_an_unknown_mode_is_an_error(monkeypatch):
    monkeypatch.setenv("TAUFLOW_COMPILE", "later")
    with pytest.raises(UnknownNameError, match="TAUFLOW_COMPILE='later' is unknown"):
        importlib.reload(compile_mode)
