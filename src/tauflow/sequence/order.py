"""Where a masked sequence begins, and its gaps when it is read backwards."""

import torch
from torch import Tensor


def first_sample(x: Tensor, mask: Tensor | None) -> Tensor:
    """Return each sequence's first valid sample, (B, I); where none is valid, the first."""
    if mask is None:
        return x[:, 0]
    first = mask.to(torch.uint8).argmax(1)  # the first of equal maxima
    return x.gather(1, first.view(-1, 1, 1).expand(-1, 1, x.shape[2])).squeeze(1)


def gaps_reversed(dt: Tensor, mask: Tensor | None) -> Tensor:
    """Return the gaps of the time-reversed sequence, (B, T, 1).

    Going backwards, a sample's gap is that of the sample after it; the last sample, now the first,
    takes the gap that began the sequence.
    """
    if mask is None:
        return torch.cat([dt[:, :1], dt[:, 1:].flip(1)], dim=1)
    order = torch.argsort((~mask).to(torch.uint8), dim=1, stable=True)  # valid samples first
    compact = dt.squeeze(-1).gather(1, order)
    count = mask.sum(1, keepdim=True)
    place = torch.arange(dt.shape[1], device=dt.device).expand_as(order)
    following = torch.where(place + 1 < count, place + 1, torch.zeros_like(place))
    shifted = compact.gather(1, following)
    return torch.zeros_like(shifted).scatter(1, order, shifted).flip(1).unsqueeze(-1)
