"""Changes around a custom cell between two calls: its trace follows, or it runs step by step."""

import random
import types
import warnings
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import tauflow
from tauflow.cells import AbstractCell
from tauflow.errors import ArgumentError, BackendError
from tauflow.kernels import KernelCall, get_kernels
from tauflow.kernels.trace.lower import lower_step
from tauflow.kernels.trace.program import TracingError

pytest.importorskip("numba")

SCALE = 1.0
LIST = [1.0]
TABLE = {"scale": 1.0}
CONSTANTS = types.ModuleType("constants")
CONSTANTS.SCALE = 1.0


class Changing(AbstractCell):
    """Its output depends on everything that is set on it."""

    gain = 1.0

    def __init__(self, settings: object = 1.0) -> None:
        super().__init__(3, 6)
        self.lin = nn.Linear(9, 6, bias=False)
        self.act = nn.LeakyReLU(0.5)
        self.parts = nn.Sequential(nn.Linear(6, 6), nn.Tanh())
        self.scales = nn.ParameterDict({"one": nn.Parameter(torch.tensor(0.5))})
        self.settings = settings
        self.shift = torch.zeros(6)

    def step(self, x: Tensor, h: Tensor, dt: Tensor) -> Tensor:
        u = self.act(self.gain * number(self.settings) * self.lin(torch.cat([x, h], 1)))
        u = self.parts(u) * self.scales["one"] * SCALE * CONSTANTS.SCALE + self.shift
        return u + (h - u) * torch.exp(-dt)


class Doubled(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value: float) -> None:
        self.value = value


@dataclass
class Thawed:
    value: float


def number(value: object) -> float:
    """Return a number that every leaf among settings changes."""
    if isinstance(value, (bool, int, float)):
        return float(value) + (0.25 if str(value)[0] == "-" else 0.0)
    if isinstance(value, dict):
        return sum(number(one) for one in value.values())
    if isinstance(value, (list, tuple, set)) or type(value).__name__ == "ndarray":
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


def why_not(cell: AbstractCell) -> str:
    call = KernelCall(cell, torch.randn(4, 12, 3), torch.zeros(4, 6), torch.ones(4, 12, 1))
    return get_kernels(cell)[0].unsupported_reason(call) or ""


@pytest.mark.parametrize(
    "change",
    {
        "activation": lambda cell, _: setattr(cell, "act", nn.Sigmoid()),
        "slope of a part": lambda cell, _: setattr(cell.act, "negative_slope", 0.1),
        "bias": lambda cell, _: setattr(cell, "lin", nn.Linear(9, 6)),
        "no bias": lambda cell, _: setattr(cell.parts[0], "bias", None),
        "subclass": lambda cell, _: setattr(cell, "lin", Doubled(9, 6, bias=False)),
        "class of a part": lambda cell, _: setattr(cell.lin, "__class__", Doubled),
        "part of a sequence": lambda cell, _: cell.parts.__setitem__(1, nn.Sigmoid()),
        "class attribute": lambda cell, _: setattr(type(cell), "gain", 3.0),
        "method of the class": lambda cell, _: setattr(type(cell), "step", other_step),
        "method of the cell": lambda cell, _: setattr(
            cell, "step", lambda x, h, dt: cell.lin(torch.cat([x, h], 1)) - dt
        ),
        "global": lambda cell, patch: patch.setitem(globals(), "SCALE", 2.0),
        "global of a module": lambda cell, patch: patch.setattr(CONSTANTS, "SCALE", 2.0),
        "function": lambda cell, patch: patch.setitem(globals(), "number", lambda value: 3.0),
        "tensor": lambda cell, _: cell.shift.add_(1.0),
        "another tensor": lambda cell, _: setattr(cell, "shift", torch.ones(6)),
        "double": lambda cell, _: cell.scales.__setitem__(
            "one", nn.Parameter(torch.tensor(0.25, dtype=torch.float64))
        ),
    }.items(),
    ids=lambda change: change[0],
)
def test_a_change_is_followed(change, monkeypatch):
    class Own(Changing):
        pass

    torch.manual_seed(0)
    rnn = tauflow.RNN(Own())
    assert not why_not(rnn.cell)
    assert_followed(rnn)
    before = results(rnn, "reference")[0]
    change[1](rnn.cell, monkeypatch)
    assert_followed(rnn)
    assert not torch.allclose(results(rnn, "reference")[0], before.to(torch.float32))


