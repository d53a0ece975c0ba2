"""Sinusoidal encodings of time."""

import torch
from torch import Tensor


def sinusoids(times: Tensor, count: int, longest: float) -> Tensor:
    r"""Return sines and cosines of times at geometrically spaced scales, (..., 2 count).

    .. math::
        \sin(t / s_1), \ldots, \sin(t / s_n), \cos(t / s_1), \ldots, \cos(t / s_n), \qquad
        s_i = S^{(i - 1) / (n - 1)}

    Args:
        times: (...), in the unit of the smallest scale, which is 1.
        count: n, the number of scales; a single one is 1.
        longest: S, the largest scale.
    """
    exponents = torch.linspace(0, 1, count, dtype=times.dtype, device=times.device)
    angles = times.unsqueeze(-1) / longest**exponents
    return torch.cat([angles.sin(), angles.cos()], dim=-1)
