"""What ``model="auto"`` tries, and how it joins what was trained into one model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, inf, isnan
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from tauflow.models.registry import get_model_info
from tauflow.models.wrappers import average_predictions
from tauflow.training.defaults import DEFAULT_RECIPE

if TYPE_CHECKING:
    from .results import RunRecord

AUTO = "auto"
BOOSTING = "boosting"
NETWORKS = ("augmented-lstm", "ltc-exp", "gru-d", "cfc-mmrnn", "lrc")
"""Recurrent networks that are tried: of all that *One budget for every network* compares those that
together lose least where validation chooses among them (``python -m benchmarks portfolio``)."""
HIDDEN_SIZE = 64
"""Neurons, as in that comparison."""
AUTO_RECIPE = DEFAULT_RECIPE.with_changes(
    {"lr": 0.016, "schedule": "cosine", "epochs": 60, "patience": None}
)
"""Its protocol, with the batch size and the averaging of weights of a run."""
MAX_ROUNDS = 20
"""Rounds of the choice of an ensemble."""
_RATIO = 3


@dataclass(frozen=True)
class Rung:
    """One round of successive halving.

    Args:
        epochs: of each network in it.
        networks: how many of the best so far are trained.
    """

    epochs: int
    networks: int


@dataclass(frozen=True)
class Trial:
    """One model of the portfolio, as it ended.

    Args:
        name: of the model.
        epochs: of its longest training; 0 of boosting.
        valid: validation score after it, of the metric that chooses.
        test: test score, of the metric that is reported.
        seconds: of all of its trainings.
        parameters: that it has.
        share: of the answer, 0 if it was not chosen.
    """

    name: str
    epochs: int
    valid: float
    test: float | None
    seconds: float
    parameters: int
    share: float = 0.0


class PortfolioFit(NamedTuple):
    """What was chosen of a portfolio.

    Args:
        model: that predicts from batches which say what was measured.
        record: of the network with the largest share, with the scores of the whole.
        trials: what was tried.
        notes: what is to be said of the choice.
    """

    model: nn.Module
    record: "RunRecord"
    trials: tuple[Trial, ...]
    notes: tuple[str, ...]


def get_title(name: str) -> str:
    """Return what reports call a model, or what was chosen automatically."""
    return "Models chosen by validation" if name == AUTO else get_model_info(name).title


def plan_rungs(networks: int, epochs: int) -> tuple[Rung, ...]:
    """Return the rounds of successive halving (Jamieson and Talwalkar 2016).

    All networks are trained for a ninth of the epochs, the better half for a third, and the better
    half of these for all. Each training is one of its own, whose learning rate falls to its end.

    Args:
        networks: how many there are.
        epochs: of the last round.
    """
    lengths = dict.fromkeys(max(1, ceil(epochs / _RATIO**power)) for power in (2, 1, 0))
    rungs: list[Rung] = []
    for length in lengths:  # fewer than three where there are few epochs
        rungs.append(Rung(length, networks))
        networks = ceil(networks / 2)
    return tuple(rungs)


def estimate_epochs(seconds: Sequence[float], limit: float, most: int, *, folds: int = 1) -> int:
    """Return the largest number of epochs whose rounds fit into a time; 0 if not even one does.

    Args:
        seconds: of an epoch of each network. The slowest are taken to survive.
        limit: seconds that there are.
        most: number that is not exceeded.
        folds: on each of which what survives is trained for the longest.
    """
    slowest = sorted(seconds, reverse=True)

    def cost(epochs: int) -> float:
        rungs = plan_rungs(len(slowest), epochs)
        times = [rung.epochs * sum(slowest[: rung.networks]) for rung in rungs]
        return sum(times) + (folds - 1) * times[-1]

    fits = [epochs for epochs in range(1, most + 1) if cost(epochs) <= limit]
    return max(fits, default=0)


def choose_ensemble(
    predictions: Sequence[Tensor],
    score: Callable[[Tensor], float],
    *,
    task: str,
    higher_is_better: bool,
) -> list[int]:
    """Choose an ensemble greedily by its validation score (Caruana et al. 2004).

    The best model begins; in each round the one joins, be it again, with which the mean is best,
    until none improves it.

    Args:
        predictions: of the validation split, by model, (..., O) each.
        score: of such predictions.
        task: how they are averaged, see :class:`tauflow.models.Ensemble`.
        higher_is_better: whether a good score is a large one.

    Returns:
        How often each model was chosen; not at all where no score is a number.
    """
    sign = 1.0 if higher_is_better else -1.0
    counts = [0] * len(predictions)
    best = -inf
    for _ in range(MAX_ROUNDS):
        found = []
        for place in range(len(predictions)):
            trial = [count + (place == other) for other, count in enumerate(counts)]
            used = [n for n, count in enumerate(trial) if count]
            mean = average_predictions(
                torch.stack([predictions[n] for n in used]), task, [float(trial[n]) for n in used]
            )
            value = sign * score(mean)
            found.append((-inf if isnan(value) else value, -place))
        value, place = max(found)
        if value <= best:
            break
        best = value
        counts[-place] += 1
    return counts
