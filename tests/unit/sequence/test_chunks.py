"""Chunks of a sequence side by side: the result is that of the loop, or the loop's own."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import tauflow
from tauflow.cells import AbstractCell
from tauflow.errors import ArgumentError
from tauflow.sequence import RNN, Chunks, SequenceModule, run_in_parallel

EPS = torch.finfo(torch.float64).eps


class Fading(AbstractCell):
    """Keeps a share of its state, which the first feature of the input may set to all of it."""

    paper = "none"

    def __init__(self, input_size: int, hidden_size: int, keep: float = 0.5) -> None:
        super().__init__(input_size, hidden_size)
        self.W = nn.Parameter(torch.linspace(-1, 1, hidden_size * input_size).view(hidden_size, -1))
        self.keep = nn.Parameter(torch.tensor(keep))

    def step(self, x: Tensor, h: Tensor, dt: Tensor) -> Tensor:
        keep = torch.where(x[:, :1] > 10, torch.ones_like(self.keep), self.keep)
        return keep**dt * h + x @ self.W.T


class Noisy(Fading):
    """Draws random numbers while it is trained."""

    def step(self, x: Tensor, h: Tensor, dt: Tensor) -> Tensor:
        return super().step(nn.functional.dropout(x, 0.5, self.training), h, dt)


def _call(
    rnn: SequenceModule, x: Tensor, chunks: Chunks | None, **options: object
) -> tuple[Tensor, Tensor]:
    """Return outputs and state, in chunks if there are any."""
    if chunks is None:
        y, h = rnn(x, **options)
    else:
        y, h = run_in_parallel(rnn, x, chunks=chunks, **options)  # type: ignore[arg-type]
    assert isinstance(y, Tensor)
    return y, h


def _run(
    rnn: SequenceModule, x: Tensor, chunks: Chunks | None, **options: object
) -> tuple[Tensor, ...]:
    """Return outputs, last state, and the gradients of inputs, gaps, start and parameters."""
    x = x.clone().requires_grad_()
    leaves = {"x": x, **{k: v for k, v in options.items() if getattr(v, "requires_grad", False)}}
    y, h = _call(rnn, x, chunks, **options)
    pulls = [torch.linspace(-1, 1, part.numel(), dtype=part.dtype).view_as(part) for part in (y, h)]
    wanted = [*leaves.values(), *rnn.parameters()]
    gradients = torch.autograd.grad([y, h], wanted, pulls, allow_unused=True)
    return (y.detach(), h.detach(), *(g for g in gradients if g is not None))


def _same(actual: tuple[Tensor, ...], expected: tuple[Tensor, ...], ulps: float = 2000) -> None:
    assert len(actual) == len(expected)
    for ours, theirs in zip(actual, expected, strict=True):
        scale = max(1.0, float(theirs.abs().max()))
        torch.testing.assert_close(ours, theirs, rtol=0, atol=ulps * EPS * scale)


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("cfc", {}),
        ("ltc", {"num_layers": 2}),
        ("gru", {"bidirectional": True}),
        ("ct-rnn", {"proj_size": 3, "checkpoint_every": 16}),
        ("gru-d", {}),
        ("cfc-mmrnn", {"return_sequences": False}),
    ],
)
def test_values_and_every_gradient_are_those_of_the_loop(
    name: str, options: dict[str, object]
) -> None:
    torch.manual_seed(0)
    rnn = tauflow.build(name, 3, 4, **options).double()
    with torch.no_grad():  # so that they forget soon
        for parameter in rnn.parameters():
            parameter.mul_(0.5)
    B, T = 2, 403
    x, mask = torch.randn(B, T, 3, dtype=torch.float64), torch.rand(B, T) < 0.9
    dt = (torch.rand(B, T, dtype=torch.float64) + 0.5).requires_grad_()
    hx = torch.randn(B, rnn.state_size, dtype=torch.float64, requires_grad=True)
    arguments: dict[str, object] = {"dt": dt, "mask": mask, "hx": hx}
    if rnn.cell.uses_observed:
        arguments["observed"] = torch.rand(B, T, 3) < 0.7
    chunks = Chunks(length=100, burn_in=100, budget=2.0)
    _same(_run(rnn, x, chunks, **arguments), _run(rnn, x, None, **arguments))
    for report in rnn.parallel_report():
        assert (report.chunks, report.length, report.sequential_from) == (4, 100, None)
        assert report.adjoint_iterations >= 1
        assert report.residual <= 16 * EPS * 10
    with torch.no_grad():
        ours, theirs = (_call(rnn, x, way, **arguments) for way in (chunks, None))
    _same(tuple(ours), tuple(theirs))


@settings(max_examples=25, deadline=None)
@given(
    steps=st.integers(1, 90),
    length=st.integers(1, 40),
    burn_in=st.integers(1, 50),
    keep=st.floats(0.01, 0.8),
    budget=st.floats(0.01, 3.0),
)
def test_any_cut_gives_the_same(
    steps: int, length: int, burn_in: int, keep: float, budget: float
) -> None:
    rnn = RNN(Fading(2, 3, keep)).double()
    x = torch.sin(torch.arange(2 * steps * 2, dtype=torch.float64)).view(2, steps, 2)
    chunks = Chunks(length, burn_in, budget=budget)
    _same(_run(rnn, x, chunks), _run(rnn, x, None))


def test_a_network_that_remembers_longer_takes_more_sweeps() -> None:
    rnn = RNN(Fading(2, 3, 0.9)).double()
    x = torch.sin(torch.arange(1600, dtype=torch.float64)).view(1, 800, 2)
    expected = _run(rnn, x, None)
    _same(_run(rnn, x, Chunks(length=50, burn_in=10, budget=2.0)), expected)
    (report,) = rnn.parallel_report()
    assert report.iterations > 3
    assert report.adjoint_iterations > 3
    assert report.sequential_from is None
    assert report.rate == pytest.approx(0.9, abs=0.01)
    with torch.no_grad():
        exact, _ = rnn(x)
        y, _ = _call(rnn, x, Chunks(length=50, burn_in=10, budget=2.0))
    assert (y - exact).abs().max() <= report.bound + 20 * EPS


def test_what_is_large_elsewhere_says_nothing_of_a_seam() -> None:
    """Of another sequence, of another neuron, and what is not finite."""
    rnn = RNN(Fading(2, 3, 0.9)).double()
    x = torch.sin(torch.arange(1600, dtype=torch.float64)).view(1, 800, 2).repeat(2, 1, 1)
    cut = Chunks(length=50, burn_in=10, budget=2.0)
    for row, large in ((1, 1e12), (1, torch.inf), (0, 1e12)):
        x[1, -1] = 0.0
        x[row, -1, 1] = large
        with torch.no_grad():
            rnn.cell.W[0, 1] = 0.0  # so that one neuron of the sequence stays small
            exact, y = rnn(x)[0], _call(rnn, x, cut)[0]
        small = slice(None) if row else slice(0, 1)
        assert (y - exact)[0, :, small].abs().max() <= 1e3 * EPS
        rnn._chunk_history.clear()


@pytest.mark.parametrize("grad", [True, False])
def test_a_network_that_never_forgets_runs_step_by_step(grad: bool) -> None:
    rnn = RNN(Fading(2, 3, 1.0)).double()
    x = torch.sin(torch.arange(800, dtype=torch.float64)).view(1, 400, 2)
    with torch.set_grad_enabled(grad):
        y, h = _call(rnn, x, Chunks(length=50))
        expected = rnn(x)
    torch.testing.assert_close((y, h), expected, rtol=0, atol=0 if grad else 20 * EPS)
    (report,) = rnn.parallel_report()
    assert report.sequential_from is not None
    assert "did not agree" in str(report.reason)


@pytest.mark.thorough
def test_a_chaotic_network_runs_step_by_step() -> None:
    torch.manual_seed(0)
    rnn = tauflow.CTRNN(2, 20).double()
    with torch.no_grad():
        rnn.cell.W_h.normal_(std=6.0 / 20**0.5)
    x = torch.randn(1, 600, 2, dtype=torch.float64)
    expected = rnn(x, dt=1.0)
    torch.testing.assert_close(_call(rnn, x, Chunks(50), dt=1.0), expected, rtol=0, atol=0)
    assert rnn.parallel_report()[0].sequential_from == 0


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("first", [90, 250])
def test_only_what_follows_a_stretch_of_long_memory_runs_step_by_step(
    grad: bool, first: int
) -> None:
    rnn = RNN(Fading(2, 3, 0.3)).double()
    x = torch.sin(torch.arange(800, dtype=torch.float64)).view(1, 400, 2)
    x[0, first:, 0] = 20.0  # from here on it integrates
    chunks = Chunks(length=40, burn_in=40)
    if grad:
        _same(_run(rnn, x, chunks), _run(rnn, x, None))
    else:
        with torch.no_grad():
            torch.testing.assert_close(_call(rnn, x, chunks), rnn(x), rtol=1e-13, atol=1e-13)
    (report,) = rnn.parallel_report()
    small = grad and first == 90  # too little to build its graph once more
    after = 0 if small else 40 * (1 + -(-first // 40))
    assert report.sequential_from is not None
    assert (report.sequential_from == 0) == small
    assert report.sequential_from <= after + 80


def test_the_loops_random_numbers_stay_those_of_the_loop() -> None:
    rnn = RNN(Noisy(2, 3)).double().train()
    x = torch.randn(1, 200, 2, dtype=torch.float64)
    results = []
    for parallel in (None, Chunks(length=40)):
        torch.manual_seed(3)
        results.append((*_call(rnn, x, parallel), torch.rand(1)))
    torch.testing.assert_close(*results, rtol=0, atol=0)
    assert "random" in str(rnn.parallel_report()[0].reason)
    rnn.eval()
    _call(rnn, x, Chunks(length=40))
    assert rnn.parallel_report()[0].sequential_from is None


def test_gradients_of_gradients_and_a_graph_kept_for_two_passes() -> None:
    rnn = RNN(Fading(2, 3, 0.3)).double()
    x = torch.sin(torch.arange(400, dtype=torch.float64)).view(1, 200, 2).requires_grad_()
    second = []
    for parallel in (None, Chunks(length=50)):
        y, _ = _call(rnn, x, parallel)
        (first,) = torch.autograd.grad(y.pow(3).sum(), x, create_graph=True)
        second.append(torch.autograd.grad(first.pow(2).sum(), [x, *rnn.parameters()]))
    _same(second[1], second[0])
    y, h = _call(rnn, x, Chunks(length=50))
    leaves = list(rnn.parameters())
    once = torch.autograd.grad(y.sum(), leaves, retain_graph=True)
    again = torch.autograd.grad(y.sum(), leaves, retain_graph=True)
    last = torch.autograd.grad(h.sum(), leaves)  # no pull on the outputs
    torch.testing.assert_close(once, again, rtol=0, atol=0)
    _same(last, torch.autograd.grad(rnn(x)[1].sum(), leaves))


def test_a_gradient_that_is_not_finite_is_that_of_the_loop() -> None:
    rnn = RNN(Fading(2, 3, 0.3)).double()
    x = torch.sin(torch.arange(400, dtype=torch.float64)).view(1, 200, 2).requires_grad_()
    pull = torch.ones(1, 200, 3, dtype=torch.float64)
    pull[0, 120] = torch.nan
    gradients = []
    for parallel in (None, Chunks(length=50)):
        y, _ = _call(rnn, x, parallel)
        gradients.append(torch.autograd.grad(y, [x, *rnn.parameters()], pull))
    for ours, theirs in zip(gradients[1], gradients[0], strict=True):
        torch.testing.assert_close(ours, theirs, equal_nan=True)


def test_frozen_parameters_and_transforms() -> None:
    rnn = RNN(Fading(2, 3, 0.3)).double()
    rnn.cell.get_parameter("W").requires_grad_(False)
    x = torch.randn(1, 200, 2, dtype=torch.float64)
    _call(rnn, x, Chunks(length=50))[0].sum().backward()
    ours = rnn.cell.get_parameter("keep").grad
    assert ours is not None
    rnn.zero_grad()
    rnn(x)[0].sum().backward()
    theirs = rnn.cell.get_parameter("keep").grad
    assert theirs is not None
    torch.testing.assert_close(ours, theirs)
    assert rnn.cell.get_parameter("W").grad is None

    def total(x: Tensor, parallel: Chunks | None) -> Tensor:
        return _call(rnn, x, parallel)[0].sum()

    torch.testing.assert_close(
        torch.func.grad(total)(x, Chunks(length=50)), torch.func.grad(total)(x, None)
    )
    assert "transform" in str(rnn.parallel_report()[0].reason)


def test_the_warm_up_grows_where_it_did_not_suffice_and_is_remembered() -> None:
    rnn = RNN(Fading(2, 3, 0.6)).double()
    x = torch.randn(1, 2000, 2, dtype=torch.float64)
    seen = []
    for _ in range(4):
        _call(rnn, x, Chunks(length=200))
        (report,) = rnn.parallel_report()
        seen.append((report.burn_in, report.iterations))
    assert seen == [(32, 2), (64, 2), (128, 1), (128, 1)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 0}, "length"),
        ({"burn_in": -1}, "burn_in"),
        ({"tolerance": 0.0}, "tolerance=0.0 must be positive"),
        ({"budget": float("nan")}, "budget=nan must be positive"),
    ],
)
def test_impossible_cuts_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        Chunks(**options)  # type: ignore[arg-type]


def test_what_is_no_sequence_module_is_refused() -> None:
    x = torch.zeros(1, 5, 2)
    for rnn, chunks in ((nn.GRU(2, 3), None), (RNN(Fading(2, 3)), "auto")):
        with pytest.raises(ArgumentError, match="takes a sequence module, such as"):
            run_in_parallel(rnn, x, chunks=chunks)


_LEVELS = {
    "late burst": lambda T: torch.where(torch.arange(T) < 0.85 * T, 1.0, 1e8),
    "bursts": lambda T: torch.where(torch.arange(T) % (T // 4) < T // 12, 1e8, 1.0),
    "early burst": lambda T: torch.where(torch.arange(T) < 0.4 * T, 1e8, 1.0),
    "small": lambda T: torch.full((T,), 1e-8),
    "tiny, then ordinary": lambda T: torch.where(torch.arange(T) < T // 2, 1e-12, 1.0),
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("level", _LEVELS)
@pytest.mark.parametrize("name", ["lru", "s5", "linoss", "slice"])
def test_every_stretch_is_right_beside_much_larger_ones(name: str, level: str) -> None:
    """Relative to the largest entry of the stretch, as the loop in float64 gives it."""
    torch.manual_seed(0)
    rnn, T = tauflow.build(name, 2, 8), 600
    x = torch.randn(1, T, 2) * _LEVELS[level](T)[:, None] * (1e-8 if name == "slice" else 1.0)
    dt = torch.full((1, T), 0.1)
    leaf = x.clone().requires_grad_()
    y, _ = _call(rnn, leaf, Chunks(length=60), dt=dt)
    if not y.isfinite().all():
        return
    exact = copy.deepcopy(rnn).double()
    twin = x.double().requires_grad_()
    expected, _ = _call(exact, twin, None, dt=dt.double())
    weights = 1 / expected.detach().abs().unflatten(1, (-1, 20)).amax((2, 3)).repeat_interleave(20)
    (ours,) = torch.autograd.grad((y[0] * weights[:, None].float()).sum(), leaf)
    (theirs,) = torch.autograd.grad((expected[0] * weights[:, None]).sum(), twin)
    for a, b in ((y, expected), (ours, theirs)):
        size = b.abs().unflatten(1, (-1, 20)).amax((2, 3), keepdim=True)
        error = (a.double() - b).abs().unflatten(1, (-1, 20)) / size
        assert error.max() <= 2e-4
