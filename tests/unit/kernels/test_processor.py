"""Torch's own LSTM in half precision, for which not every processor has the instructions."""

import pytest
import torch

import tauflow
from tauflow.errors import BackendError

HALF = [torch.bfloat16, torch.float16]


def lstm(dtype=torch.float32, **options):
    torch.manual_seed(0)
    return tauflow.LSTM(3, 8, **options).to(dtype), torch.randn(2, 5, 3).to(dtype)


@pytest.mark.parametrize("learns", [True, False])
@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_half_precision_takes_the_reference(dtype, learns):
    rnn, x = lstm(dtype)
    named, _ = lstm(dtype, backend="torch")
    with torch.set_grad_enabled(learns):
        (y, h), (expected, last) = rnn(x), lstm(dtype, backend="reference")[0](x)
        with pytest.raises(BackendError, match=f"fused LSTM in {dtype}"):
            named(x)
    assert torch.equal(y, expected)
    assert torch.equal(h, last)


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_mixed_precision_needs_no_such_instructions(dtype):
    """An LSTM's memory stays in single precision, in which every processor has the operator."""
    rnn, x = lstm(backend="torch")
    unhooked = rnn(x)
    reference, _ = lstm(backend="reference")
    with torch.autocast("cpu", dtype=dtype):
        y_and_h, (y, h) = rnn(x), reference(x)
    assert y_and_h[0].dtype is y_and_h[1].dtype is torch.float32
    torch.testing.assert_close(y_and_h, unhooked)
    torch.testing.assert_close(y_and_h, (y.float(), h), rtol=0.05, atol=0.02)


def test_the_other_gated_cells_compute_in_half_precision():
    for name in ("gru", "elman"):
        torch.manual_seed(0)
        rnn = tauflow.build(name, 3, 8, backend="torch").bfloat16()
        assert rnn(torch.randn(2, 5, 3).bfloat16())[0].isfinite().all()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("mixed", [True, False])
def test_it_compiles_in_half_precision(dtype, mixed):
    torch.compiler.reset()
    rnn, x = lstm()
    if not mixed:
        rnn, x = rnn.to(dtype), x.to(dtype)
    rnn.eval()
    compiled = torch.compile(rnn, backend="aot_eager", fullgraph=True)
    with torch.no_grad(), torch.autocast("cpu", dtype=dtype, enabled=mixed):
        y, expected = compiled(x)[0], rnn(x)[0]  # perhaps by another loop, which rounds otherwise
    torch.testing.assert_close(y.float(), expected.float(), rtol=0, atol=0.02)


def test_float64_keeps_its_digits_under_autocast():
    rnn, x = lstm(torch.float64)
    expected, _ = rnn(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y, _ = rnn(x)
    assert y.dtype is torch.float64
    torch.testing.assert_close(y, expected, rtol=0, atol=1e-12)
