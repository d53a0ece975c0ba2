"""Sequences that have ended are left out of the steps to come, and nothing changes by it."""

from importlib import import_module

import pytest
import torch
from torch.autograd import forward_ad

import tauflow
from tauflow.cells.catalog import MODELS
from tauflow.kernels import KernelCall
from tauflow.sequence import ends
from tauflow.sequence.unroll import reference_loop, unroll

SIZE, STEPS, FEATURES = 32, 80, 3


def masks(*, holes=True, longest=70, seed=0):
    """Return a mask of lengths from 0 to ``longest``, with or without holes."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, longest, (SIZE,), generator=generator)
    lengths[3], lengths[5] = 0, longest
    mask = torch.arange(STEPS) < lengths[:, None]
    return mask & (torch.rand(SIZE, STEPS, generator=generator) > 0.2) if holes else mask


def a_call(cell, *, dtype=torch.float32, mask=None):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(SIZE, STEPS, FEATURES, generator=generator).to(dtype)
    dt = torch.rand(SIZE, STEPS, 1, generator=generator).to(dtype) * 0.5 + 0.1
    observed = None
    if cell.uses_observed:
        observed = torch.rand(x.shape, generator=generator) > 0.3
    h = cell.initial_state(x[:, 0]).detach()
    h = h + 0.1 * torch.rand(h.shape, generator=generator).to(dtype)
    leaves = x.requires_grad_(), h.requires_grad_(), dt.requires_grad_()
    return KernelCall(cell, *leaves, masks() if mask is None else mask, observed)


def results(run, call):
    """Return outputs, last state and all gradients; every entry counts differently."""
    leaves = [call.x, call.h, call.dt, *call.cell.parameters()]
    y, h = run(call)
    weight = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)
    own = torch.linspace(1, 2, h.numel(), dtype=h.dtype).view_as(h)
    total = (y * weight).sum() + (h * own).sum()
    return [y, h, *torch.autograd.grad(total, leaves, allow_unused=True, materialize_grads=True)]


def counted(call, monkeypatch, backend="auto"):
    """Return the sizes (B, T) of what a kernel or the loop is run on."""
    module = import_module("tauflow.sequence.unroll")  # whose name is that of its function, too
    seen, whole = [], module._run_whole

    def spied(call, backend):
        seen.append(tuple(call.x.shape[:2]))
        return whole(call, backend)

    monkeypatch.setattr(module, "_run_whole", spied)
    unroll(call, backend)
    return seen


@pytest.mark.parametrize("name", sorted(MODELS))
def test_it_changes_nothing(name):
    torch.manual_seed(0)
    cell = tauflow.build(name, FEATURES, 6).double().cell
    call = a_call(cell, dtype=torch.float64)
    assert ends.pieces_of(call) is not None
    for own, expected in zip(results(unroll, call), results(reference_loop, call), strict=True):
        torch.testing.assert_close(own, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", ["ltc", "cfc", "lstm", "gru-d", "gnode"])
def test_it_changes_nothing_for_kernels(name):
    torch.manual_seed(0)
    call = a_call(tauflow.build(name, FEATURES, 6).cell)
    for own, expected in zip(results(unroll, call), results(reference_loop, call), strict=True):
        torch.testing.assert_close(
            own, expected, rtol=1e-3, atol=1e-4 * float(expected.detach().abs().max())
        )


def test_steps_after_the_end_are_left_out(monkeypatch):
    mask = masks(holes=False)
    lengths = mask.sum(1).sort(descending=True).values.tolist()
    sizes = counted(a_call(tauflow.build("cfc", FEATURES, 6).cell), monkeypatch)
    assert [rows for rows, _ in sizes] == [32, 24, 16]  # another cut would save too little
    assert sum(steps for _, steps in sizes) == STEPS
    covered = 0
    for (_, steps), going_on in zip(sizes, [24, 16, 0], strict=True):
        covered += steps
        assert lengths[going_on] <= covered
    assert sum(rows * steps for rows, steps in sizes) < 0.8 * SIZE * STEPS


@pytest.mark.parametrize(
    "mask",
    [
        torch.ones(SIZE, STEPS, dtype=torch.bool),
        torch.arange(STEPS) >= torch.arange(SIZE)[:, None],  # padding in front
        torch.arange(STEPS) < 70 + torch.arange(SIZE)[:, None] % 5,  # next to nothing to save
    ],
    ids=["full", "in front", "alike"],
)
def test_a_batch_that_ends_together_runs_whole(mask, monkeypatch):
    call = a_call(tauflow.build("cfc", FEATURES, 6).cell, mask=mask)
    assert counted(call, monkeypatch) == [(SIZE, STEPS)]


def test_no_valid_step_at_all():
    mask = torch.zeros(SIZE, STEPS, dtype=torch.bool)
    mask[:16] = masks(holes=False)[:16]
    call = a_call(tauflow.build("cfc", FEATURES, 6).double().cell, dtype=torch.float64, mask=mask)
    assert ends.pieces_of(call) is not None
    for own, expected in zip(results(unroll, call), results(reference_loop, call), strict=True):
        torch.testing.assert_close(own, expected, rtol=1e-9, atol=1e-11)


def test_the_reference_stays_the_reference(monkeypatch):
    monkeypatch.setattr(ends, "pieces_of", None)
    y, _ = unroll(a_call(tauflow.build("cfc", FEATURES, 6).cell), "reference")
    assert y.shape == (SIZE, STEPS, 6)


def test_derivatives_of_derivatives():
    cell = tauflow.build("elman", FEATURES, 4).double().cell
    call = a_call(cell, dtype=torch.float64)
    found = []
    for run in (unroll, reference_loop):
        y, h = run(call)
        (pull,) = torch.autograd.grad(y.pow(3).sum() + h.pow(2).sum(), call.x, create_graph=True)
        found.append(torch.autograd.grad(pull.pow(2).sum(), (call.x, *cell.parameters())))
    for own, expected in zip(*found, strict=True):
        torch.testing.assert_close(own, expected)


def test_many_gradients_at_once():
    cell = tauflow.build("elman", FEATURES, 4).double().cell
    call = a_call(cell, dtype=torch.float64)
    jacobians = []
    for run in (unroll, reference_loop):
        y, _ = run(call)
        pulls = torch.eye(3, y.numel(), dtype=y.dtype).roll(17, 1).view(3, *y.shape)
        jacobians.append(torch.autograd.grad(y, call.x, pulls, is_grads_batched=True)[0])
    torch.testing.assert_close(*jacobians)


@pytest.mark.filterwarnings("ignore:.*jit.script.*:DeprecationWarning")  # torch's own, from within
def test_tangents_run_whole():
    call = a_call(tauflow.build("elman", FEATURES, 4).cell)
    with forward_ad.dual_level():
        assert ends.pieces_of(call) is None
        x = forward_ad.make_dual(call.x.detach(), torch.ones_like(call.x))
        y, _ = unroll(KernelCall(call.cell, x, call.h, call.dt, call.mask))
        assert forward_ad.unpack_dual(y).tangent is not None


def test_pieces_that_are_computed_anew():
    call = a_call(tauflow.build("cfc", FEATURES, 6).double().cell, dtype=torch.float64)
    checkpointed = results(lambda call: unroll(call, checkpoint_every=16), call)
    for own, expected in zip(checkpointed, results(reference_loop, call), strict=True):
        torch.testing.assert_close(own, expected, rtol=1e-9, atol=1e-11)