def other_step(self, x, h, dt):
    return torch.tanh(self.lin(torch.cat([x, h], 1))) * dt


def deep(value):
    return {"a": {"b": {"c": {"slope": value}}}}


@pytest.mark.parametrize(
    ("settings", "change"),
    [
        (np.ones(2), lambda value: value.__iadd__(1.0)),
        ({1.0}, lambda value: value.add(2.0)),
        (Slotted(1.0), lambda value: setattr(value, "value", 2.0)),
        (Thawed(1.0), lambda value: setattr(value, "value", 2.0)),
        (types.SimpleNamespace(value=1.0), lambda value: setattr(value, "value", 2.0)),
        (deep(1.0), lambda value: value["a"]["b"]["c"].update(slope=2.0)),
        ([[[[[[[[[[1.0]]]]]]]]]], lambda value: value.append(1.0)),
        ((1.0, [2.0]), lambda value: value[1].append(1.0)),
        ((1.0, Slotted(1.0)), lambda value: setattr(value[1], "value", 2.0)),
    ],
    ids=["array", "set", "slots", "dataclass", "namespace", "dict", "list", "tuple", "objects"],
)
def test_what_can_change_in_place_takes_plain_steps(settings, change):
    torch.manual_seed(0)
    rnn = tauflow.RNN(Changing(settings))
    assert "settings" in why_not(rnn.cell)
    assert "can change in place" in why_not(rnn.cell)
    before = results(rnn, "auto")[0]
    change(rnn.cell.settings)
    assert_followed(rnn)
    assert not torch.allclose(results(rnn, "auto")[0], before)
    rnn.backend = "numba"
    with pytest.raises(BackendError, match=r"settings.* can change in place"):
        rnn(torch.randn(2, 12, 3))


class Planet(Enum):
    EARTH = 1.0

    def __init__(self, mass: float) -> None:
        self.mass = mass


class Problem(Exception):
    scale = 1.0


class Scale(float):
    factor = 1.0


class Kinds(type(AbstractCell)):
    scale = 1.0


@dataclass(frozen=True)
class Filled:
    value: float = field(default_factory=lambda: TABLE["scale"])


def of_generated_class(self, u):
    return u * TABLE["scale"]


def doubling_hook(module, given, out):
    return out * 2 if isinstance(module, nn.Linear) else None


@pytest.mark.parametrize(
    ("read", "change"),
    {
        "enum": (lambda self, u: u * Planet.EARTH.mass, (Planet.EARTH, "mass")),
        "made enum": (lambda self, u: u * Planet(1.0).mass, (Planet.EARTH, "mass")),
        "exception": (lambda self, u: u * Problem.scale, (Problem, "scale")),
        "float": (lambda self, u: u * self.settings.factor, (Scale, "factor")),
        "metaclass": (lambda self, u: u * type(self).scale, (Kinds, "scale")),
        "factory": (lambda self, u: u * Filled().value, (TABLE, "scale")),
        "type()": (of_generated_class, (TABLE, "scale")),
        "private": (lambda self, u: u * self.act._scale, "act._scale"),
        "options": (lambda self, u: u * self.options["settings"], "options.settings"),
        "all modules": (lambda self, u: u, nn.modules.module.register_module_forward_hook),
        "not there": (lambda self, u: torch.no_such(u) if len(u) > 9 else u, "shift"),
        "not yet": (lambda self, u: later() if len(u) > 9 else u, "shift"),  # noqa: F821
    }.values(),
)
def test_whatever_a_step_reads_is_followed(read, change, monkeypatch):
    torch.manual_seed(0)
    monkeypatch.setattr(Changing, "read", read, raising=False)
    kind = Kinds("Reading", (Changing,), {"step": reading_step})  # whose module is that of Kinds
    rnn = tauflow.RNN(kind(Scale(1.0)))
    rnn.cell.act._scale = 1.0
    assert_followed(rnn)
    before = results(rnn, "reference")[0]
    if callable(change):
        hook = change(doubling_hook)
    elif isinstance(change, tuple):
        set_item = monkeypatch.setitem if change[0] is TABLE else monkeypatch.setattr
        set_item(*change, 3.0)
    else:
        holder, _, name = change.rpartition(".")
        held = vars(rnn.cell)[holder] if holder == "options" else rnn.cell.get_submodule(holder)
        value = torch.ones(6) if name == "shift" else 3.0
        held.__setitem__(name, value) if isinstance(held, dict) else setattr(held, name, value)
    try:
        assert_followed(rnn)
        assert not torch.allclose(results(rnn, "reference")[0], before)
    finally:
        if callable(change):
            hook.remove()


