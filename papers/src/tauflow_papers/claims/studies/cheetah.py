"""Networks trained on Half-Cheetah: many steps ahead, and their flow beside a bilinear one."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from tauflow.analysis import visited_states
from tauflow.batch import SequenceBatch
from tauflow.cells import AbstractCell, CTRNNCell
from tauflow.data.card import TaskData
from tauflow.data.registry import load_task
from tauflow.models import SequenceModel
from tauflow.sequence import build
from tauflow.training import Recipe, train

from .solvers import LTC_OPTIONS

_NETWORKS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "LTC": ("ltc", LTC_OPTIONS),
    "LSTM": ("lstm", {}),
    "CT-RNN": ("ct-rnn-ltc", {}),
    "neural ODE": ("neural-ode", {}),
    "CfC": ("cfc", {}),
}
_NEURONS, _EPOCHS = 32, 40
_GIVEN, _STEPS = 16, (1, 2, 4, 8, 16)
_SEQUENCES = 900
"""Whose states the flows are compared in, half of them to fit and half to test."""


def roll_out() -> dict[str, Any]:
    """Train networks to predict the next observation, and feed their predictions back.

    They see 16 observations of a test sequence, and go on alone. In the states that the LTC and the
    CT-RNN visit, their velocities are compared with the best linear function of input and state,
    and with the best bilinear one, dh/dt = (A + sum_j x_j B_j) h + C x + c, as dynamic causal
    models have it; found by least squares on 450 sequences, tested on 450 others.

    Returns:
        ``"roll-out"``: mean square error by steps ahead and network, ``"last observation"`` and
        ``"mean"`` being predictions too. ``"explained"``: share of a neuron's variance of the
        velocity that the functions explain, the median over neurons, by network and function.
    """
    data = load_task("half-cheetah")
    assert data.valid is not None
    assert data.test is not None
    x, y = data.test.x, data.test.y
    ahead = y[:, _GIVEN - 1 :]
    guesses = {
        "last observation": x[:, _GIVEN - 1 : _GIVEN].expand_as(ahead[:, : _STEPS[-1]]),
        "mean": data.train.x.mean((0, 1)).expand_as(ahead[:, : _STEPS[-1]]),
    }
    explained: dict[str, Any] = {}
    for title, (name, options) in _NETWORKS.items():
        model = _train(data, name, options, lr=0.01 if title == "LTC" else 0.001)
        guesses[title] = _feed_back(model, x[:, :_GIVEN], _STEPS[-1])
        if title in ("LTC", "CT-RNN"):
            cell = model.rnn.cell
            assert isinstance(cell, AbstractCell)
            if isinstance(cell, CTRNNCell):  # whose steps of 0.1 say nothing of dh/dt
                cell = cell.replace(step_size=None)
            explained[title] = _explain_flow(cell, x[:_SEQUENCES])
    errors: dict[str, dict[str, float]] = {str(steps): {} for steps in _STEPS}
    for title, guess in guesses.items():
        error = (guess - ahead[:, : _STEPS[-1]]).square().mean((0, 2))
        for steps in _STEPS:
            errors[str(steps)][title] = float(error[steps - 1])
    return {"roll-out": errors, "explained": explained}


_FORMS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "Cf-S, Equation 9": ("cf-s-equation-9", {}),
    "Cf-S, released form": ("cf-s", {"backbone_layers": 0}),
    "CfC": ("cfc", {"backbone_layers": 0}),
}
_RATES = (0.001, 0.004, 0.016)


def compare_closed_forms() -> dict[str, float]:
    """Train the closed form of Equation 9, the released one and CfC, all without a backbone.

    Returns:
        By network, mean square error of the next observation on the test sequences, with the one
        of three learning rates that validation finds best.
    """
    data = load_task("half-cheetah")
    valid, test = data.valid, data.test
    assert valid is not None
    assert test is not None
    errors = {}
    for title, (name, options) in _FORMS.items():
        models = [_train(data, name, options, lr) for lr in _RATES]
        best = min(models, key=lambda model: _score(model, valid))
        errors[title] = _score(best, test)
    return errors


@torch.no_grad()
def _score(model: SequenceModel, data: SequenceBatch) -> float:
    return float((model(data.x)[0] - data.y).square().mean())


def _train(data: TaskData, name: str, options: Mapping[str, Any], lr: float) -> SequenceModel:
    """Return a network with the weights of the epoch that validation finds best."""
    features = data.train.x.shape[-1]
    torch.manual_seed(0)
    model = SequenceModel(build(name, features, _NEURONS, **options), features)
    recipe = Recipe(lr=lr, batch_size=16, epochs=_EPOCHS)
    parts: dict[str, Any] = {"train": data.train, "valid": data.valid, "test": None}
    train(model, **parts, loss="mse", metric="mse", recipe=recipe, seed=0, progress=False)
    return model.eval()


@torch.no_grad()
def _feed_back(model: nn.Module, x: Tensor, steps: int) -> Tensor:
    """Return the predictions after a sequence, (B, steps, I), each but the first from the last."""
    prediction, h = model(x)
    predictions = [prediction[:, -1:]]
    while len(predictions) < steps:
        prediction, h = model(predictions[-1], h)
        predictions.append(prediction)
    return torch.cat(predictions, dim=1)


def _explain_flow(cell: AbstractCell, x: Tensor) -> dict[str, float]:
    """Return the shares that a linear and a bilinear function explain, in double precision."""
    cell, x = cell.double().eval(), x.double()
    after = visited_states(cell, x)
    h = torch.cat([torch.zeros_like(after[:, :1]), after[:, :-1]], dim=1).flatten(0, 1)
    x = x.flatten(0, 1)
    gap = x.new_zeros(len(x), 1, requires_grad=True)
    weights = torch.zeros_like(h, requires_grad=True)
    # the slopes along the time step, as those of their weighted sum along the weights
    slopes = torch.autograd.grad(cell.step(x, h, gap), gap, weights, create_graph=True)[0]
    velocity = torch.autograd.grad(slopes.sum(), weights)[0]
    x, h = x / x.std(0), h / h.std(0)
    linear = torch.cat([torch.ones_like(x[:, :1]), x, h], dim=1)
    products = (x.unsqueeze(2) * h.unsqueeze(1)).flatten(1)
    return {
        "linear": _compute_share(linear, velocity),
        "bilinear": _compute_share(torch.cat([linear, products], dim=1), velocity),
    }


def _compute_share(features: Tensor, velocity: Tensor) -> float:
    """Return the median over neurons of the variance explained in the second half of the rows."""
    half = len(features) // 2
    weights = torch.linalg.lstsq(features[:half], velocity[:half], driver="gelsd").solution
    left = velocity[half:] - features[half:] @ weights
    return float((1 - left.square().mean(0) / velocity[half:].var(0)).median())
