"""Embeddings of token ids."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from tauflow._internal.checks import check_at_least, check_within, is_readable, shape_error
from tauflow._internal.init_args import CaptureInitArgs
from tauflow.errors import ArgumentError, DtypeError


class TokenEmbedding(nn.Module, metaclass=CaptureInitArgs):
    """A learned vector for every token, drawn from U(-0.05, 0.05) as Keras does.

    Args:
        vocabulary: number of tokens V; ids are 0 to V - 1.
        width: length W of a vector.
        dropout: probability of dropping an entry of a vector, while training.
    """

    options: dict[str, Any]

    def __init__(self, vocabulary: int, width: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.vocabulary = check_at_least(1, vocabulary=vocabulary)
        self.width = check_at_least(1, width=width)
        self.table = nn.Embedding(vocabulary, width)
        self.dropout = nn.Dropout(check_within(0.0, 1.0, dropout=dropout))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw every vector."""
        nn.init.uniform_(self.table.weight, -0.05, 0.05)

    def forward(self, x: Tensor | PackedSequence) -> Tensor | PackedSequence:
        """Return the vectors, (B, T, W), of ids (B, T, 1); unbatched and packed input likewise.

        Raises:
            DtypeError: ids are not integers.
            ShapeError: the last axis is longer than 1.
            ArgumentError: an id is outside the vocabulary.
        """
        if isinstance(x, PackedSequence):
            return x._replace(data=self._look_up(x.data))
        return self._look_up(x)

    def _look_up(self, ids: Tensor) -> Tensor:
        if ids.dtype not in (torch.int64, torch.int32):
            raise DtypeError(
                f"TokenEmbedding: x has dtype {ids.dtype}, expected int64 or int32 token ids. "
                "Convert whole numbers with x.long(); features need no embedding."
            )
        if ids.ndim < 2 or ids.shape[-1] != 1:
            raise shape_error(
                "TokenEmbedding", "x", ids, "(B, T, 1), an id per step", "Use x.unsqueeze(-1)."
            )
        if is_readable(ids) and ids.numel():
            low, high = (int(bound) for bound in ids.aminmax())
            if low < 0 or high >= self.vocabulary:
                raise ArgumentError(
                    f"TokenEmbedding: x holds ids from {low} to {high}, expected 0 to "
                    f"{self.vocabulary - 1}. Enlarge the vocabulary, or map rare tokens to one id."
                )
        vectors: Tensor = self.dropout(self.table(ids[..., 0]))
        return vectors

    def extra_repr(self) -> str:
        """Describe the sizes."""
        return f"vocabulary={self.vocabulary}, width={self.width}"
