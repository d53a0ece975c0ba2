"""Cells that a user writes: what they return is looked at, and so is what they can be given."""

import math

import pytest
import torch
from torch import nn

import tauflow
from tauflow.cells import AbstractCell, CfCCell, Precomputed
from tauflow.errors import ArgumentError, DtypeError, ShapeError

X = torch.linspace(-1, 1, 30).view(2, 5, 3)


class Mine(AbstractCell):
    """Half of the state goes, and the input's mean comes; without a source."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size)
        self.scale = nn.Parameter(torch.ones(hidden_size))

    def step(self, x, h, dt):
        return 0.5 * h + self.scale * x.mean(1, keepdim=True)


def with_method(name, method):
    return type("Own", (Mine,), {name: method})(3, 4)


def test_a_cell_needs_no_source_to_run():
    assert Mine.paper == ""
    y, h = tauflow.RNN(Mine(3, 4))(X)
    torch.testing.assert_close(y[:, -1], h)
    expected = sum(0.5 ** (4 - k) * X[:, k].mean(1, keepdim=True) for k in range(5))
    torch.testing.assert_close(h, expected.expand(2, 4))


STATES = {
    "one row": (
        lambda self, x: x.new_zeros(1, 4),
        ShapeError,
        r"shape \(1, 4\), expected \(2, 4\)",
    ),
    "no rows": (lambda self, x: x.new_zeros(4), ShapeError, r"shape \(4,\), expected \(2, 4\)"),
    "wide": (lambda self, x: x.new_zeros(2, 5), ShapeError, r"shape \(2, 5\), expected \(2, 4\)"),
    "double": (lambda self, x: x.new_zeros(2, 4).double(), DtypeError, "float64, but x has .*32"),
    "none": (lambda self, x: None, ArgumentError, "returned None, expected a tensor of shape"),
}


@pytest.mark.parametrize("case", STATES)
def test_an_initial_state_of_another_kind_is_refused(case):
    method, error, message = STATES[case]
    rnn = tauflow.RNN(with_method("initial_state", method))
    for run in (
        lambda: rnn(X),
        lambda: rnn.step(X[:, 0]),
        lambda: rnn.initial_state(2),
        lambda: rnn.stream(2).step(X[:, 0]),
    ):
        with pytest.raises(error, match=f"Own.initial_state.*{message}"):
            run()


STEPS = {
    "one row": (lambda self, x, h, dt: h[:1], ShapeError, r"shape \(1, 4\), expected \(2, 4\)"),
    "tuple": (lambda self, x, h, dt: (h, h), ArgumentError, "returned a tuple, expected a tensor"),
    "none": (lambda self, x, h, dt: None, ArgumentError, "returned None, expected a tensor"),
    "double": (lambda self, x, h, dt: h.double(), DtypeError, "float64, but the old one.*float32"),
}


@pytest.mark.parametrize("case", STEPS)
def test_a_step_that_returns_no_state_is_refused(case):
    method, error, message = STEPS[case]
    rnn = tauflow.RNN(with_method("step", method))
    for run in (lambda: rnn(X), lambda: rnn.stream(2).step(X[:, 0])):
        with pytest.raises(error, match=f"Own.step.*{message}"):
            run()


@pytest.mark.parametrize("readout", [lambda self, h: h[..., :2], lambda self, h: h[:1]])
def test_an_output_of_another_width_is_refused(readout):
    rnn = tauflow.RNN(with_method("readout", readout), bidirectional=True, return_sequences=False)
    with pytest.raises(ShapeError, match=r"Own.readout: the output has shape .* \(2, 5, 4\)"):
        rnn(X)
    stream = tauflow.RNN(with_method("readout", readout)).stream(2)
    with pytest.raises(ShapeError, match=r"Own.readout: the output has shape .* \(2, 4\)"):
        stream.step(X[:, 0])


def test_a_step_that_changes_its_state_in_place_is_refused():
    def halve(self, x, h, dt):
        h.mul_(0.5)
        return h + x.mean(1, keepdim=True)

    rnn = tauflow.RNN(with_method("step", halve))
    for mask in (None, torch.ones(2, 5, dtype=torch.bool)):
        with pytest.raises(ArgumentError, match=r"Own.step changes the state .* in place"):
            rnn(X, mask=mask)


def test_parts_of_a_state_have_names_of_their_own():
    for names in (("a", "a"), "volt"):
        with pytest.raises(ArgumentError, match=r"Own: state_names is .* different names"):
            type("Own", (Mine,), {"state_names": names})(3, 4)


class Precomputing(AbstractCell):
    """Splits its step, and forgot what is observed where it counts."""

    uses_observed = True

    def precompute(self, x, dt):
        return Precomputed((x, dt))

    def update(self, h, x, dt):
        return h


def test_a_cell_has_a_step_that_calls_what_is_written():
    with pytest.raises(ArgumentError, match=r"Own has no step. Write step\(x, h, dt\), or update"):
        type("Own", (AbstractCell,), {})(3, 4)
    with pytest.raises(ArgumentError, match=r"Own.update would never be called: the step of CfC"):
        type("Own", (CfCCell,), {"update": lambda self, h, x, dt: h})(3, 4)


def test_a_cell_that_models_what_is_missing_can_be_told():
    with pytest.raises(ArgumentError, match=r"Own.step has the .* step\(x, h, dt, observed\)"):
        type("Own", (Mine,), {"uses_observed": True})(3, 4)
    with pytest.raises(
        ArgumentError, match=r"Precomputing.precompute has .* precompute\(x, dt, observed\)"
    ):
        Precomputing(3, 4)
    with pytest.raises(ArgumentError, match=r"Own.step has the .* called as step\(x, h, dt\)"):
        with_method("step", lambda self, x, h: h)


def test_a_cell_that_models_what_is_missing_may_be_told_nothing():
    """As where nothing is missing, and in every layer above the first."""

    def step(self, x, h, dt, observed):
        return h

    with pytest.raises(ArgumentError, match=r"called as step\(x, h, dt\)\..*observed=None"):
        type("Own", (Mine,), {"uses_observed": True, "step": step})(3, 4)

    def precompute(self, x, dt, observed):
        return Precomputed((x, dt))

    with pytest.raises(ArgumentError, match=r"called as precompute\(x, dt\)\..*observed=None"):
        type("Own", (Precomputing,), {"precompute": precompute})(3, 4)


class Masking(AbstractCell):
    """Multiplies its input by the mask, as textbooks do."""

    uses_observed = True

    def __init__(self, input_size, hidden_size):
        super().__init__(input_size, hidden_size)
        self.both = torch.nn.Linear(2 * input_size + hidden_size, hidden_size)

    def step(self, x, h, dt, observed=None):
        m = torch.ones_like(x) if observed is None else observed.to(x.dtype)
        return torch.tanh(self.both(torch.cat([m * x, m, h], -1)))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("compiled", [False, True])
def test_values_that_were_not_measured_reach_a_cell_as_zeros(bad, compiled):
    cell = type("Own", (Masking,), {"compiled": compiled})(3, 4)
    rnn = tauflow.RNN(cell, num_layers=2)
    observed = torch.rand(2, 5, 3) < 0.6
    expected, _ = rnn(X.masked_fill(~observed, 0.0), observed=observed)
    x = X.masked_fill(~observed, bad)
    y, _ = rnn(x, observed=observed)
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(
        torch.func.vmap(lambda x, o: rnn(x[None], observed=o[None])[0][0])(x, observed), expected
    )
    if math.isnan(bad):
        torch.testing.assert_close(rnn(x)[0], expected)
    stream = rnn.stream(batch_size=2)
    for t in range(5):
        y_t = stream.step(x[:, t], 1.0, **({} if math.isnan(bad) else {"observed": observed[:, t]}))
        torch.testing.assert_close(y_t, expected[:, t])
