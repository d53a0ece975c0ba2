"""minGRU and minLSTM: gates that do not read the state, so that a sequence is one scan."""

from typing import ClassVar

import torch
from torch import nn
from torch.nn import functional as F

from tauflow.cells.base import DtTensor, InputTensor, Precomputed
from tauflow.cells.diagonal import AbstractScanCell
from tauflow.cells.init import Generator, torch_uniform_
from tauflow.cells.time_feature import AbstractTimeFeatureCell


class AbstractMinimalCell(AbstractScanCell, AbstractTimeFeatureCell):
    """What both have in common: one dense layer on the input makes gates and candidate.

    Args:
        input_size: features D per time point.
        hidden_size: neurons N.
        append_dt: whether the time step is appended to the input. Without it the cell does not know
            time.
    """

    blocks: ClassVar[int]
    """Gates, and the candidate."""

    def __init__(self, input_size: int, hidden_size: int, *, append_dt: bool = False) -> None:
        super().__init__(input_size, hidden_size, append_dt=append_dt)
        self.W = nn.Parameter(torch.empty(self.blocks * hidden_size, self.feature_size))
        self.b = nn.Parameter(torch.empty(self.blocks * hidden_size))
        self.reset_parameters()

    def reset_parameters(self, generator: Generator = None) -> None:
        """Draw the layer as ``torch.nn.Linear`` does."""
        for tensor in (self.W, self.b):
            torch_uniform_(tensor, self.feature_size, generator)


class MinGRUCell(AbstractMinimalCell):
    r"""minGRU: a GRU whose gate and candidate read the input alone.

    .. math::
        z = \sigma(W_z x + b_z), \qquad h' = (1 - z)\, h + z\, (W_h x + b_h)

    The rows of W and b are blocks z and h. 2 N (D + 1) parameters. Over a sequence it is one scan,
    on every backend but ``"reference"``.

    Source: Feng et al. 2024, "Were RNNs all we needed?", Section 3.1.

    Differs from the paper: the form in logarithms of its appendix, whose candidate is positive, is
    left out, as a scan of z' = a z + b needs none; normalisation and the skip connection around the
    cell are the caller's.

    Args:
        input_size: features D per time point.
        hidden_size: neurons N.
        append_dt: whether the time step is appended to the input. Without it the cell does not know
            time.
    """

    paper: ClassVar[str] = "Feng et al. 2024, Were RNNs all we needed?"
    blocks: ClassVar[int] = 2

    def precompute(self, x: InputTensor, dt: DtTensor) -> Precomputed:
        """Return 1 - z, and z times the candidate."""
        z, candidate = F.linear(self.features(x, dt), self.W, self.b).chunk(2, dim=-1)
        return Precomputed((torch.sigmoid(-z), torch.sigmoid(z) * candidate))


class MinLSTMCell(AbstractMinimalCell):
    r"""minLSTM: an LSTM whose gates read the input alone, and add up to one.

    .. math::
        f = \sigma(W_f x + b_f), \qquad i = \sigma(W_i x + b_i), \qquad
        h' = \frac{f}{f + i}\, h + \frac{i}{f + i}\, (W_h x + b_h)

    The rows of W and b are blocks f, i and h. 3 N (D + 1) parameters. Over a sequence it is one
    scan, on every backend but ``"reference"``.

    Source: Feng et al. 2024, "Were RNNs all we needed?", Section 3.2.

    Differs from the paper: as :class:`~tauflow.zoo.MinGRUCell` does.

    Args:
        input_size: features D per time point.
        hidden_size: neurons N.
        append_dt: whether the time step is appended to the input. Without it the cell does not know
            time.
    """

    paper: ClassVar[str] = "Feng et al. 2024, Were RNNs all we needed?"
    blocks: ClassVar[int] = 3

    def precompute(self, x: InputTensor, dt: DtTensor) -> Precomputed:
        """Return both gates, and the second one times the candidate."""
        f, i, candidate = F.linear(self.features(x, dt), self.W, self.b).chunk(3, dim=-1)
        share = torch.sigmoid(F.softplus(-i) - F.softplus(-f))  # f / (f + i), if both are tiny
        return Precomputed((share, (1 - share) * candidate))
