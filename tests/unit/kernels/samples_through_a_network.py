"""A data set that runs a network for every sample, importable by spawned workers."""

import torch
from torch import Tensor
from torch.utils.data import Dataset

import tauflow


class SamplesThroughANetwork(Dataset[Tensor]):
    def __init__(self, name: str) -> None:
        torch.manual_seed(0)
        self.rnn = tauflow.build(name, 2, 6, backend="numba")
        self.x = torch.randn(6, 3, 5, 2)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> Tensor:
        """Values and a gradient: both passes of the kernel run in the worker."""
        y, _ = self.rnn(self.x[index])
        (gradient,) = torch.autograd.grad(y.square().sum(), [next(self.rnn.parameters())])
        return torch.cat([y.detach().flatten(), gradient.flatten()])