def reading_step(self, x, h, dt):
    u = self.read(self.lin(torch.cat([x, h], 1))) + self.shift
    return u + (h - u) * torch.exp(-dt)


def scripted():
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        return torch.jit.script(nn.Sequential(nn.Linear(6, 6), nn.Tanh()))


def generated():
    return torch.fx.symbolic_trace(nn.Sequential(nn.Linear(6, 6), nn.Tanh()))


@pytest.mark.parametrize("build", [scripted, generated])
def test_generated_parts_are_called(build):
    torch.manual_seed(0)
    rnn = tauflow.RNN(Changing())
    rnn.cell.parts = build()
    assert_followed(rnn)
    if build is generated:
        for node in rnn.cell.parts.graph.nodes:
            if node.target == "1":
                node.target = "0"
        rnn.cell.parts.recompile()
        assert_followed(rnn)


@pytest.mark.parametrize("hook", [True, False])
@pytest.mark.parametrize("name", ["cfc", "gnode", "gru-ode-bayes"])
def test_methods_and_hooks_reach_cells_of_the_library(name, hook):
    torch.manual_seed(0)
    rnn = tauflow.build(name, 3, 6)
    assert_followed(rnn)
    before = results(rnn, "reference")[0]
    if hook:
        handle = nn.modules.module.register_module_forward_hook(doubling_hook)
    else:
        method = {"cfc": "step", "gnode": "_rest", "gru-ode-bayes": "_velocity"}
        own = getattr(rnn.cell, method[name])
        setattr(rnn.cell, own.__name__, lambda *args: own(*args) * 0.5)
    try:
        assert_followed(rnn)
        assert hook or not torch.allclose(results(rnn, "reference")[0], before)
    finally:
        if hook:
            handle.remove()


def drawn(rng: random.Random, depth: int) -> object:
    """Return a random immutable value."""
    if depth == 0 or rng.random() < 0.2:
        return rng.choice([0.0, -0.0, 1, True, False, 1.0, 0.25])
    return tuple(drawn(rng, depth - 1) for _ in range(rng.randint(1, 2)))


def changed(rng: random.Random, value: object) -> object:
    """Return a value with one leaf changed."""
    if not isinstance(value, tuple):
        return rng.choice([one for one in (0.0, -0.0, 1, True, 2.5) if repr(one) != repr(value)])
    at = rng.randrange(len(value))
    return (*value[:at], changed(rng, value[at]), *value[at + 1 :])


@pytest.mark.parametrize("seed", range(6))
def test_every_leaf_of_options_tells_traces_apart(seed):
    rng = random.Random(seed)
    torch.manual_seed(seed)
    rnn = tauflow.RNN(Changing((drawn(rng, 5),)))
    for _ in range(3):
        assert_followed(rnn)
        assert not why_not(rnn.cell)
        rnn = rnn.replace(cell=rnn.cell.replace(settings=changed(rng, rnn.cell.settings)))


def test_options_are_fixed_and_a_stream_agrees():
    rnn = tauflow.RNN(Changing(1.0))
    stream, x = rnn.stream(2), torch.randn(2, 9, 3)
    with pytest.raises(ArgumentError, match=r"settings is fixed .* cell\.replace\(settings=\.\.\."):
        rnn.cell.settings = 2.0
    outputs = torch.stack([stream.step(one) for one in x.unbind(1)], 1)
    torch.testing.assert_close(outputs, rnn(x)[0].detach())


