"""Sequences that start again inside a batch, and single steps: each equals a loop by hand."""

from itertools import pairwise

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import tauflow
from tauflow.errors import ArgumentError, DtypeError, NonFiniteError, ShapeError
from tauflow.sequence import SequenceModule, episodes

B, T, D, N = 4, 7, 3, 5
MODULES = {
    "cfc": ("cfc", {}),
    "reference": ("cfc", {"backend": "reference", "backbone_units": 6}),
    "lstm": ("lstm", {"num_layers": 2}),
    "gru-d": ("gru-d", {}),
    "start": ("gnode", {"initial_state": "affine"}),
    "both": ("gru", {"bidirectional": True, "num_layers": 2, "proj_size": 2}),
    "last": ("lstm", {"return_sequences": False}),
}


def module(name: str, **more: object) -> SequenceModule:
    torch.manual_seed(0)
    catalog_name, options = MODULES[name]
    return tauflow.build(catalog_name, D, N, **{**options, **more}).double()


def call(seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "x": torch.randn(B, T, D, generator=generator, dtype=torch.float64),
        "dt": torch.rand(B, T, generator=generator, dtype=torch.float64),
        "episode_start": torch.rand(B, T, generator=generator) < 0.4,
        "mask": torch.rand(B, T, generator=generator) < 0.7,
    }


def by_hand(rnn, x, hx=None, *, dt, episode_start, mask=None):
    """Run every episode alone, one after the other; states go on where none begins."""
    ys, hs = [], []
    for row in range(x.shape[0]):
        begins, due = [], False
        for k in range(x.shape[1]):
            due |= bool(episode_start[row, k])
            begins.append(due and (mask is None or bool(mask[row, k])))
            due &= not begins[-1]
        if rnn.bidirectional and mask is not None and bool(mask[row].any()):
            # what is masked before the first sample comes after it backwards, and keeps its output
            earliest = int(mask[row].int().argmax())
            begins[0] |= begins[earliest]
            begins[earliest] &= earliest == 0
        cuts = [0, *(k for k in range(1, x.shape[1]) if begins[k]), x.shape[1]]
        outputs, first, last = [], None, None
        for begin, end in pairwise(cuts):
            goes_on = hx is not None and begin == 0 and not begins[0]
            piece = slice(begin, end)
            seen = None if mask is None else mask[row, piece]
            start = hx[row] if goes_on else None
            y, h = rnn(x[row, piece], start, dt=dt[row, piece], mask=seen)
            outputs.append(y)
            first, last = h if first is None else first, h
        ys.append(torch.cat(outputs) if rnn.return_sequences else outputs[-1])
        if rnn.bidirectional:  # the state backwards in time is that of the first episode
            sizes = [cell.state_size for cell in rnn.cells]
            parts = zip(last.split(sizes), first.split(sizes), strict=True)
            last = torch.cat([pair[i % 2] for i, pair in enumerate(parts)])
        hs.append(last)
    return torch.stack(ys), torch.stack(hs)


@pytest.mark.sampled(20)
@pytest.mark.parametrize("most_padding", [0, 4])  # one call of all episodes, or several
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", MODULES)
def test_a_batch_with_episodes_equals_each_alone(monkeypatch, name, masked, most_padding):
    monkeypatch.setattr(episodes, "_MAX_PADDING_RATIO", most_padding)
    rnn, arguments_of_call = module(name), call()
    if not masked:
        del arguments_of_call["mask"]
    starts = [None] if rnn.bidirectional else [None, torch.rand(B, rnn.state_size).double()]
    for hx in starts:
        leaf = arguments_of_call["x"].clone().requires_grad_()
        arguments = {**arguments_of_call, "x": leaf}
        actual, expected = rnn(hx=hx, **arguments), by_hand(rnn, hx=hx, **arguments)
        torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-12)
        leaves = [leaf, *(p for p in rnn.parameters())]
        grads = [
            torch.autograd.grad((y.sin().sum() + h.square().sum()), leaves, allow_unused=True)
            for y, h in (actual, expected)
        ]
        torch.testing.assert_close(*grads, rtol=1e-8, atol=1e-10)


def test_the_state_backwards_in_time_enters_the_last_episode():
    rnn, arguments = module("both"), call()
    del arguments["mask"]
    arguments["episode_start"][:, 3] = True
    hx = torch.rand(B, rnn.state_size).double()
    y, _ = rnn(hx=hx, **arguments)
    plain, _ = rnn(**arguments)
    layer = rnn.cells[-1].output_size
    assert layer == N
    half = rnn.output_size // 2
    changed = (y - plain).abs().amax(-1) > 1e-12
    assert changed[:, -1].all()
    assert not (y - plain)[~arguments["episode_start"][:, 0]][:, :3, :half].eq(0).all()


