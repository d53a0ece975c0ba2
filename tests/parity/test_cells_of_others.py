"""Cells that users write: their steps are traced if their class says so."""

import random
import re
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch
from sequences_of_cells import assert_close, leaves, values_and_gradients
from torch import nn
from torch.nn import functional as F

import tauflow
from tauflow.cells import AbstractCell, CfCCell, LTCCell, Precomputed
from tauflow.errors import ArgumentError, BackendError, ShapeError
from tauflow.kernels import KernelCall, get_kernels, select_kernel
from tauflow.kernels.trace.operator import run_traced
from tauflow.sequence import reference_loop

INPUTS, NEURONS = 3, 4


class Leaky(AbstractCell):
    """What users begin with; ``change`` is done to what the step would return."""

    compiled = True

    def __init__(
        self, input_size=INPUTS, hidden_size=NEURONS, change=None, gain=1.0, parameter=None
    ):
        super().__init__(input_size, hidden_size)
        self.linear = nn.Linear(input_size + hidden_size, hidden_size)
        self.change, self.gain, self._parameter = change, gain, parameter
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("mean", torch.zeros(hidden_size))

    def step(self, x, h, dt):
        u = self.gain * torch.tanh(self.linear(torch.cat((x, h), 1)))
        after = u + (h - u) * torch.exp(-dt)
        return after if self.change is None else self.change(self, x, h, after)


class FitzHughNagumo(AbstractCell):
    """Two parts of the state, a cube, and a readout."""

    compiled = True

    state_names = ("v", "w")

    def __init__(self):
        super().__init__(INPUTS, NEURONS)
        self.inward = nn.Linear(INPUTS, NEURONS)
        self.log_tau = nn.Parameter(torch.full((NEURONS,), 0.3))
        self.outward = nn.Parameter(torch.randn(NEURONS))

    def step(self, x, h, dt):
        v, w = h.chunk(2, dim=1)
        for _ in range(2):
            slope = v - v**3 / 3 - w + self.inward(x)
            v, w = v + 0.1 * dt * slope, w + 0.1 * dt * (v + 0.7 - 0.8 * w) * self.log_tau.exp()
        return torch.cat((v, w), 1)

    def readout(self, h):
        return self.outward * h[..., :NEURONS]


class Normalised(AbstractCell):
    """A gated cell with normalised layers, one of them without scales."""

    compiled = True

    def __init__(self):
        super().__init__(INPUTS, NEURONS)
        self.linear = nn.Linear(INPUTS + NEURONS, 2 * NEURONS)
        self.norm = nn.LayerNorm(2 * NEURONS)
        with torch.no_grad():
            self.norm.weight.uniform_(0.5, 1.5), self.norm.bias.uniform_(-0.5, 0.5)

    def step(self, x, h, dt):
        gate, new = self.norm(self.linear(torch.cat((x, h), 1))).chunk(2, 1)
        new = torch.tanh(new) * torch.sigmoid(gate) * dt
        return F.layer_norm(h + new, (NEURONS,))


class Products(AbstractCell):
    """Products written as sums over indices, and less usual functions."""

    compiled = True

    def __init__(self):
        super().__init__(INPUTS, NEURONS)
        self.W, self.A = (
            nn.Parameter(torch.randn(INPUTS, NEURONS)),
            nn.Parameter(torch.eye(NEURONS)),
        )

    def step(self, x, h, dt):
        u = torch.einsum("bi,ij->bj", x, self.W) + torch.einsum("jk,bk->bj", self.A, h)
        u = F.elu(u, 0.7) + F.leaky_relu(u - 0.2, 0.1) - torch.rsqrt(u * u + 1)
        return (torch.selu(u) + dt * (h.abs() + 1) ** -3) / (1 + u**4)


class Observing(AbstractCell):
    """Takes the mask of measured features."""

    compiled = True

    uses_observed = True

    def __init__(self):
        super().__init__(INPUTS, NEURONS)
        self.W = nn.Parameter(torch.randn(NEURONS, INPUTS))
        self.W_seen = nn.Parameter(torch.randn(NEURONS, INPUTS))

    def step(self, x, h, dt, observed=None):
        observed = torch.ones_like(x, dtype=torch.bool) if observed is None else observed
        u = F.linear(torch.where(observed, x, 0.0), self.W) + F.linear(observed.to(x), self.W_seen)
        return torch.lerp(h, torch.tanh(u), torch.sigmoid(dt))


