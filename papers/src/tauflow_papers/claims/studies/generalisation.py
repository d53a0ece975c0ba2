"""Trained networks on longer time steps than in training, noise and adversarial inputs."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from tauflow.batch import SequenceBatch
from tauflow.data.registry import load_task
from tauflow.models import SequenceModel
from tauflow.sequence import build
from tauflow.training import Recipe, train
from tauflow.wirings import RandomSparse

_LAG_NETWORKS: Mapping[str, str] = {
    "augmented LSTM": "augmented-lstm",
    "ODE-LSTM": "ode-lstm",
    "GRU-D": "gru-d-unmasked",
    "RNN-Decay": "rnn-decay",
    "ODE-RNN": "ode-rnn",
    "CfC": "cfc",
    "LTC": "ltc",
    "gnODE": "gnode",
}
_TRAINED_GAPS = (0.05, 0.5)
_OTHER_GAPS = {"0.5 to 1": (0.5, 1.0), "1 to 2": (1.0, 2.0), "2 to 4": (2.0, 4.0)}
_SAMPLES, _NEURONS = 40, 32


def test_lags() -> dict[str, Any]:
    """Train networks to continue oscillations, and test them on longer time steps.

    Of each oscillation, whose period is 4 to 10, networks see the last sample and the time step to
    the next one, which they predict. Time steps are uniform in 0.05 to 0.5 in training.

    Returns:
        By range of the time steps and network: mean square error over the variance of the targets;
        ``"last sample"`` is that of the last sample as the prediction, and ``"mean"`` that of 0.
    """
    parts: dict[str, Any] = {"train": _make_oscillations(2000, _TRAINED_GAPS, 0),
             "valid": _make_oscillations(200, _TRAINED_GAPS, 1)}  # fmt: skip
    tests = {
        name: _make_oscillations(500, gaps, 2)
        for name, gaps in {"0.05 to 0.5": _TRAINED_GAPS, **_OTHER_GAPS}.items()
    }
    errors: dict[str, dict[str, float]] = {name: {} for name in tests}
    for name, data in tests.items():
        errors[name]["last sample"] = _divide(data.y - data.x, data.y)
        errors[name]["mean"] = _divide(data.y, data.y)
    for title, network in _LAG_NETWORKS.items():
        torch.manual_seed(0)
        model = SequenceModel(build(network, 1, _NEURONS), 1)
        recipe = Recipe(lr=3e-3, batch_size=64, epochs=25, clip="norm", clip_norm=1.0)
        train(model, **parts, test=None, loss="mse", metric="mse", recipe=recipe, seed=0,
              progress=False)  # fmt: skip
        model.eval()
        for name, data in tests.items():
            with torch.no_grad():
                errors[name][title] = _divide(model(data.x, dt=data.dt)[0] - data.y, data.y)
    return {"trained on gaps": "0.05 to 0.5", "errors": errors}


def _divide(error: Tensor, y: Tensor) -> float:
    """Return a mean square over that of the targets, after ten samples to find the phase by."""
    return float(error[:, 10:].square().mean() / y[:, 10:].square().mean())


def _make_oscillations(count: int, gaps: tuple[float, float], seed: int) -> SequenceBatch:
    generator = torch.Generator().manual_seed(seed)

    def draw(low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * torch.rand(shape, generator=generator)

    dt = draw(*gaps, count, _SAMPLES + 1)
    t = dt.cumsum(1)
    angle = 2 * math.pi * (t / draw(4.0, 10.0, count, 1) + draw(0.0, 1.0, count, 1))
    v = (draw(0.5, 1.5, count, 1) * angle.sin()).unsqueeze(-1)
    return SequenceBatch(v[:, :-1], v[:, 1:], dt=dt[:, 1:])


_ROBUST_NETWORKS: Mapping[str, str] = {
    "LTC": "ltc",
    "CfC": "cfc",
    "ODE-LSTM": "ode-lstm",
    "CT-RNN": "ct-rnn-ltc",
    "neural ODE": "neural-ode",
    "LSTM": "lstm",
}
_STRENGTHS = (0.0, 0.1, 0.3, 1.0)


def perturb_inputs() -> dict[str, Any]:
    """Train networks on gestures, and test them on noisy and on adversarial inputs.

    Inputs have a standard deviation of one. Noise is Gaussian; adversarial inputs are moved by as
    much in the direction that raises the loss most (the sign of its gradient), each value.

    Returns:
        Test accuracy by perturbation, its strength and network.
    """
    data = load_task("gesture")
    assert data.test is not None
    accuracies: dict[str, dict[str, dict[str, float]]] = {
        kind: {f"{strength:g}": {} for strength in _STRENGTHS} for kind in ("noise", "adversarial")
    }
    parts: dict[str, Any] = {"train": data.train, "valid": data.valid, "test": None}
    inputs, classes = data.train.x.shape[-1], int(data.train.y.max()) + 1
    for title, network in _ROBUST_NETWORKS.items():
        torch.manual_seed(0)
        model = SequenceModel(build(network, inputs, _NEURONS), classes)
        recipe = Recipe(lr=5e-3, batch_size=16, epochs=60)
        train(model, **parts, loss="cross_entropy", metric="accuracy", recipe=recipe, seed=0,
              progress=False)  # fmt: skip
        model.eval()
        for strength in _STRENGTHS:
            for kind, move in (("noise", _make_noise), ("adversarial", _make_worse)):
                x = data.test.x + strength * move(model, data.test)
                accuracies[kind][f"{strength:g}"][title] = _score(model, x, data.test)
    return accuracies


_SIZE_NETWORKS: Mapping[str, str] = {
    "LTC": "ltc",
    "LSTM": "lstm",
    "CT-RNN": "ct-rnn-ltc",
    "neural ODE": "neural-ode",
    "CT-GRU": "ct-gru-ltc",
}
_SIZES, _SPARSITIES = (8, 16, 32, 64), (0.0, 0.5, 0.75, 0.9)


def vary_size(task: str = "gesture", epochs: int = 60) -> dict[str, Any]:
    """Train networks of several sizes, dense and with random weights fixed at zero.

    Sparse networks have 32 neurons. Of every matrix of their cells the same share of entries, drawn
    at random, is zero; of an LTC these are synapses.

    Args:
        task: a data set with a class for every sample.
        epochs: of each training.

    Returns:
        Test accuracy, that of the epoch with the best validation accuracy: by number of neurons, or
        by share of zeros, and network.
    """
    sizes: dict[str, dict[str, float]] = {str(size): {} for size in _SIZES}
    sparse: dict[str, dict[str, float]] = {f"{share:g}": {} for share in _SPARSITIES}
    for title, network in _SIZE_NETWORKS.items():
        for size in _SIZES:
            sizes[str(size)][title] = _train_classifier(task, epochs, network, size)
        for share in _SPARSITIES[1:]:
            sparse[f"{share:g}"][title] = _train_classifier(task, epochs, network, _NEURONS, share)
        sparse["0"][title] = sizes[str(_NEURONS)][title]
    return {"neurons": sizes, "share of zeros": sparse}


class _Mask(nn.Module):
    """Holds entries of a matrix at zero."""

    mask: Tensor

    def __init__(self, mask: Tensor) -> None:
        super().__init__()
        self.register_buffer("mask", mask)

    def forward(self, matrix: Tensor) -> Tensor:
        """Return the matrix with its masked entries at zero."""
        return matrix * self.mask


def _train_classifier(task: str, epochs: int, network: str, size: int, share: float = 0.0) -> float:
    data = load_task(task)
    torch.manual_seed(0)
    inputs, classes = data.train.x.shape[-1], int(data.train.y.max()) + 1
    if share and network == "ltc":  # its synapses are those of a wiring
        rnn = build(network, inputs, RandomSparse(size, sparsity=share, seed=0))
    else:
        rnn = build(network, inputs, size)
        matrices = [n for n, p in rnn.cell.named_parameters() if p.dim() == 2 and share]
        for name in matrices:
            weight = rnn.cell.get_parameter(name)
            *path, leaf = name.split(".")
            owner = rnn.cell.get_submodule(".".join(path))
            parametrize.register_parametrization(
                owner, leaf, _Mask((torch.rand(weight.shape) >= share).to(weight.dtype))
            )
    model = SequenceModel(rnn, classes)
    lr = 0.01 if network == "ltc" else 0.005
    parts: dict[str, Any] = {"train": data.train, "valid": data.valid, "test": data.test}
    recipe = Recipe(lr=lr, batch_size=16, epochs=epochs)
    options: dict[str, Any] = {"loss": "cross_entropy", "metric": "accuracy", "recipe": recipe}
    result = train(model, **parts, **options, seed=0, progress=False)
    assert result.test is not None
    return float(result.test)


def _make_noise(model: nn.Module, data: SequenceBatch) -> Tensor:
    return torch.randn(data.x.shape, generator=torch.Generator().manual_seed(0))


def _make_worse(model: nn.Module, data: SequenceBatch) -> Tensor:
    x = data.x.clone().requires_grad_()
    loss: Callable[..., Tensor] = nn.functional.cross_entropy
    (gradient,) = torch.autograd.grad(loss(model(x)[0].flatten(0, 1), data.y.flatten()), x)
    return gradient.sign()


@torch.no_grad()
def _score(model: nn.Module, x: Tensor, data: SequenceBatch) -> float:
    return float((model(x)[0].argmax(-1) == data.y).double().mean())
