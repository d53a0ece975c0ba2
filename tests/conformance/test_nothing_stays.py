"""Every model, called over and over: no tensor of a call outlives it."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
import variants
import whole_models
from torch import nn

from tauflow.kernels.trace import trace_cache
from tauflow.kernels.trace.capture import CapturedStep
from tauflow.kernels.trace.traced_kernel import INTERPRETER_TRACES

B, T, D = 3, 12, 2


@contextmanager
def nothing_stays() -> Iterator[None]:
    """Assert that all tensors made within are free again, as Python's collector sees it."""
    gc.collect()
    gc.freeze()  # what there is already needs no second look
    try:
        yield
        gc.collect()
        assert sum(issubclass(type(item), torch.Tensor) for item in gc.get_objects()) == 0
    finally:
        gc.unfreeze()


def call(model: nn.Module, x: torch.Tensor) -> None:
    """Learn from a batch, and look at it without learning; with padding, too."""
    dt = torch.rand(B, T) + 0.1
    padded = torch.arange(T) < torch.tensor([[T], [T - 1], [T - 4]])
    for mask in (None, padded):
        model(x, dt=dt, mask=mask)[0].square().mean().backward()
        model.zero_grad()
        with torch.no_grad():
            model(x, dt=dt, mask=mask)


def assert_nothing_stays(model: nn.Module, x: torch.Tensor) -> None:
    for _ in range(2):
        call(model, x)
    with nothing_stays():
        for _ in range(3):
            call(model, x)


@pytest.mark.sampled(20)
@pytest.mark.parametrize("name", variants.NAMES)
def test_of_a_cell(name):
    assert_nothing_stays(variants.model(name).float(), torch.randn(B, T, D))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", whole_models.NAMES)
def test_of_a_whole_model(name):
    x = whole_models.sequences(name, B, T)[0]
    assert_nothing_stays(whole_models.model(name).float(), x.float())


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["hippo-legs", "rnn-impute", "gru"])
def test_of_a_step_that_is_watched_in_every_call(name, monkeypatch):
    watch = trace_cache.capture_step
    calls = 0

    def forgetful(*arguments: object) -> CapturedStep:
        nonlocal calls
        calls += 1
        return watch(*arguments)._replace(parameter_graph=None)

    monkeypatch.setattr(trace_cache, "capture_step", forgetful)
    monkeypatch.setattr(INTERPRETER_TRACES, "traces", {})  # those of other tests
    model = variants.model(name).float()
    model.backend = "numba"
    assert_nothing_stays(model, torch.randn(B, T, D))
    assert calls > 8
