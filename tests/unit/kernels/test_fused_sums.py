"""Sums that compute their products: fewer instructions, and the same bits."""

import pytest
import torch

import tauflow

pytest.importorskip("numba")

from tauflow.kernels.trace import lower, program
from tauflow.kernels.trace.traced_kernel import INTERPRETER_TRACES


def run_steps(name):
    """Return outputs and gradients, and the codes of the instructions of all programs."""
    INTERPRETER_TRACES.traces.clear()
    torch.manual_seed(0)
    rnn, x, dt = tauflow.build(name, 3, 6), torch.randn(5, 9, 3), torch.rand(5, 9)
    with torch.no_grad():
        results = [*rnn(x, dt=dt)]
    y, h = rnn(x, dt=dt)
    results += [y, h, *torch.autograd.grad(y.square().sum() + h.sum(), [*rnn.parameters()])]
    codes = [
        int(row[program.CODE])
        for trace in INTERPRETER_TRACES.traces.values()
        for lowered in trace.lowered
        for row in lowered.instructions
    ]
    return results, codes


@pytest.mark.parametrize("name", ["cfc", "gru-d", "lem", "gnode", "mgru"])
def test_sums_have_the_bits_of_products_that_are_rounded(name, monkeypatch):
    fused, codes = run_steps(name)
    monkeypatch.setattr(lower, "fuse_sums", lambda builder, fixed: None)
    apart, separate_codes = run_steps(name)
    INTERPRETER_TRACES.traces.clear()
    for value, expected in zip(fused, apart, strict=True):
        assert torch.equal(value, expected)
    assert share_of_sums(codes) > share_of_sums(separate_codes)


def share_of_sums(codes):
    """Return which part of the instructions are sums that compute their products."""
    return codes.count(program.ADD_PRODUCT) / len(codes)