class Temporary(Changing):
    def step(self, x: Tensor, h: Tensor, dt: Tensor) -> Tensor:
        z = self.lin.weight[:, 0] * 2
        a = self.lin(torch.cat([x, h], 1)) + z
        z += 1.0
        return h + dt * (torch.tanh(a) * z - h)


class Random(Changing):
    def step(self, x: Tensor, h: Tensor, dt: Tensor) -> Tensor:
        return h + dt * random.random() * torch.tanh(self.lin(torch.cat([x, h], 1)))


class Branching(Changing):
    def step(self, x: Tensor, h: Tensor, dt: Tensor) -> Tensor:
        return h + dt if bool((dt > 0).all()) else h - 1


class Comparing(Changing):
    def step(self, x: Tensor, h: Tensor, dt: Tensor) -> Tensor:
        return h + (1.0 if dt.equal(torch.zeros_like(dt)) else 2.0)


class Converting(Changing):
    def step(self, x: Tensor, h: Tensor, dt: Tensor) -> Tensor:
        return h + float(dt[0]) * 2 ** int(1 + self.scales["one"])


class Listing(Changing):
    def step(self, x: Tensor, h: Tensor, dt: Tensor) -> Tensor:
        return h + dt * LIST[0]


class Importing(Changing):
    def step(self, x: Tensor, h: Tensor, dt: Tensor) -> Tensor:
        import time

        return h + dt * time.time()


class Looking(Changing):
    def step(self, x: Tensor, h: Tensor, dt: Tensor) -> Tensor:
        return h + dt * torch.get_num_threads()


class Calling(Changing):
    def step(self, x: Tensor, h: Tensor, dt: Tensor) -> Tensor:
        return h + dt * inner(2.0)


def inner(value):
    return value * random.gauss(0, 1)


def counting():
    count = 0

    class Counting(Changing):
        def step(self, x: Tensor, h: Tensor, dt: Tensor) -> Tensor:
            nonlocal count
            count += 1
            return h + dt * count

    return Counting()


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (Temporary, "changes what was read before"),
        (Random, "random.random"),
        (Branching, "looks at numbers"),
        (Comparing, "looks at numbers"),
        (Converting, "looks at numbers"),
        (Listing, "LIST, which Listing.step reads, is a list"),
        (Importing, "imports time"),
        (Looking, "torch.get_num_threads"),
        (Calling, r"random\.gauss, which inner reads"),
        (counting, "sets count, which is outside of it"),
    ],
)
def test_a_first_call_that_shows_nothing_decides_nothing(build, reason):
    torch.manual_seed(0)
    cell = build()
    found = why_not(cell)
    assert found.startswith("its step cannot be traced: ")
    assert reason.replace("\\", "") in found
    if build in (Temporary, Branching, Comparing, Converting):
        rnn, x = tauflow.RNN(cell), torch.randn(4, 12, 3)
        with torch.no_grad():
            rnn(x, dt=torch.zeros(4, 12))
            dt = torch.rand(4, 12)
            y = rnn(x, dt=dt)[0]
            rnn.backend = "reference"
            torch.testing.assert_close(y, rnn(x, dt=dt)[0], rtol=1e-4, atol=1e-5)


class Power(Changing):
    def step(self, x: Tensor, h: Tensor, dt: Tensor) -> Tensor:
        return torch.tanh(self.lin(torch.cat([x, h], 1))) / 2**dt


@pytest.mark.parametrize("rows", [1, 4])
def test_a_power_of_one_row_is_no_constant(rows):
    torch.manual_seed(0)
    rnn, x = tauflow.RNN(Power()), torch.randn(rows, 12, 3)
    for dt in (torch.ones(rows, 12), 3 * torch.rand(rows, 12)):
        rnn.backend = "auto"
        y = rnn(x, dt=dt)[0]
        rnn.backend = "reference"
        torch.testing.assert_close(y, rnn(x, dt=dt)[0])


@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0, 3.0])
def test_a_power_does_not_depend_on_the_value_of_a_tensor(exponent):
    given = torch.ones(1, 1), torch.full((1, 1), exponent)
    with pytest.raises(TracingError, match="no powers of tensors"):
        lower_step(lambda h, dt: (h, h * 2**dt), *given)