class Precomputing(AbstractCell):
    """Does for all samples at once what the state does not touch."""

    compiled = True

    def __init__(self):
        super().__init__(INPUTS, NEURONS)
        self.inward, self.W = (
            nn.Linear(INPUTS, NEURONS),
            nn.Parameter(torch.randn(NEURONS, NEURONS)),
        )

    def precompute(self, x, dt):
        return Precomputed((self.inward(x), torch.exp(-dt)), (0.5 * self.W.T,))

    def update(self, h, u, decay, inner):
        return decay * h + torch.tanh(u + h @ inner)


class OtherLTC(LTCCell):
    """A cell of the library with something added to its step."""

    compiled = True

    def step(self, x, h, dt):
        return 0.9 * super().step(x, h, dt) + 0.1 * torch.sin(h)


class Free(AbstractCell):
    """Without parameters."""

    compiled = True

    def __init__(self):
        super().__init__(INPUTS, INPUTS)

    def step(self, x, h, dt):
        return x + h * torch.exp(-dt)


CELLS = [
    *(Leaky, FitzHughNagumo, Normalised, Products, Observing, Precomputing, Free),
    lambda: OtherLTC(INPUTS, NEURONS),
]


def call_of(cell, rows=3, steps=20, *, masked=False):
    x = torch.randn(rows, steps, cell.input_size).requires_grad_()
    h = (0.3 * torch.randn(rows, cell.state_size)).requires_grad_()
    dt = (torch.rand(rows, steps, 1) + 0.1).requires_grad_()
    mask = torch.rand(rows, steps) < 0.7 if masked else None
    seen = torch.rand(x.shape) < 0.6 if cell.uses_observed else None
    return KernelCall(cell, x, h, dt, mask, seen)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(3)


@pytest.mark.parametrize("build", CELLS)
@pytest.mark.parametrize(("rows", "masked"), [(1, False), (3, True), (11, False)])
def test_it_is_the_step(build, rows, masked):
    call = call_of(build(), rows, masked=masked)
    row = select_kernel(call, "auto")
    assert row is not None
    assert row.function is run_traced
    expected = values_and_gradients(reference_loop, call)
    for _ in range(2):
        assert_close(values_and_gradients(row.run, call), expected)
    with torch.no_grad():
        assert_close(select_kernel(replace(call, mask=None), "numba").run(call), expected[:2])


@pytest.mark.parametrize("threads", [2, 3])
def test_any_number_of_threads(threads):
    call, before = call_of(Normalised(), 17), torch.get_num_threads()
    expected = values_and_gradients(reference_loop, call)
    torch.set_num_threads(threads)
    try:
        assert_close(values_and_gradients(select_kernel(call, "auto").run, call), expected)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("rows", [3, 4, 5])
@pytest.mark.parametrize("threads", [1, 2])
def test_parameters_spread_over_rows_have_gradients_of_their_own(rows, threads):
    """Slices of a batch have other numbers of rows."""

    def spread(cell, x, h, after):
        return cell.linear.bias.expand(len(h), -1) * after + torch.tanh(h)

    call, before = call_of(Leaky(change=spread), rows), torch.get_num_threads()
    expected = values_and_gradients(reference_loop, call)
    torch.set_num_threads(threads)
    try:
        row = select_kernel(call, "auto")
        assert row is not None
        assert_close(values_and_gradients(row.run, call), expected)
    finally:
        torch.set_num_threads(before)


def test_slices_that_begin_before_the_first_neuron():
    def cut(cell, x, h, after):
        return torch.tanh(after * h[:, -9:] + torch.cat((h[:, -3:], after[:, :1]), 1))

    call = call_of(Leaky(change=cut))
    row = select_kernel(call, "auto")
    assert row is not None
    assert_close(values_and_gradients(row.run, call), values_and_gradients(reference_loop, call))


class Turned(AbstractCell):
    """Multiplies from the left, so that rows are where neurons were."""

    compiled = True

    def __init__(self):
        super().__init__(INPUTS, NEURONS)
        self.linear = nn.Linear(INPUTS + NEURONS, NEURONS)
        self.W = nn.Parameter(torch.randn(NEURONS, NEURONS))

    def step(self, x, h, dt):
        u = torch.tanh(self.linear(torch.cat((x, h), 1)))
        return torch.tanh(self.W @ h.t()).t() + 0.1 * (self.W.t() @ u.t()).t()


