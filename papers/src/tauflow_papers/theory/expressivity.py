"""How expressive a network is: how well it can be made to follow noise."""

import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tauflow._internal.checks import check_at_least, check_positive
from tauflow.batch import SequenceBatch
from tauflow.cells.gated_flow import AbstractGatedFlowCell
from tauflow.cells.registry import MODELS
from tauflow.errors import ArgumentError, NonFiniteError, ShapeError
from tauflow.sequence import build
from tauflow.training import Recipe, train

LEARNING_RATES = (1e-4, 1e-3, 1e-2)
WEIGHT_DECAYS = (1e-3, 1e-2, 1e-1)


@dataclass(frozen=True)
class NoiseFit:
    """Fit of one network to one path of noise.

    Args:
        error: lowest mean squared error of any epoch; NaN if training did not stay finite.
        epoch: the epoch after which it was reached; 0 if it was not.
        errors: after each epoch.
        prediction: of the path, by the weights of that epoch.
        parameters: trainable numbers, readout included.
        finite: whether loss and weights stayed finite.
    """

    error: float
    epoch: int
    errors: tuple[float, ...]
    prediction: Float[Tensor, "T D"]
    parameters: int
    finite: bool


_SWEEP_OPTIONS = ("lr", "weight_decay", "seed")


def fit_noise(
    network: str,
    path: Float[Tensor, "T D"],
    *,
    hidden_size: int,
    drive: float = 1.0,
    interval: float = 1.0,
    epochs: int = 2000,
    lr: float = 1e-3,
    weight_decay: float = 1e-3,
    seed: int = 0,
    **options: Any,
) -> NoiseFit:
    """Train a network to produce a given path from a constant input.

    Source: Kim et al. 2022, "Gated neural ODEs", Section 5.3 and Appendix F: AdamW on the one path,
    an affine initial state and Glorot normal weights, the lowest training error of any epoch. The
    path is that of the data set ``"ornstein-uhlenbeck"``.

    Unless the options say otherwise, that start and those weights are given to the models that have
    them to choose (the networks of the paper: ``"gnode"``, ``"node"``, ``"mgru"``, ``"lem"`` and
    those that end in ``"-euler"``). Every other model starts as it does by default.

    Args:
        network: name of a cell in the catalog (:data:`tauflow.cells.MODELS`), such as ``"gnode"``.
        path: to follow, one sample per step.
        hidden_size: N.
        drive: every input at every step; there are D inputs.
        interval: time between the samples, in the unit of the network's time constants.
        epochs: steps of training.
        lr: learning rate.
        weight_decay: of AdamW.
        seed: of the weights.
        **options: of the model, such as ``tau`` and ``units``.

    Raises:
        ShapeError: the path has other than two axes.
        UnknownNameError: no cell of the catalog has that name.
        OptionError: the model does not take an option.
    """
    if path.ndim != 2 or not len(path):
        raise ShapeError(
            f"fit_noise: path has shape {tuple(path.shape)}, expected (T, D). Give one path."
        )
    y = path.detach().float()[None]
    batch = SequenceBatch(
        x=torch.full_like(y, drive),
        y=y,
        dt=torch.full(y.shape[:2], check_positive(interval=interval)),
    )
    recipe = Recipe(
        optimizer="adamw",
        lr=lr,
        weight_decay=weight_decay,
        epochs=epochs,
        batch_size=1,
        shuffle=False,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(check_at_least(0, seed=seed))
        model = _NetworkWithReadout(network, path.shape[1], hidden_size, options)
    count = sum(parameter.numel() for parameter in model.parameters())
    parts: dict[str, Any] = {"train": batch, "valid": batch, "test": None}
    try:
        result = train(
            model, **parts, loss="mse", metric="mse", recipe=recipe, seed=seed, progress=False
        )
    except NonFiniteError:
        return NoiseFit(math.nan, 0, (), torch.full_like(y[0], math.nan), count, finite=False)
    errors = tuple(float(row["valid"]) for row in result.history)
    with torch.no_grad():
        prediction, _ = model(batch.x, dt=batch.dt)
    best = result.best_epoch
    return NoiseFit(errors[best - 1], best, errors, prediction[0], count, finite=True)


@dataclass(frozen=True)
class NoiseRow:
    """Fit of a network to noise at one setting: mean and spread over seeds.

    Args:
        network: its name in the sweep.
        value: of what is varied; a number as a float, anything else as it was given.
        mean: of the lowest errors of the seeds.
        deviation: their standard deviation, 0 with one seed.
        errors: of each seed; NaN where training did not stay finite.
        lr: learning rate chosen.
        weight_decay: decay chosen.
        parameters: trainable numbers.
        finite: whether the training of every seed stayed finite.
    """

    network: str
    value: Any
    mean: float
    deviation: float
    errors: tuple[float, ...]
    lr: float
    weight_decay: float
    parameters: int
    finite: bool


def noise_sweep(
    networks: Mapping[str, Mapping[str, Any]],
    path: Float[Tensor, "T D"],
    *,
    vary: str,
    values: Sequence[Any],
    seeds: int = 5,
    lr: Sequence[float] = LEARNING_RATES,
    weight_decay: Sequence[float] = WEIGHT_DECAYS,
    epochs: int = 2000,
    interval: float = 1.0,
) -> tuple[NoiseRow, ...]:
    """Fit noise with several networks while one option takes several values.

    For each value the learning rate and the weight decay with the lowest error of the first seed
    are taken for all seeds.

    Source: Kim et al. 2022, "Gated neural ODEs", Figures 3 and 11-14: ``vary`` is ``"tau"``,
    ``"hidden_size"`` or ``"units"``. As an experiment with the paper's sizes it is the
    specification ``gnode-figure-3``.

    Args:
        networks: for each name the options of :func:`fit_noise`, ``"network"`` and, unless varied,
            ``"hidden_size"`` among them.
        path: to follow.
        vary: the option that is varied.
        values: that it takes, such as numbers, or names of activations.
        seeds: how many.
        lr: learning rates to choose from.
        weight_decay: decays to choose from.
        epochs: of each training, where a network's options do not say otherwise.
        interval: time between the samples, likewise.

    Raises:
        ArgumentError: there is nothing to sweep, a network's options leave nothing to vary, or
            what the sweep sets itself (``lr``, ``weight_decay``, ``seed``) is varied or among them.
    """
    count = check_at_least(1, seeds=seeds)
    if not networks or not values or not lr or not weight_decay:
        raise ArgumentError(
            "noise_sweep: networks, values, lr and weight_decay must each hold one entry or more."
        )
    for name, options in networks.items():
        if "network" not in options or vary in options:
            raise ArgumentError(
                f"noise_sweep: the options of {name!r} are {dict(options)}. Name the model as "
                f"'network', and leave out {vary!r}, which is varied."
            )
        if taken := [option for option in (vary, *options) if option in _SWEEP_OPTIONS]:
            raise ArgumentError(
                f"noise_sweep sets {taken[0]!r} itself, for {name!r} as for all networks, so that "
                "it can neither be varied nor fixed. Pass lr=, weight_decay= and seeds= to it."
            )
    common = {"epochs": epochs, "interval": interval}
    return tuple(
        _fit_row(name, value, {**common, **options, vary: value}, path, count, lr, weight_decay)
        for name, options in networks.items()
        for value in values
    )


def _fit_row(
    name: str,
    value: Any,
    options: dict[str, Any],
    path: Tensor,
    seeds: int,
    lr: Sequence[float],
    weight_decay: Sequence[float],
) -> NoiseRow:
    recipes: list[dict[str, Any]] = [
        {"lr": rate, "weight_decay": decay} for rate, decay in product(lr, weight_decay)
    ]
    network = options.pop("network")
    first = [fit_noise(network, path, **options, **recipe) for recipe in recipes]
    best = min(range(len(first)), key=lambda i: first[i].error if first[i].finite else math.inf)
    fits = [first[best]]
    for seed in range(1, seeds):
        fits.append(fit_noise(network, path, seed=seed, **options, **recipes[best]))
    errors = torch.tensor([fit.error for fit in fits], dtype=torch.float64)
    return NoiseRow(
        name,
        float(value) if is_number(value) else value,
        float(errors.mean()),
        float(errors.std()) if seeds > 1 else 0.0,
        tuple(errors.tolist()),
        recipes[best]["lr"],
        recipes[best]["weight_decay"],
        fits[0].parameters,
        all(fit.finite for fit in fits),
    )


def is_number(value: object) -> bool:
    """Return whether a varied value is a number, of Python or of an array; a flag is not."""
    return hasattr(value, "__float__") and not isinstance(value, bool)


class _NetworkWithReadout(nn.Module):
    """A network of the catalog and an affine readout, trained together."""

    def __init__(
        self, network: str, size: int, hidden_size: int, options: Mapping[str, Any]
    ) -> None:
        super().__init__()
        self.rnn = build(network, size, hidden_size, **{**_get_initial_options(network), **options})
        self.head = nn.Linear(self.rnn.output_size, size)
        nn.init.xavier_normal_(self.head.weight)
        nn.init.normal_(self.head.bias, std=1e-3)

    def forward(self, x: Tensor, **times: Any) -> tuple[Tensor, Tensor]:
        y, h = self.rnn(x, **times)
        return self.head(y), h


def _get_initial_options(network: str) -> dict[str, str]:
    """Return the options with which the paper's networks start, as far as the model has them."""
    if network not in MODELS or not issubclass(cell := MODELS[network].cell, AbstractGatedFlowCell):
        return {}  # "init" is an option of many more cells, whose schemes are others
    taken = inspect.signature(cell.__init__).parameters
    start = {"initial_state": "affine", "init": "glorot_normal"}
    return {name: value for name, value in start.items() if name in taken}