@pytest.mark.parametrize("at", [0, 2])
def test_an_episode_may_begin_with_the_first_sample_after_padding(at):
    rnn = module("both")
    torch.manual_seed(4)
    x, dt = torch.randn(2, 8, D).double(), torch.rand(2, 8).double()
    mask = torch.ones(2, 8, dtype=torch.bool)
    mask[0, :2] = False
    episode_start = torch.zeros_like(mask)
    episode_start[0, at] = True
    y, h = rnn(x, dt=dt, mask=mask)
    again, last = rnn(x, dt=dt, mask=mask, episode_start=episode_start)
    torch.testing.assert_close((again[mask], last), (y[mask], h))
    hx = torch.rand(2, rnn.state_size).double()  # forwards what begins with a sample forgets it
    y, h = rnn(x, hx, dt=dt, mask=mask, episode_start=episode_start)
    alone, end = rnn(x[:1, 2:], _forgetting_forwards(rnn, hx)[:1], dt=dt[:1, 2:])
    torch.testing.assert_close((y[:1, 2:], h[:1]), (alone, end))


def _forgetting_forwards(rnn, hx):
    """Return a state with the initial one of forward cells, and that given of backward ones."""
    sizes = [cell.state_size for cell in rnn.cells]
    starts = rnn.initial_state(len(hx)).split(sizes, dim=1)
    parts = hx.split(sizes, dim=1)
    return torch.cat([parts[i] if i % 2 else starts[i] for i in range(len(sizes))], dim=1)


def test_no_reset_changes_nothing_and_neither_form_matters():
    rnn, arguments = module("cfc"), call()
    del arguments["mask"]
    never = torch.zeros(B, T, dtype=torch.bool)
    expected = rnn(arguments["x"], dt=arguments["dt"])
    torch.testing.assert_close(
        rnn(arguments["x"], dt=arguments["dt"], episode_start=never), expected
    )
    lengths = torch.tensor([3, 7, 2, 5])
    packed, episode_start = (
        pack_padded_sequence(arguments[name], lengths, batch_first=True, enforce_sorted=False)
        for name in ("x", "episode_start")
    )
    y, h = rnn(packed, dt=arguments["dt"], episode_start=episode_start)
    padded, state = rnn(
        arguments["x"],
        dt=arguments["dt"],
        episode_start=arguments["episode_start"],
        lengths=lengths,
    )
    unpacked, _ = pad_packed_sequence(y, batch_first=True)
    there = torch.arange(T) < lengths[:, None]
    torch.testing.assert_close(unpacked[there], padded[there])
    torch.testing.assert_close(h, state)


def test_what_stands_in_one_episode_stays_there():
    rnn, arguments = module("lstm"), call()
    del arguments["mask"]
    arguments["episode_start"][:] = False
    arguments["episode_start"][0, [2, 3]] = True
    expected, _ = rnn(**arguments)
    arguments["x"][0, 2, 0] = torch.inf
    y, _ = rnn(**arguments)
    assert (y != expected).any(-1).nonzero().tolist() == [[0, 2]]


def test_measured_features_go_with_their_episodes():
    rnn, arguments = module("gru-d"), call()
    observed = torch.rand(B, T, D, generator=torch.Generator().manual_seed(1)) < 0.5
    y, _ = rnn(
        arguments["x"],
        dt=arguments["dt"],
        observed=observed,
        episode_start=arguments["episode_start"],
    )
    first = int(arguments["episode_start"][1].nonzero()[-1])
    alone, _ = rnn(
        arguments["x"][1, first:], dt=arguments["dt"][1, first:], observed=observed[1, first:]
    )
    torch.testing.assert_close(y[1, first:], alone)


def test_an_overflow_is_told_by_the_callers_places():
    rnn, x = tauflow.CTRNN(D, N, solver="rk4", backend="reference"), torch.ones(B, T, D)
    dt, episode_start = torch.ones(B, T), torch.zeros(B, T, dtype=torch.bool)
    dt[2, 5], episode_start[2, 4] = 1e15, True
    with pytest.raises(NonFiniteError, match=r"in sequence 2, whose time step of 1e\+15 at step 5"):
        rnn(x, dt=dt, episode_start=episode_start)


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"episode_start": torch.zeros(B, T)}, DtypeError, "episode_start has dtype torch.float32"),
        (
            {"episode_start": torch.zeros(B, T - 1).bool()},
            ShapeError,
            r"episode_start has shape \(4, 6\)",
        ),
        (
            {"t": torch.arange(T).expand(B, T)},
            ArgumentError,
            "with episode_start, give dt .* instead of t",
        ),
    ],
)
def test_resets_that_do_not_fit_are_refused(arguments, error, match):
    call_arguments = {"episode_start": torch.zeros(B, T, dtype=torch.bool), **arguments}
    with pytest.raises(error, match=rf"^GRU\.forward: {match}"):
        tauflow.GRU(D, N)(torch.zeros(B, T, D), **call_arguments)