@pytest.mark.parametrize("rows", [3, NEURONS, 5])
def test_as_many_rows_as_neurons_are_no_others(rows):
    call = call_of(Turned(), rows)
    row = select_kernel(call, "auto")
    assert row is not None
    assert_close(values_and_gradients(row.run, call), values_and_gradients(reference_loop, call))


def test_checkpoints_and_batches_that_end_at_different_times():
    results = []
    for backend, every in (("reference", None), ("auto", 13), ("auto", None)):
        torch.manual_seed(0)
        rnn = tauflow.RNN(Normalised(), backend=backend, checkpoint_every=every)
        x = torch.randn(6, 40, INPUTS)
        y, last = rnn(x, lengths=[40, 38, 13, 5, 2, 1])
        ((y**3).sum() + (last**3).sum()).backward()
        results.append([y, last, *(p.grad for p in rnn.parameters())])
    for outcome in results[1:]:
        assert_close(outcome, results[0])


def test_plain_steps_are_taken_where_they_are_faster():
    call = call_of(Leaky(), steps=7)
    assert select_kernel(call, "auto") is None
    assert select_kernel(call, "numba").function is run_traced
    longer = call_of(Leaky(), steps=8)
    assert select_kernel(longer, "auto") is not None
    assert select_kernel(longer, "reference") is None
    with pytest.raises(BackendError, match="no kernel for Leaky"):
        select_kernel(longer, "triton")


@pytest.mark.parametrize("learns", [True, False])
def test_cells_of_other_options_have_other_traces(learns):
    cell, seen = Leaky(), []
    with nullcontext() if learns else torch.no_grad():
        for gain in (1, 2.0, 6):
            call = call_of(cell.replace(gain=gain), steps=30)
            row = select_kernel(call, "auto")
            assert row is not None
            seen.append(row.run(call)[0])
            assert_close([seen[-1]], reference_loop(call)[:1])
    with pytest.raises(ArgumentError, match="gain is fixed when it is built"):
        cell.gain = 3.0


class Noisy(Leaky):
    """Reads what changes from step to step, and therefore does not say that it is compiled."""

    compiled = False

    def step(self, x, h, dt):
        return super().step(x, h, dt) + 0.1 * random.random()


def test_a_cell_that_does_not_say_so_is_stepped():
    rnn = tauflow.RNN(Noisy())
    with torch.no_grad():
        rnn.cell.linear.weight.zero_()
        rnn.cell.linear.bias.zero_()
        y, _ = rnn(torch.zeros(1, 40, INPUTS), torch.zeros(1, NEURONS))
    added = y[0, 1:, 0] - y[0, :-1, 0] * np.exp(-1)
    assert len({round(float(number), 6) for number in added}) > 30
    with pytest.raises(BackendError, match="Noisy does not say compiled = True"):
        select_kernel(call_of(rnn.cell), "numba")
    assert "does not say compiled = True" in str(rnn.explain(torch.zeros(1, 40, INPUTS)))


def test_a_compiled_cell_reads_its_globals_once():
    seen = []

    def counted(cell, x, h, after):
        seen.append(1)
        return after

    rnn = tauflow.RNN(Leaky(change=counted))
    for _ in range(3):
        rnn(torch.zeros(2, 30, INPUTS))
    assert len(seen) < 30


def changed_in_place(cell, x, h, after):
    h.mul_(0.5)
    return after


REFUSED = {
    "noise": (lambda cell, x, h, after: after + torch.randn_like(after), "draws numbers"),
    "a buffer in place": (lambda cell, x, h, after: after + cell.count.add_(1), "lasts longer"),
    "a branch": (lambda cell, x, h, after: after if h.sum() > 0 else h + 1, "looks at numbers"),
    "a number": (lambda cell, x, h, after: after * float(cell.linear.bias[0]), "looks at numbers"),
    "a choice": (lambda cell, x, h, after: after + h[h > 0].sum(), "looks at numbers"),
    "a sort": (lambda cell, x, h, after: after.sort(1)[0], "int64"),
    "wide numbers": (lambda cell, x, h, after: after.double().cumsum(1).float(), "float64"),
    "many products": (
        lambda cell, x, h, after: (after[:, :, None] @ h[:, None, :]).mean(2) + after,
        "several matrices",
    ),
}


