"""The longest gap that explicit steps follow: what cells say against what their states do."""

import math

import pytest
import torch

import tauflow
from tauflow.cells import LTCCell, MixedMemoryCell

BOUNDED = {
    "ct-rnn": {"solver": "rk4", "damping": 2.5},
    "ct-rnn heun": {"solver": "heun", "substeps": 5, "train_tau": True},
    "ode-lstm": {},
    "bidirectional-rnn": {"damping": 0.5},
    "gru-ode": {"solver": "midpoint"},
    "gnode": {"final_activation": "tanh", "tau": 0.2},
    "gnode rk4": {"final_activation": "tanh", "solver": "rk4", "train_tau": True, "tau": 0.5},
    "gru-euler": {"substeps": 3},
    "lstm-euler": {"tau": 7.0},
    "lem": {"substeps": 2},
    "lrc": {"substeps": 2},
    "stc": {},
    "lrc-ssm": {"substeps": 3},
    "ltc": {"solver": "euler"},
    "ltc rk4": {"solver": "rk4", "time_scale": 3.0, "dt_offset": 0.01},
    "ltc-neuronal": {"solver": "euler", "activation": "sigmoid", "scale": True},
}
LINEAR = ["ct-rnn", "ct-rnn heun", "ode-lstm", "bidirectional-rnn"]
"""Where only the decay has a rate, so that the limit is sharp."""


def flow(name, seed=0, **more):
    torch.manual_seed(seed)
    return tauflow.build(name.split()[0], 2, 5, **{**BOUNDED[name], **more}).double()


def largest(rnn, gap, steps=400):
    """Return the largest component of the state after random inputs, a constant gap apart."""
    x = torch.randn(4, steps, 2, dtype=torch.float64)
    with torch.no_grad():
        _, h = rnn(x, dt=gap)
    return float(h.abs().max())


@pytest.mark.sampled(40)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", BOUNDED)
def test_states_stay_bounded_up_to_the_limit(name, seed):
    rnn = flow(name, seed)
    limit = rnn.cell.max_stable_dt()
    assert 0 < limit < math.inf
    assert largest(rnn, 0.98 * limit) < 1e3


@pytest.mark.parametrize("name", LINEAR)
def test_they_grow_beyond_it(name):
    rnn = flow(name)
    limit = rnn.cell.max_stable_dt()
    assert largest(rnn, 1.2 * limit, steps=80) > 1e6


def test_limits_by_hand():
    expected = {
        "ct-rnn": 3 * 2.785293563405282,
        "ode-lstm": 8.0,
        "bidirectional-rnn": 8.0,
        "gru-ode": 8.0,
        "gnode": 2.0,
        "gru-euler": 2.0,
        "lstm-euler": 2.0,
        "lem": 2.0,
    }
    limits = {name: tauflow.build(name, 2, 5).cell.max_stable_dt() for name in expected}
    assert limits == pytest.approx(expected, rel=1e-12)


def test_the_limit_of_ltc_is_that_of_its_largest_conductance():
    cell = LTCCell(1, 2, solver="euler", substeps=6, constraint="clip", time_scale=2.0)
    with torch.no_grad():
        for tensor, value in ((cell.w, 0.5), (cell.w_x, 1.0), (cell.g_l, 1.0), (cell.C, 0.25)):
            tensor.fill_(value)
    rate = (1.0 + 2 * 0.5 + 1.0) / 0.25
    assert cell.max_stable_dt() == pytest.approx(6 * 2.0 / rate / 2.0)
    assert MixedMemoryCell(1, 2, core="ltc", solver="euler").max_stable_dt() < math.inf


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("ltc", {}),
        ("ltc-neuronal", {"solver": "exponential"}),
        ("cfc", {}),
        ("lstm", {}),
        ("ode-rnn", {}),
        ("ct-rnn", {"solver": "dopri5"}),
        ("ct-rnn", {"clip": 1.0}),
        ("ct-rnn", {"step_size": 0.1}),
        ("ode-lstm", {"form": "torch"}),
        ("gru-ode", {"solver": "tsit5"}),
    ],
)
def test_cells_without_such_steps_have_no_limit(name, options):
    assert tauflow.build(name, 2, 4, **options).cell.max_stable_dt() == math.inf
