"""Sequences that have ended are left out of the steps to come, and nothing changes by it."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.autograd import forward_ad

import tauflow
from tauflow.cells.base import AbstractCell
from tauflow.cells.registry import MODELS
from tauflow.errors import ShapeError
from tauflow.kernels import KernelCall, select_kernel
from tauflow.sequence import ragged
from tauflow.sequence.unroll import reference_loop, unroll

SIZE, STEPS, FEATURES = 32, 80, 3


@pytest.fixture(autouse=True)
def small_batches_are_worth_cutting(monkeypatch):
    monkeypatch.setattr(ragged, "_MIN_SAVED_STEPS", 256 // torch.get_num_threads())


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
    weight_of_last = torch.linspace(1, 2, h.numel(), dtype=h.dtype).view_as(h)
    total = (y * weight).sum() + (h * weight_of_last).sum()
    return [y, h, *torch.autograd.grad(total, leaves, allow_unused=True, materialize_grads=True)]


def cut(call):
    """Run the reference loop on pieces."""
    assert ragged.split_by_length(call.cell, call.mask) is not None
    return ragged.run_ragged(call, reference_loop)


def sizes_of(call):
    """Return the sizes (B, T) of what is run."""
    seen = []

    def spied(call):
        seen.append(tuple(call.x.shape[:2]))
        return reference_loop(call)

    ragged.run_ragged(call, spied)
    return seen


def assert_alike(first, second, *, rtol=1e-9, atol=1e-11):
    for value, expected in zip(first, second, strict=True):
        torch.testing.assert_close(value, expected, rtol=rtol, atol=atol)


@pytest.mark.sampled(20)
@pytest.mark.parametrize("name", sorted(MODELS))
def test_it_changes_nothing(name):
    torch.manual_seed(0)
    call = a_call(tauflow.build(name, FEATURES, 6).double().cell, dtype=torch.float64)
    assert_alike(results(cut, call), results(reference_loop, call))


@pytest.mark.parametrize("name", ["ltc", "cfc", "cfc-mmrnn", "ct-rnn", "gru-d", "gnode", "gru"])
def test_it_changes_nothing_for_kernels(name, monkeypatch):
    torch.manual_seed(0)
    call = a_call(tauflow.build(name, FEATURES, 6).cell)
    assert select_kernel(call, "auto") is not None
    outputs = results(unroll, call)
    monkeypatch.setattr(ragged, "split_by_length", lambda cell, mask: None)
    for value, expected in zip(outputs, results(unroll, call), strict=True):
        largest = float(expected.detach().abs().max())
        torch.testing.assert_close(value, expected, rtol=1e-3, atol=1e-4 * largest)


def test_what_dropout_draws_depends_on_the_seed_alone():
    """Not on what runs the steps, on how many threads, or on what is kept for gradients."""
    torch.manual_seed(0)
    rnn = tauflow.CfC(FEATURES, 6, num_layers=2, backbone_dropout=0.4)
    x, mask = torch.randn(SIZE, STEPS, FEATURES), masks(holes=False)
    rnn(x, mask=mask)
    assert ragged.split_by_length(rnn.eval().cell, mask) is not None
    assert ragged.split_by_length(rnn.train().cell, mask) is None
    for options in ({}, {"backend": "reference"}, {"checkpoint_every": 20}):
        other = tauflow.CfC(FEATURES, 6, num_layers=2, backbone_dropout=0.4, **options)
        other.load_state_dict(rnn.state_dict())
        for learns in (True, False):
            drawn = []
            for module in (rnn, other):
                torch.manual_seed(1)
                with torch.set_grad_enabled(learns):
                    drawn.append(module(x, mask=mask)[0])
            torch.testing.assert_close(*drawn)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7])
def test_few_long_sequences(size):
    torch.manual_seed(0)
    rnn = tauflow.Elman(FEATURES, 4)
    x = torch.randn(size, 2000, FEATURES)
    lengths = [2000 - 300 * i for i in range(min(size, 6))] + [5] * (size - 6)
    y, h = rnn(x, lengths=lengths)
    for i, length in enumerate(lengths):
        alone, last = rnn(x[i : i + 1, :length])
        torch.testing.assert_close(y[i : i + 1, :length], alone)
        torch.testing.assert_close(y[i : i + 1, -1], alone[:, -1])
        torch.testing.assert_close(h[i : i + 1], last)


def test_steps_after_the_end_are_left_out():
    mask = masks(holes=False)
    lengths = mask.sum(1).sort(descending=True).values.tolist()
    sizes = sizes_of(a_call(tauflow.build("cfc", FEATURES, 6).cell, mask=mask))
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
def test_a_batch_that_ends_together_runs_whole(mask):
    call = a_call(tauflow.build("cfc", FEATURES, 6).cell, mask=mask)
    assert sizes_of(call) == [(SIZE, STEPS)]


def test_no_valid_step_at_all():
    mask = torch.zeros(SIZE, STEPS, dtype=torch.bool)
    mask[:16] = masks(holes=False)[:16]
    call = a_call(tauflow.build("cfc", FEATURES, 6).double().cell, dtype=torch.float64, mask=mask)
    assert_alike(results(cut, call), results(reference_loop, call))


class Noisy(AbstractCell):
    """A cell of a user's own, whose sequences are not independent."""

    def __init__(self):
        super().__init__(FEATURES, 4)
        self.weight = nn.Parameter(torch.randn(FEATURES, 4))

    def step(self, x, h, dt):
        return torch.tanh(x @ self.weight + h.mean(0) + 0.1 * torch.randn_like(h))


