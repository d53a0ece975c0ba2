"""Permutation importance of the features of sequences.

Source: Breiman 2001, "Random forests", Section 10; Fisher et al. 2019, "All models are wrong, but
many are useful", for any model.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tauflow._internal.checks import check_at_least
from tauflow.batch import SequenceBatch, check_batch
from tauflow.training.evaluation_loop import evaluate
from tauflow.training.metrics import METRICS
from tauflow.training.objectives import AnyScore, resolve_metric


def permutation_importance(
    model: nn.Module,
    batch: SequenceBatch,
    *,
    metric: AnyScore,
    groups: Sequence[Sequence[int]] | None = None,
    static: Collection[int] = (),
    repeats: int = 5,
    seed: int = 0,
) -> Float[Tensor, "G R"]:
    """Return how much worse a score becomes if the values of a feature are permuted.

    The values of all valid steps of all sequences change places, each with whether it was measured;
    so a feature keeps its distribution, and loses its relation to the sequence, to its time and to
    other features.

    Args:
        model: called as ``prediction, state = model(x, dt=..., mask=...)``.
        batch: the sequences, with targets.
        metric: name of a metric, a score or a function, as for :func:`tauflow.training.evaluate`.
        groups: inputs of each feature, which are permuted together. By default each input is one.
        static: numbers of groups that are constant in a sequence. Whole sequences exchange them.
        repeats: permutations of each feature.
        seed: of the permutations.

    Returns:
        Score of the data less that of each permutation, or the reverse of a score that is better
        if lower: positive where the feature helps.

    Raises:
        DataError: see :func:`tauflow.training.evaluate`.
    """
    check_batch("permutation_importance: batch", batch)
    check_at_least(1, repeats=repeats)
    score = resolve_metric("metric", metric, METRICS)
    groups = [[place] for place in range(batch.x.shape[2])] if groups is None else groups
    generator = torch.Generator().manual_seed(seed)
    reference, sign = evaluate(model, batch, metric=score), 1.0 if score.higher_is_better else -1.0
    drops = torch.zeros(len(groups), repeats, dtype=torch.float64)
    for group, inputs in enumerate(groups):
        for repeat in range(repeats):
            changed = _permute(batch, list(inputs), group in static, generator)
            drops[group, repeat] = sign * (reference - evaluate(model, changed, metric=score))
    return drops


def _permute(
    batch: SequenceBatch, inputs: list[int], is_static: bool, generator: torch.Generator
) -> SequenceBatch:
    """Return a batch in which some inputs have changed places, between sequences or valid steps."""
    valid = batch.valid
    changed = {"x": batch.x.clone()}
    if batch.observed is not None:
        changed["observed"] = batch.observed.clone()
    if is_static:
        order = torch.randperm(len(batch), generator=generator).to(valid.device)
        for values in changed.values():
            first = values[order, 0][:, None, inputs].expand(-1, valid.shape[1], -1)
            values[..., inputs] = torch.where(valid.unsqueeze(-1), first, values[..., inputs])
    else:
        steps, places = valid.nonzero(as_tuple=True)
        order = torch.randperm(len(steps), generator=generator).to(valid.device)
        for values in changed.values():
            for feature in inputs:
                values[steps, places, feature] = values[steps[order], places[order], feature]
    return replace(batch, **changed)
