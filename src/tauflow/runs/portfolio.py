"""What ``model="auto"`` tries, and how it joins what was trained into one model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, isnan
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from tauflow.models.registry import get_model_info
from tauflow.models.wrappers import average_predictions

if TYPE_CHECKING:
    from .results import RunRecord

AUTO = "auto"
BOOSTING = "boosting"
NETWORKS = ("augmented-lstm", "ltc-exp", "gru-d", "cfc-mmrnn")
"""Recurrent networks that are tried: of all that *One budget for every network* compares those that
together lose least where validation chooses among them, and as many as lose least on a task that
did not choose them (``python -m benchmarks portfolio``)."""
HIDDEN_SIZE = 64
"""Neurons, as in that comparison."""
KEPT_NETWORKS = 2
"""Networks that are trained on every fold: the best of the first."""
MAX_ROUNDS = 20
"""Rounds of the choice of an ensemble."""


@dataclass(frozen=True)
class Trial:
    """One model of the portfolio, as it ended.

    Args:
        name: of the model.
        epochs: of its longest training; 0 of boosting.
        valid: score on what it was not trained on, of the metric that chooses.
        test: test score, of the metric that is reported.
        seconds: of all of its trainings.
        parameters: of all of its networks.
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
    if name == AUTO:
        return "Models chosen by validation"
    return " and ".join(get_model_info(part).title for part in name.split("+"))


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
        candidates = []
        for place in range(len(predictions)):
            trial = [count + (place == other) for other, count in enumerate(counts)]
            used = [n for n, count in enumerate(trial) if count]
            mean = average_predictions(
                torch.stack([predictions[n] for n in used]), task, [float(trial[n]) for n in used]
            )
            value = sign * score(mean)
            candidates.append((-inf if isnan(value) else value, -place))
        value, place = max(candidates)
        if value <= best:
            break
        best = value
        counts[-place] += 1
    return counts
