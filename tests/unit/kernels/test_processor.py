"""Torch's own LSTM in half precision, on processors that can and on those that cannot."""

from collections.abc import Iterator

import pytest
import torch

import tauflow
from tauflow.errors import BackendError
from tauflow.kernels import torch_rnn

HALF = [torch.bfloat16, torch.float16]


@pytest.fixture
def unable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let oneDNN refuse, as where ``ONEDNN_MAX_CPU_ISA`` is less than what torch asks."""

    def refuse(*arguments):
        raise RuntimeError("could not create a primitive descriptor")

    monkeypatch.setattr(torch_rnn, "_run_torch_lstm", refuse)
    monkeypatch.setattr(torch_rnn, "_run_mkldnn_layer", refuse)
    torch_rnn._is_lstm_supported.cache_clear()
    yield
    torch_rnn._is_lstm_supported.cache_clear()


def lstm(dtype=torch.float32, **options):
    torch.manual_seed(0)
    return tauflow.LSTM(3, 8, **options).to(dtype), torch.randn(2, 5, 3).to(dtype)


@pytest.mark.usefixtures("unable")
@pytest.mark.parametrize("learns", [True, False])
@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_a_processor_without_the_instructions_takes_the_reference(dtype, learns):
    rnn, x = lstm(dtype)
    with torch.set_grad_enabled(learns):
        (y, h), (expected, last) = rnn(x), lstm(dtype, backend="reference")[0](x)
    assert torch.equal(y, expected)
    assert torch.equal(h, last)
    named, _ = lstm(dtype, backend="torch")
    with (
        torch.set_grad_enabled(learns),
        pytest.raises(BackendError, match=f"no fused LSTM in {dtype} for this processor"),
    ):
        named(x)


@pytest.mark.usefixtures("unable")
@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_mixed_precision_needs_no_such_instructions(dtype):
    """An LSTM's memory stays in single precision, in which every processor has the operator."""
    rnn, x = lstm(backend="torch")
    whole = rnn(x)
    reference, _ = lstm(backend="reference")
    with torch.autocast("cpu", dtype=dtype):
        found, (y, h) = rnn(x), reference(x)
    assert found[0].dtype is found[1].dtype is torch.float32
    torch.testing.assert_close(found, whole)
    torch.testing.assert_close(found, (y.float(), h), rtol=0.05, atol=0.02)


@pytest.mark.usefixtures("unable")
def test_the_other_gated_cells_do_not_ask():
    for name in ("gru", "elman"):
        torch.manual_seed(0)
        rnn = tauflow.build(name, 3, 8, backend="torch").bfloat16()
        assert rnn(torch.randn(2, 5, 3).bfloat16())[0].isfinite().all()


@pytest.mark.parametrize("learns", [True, False])
@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("mixed", [True, False])
def test_this_processor_computes_in_half_precision(dtype, learns, mixed):
    """Whichever way it can, and close to single precision."""
    rnn, x = lstm()
    expected, _ = rnn(x)
    if not mixed:
        rnn, x = rnn.to(dtype), x.to(dtype)
    with torch.set_grad_enabled(learns), torch.autocast("cpu", dtype=dtype, enabled=mixed):
        y, _ = rnn(x)
        rnn.eval()
        evaluated, _ = rnn(x)
    torch.testing.assert_close(y.float(), expected, rtol=0, atol=0.03)
    torch.testing.assert_close(evaluated.float(), expected, rtol=0, atol=0.03)
    if learns:
        y.float().square().sum().backward()
        assert all(p.grad.isfinite().all() for p in rnn.parameters())


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("mixed", [True, False])
def test_it_compiles_in_half_precision(dtype, mixed):
    """The compiler takes oneDNN's operator without a look at the processor."""
    torch.compiler.reset()
    rnn, x = lstm()
    if not mixed:
        rnn, x = rnn.to(dtype), x.to(dtype)
    rnn.eval()
    compiled = torch.compile(rnn, backend="aot_eager", fullgraph=True)
    with torch.no_grad(), torch.autocast("cpu", dtype=dtype, enabled=mixed):
        y, expected = compiled(x)[0], rnn(x)[0]  # perhaps by another loop, which rounds otherwise
    torch.testing.assert_close(y.float(), expected.float(), rtol=0, atol=0.02)


def test_what_surrounds_a_call_does_not_change_the_answer():
    """Nor is it asked twice."""
    torch_rnn._is_lstm_supported.cache_clear()
    question = {"is_traced": False, "needs_grad": False, "saves_for_backward": True}
    plain = torch_rnn.lstm_dtype_unsupported_reason(torch.bfloat16, **question)
    torch_rnn._is_lstm_supported.cache_clear()
    with torch.device("meta"), torch.autocast("cpu", dtype=torch.float16), torch.inference_mode():
        assert torch_rnn.lstm_dtype_unsupported_reason(torch.bfloat16, **question) == plain
    torch_rnn.lstm_dtype_unsupported_reason(torch.bfloat16, **question)
    assert torch_rnn._is_lstm_supported.cache_info().misses == 1


def test_float64_keeps_its_digits_under_autocast():
    rnn, x = lstm(torch.float64)
    expected, _ = rnn(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y, _ = rnn(x)
    assert y.dtype is torch.float64
    torch.testing.assert_close(y, expected, rtol=0, atol=1e-12)


def test_torch_is_asked_about_the_dtype_it_computes_in(monkeypatch):
    """Under autocast it would take float32 to oneDNN's operator, which is given bfloat16 then."""
    seen = []
    real = torch.lstm

    def spy(x, *arguments):
        seen.append(x.dtype)
        return real(x, *arguments)

    monkeypatch.setattr(torch_rnn.torch, "lstm", spy)
    rnn, x = lstm(backend="torch")
    rnn(x)
    assert seen.pop() is torch.float32
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rnn(x)
    assert seen.pop() is torch.float32
    if torch_rnn.lstm_dtype_unsupported_reason(
        torch.bfloat16, is_traced=False, needs_grad=True, saves_for_backward=True
    ):
        pytest.skip(reason="this processor has no fused LSTM in bfloat16")
    rnn.bfloat16()(x.bfloat16())
    assert seen.pop() is torch.bfloat16
