"""Changes of a custom cell between two calls: a traced step follows them, or does not run."""

import functools
import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import tauflow
from tauflow.cells import AbstractCell
from tauflow.errors import BackendError
from tauflow.kernels.trace import custom_cells
from tauflow.kernels.trace.lower import lower_step
from tauflow.kernels.trace.program import TracingError

pytest.importorskip("numba")


class Changing(AbstractCell):
    """Its output depends on everything that is set on it."""

    is_pure = True
    gain = 1.0

    def __init__(self, settings: object = None) -> None:
        super().__init__(3, 6)
        self.lin = nn.Linear(9, 6, bias=False)
        self.act = nn.Tanh()
        self.parts = nn.Sequential(nn.Linear(6, 6), nn.Tanh())
        self.scales = nn.ParameterDict({"one": nn.Parameter(torch.tensor(0.5))})
        self.half = functools.partial(torch.mul, other=0.5)
        self.settings = settings

    def step(self, x: Tensor, h: Tensor, dt: Tensor) -> Tensor:
        u = self.act(self.gain * number(self.settings) * self.lin(torch.cat([x, h], 1)))
        u = self.parts(self.half(u)) * self.scales["one"]
        return u + (h - u) * torch.exp(-dt)


class Doubled(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value


def number(value: object) -> float:
    """Return a number that every leaf among settings changes."""
    if value is None:
        return 1.0
    if isinstance(value, bool):
        return 1.5 if value else 0.5
    if isinstance(value, (int, float)):
        return float(value) + (0.25 if np.signbit(value) else 0.0)
    if isinstance(value, np.ndarray):
        return float(value.sum())
    if isinstance(value, functools.partial):
        return number(value.keywords)
    if isinstance(value, dict):
        return sum(number(one) for one in value.values())
    if isinstance(value, (list, tuple, set)):
        return sum(number(one) for one in value)
    return number(value.value)


def results(rnn: tauflow.RNN, backend: str) -> list[Tensor]:
    rnn.backend = backend
    x = torch.linspace(-1, 1, 4 * 12 * 3).view(4, 12, 3)
    y, h = rnn(x, dt=torch.linspace(0.1, 1, 48).view(4, 12))
    grads = torch.autograd.grad(y.square().sum(), list(rnn.parameters()), allow_unused=True)
    return [y, h, *(torch.zeros(()) if one is None else one for one in grads)]


def assert_followed(rnn: tauflow.RNN) -> None:
    for found, expected in zip(results(rnn, "auto"), results(rnn, "reference"), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "change",
    {
        "activation": lambda cell: setattr(cell, "act", nn.Sigmoid()),
        "bias": lambda cell: setattr(cell, "lin", nn.Linear(9, 6)),
        "no bias": lambda cell: setattr(cell.parts[0], "bias", None),
        "subclass": lambda cell: setattr(cell, "lin", Doubled(9, 6, bias=False)),
        "class of a part": lambda cell: setattr(cell.lin, "__class__", Doubled),
        "part of a sequence": lambda cell: cell.parts.__setitem__(1, nn.Sigmoid()),
        "partial": lambda cell: cell.half.keywords.update(other=2.0),
        "class attribute": lambda cell: setattr(type(cell), "gain", 3.0),
        "double": lambda cell: cell.scales.__setitem__(
            "one", nn.Parameter(torch.tensor(0.25, dtype=torch.float64))
        ),
    }.items(),
    ids=lambda change: change[0],
)
def test_a_changed_module_is_followed(change):
    class Own(Changing):
        pass

    torch.manual_seed(0)
    rnn = tauflow.RNN(Own())
    assert_followed(rnn)
    before = results(rnn, "reference")[0]
    change[1](rnn.cell)
    assert_followed(rnn)
    assert not torch.allclose(results(rnn, "reference")[0], before)


def drawn(rng: random.Random, depth: int) -> object:
    """Return a random graph of settings."""
    if depth == 0 or rng.random() < 0.2:
        return rng.choice([0.0, -0.0, 1, True, False, 1.0, 0.25, np.ones(2)])
    inner = [drawn(rng, depth - 1) for _ in range(rng.randint(1, 2))]
    return rng.choice(
        [
            lambda: inner,
            lambda: dict(enumerate(inner)),
            lambda: SimpleNamespace(value=inner),
            lambda: Slotted(inner),
            lambda: functools.partial(abs, a=inner),
        ]
    )()


def change_a_leaf(rng: random.Random, holder: object) -> None:
    """Change one leaf of a graph in place."""
    while True:
        if isinstance(holder, functools.partial):
            holder = holder.keywords
        if isinstance(holder, (list, dict)):
            keys = range(len(holder)) if isinstance(holder, list) else list(holder)
            key = rng.choice(keys)
            inner, put = holder[key], functools.partial(holder.__setitem__, key)
        else:
            inner, put = holder.value, functools.partial(setattr, holder, "value")
        if isinstance(inner, np.ndarray):
            inner += 1.0
            return
        if isinstance(inner, (bool, int, float)):
            put(rng.choice([one for one in (0.0, -0.0, 1, True, 2.5) if repr(one) != repr(inner)]))
            return
        holder = inner


@pytest.mark.parametrize("seed", range(6))
def test_a_leaf_of_any_graph_of_settings_is_followed(seed):
    rng = random.Random(seed)
    for _ in range(4):
        torch.manual_seed(seed)
        rnn = tauflow.RNN(Changing([drawn(rng, 5)]))
        assert_followed(rnn)
        change_a_leaf(rng, rnn.cell.settings)
        assert_followed(rnn)


@pytest.mark.parametrize(
    "value",
    [np.ones(2), {1.0}, Slotted(1.0), [[[[[[[[[[1.0]]]]]]]]]]],
    ids=["array", "set", "slots", "deep"],
)
def test_what_cannot_be_looked_into_takes_plain_steps(value):
    rnn = tauflow.RNN(Changing({"a": value}), backend="numba")
    with pytest.raises(BackendError, match=r"attribute settings\['a'\].* could not be seen"):
        rnn(torch.randn(2, 12, 3))
    assert_followed(rnn)


class Temporary(Changing):
    def step(self, x: Tensor, h: Tensor, dt: Tensor) -> Tensor:
        z = self.lin.weight[:, 0] * 2
        a = self.lin(torch.cat([x, h], 1)) + z
        z += 1.0
        return h + dt * (torch.tanh(a) * z - h)


class Impure(Changing):
    def step(self, x: Tensor, h: Tensor, dt: Tensor) -> Tensor:
        return h + dt * random.random() * torch.tanh(self.lin(torch.cat([x, h], 1)))


@pytest.mark.parametrize("rows", [1, 4])
def test_a_first_call_that_shows_nothing_decides_nothing(rows):
    torch.manual_seed(0)
    rnn, x = tauflow.RNN(Temporary()), torch.randn(rows, 12, 3)
    with torch.no_grad():
        rnn(x, dt=torch.zeros(rows, 12))
        dt = torch.rand(rows, 12)
        found = rnn(x, dt=dt)[0]
        rnn.backend = "reference"
        torch.testing.assert_close(found, rnn(x, dt=dt)[0], rtol=1e-4, atol=1e-5)


def test_random_numbers_of_python_are_seen_though_the_first_call_does_not_show_them():
    rnn = tauflow.RNN(Impure(), backend="numba")
    with torch.no_grad(), pytest.raises(BackendError, match="comes to something else"):
        rnn(torch.randn(2, 12, 3), dt=torch.zeros(2, 12))


@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0, 3.0])
def test_a_power_does_not_depend_on_the_value_of_a_tensor(exponent):
    given = torch.ones(1, 1), torch.full((1, 1), exponent)
    with pytest.raises(TracingError, match="no powers of tensors"):
        lower_step(lambda h, dt: (h, h * 2**dt), *given)


def test_a_setting_that_changes_at_every_call_is_left_to_plain_steps(monkeypatch):
    tried = []
    attempt = custom_cells._check_trace
    monkeypatch.setattr(custom_cells, "_check_trace", lambda call: (tried.append(1), attempt(call)))
    rnn, x = tauflow.RNN(Changing(1.0)), torch.randn(2, 12, 3)
    for step in range(30):
        rnn.cell.settings = 1.0 + step / 100
        rnn(x)
    assert 1 <= len(tried) <= 6
    tried.clear()
    for _ in range(40):
        rnn(x)
    assert len(tried) == 1, "a setting that stays is traced again"
