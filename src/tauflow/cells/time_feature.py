"""Base class of cells without a notion of time, which may read the time step as a feature."""

import torch
from jaxtyping import Float
from torch import Tensor

from tauflow._internal.checks import check_bool

from .base import AbstractCell, DtTensor, InputTensor


class AbstractTimeFeatureCell(AbstractCell):
    """A discrete cell that feels a time step only if it is appended to the input.

    Args:
        input_size: features D per time point.
        hidden_size: neurons N.
        append_dt: whether the time step is appended to the input, which then has D + 1 features.
    """

    def __init__(self, input_size: int, hidden_size: int, *, append_dt: bool = False) -> None:
        super().__init__(input_size, hidden_size)
        self.append_dt = self.uses_dt = check_bool(append_dt=append_dt)

    @property
    def feature_size(self) -> int:
        """Width F of what the weights on the input see: D, or D + 1 with the time step."""
        return self.input_size + self.append_dt

    def features(self, x: InputTensor, dt: DtTensor) -> Float[Tensor, "*batch F"]:
        """Return what the weights on the input see."""
        return torch.cat([x, dt], dim=-1) if self.append_dt else x
