"""Initialisation shared by several cells."""

import math

import torch
from torch import Tensor, nn

Generator = torch.Generator | None


@torch.no_grad()
def inverse_softplus_(value: Tensor) -> Tensor:
    """Replace each positive entry v by the z with softplus(z) = v."""
    return value.add_(torch.log(-torch.expm1(-value)))


def random_signs_(tensor: Tensor, generator: Generator = None) -> Tensor:
    """Fill with +1 or -1, each with probability one half."""
    with torch.no_grad():
        return tensor.bernoulli_(0.5, generator=generator).mul_(2).sub_(1)


def torch_uniform_(tensor: Tensor, fan_in: int, generator: Generator = None) -> Tensor:
    """Fill from U(-1/sqrt(fan_in), 1/sqrt(fan_in)), the default of ``torch.nn.Linear``."""
    bound = 1 / math.sqrt(fan_in) if fan_in else 0.0
    return nn.init.uniform_(tensor, -bound, bound, generator=generator)


def glorot_blocks_(
    weight: Tensor, blocks: int, gain: float = 1.0, generator: Generator = None
) -> Tensor:
    """Fill each of ``blocks`` equal row blocks (one dense layer each) Glorot uniform."""
    for block in weight.chunk(blocks, dim=0):
        nn.init.xavier_uniform_(block, gain=gain, generator=generator)
    return weight


@torch.no_grad()
def joint_glorot_(*weights: Tensor, blocks: int = 1, generator: Generator = None) -> None:
    """Fill weights of several inputs Glorot uniform as one dense layer over all of them.

    Args:
        *weights: one weight (rows, columns) per input, all with the same rows.
        blocks: dense layers stacked along the rows, each with its fan-out.
        generator: source of the draws.
    """
    fan_in = sum(weight.shape[1] for weight in weights)
    bound = math.sqrt(6 / (fan_in + weights[0].shape[0] / blocks))
    for weight in weights:
        nn.init.uniform_(weight, -bound, bound, generator=generator)


def glorot_truncated_(weight: Tensor, generator: Generator = None) -> Tensor:
    """Fill Glorot normal as Keras does: cut at two deviations, and widened to keep the variance."""
    fan_out, fan_in = weight.shape
    std = math.sqrt(2 / (fan_in + fan_out)) / 0.87962566103423978  # deviation of a cut normal
    return nn.init.trunc_normal_(weight, 0.0, std, -2 * std, 2 * std, generator)
