"""Gradient boosted trees that forecast beside a network."""

import torch
from torch import Tensor

from .boosted_trees import AbstractTrees


class ForecastTrees(AbstractTrees):
    r"""A simple forecast and the sum of regression trees, for each target.

    .. math::
        f_o = s_{o, b_o} + c_o + \sum_{k:\, o_k = o} \mathrm{tree}_k(z)

    with :math:`s_{o, b}` the simple forecasts of target o, :math:`b_o` which of them counts, o_k
    the target of tree k, and z what is known where a forecast is asked for: lead time, further
    inputs of the :class:`tauflow.models.ForecastModel`, last values and their ages, simple
    forecasts, and the values at the last sample and 1 to 23 time steps before it. The module is not
    trained by gradients;
    :class:`tauflow.estimators.SequenceForecaster` fits it.

    Args:
        output_size: targets, O.
        trees: number of trees.
        nodes: number of their nodes.
        depth: largest number of decisions from a root to a leaf.
    """

    base: Tensor
    _float = torch.float32

    def __init__(self, output_size: int, *, trees: int, nodes: int, depth: int) -> None:
        super().__init__(output_size, trees=trees, nodes=nodes, depth=depth)
        self.register_buffer("base", torch.zeros(output_size, dtype=torch.int64))

    def forward(self, known: Tensor, simple: Tensor) -> Tensor:
        """Return forecasts, (Q, O).

        Args:
            known: z of each query, (Q, W).
            simple: simple forecasts, (Q, O, K).
        """
        base = self.base.expand(len(simple), -1).unsqueeze(-1)
        return simple.gather(-1, base).squeeze(-1) + self.predict_features(known.float()).to(simple)