@pytest.mark.parametrize(("change", "reason"), REFUSED.values(), ids=REFUSED)
def test_a_step_that_does_more_than_a_recording_tells_is_taken_every_time(change, reason):
    results = []
    for backend in ("auto", "reference"):
        torch.manual_seed(0)
        rnn = tauflow.RNN(Leaky(change=change), backend=backend)
        x, h = torch.randn(4, 30, INPUTS), torch.randn(4, NEURONS)
        y, last = rnn(x, h)
        (y.sum() + last.sum()).backward()
        with torch.no_grad():
            again, _ = rnn(x, h)
        statistics = [rnn.cell.count, rnn.cell.mean]
        grads = [parameter.grad for parameter in rnn.parameters()]
        results.append([y, last, again, *grads, *statistics])
        if backend == "auto":
            call = KernelCall(rnn.cell, x, h, torch.ones(4, 30, 1))
            assert re.search(reason, get_kernels(rnn.cell)[0].unsupported_reason(call))
            with pytest.raises(BackendError, match=reason):
                select_kernel(call, "numba")
    for value, other in zip(*results, strict=True):
        torch.testing.assert_close(value, other, rtol=0, atol=0)


def test_inference_mode_is_as_good():
    call = call_of(Leaky(), steps=30)
    with torch.inference_mode():
        inside = call_of(call.cell, steps=30)
        for each in (call, inside):
            row = select_kernel(each, "auto")
            assert row is not None
            assert_close(row.run(each), reference_loop(each))
    with torch.no_grad():
        assert select_kernel(call, "auto") is not None
    assert select_kernel(call, "auto") is not None


@pytest.mark.parametrize("probability", [0.3, 0.5, 1.0])
def test_dropout_draws_what_the_plain_loop_draws(probability):
    cell = Leaky(change=lambda cell, x, h, after: F.dropout(after, probability, cell.training))
    call = call_of(cell, steps=30)
    results = []
    for run in (select_kernel(call, "numba").run, reference_loop, reference_loop):
        torch.manual_seed(len(results) // 2)
        results.append([*values_and_gradients(run, call), torch.rand(3)])
    assert_close(*results[:2])
    same = torch.equal(results[0][0], results[2][0])
    assert same == (probability == 1.0)


def test_hooks_of_a_users_part_are_called_at_every_step():
    cell, seen = Leaky(), []
    rnn = tauflow.RNN(cell)
    cell.linear.register_forward_hook(lambda *_: seen.append(1))
    rnn(torch.zeros(2, 30, INPUTS))
    assert len(seen) == 30


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (changed_in_place, ArgumentError, "in place"),
        (lambda cell, x, h, after: after[:1], ShapeError, "the new state has shape"),
        (lambda cell, x, h, after: None, ArgumentError, "returned None"),
        (lambda cell, x, h, after: after @ x, RuntimeError, "shape"),
        (lambda cell, x, h, after: {}["gone"], KeyError, "gone"),
    ],
)
def test_errors_are_those_of_plain_steps(change, error, words):
    rnn = tauflow.RNN(Leaky(change=change))
    x = torch.zeros(3 * torch.get_num_threads(), 30, INPUTS)  # a thread has more than one
    with pytest.raises(error, match=words):
        rnn(x)


def test_hooks_and_gradients_of_parameters_are_left_as_they_are():
    call, seen = call_of(Leaky()), []
    call.cell.linear.weight.register_hook(seen.append)
    assert select_kernel(call, "auto") is not None
    assert not seen
    assert all(leaf.grad is None for leaf in leaves(call))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_dtypes_take_plain_steps(dtype):
    rnn = tauflow.RNN(Leaky()).to(dtype)
    x = torch.randn(2, 30, INPUTS).to(dtype)
    y, _ = rnn(x)
    assert y.dtype is dtype
    h = x.new_zeros(2, NEURONS)
    assert select_kernel(KernelCall(rnn.cell, x, h, x.new_ones(2, 30, 1)), "auto") is None


def test_a_cell_with_weights_of_two_dtypes_is_not_traced():
    cell = Leaky(change=lambda cell, x, h, after: after.to(cell.wide).mul(cell.wide).to(h))
    cell.wide = nn.Parameter(torch.ones(NEURONS, dtype=torch.float64))
    call = call_of(cell, steps=30)
    assert select_kernel(call, "auto") is None
    assert "float32" in get_kernels(cell)[0].unsupported_reason(call)


def test_a_cell_of_the_library_does_not_come_here():
    assert get_kernels(CfCCell(2, 3)) != get_kernels(Leaky())
    assert all(row.cell is CfCCell for row in get_kernels(CfCCell(2, 3)))
