"""Episodes inside a batch: sequences cut where they start again, and run side by side as rows."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

import torch
from torch import Tensor

from .inputs import Episodes, SequenceInputs

RunEpisodes: TypeAlias = Callable[[SequenceInputs, list[Tensor] | None], tuple[Tensor, Tensor]]

_MAX_PADDING_RATIO = 4
"""How many times as many steps as there are may be computed, for the sake of one call."""


def run_episodes(
    inputs: SequenceInputs,
    starts: list[Tensor] | None,
    run: RunEpisodes,
    *,
    state_sizes: Sequence[int],
    directions: int,
) -> tuple[Tensor, Tensor]:
    """Return what ``run`` gives if every cell starts again before the steps of
    ``inputs.episode_start``.

    Args:
        inputs: the call.
        starts: state of each cell before the sequences, or ``None`` for their own initial ones.
        run: returns outputs (B, T, H) and the last states of all cells.
        state_sizes: width of each cell's state.
        directions: 2 if every second cell runs backwards.
    """
    assert inputs.episode_start is not None
    batch, steps = inputs.episode_start.shape
    if not batch:
        return run(replace(inputs, episode_start=None), starts)
    begins, again = inputs.episode_start.clone(), inputs.episode_start[:, 0]
    if directions == 2 and inputs.mask is not None:
        # Backwards a sequence ends with its first sample, and not with what is masked before that.
        earliest = inputs.mask & (inputs.mask.cumsum(1) == 1)
        again = (begins & earliest).any(1)
        begins &= ~earliest
    begins[:, 0] = True
    row, first = begins.nonzero(as_tuple=True)
    following = torch.cat([first[1:], first.new_zeros(1)])  # 0 where the next row's begins
    length = torch.where(following > 0, following, steps) - first
    carried = (first == 0) & ~again[row], following == 0
    final = (following == 0, first == 0)
    places: list[Tensor] = []
    outputs: list[Tensor] = []
    ends: list[list[Tensor]] = [[] for _ in state_sizes]
    order: list[list[Tensor]] = [[] for _ in state_sizes]
    for group in _group_by_length(length, batch * steps):
        rows = Episodes(row[group], first[group], (carried[0][group], carried[1][group]))
        part, valid, place = _select_episodes(inputs, rows, length[group])
        y, last = run(part, None if starts is None else [h[rows.sequence] for h in starts])
        outputs.append(y[valid])
        places.append(place[valid])
        for i, h in enumerate(last.split(state_sizes, dim=-1)):
            chosen = final[i % directions][group]
            ends[i].append(h[chosen])
            order[i].append(rows.sequence[chosen])
    joined = torch.cat(outputs)[torch.cat(places).argsort()]
    states = [torch.cat(h)[torch.cat(of).argsort()] for h, of in zip(ends, order, strict=True)]
    return joined.unflatten(0, (batch, steps)), torch.cat(states, dim=-1)


def _group_by_length(length: Tensor, steps: int) -> Iterator[Tensor]:
    """Yield which episodes to run in one call, padded to the longest of them."""
    if len(length) * int(length.max()) <= _MAX_PADDING_RATIO * steps:
        yield torch.arange(len(length), device=length.device)
        return
    size = (length - 1).double().log2().floor()  # powers of two: at most half is padding
    for value in size.unique():
        yield (size == value).nonzero()[:, 0]


def _select_episodes(
    inputs: SequenceInputs, rows: Episodes, length: Tensor
) -> tuple[SequenceInputs, Tensor, Tensor]:
    """Return the call of some episodes, which of its steps there are, and where they lie."""
    count = torch.arange(int(length.max()), device=length.device)
    valid = count < length.unsqueeze(1)
    sequence = rows.sequence.unsqueeze(1)
    step = (rows.first_step.unsqueeze(1) + count).clamp_(max=inputs.x.shape[1] - 1)
    mask = valid if inputs.mask is None else valid & inputs.mask[sequence, step]
    absent = ~mask.unsqueeze(-1)
    part = replace(
        inputs,
        x=inputs.x[sequence, step].masked_fill(absent, 0.0),
        dt=inputs.dt[sequence, step].masked_fill(absent, 0.0),
        mask=mask,
        observed=None if inputs.observed is None else inputs.observed[sequence, step],
        episode_start=None,
        episodes=rows,
    )
    return part, valid, sequence * inputs.x.shape[1] + step
