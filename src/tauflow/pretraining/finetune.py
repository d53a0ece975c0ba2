"""Fine-tuning: a few steps of training on the members of one table."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .features import Features, compute_features
from .inference import MAX_CONTEXT, Series, gather_members
from .network import ZeroShotNetwork
from .population import Population
from .train import compute_loss

STEPS, LEARNING_RATE = 120, 3e-4
_SERIES, _QUERIES, _AHEAD = 48, 6, 24
_CHECKED, _EVERY, _WARM_UP = 8, 20, 10
_FEWEST = 4  # members with two points or more


@dataclass(frozen=True)
class FineTuned:
    """A network, and how it came about.

    Args:
        network: the fine-tuned network; the given one where no step was better on validation.
        step: of the weights that did best, 0 for none.
        losses: on validation, of step 0 and of the best one; NaN where nothing was left to
            validate on, and no step was taken.
    """

    network: ZeroShotNetwork
    step: int
    losses: tuple[float, float]


def fine_tune(
    network: ZeroShotNetwork, members: Sequence[Series], steps: int = STEPS, seed: int = 0
) -> FineTuned:
    """Train a copy of a network on members of a table, and keep what does best on a quarter.

    Of a single long series, the last quarter of its time is that quarter. Draws of far outliers
    alone, whose loss is NaN, are left out.

    Args:
        network: the network, which stays as it is.
        members: times and values of each.
        steps: of training.
        seed: of the members and origins.
    """
    trained, checked = _split(members, seed)
    if not trained or not checked:
        return FineTuned(network, 0, (float("nan"), float("nan")))
    rng, later = np.random.default_rng(seed), np.random.default_rng(seed + 1)
    checks = [_draw(later, checked) for _ in range(_CHECKED)]
    tuned = copy.deepcopy(network).train()
    optimizer = torch.optim.AdamW(tuned.parameters(), lr=LEARNING_RATE, weight_decay=0.01)
    losses, best, weights = [], 0, network.state_dict()
    for step in range(steps + 1):
        if step % _EVERY == 0:
            losses.append(_compute_mean_loss(tuned, checks))
            if losses[-1] < losses[best]:
                best, weights = len(losses) - 1, copy.deepcopy(tuned.state_dict())
        if step == steps or np.isnan(losses[0]):
            break
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * min(1.0, (step + 1) / _WARM_UP) * (1 - step / steps)
        loss = compute_loss(tuned, *_draw(rng, trained))
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(tuned.parameters(), 1.0)
        if torch.isfinite(norm):
            optimizer.step()
    tuned.load_state_dict(weights)
    return FineTuned(tuned.eval(), best * _EVERY, (losses[0], losses[best]))


@torch.no_grad()
def _compute_mean_loss(
    network: ZeroShotNetwork, checks: Sequence[tuple[Features, Tensor]]
) -> float:
    """Return the mean loss of draws, NaN where every value of all of them is a far outlier."""
    losses = np.array([compute_loss(network, *check).item() for check in checks])
    counted = losses[~np.isnan(losses)]
    return float(counted.mean()) if len(counted) else float("nan")


def _split(members: Sequence[Series], seed: int) -> tuple[list[Series], list[Series]]:
    """Return what is trained on, and what chooses the step."""
    usable = [member for member in members if len(member[0]) > 1]
    if len(usable) < _FEWEST:
        cuts = [(member, int(0.75 * len(member[0]))) for member in usable]
        long = [(t[:n], y[:n], t[n:], y[n:]) for (t, y), n in cuts if len(t) - n > 1]
        return [(t, y) for t, y, *_ in long], [(t, y) for *_, t, y in long]
    order = np.random.default_rng(seed).permutation(len(usable))
    count = max(len(usable) // 4, 1)
    return [usable[i] for i in order[count:]], [usable[i] for i in order[:count]]


def _draw(rng: np.random.Generator, members: Sequence[Series]) -> tuple[Features, Tensor]:
    """Return origins after the same number of points of several members, and what comes after."""
    lengths = np.array([len(t) for t, _ in members])
    points = int(rng.integers(1, min(int(lengths.max()), MAX_CONTEXT)))
    rows = rng.choice(np.flatnonzero(lengths > points), _SERIES)
    parts = []
    for row in rows:
        t, y = members[row]
        n = int(rng.integers(points, len(t)))
        ahead = np.sort(rng.integers(n, min(len(t), n + _AHEAD), _QUERIES))
        parts.append((t[n - points : n], y[n - points : n], t[ahead], y[ahead]))
    t, y, q, target = (np.stack(column) for column in zip(*parts, strict=True))
    others: Population | None = gather_members(members, rows.tolist()) if len(members) > 1 else None
    features = compute_features(t, y, q, others)
    return features, features.to_units(target)
