"""Linear flows, solved exactly."""

import torch
from jaxtyping import Float
from torch import Tensor


def matrix_exponential(A: Float[Tensor, "*batch N N"]) -> Float[Tensor, "*batch N N"]:
    """Return exp(A), which takes a state over a unit of time of ``dh/dt = A h``.

    In double precision torch's polynomial for one matrix alone has a wrong coefficient, which costs
    half of the digits (github.com/pytorch/pytorch/issues/196592): there it is taken twice.
    """
    is_single = A.dtype is torch.float64 and A.shape[:-2].numel() == 1
    copies = torch.cat([A.reshape(1, *A.shape[-2:])] * 2) if is_single else A
    flow: Tensor = torch.linalg.matrix_exp(copies)
    return flow[0].reshape(A.shape) if is_single else flow