def test_what_no_kernel_serves_takes_every_step():
    torch.manual_seed(0)
    call = a_call(Noisy())
    torch.manual_seed(1)
    padded = reference_loop(call)
    torch.manual_seed(1)
    assert_alike(unroll(call), padded, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("mask", lambda call: call.mask[:6]),
        ("mask", lambda call: call.mask[:, :60]),
        ("h", lambda call: torch.cat([call.h, call.h[:1]])),
    ],
)
def test_tensors_that_do_not_fit_are_refused(field, change):
    call = a_call(tauflow.build("elman", FEATURES, 4).cell)
    with pytest.raises(ShapeError, match=f"{field} has shape"):
        unroll(replace(call, **{field: change(call)}))


def test_derivatives_of_derivatives():
    cell = tauflow.build("elman", FEATURES, 4).double().cell
    call = a_call(cell, dtype=torch.float64)
    gradients = []
    for run in (cut, reference_loop):
        y, h = run(call)
        (pull,) = torch.autograd.grad(y.pow(3).sum() + h.pow(2).sum(), call.x, create_graph=True)
        gradients.append(torch.autograd.grad(pull.pow(2).sum(), (call.x, *cell.parameters())))
    assert_alike(*gradients, rtol=1e-7)


def test_many_gradients_at_once():
    cell = tauflow.build("elman", FEATURES, 4).double().cell
    call = a_call(cell, dtype=torch.float64)
    jacobians = []
    for run in (cut, reference_loop):
        y, _ = run(call)
        pulls = torch.eye(3, y.numel(), dtype=y.dtype).roll(17, 1).view(3, *y.shape)
        jacobians.append(torch.autograd.grad(y, call.x, pulls, is_grads_batched=True)[0])
    torch.testing.assert_close(*jacobians)


@pytest.mark.filterwarnings("ignore:.*jit.script")  # torch's own, from within
def test_tangents_are_carried_on():
    rnn = tauflow.Elman(FEATURES, 4)
    with forward_ad.dual_level():
        x = torch.randn(SIZE, STEPS, FEATURES)
        y, _ = rnn(forward_ad.make_dual(x, torch.ones_like(x)), mask=masks())
        assert forward_ad.unpack_dual(y).tangent is not None


def test_fake_tensors_and_another_default_device():
    cell = tauflow.build("elman", FEATURES, 4).double().cell
    call = a_call(cell, dtype=torch.float64)
    with torch.device("meta"):
        assert_alike(cut(call), reference_loop(call))
    with FakeTensorMode() as mode:
        fake = replace(call, mask=mode.from_tensor(call.mask))
        x, h = ragged.run_ragged(fake, lambda call: (call.x, call.h))
    assert x is fake.x
    assert h is fake.h


@pytest.mark.parametrize("name", ["gru", "elman", "gnode", "cfc", "ltc"])
def test_pieces_that_are_computed_anew(name):
    torch.manual_seed(0)
    rnn = tauflow.build(name, FEATURES, 6, checkpoint_every=40)
    call = a_call(rnn.cell)
    checkpointed = results(lambda call: unroll(call, checkpoint_every=40), call)  # records
    for value, expected in zip(checkpointed, results(reference_loop, call), strict=True):
        largest = float(expected.detach().abs().max())
        torch.testing.assert_close(value, expected, rtol=1e-3, atol=1e-4 * largest)