@pytest.mark.parametrize("name", ["cfc", "reference", "lstm", "gru-d", "last"])
def test_steps_equal_the_sequence_with_gradients(name):
    rnn, arguments = module(name), call()
    x = arguments["x"].requires_grad_()
    del arguments["mask"]
    h, outputs = rnn.initial_state(B), []
    for k in range(T):
        y, h = rnn.step(
            x[:, k], h, arguments["dt"][:, k], episode_start=arguments["episode_start"][:, k]
        )
        outputs.append(y)
    expected, state = module(name, return_sequences=True)(**arguments)
    torch.testing.assert_close(torch.stack(outputs, 1), expected)
    torch.testing.assert_close(h, state)
    first = torch.autograd.grad(outputs[-1].sum(), x)[0]
    torch.testing.assert_close(first, torch.autograd.grad(expected[:, -1].sum(), x)[0])


def test_steps_take_single_samples_parts_and_observations():
    rnn, arguments = module("lstm"), call()
    x, dt = arguments["x"], arguments["dt"]
    y, h = rnn.step(x[:, 0], None, dt[:, 0])
    single, _ = rnn.step(x[1, 0], None, dt[1, 0])
    torch.testing.assert_close(single, y[1])
    done = torch.tensor([True, False, False, True])
    expected, _ = rnn.step(x[:, 1], h, episode_start=done)
    by_parts, _ = rnn.step(x[:, 1], rnn.to_torch_state(h), episode_start=done)
    assert torch.equal(by_parts, expected)
    torch.testing.assert_close(rnn.step(x[0, 1], h[0], episode_start=done[0])[0], expected[0])
    gru_d, seen = module("gru-d"), torch.tensor([True, False, True])
    torch.testing.assert_close(
        gru_d.step(x[0, 0], observed=seen)[0], gru_d(x[0, :1], observed=seen[None])[0][0]
    )


def test_steps_refuse_states_and_episodes_of_other_shapes():
    rnn, x = module("lstm"), call()["x"]
    done, S = torch.zeros(B, dtype=torch.bool), rnn.state_size
    for shape in [(1, S), (S,), (B, S - 1), (B + 1, S)]:
        with pytest.raises(ShapeError, match=rf"LSTM\.step: h has shape .* expected \({B}, {S}\)"):
            rnn.step(x[:, 0], torch.zeros(shape).double(), episode_start=done)
    with pytest.raises(ShapeError, match=r"LSTM\.step: episode_start has shape \(1,\)"):
        rnn.step(x[:, 0], episode_start=done[:1])
    with pytest.raises(DtypeError, match=r"episode_start has dtype torch\.float32"):
        rnn.step(x[:, 0], episode_start=done.float())


@pytest.mark.slow
def test_steps_under_transforms_of_functions():
    rnn, arguments = module("cfc"), call()
    x, dt, episode_start = (
        arguments["x"][:, 0],
        arguments["dt"][:, 0],
        arguments["episode_start"][:, 0],
    )
    h = torch.rand(B, N).double()
    expected, _ = rnn.step(x, h, dt, episode_start=episode_start)

    def step(x, h, dt, episode_start):
        return rnn.step(x, h, dt, episode_start=episode_start)[0]

    torch.testing.assert_close(torch.func.vmap(step)(x, h, dt, episode_start), expected)
    compiled = torch.compile(step, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x, h, dt, episode_start), expected)


@pytest.mark.parametrize(
    ("step", "error", "match"),
    [
        (
            lambda: tauflow.GRU(D, N, bidirectional=True).step(torch.zeros(D)),
            ArgumentError,
            "whole",
        ),
        (lambda: tauflow.GRU(D, N).step(torch.zeros(1, 1, D)), ShapeError, "x has shape"),
        (
            lambda: tauflow.GRU(D, N).step([0.0] * D),
            DtypeError,
            "x must be a torch.Tensor, got list",
        ),
        (
            lambda: tauflow.GRU(D, N).step(
                torch.zeros(2, D), torch.zeros(2, N), episode_start=torch.zeros(1).bool()
            ),
            ShapeError,
            r"episode_start has shape \(1,\), expected \(2,\)",
        ),
        (
            lambda: module("start").initial_state(2),
            ArgumentError,
            "GNODECell derives its initial state from the first sample",
        ),
    ],
)
def test_steps_that_do_not_fit_are_refused(step, error, match):
    with pytest.raises(error, match=match):
        step()


def test_a_batch_without_sequences_may_have_episodes():
    y, h = module("cfc")(
        torch.empty(0, T, D).double(), episode_start=torch.zeros(0, T, dtype=torch.bool)
    )
    assert (y.shape[0], h.shape[0]) == (0, 0)
