"""A model and data small enough to train in milliseconds, for the tests of training."""

import torch
from torch import Tensor, nn

from tauflow.batch import SequenceBatch


class TinyModel(nn.Module):
    """A GRU with dropout and a readout at every step, or of the last step."""

    def __init__(self, *, outputs: int = 1, per_step: bool = True, dropout: float = 0.2) -> None:
        super().__init__()
        self.rnn = nn.GRU(2, 4, batch_first=True)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(4, outputs)
        self.per_step = per_step

    def forward(
        self, x: Tensor, *, dt: Tensor | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        y, h = self.rnn(x)
        y = self.head(self.dropout(y))
        return (y if self.per_step else y[:, -1]), h


class Affine(nn.Module):
    """y = w x + b at every step, with w = 0.5 and b = 0: easy to follow by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([0.5]))
        self.b = nn.Parameter(torch.tensor([0.0]))

    def forward(
        self, x: Tensor, *, dt: Tensor | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, None]:
        return self.w * x + self.b, None


def tiny_model(**options: object) -> TinyModel:
    torch.manual_seed(0)
    return TinyModel(**options)  # type: ignore[arg-type]


def tiny_splits() -> dict[str, SequenceBatch]:
    """22 sequences of 5 steps to train on; the target is the running sum of the first feature."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(38, 5, 2, generator=generator)
    data = SequenceBatch(x, x[..., :1].cumsum(1))
    return {"train": data[:22], "valid": data[22:30], "test": data[30:]}
