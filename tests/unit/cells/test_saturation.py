"""Extreme inputs and gaps: finite states, outputs and gradients.

Left out, because their mathematics says otherwise: long gaps of explicit solvers, whose step must
stay below the stiffest time constant; the neuronal LTC with tanh at gaps beyond tau / (tau - 1),
where its denominator may vanish; and CfC with identity heads, whose state may grow without bound
over many steps.
"""

import pytest
import torch

from tauflow.cells import MODELS

EXTREMES = [0.0, 1e-12, 1e6, -1e6]
FINITE = {
    **{name: (name, {}) for name in MODELS if name != "ltc-neuronal"},
    "ltc-neuronal-sigmoid": ("ltc-neuronal", {"activation": "sigmoid"}),
    "wired-pure": ("wired-cfc", {"mode": "pure"}),
    "mixed-ltc": ("cfc-mmrnn", {"core": "ltc"}),
    "mixed-pure": ("cfc-mmrnn", {"mode": "pure", "form": "state"}),
    "augmented-gru": ("gru", {"append_dt": True}),
    "cfc-deep": ("cfc", {"backbone_layers": 3, "backbone_activation": "relu"}),
}


EXPLICIT = {
    *("ct-rnn", "ode-rnn", "ode-lstm", "ode-lstm-torch", "gru-ode", "gru-ode-bayes"),
    "bidirectional-rnn",
}
CASES = [
    (name, gap)
    for name in FINITE
    for gap in (0.0, 1e-12, 1.0, 1e6)
    if gap <= 1 or name not in EXPLICIT
]


@pytest.mark.sampled(12)
@pytest.mark.parametrize(("name", "gap"), CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_extreme_inputs_give_finite_values_and_gradients(name, gap, dtype):
    model, options = FINITE[name]
    cell = MODELS[model].build(2, 4, **options).to(dtype)
    x = torch.tensor([[a, b] for a in EXTREMES for b in EXTREMES], dtype=dtype, requires_grad=True)
    h = torch.zeros(len(x), cell.state_size, dtype=dtype, requires_grad=True)
    dt = torch.full((len(x), 1), gap, dtype=dtype, requires_grad=True)
    after = h
    for _ in range(3):
        after = cell.step(x, after, dt)
    assert after.isfinite().all()
    y = cell.readout(after)
    gradients = torch.autograd.grad(y.sum(), [x, h, dt, *cell.parameters()], allow_unused=True)
    assert all(g is None or g.isfinite().all() for g in gradients)


@pytest.mark.parametrize("name", ["lstm", "gru", "elman", "cfc"])
@pytest.mark.parametrize("value", [1e6, -1e6])
def test_squashed_outputs_stay_within_one(name, value):
    cell = MODELS[name].build(2, 4)
    h = torch.zeros(1, cell.state_size)
    for _ in range(5):
        h = cell.step(torch.full((1, 2), value), h, torch.ones(1, 1))
        assert (cell.readout(h).abs() <= 1).all()


def test_fused_ltc_ignores_input_once_saturated():
    cell = MODELS["ltc"].build(2, 4)
    h, dt = torch.rand(1, 4), torch.ones(1, 1)
    torch.testing.assert_close(
        cell.step(torch.full((1, 2), 1e3), h, dt), cell.step(torch.full((1, 2), 1e6), h, dt)
    )
