"""Fake tensors, which have shapes and no numbers, go through the steps that PyTorch takes."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

import tauflow
from tauflow.cells.registry import MODELS
from tauflow.errors import BackendError

B, T, D, N = 4, 20, 3, 8


@pytest.mark.sampled(40)
@pytest.mark.parametrize("name", MODELS)
def test_a_model_runs_on_them_and_learns(name):
    model = tauflow.build(name, D, N)
    with FakeTensorMode(allow_non_fake_inputs=True):
        y, _ = model(torch.randn(B, T, D))
        y.sum().backward()
    assert isinstance(y, FakeTensor)
    assert y.shape == (B, T, model.output_size)
    assert all(p.grad is not None for p in model.parameters() if p.requires_grad)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["ltc", "wired-cfc", "gnode", "lstm", "gru-d"])
def test_a_model_is_built_of_them(name):
    with FakeTensorMode():
        y, _ = tauflow.build(name, D, N)(torch.randn(B, T, D))
    assert y.shape[:2] == (B, T)


@pytest.mark.parametrize("name", ["ltc", "cfc", "gnode"])
def test_a_kernel_asked_for_by_name_says_why_not(name):
    pytest.importorskip("numba")
    model = tauflow.build(name, D, N, backend="numba")
    with FakeTensorMode(allow_non_fake_inputs=True), pytest.raises(BackendError, match="fake"):
        model(torch.randn(B, T, D))
