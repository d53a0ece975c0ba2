"""A causal Transformer with time steps and encoded times as inputs."""

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tauflow._internal.checks import check_at_least, check_bool, check_within
from tauflow.errors import ArgumentError
from tauflow.models.stateless import AbstractStatelessModel, hold_last_valid
from tauflow.sequence.inputs import SequenceInputs

from .time_encoding import sinusoids


class Transformer(AbstractStatelessModel):
    r"""Causal pre-norm Transformer encoder over irregular samples.

    With time steps dt, running time tau_k = dt_1 + ... + dt_k, sines and cosines e(tau), and L
    blocks:

    .. math::
        z = W [x; dt] + b + e(\tau)

        z \leftarrow z + \mathrm{Attention}(\mathrm{LN}(z)), \qquad
        z \leftarrow z + W_2\, \mathrm{GELU}(W_1 \mathrm{LN}(z) + b_1) + b_2, \qquad
        y = \mathrm{LN}(z)

    Each step attends to itself and the valid steps before; a masked step repeats the output of the
    one before, or zero before the first. With D inputs and width N the model has
    (D + 4) N + L (12 N^2 + 13 N) parameters.

    Source: Vaswani et al. 2017, "Attention is all you need"; normalisation first as in Xiong et al.
    2020, "On layer normalization in the Transformer architecture".

    Differs from the Transformer in Table 7 of Hasani et al. 2022 (CfC) in unknown ways: neither
    paper nor code describe it. Width, blocks and how times enter are our choice.

    Args:
        input_size: features D per time point.
        hidden_size: width N, even, and a multiple of ``heads``.
        layers: blocks L.
        heads: attention heads per block.
        dropout: of attention weights, of the hidden layer and of what each block adds.
        longest: largest time scale of the encoding; the smallest is 1, in the unit of ``dt``.
        return_sequences: whether to return every step's output, or the last valid one's.
    """

    paper: ClassVar[str] = "Vaswani et al. 2017, Attention is all you need"
    has_per_step_output: ClassVar[bool] = True
    uses_absolute_times: ClassVar[bool] = False

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        layers: int = 2,
        heads: int = 4,
        dropout: float = 0.1,
        longest: float = 10_000.0,
        return_sequences: bool = True,
    ) -> None:
        hidden_size = check_at_least(2, hidden_size=hidden_size)
        super().__init__(
            check_at_least(1, input_size=input_size),
            hidden_size,
            return_sequences=check_bool(return_sequences=return_sequences),
        )
        if hidden_size % 2 or hidden_size % check_at_least(1, heads=heads):
            raise ArgumentError(
                f"hidden_size={hidden_size} must be even, for sines and cosines, and a multiple of "
                f"heads={heads}. Try {_next_valid_size(hidden_size, heads)}."
            )
        self.longest = check_within(1.0, float("inf"), longest=longest)
        self.embedding = nn.Linear(input_size + 1, hidden_size)
        self.blocks = nn.ModuleList(
            TransformerBlock(hidden_size, heads, check_within(0.0, 1.0, dropout=dropout))
            for _ in range(check_at_least(1, layers=layers))
        )
        self.norm = nn.LayerNorm(hidden_size)
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw matrices Glorot uniform; biases are 0, gains of the normalisation 1."""
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                nn.init.xavier_uniform_(parameter, generator=generator)
            else:
                nn.init.constant_(parameter, 1.0 if "norm" in name and "weight" in name else 0.0)

    def encode(self, inputs: SequenceInputs, times: Tensor) -> Tensor:
        """Return the outputs, (B, T, N), or (B, N) at the last valid step."""
        running = inputs.dt.squeeze(-1).cumsum(1)  # from the first sample, wherever zero may lie
        z = self.embedding(torch.cat([inputs.x, inputs.dt], dim=-1))
        z = z + sinusoids(running, self.output_size // 2, self.longest)
        allowed = _make_attention_mask(inputs.mask)
        for block in self.blocks:
            z = block(z, allowed)
        y = hold_last_valid(self.norm(z), inputs.mask)
        return y if self.return_sequences else y[:, -1]


class TransformerBlock(nn.Module):
    """Self-attention and a dense network, each normalised first and added to what came in.

    Args:
        size: width N.
        heads: attention heads.
        dropout: of attention weights, of the hidden layer and of what is added.
    """

    def __init__(self, size: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.attention_norm = nn.LayerNorm(size)
        self.queries_keys_values = nn.Linear(size, 3 * size)
        self.mix = nn.Linear(size, size)
        self.dense_norm = nn.LayerNorm(size)
        self.up = nn.Linear(size, 4 * size)
        self.down = nn.Linear(4 * size, size)

    def forward(self, z: Tensor, attention_mask: Tensor | None) -> Tensor:
        """Return the new z, (B, T, N).

        Args:
            z: (B, T, N).
            attention_mask: (B, 1, T, T) bool, which steps (rows) may attend to which; ``None`` for
                every one to itself and those before.
        """
        z = z + self._apply_dropout(self.mix(self._attend(self.attention_norm(z), attention_mask)))
        return z + self._apply_dropout(
            self.down(self._apply_dropout(F.gelu(self.up(self.dense_norm(z)))))
        )

    def _attend(self, z: Tensor, attention_mask: Tensor | None) -> Tensor:
        parts = self.queries_keys_values(z).unflatten(-1, (3, self.heads, -1))
        queries, keys, values = parts.permute(2, 0, 3, 1, 4)  # each (B, heads, T, N / heads)
        attended = F.scaled_dot_product_attention(
            queries,
            keys,
            values,
            attn_mask=attention_mask,
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=attention_mask is None,
        )
        return attended.transpose(1, 2).flatten(2)

    def _apply_dropout(self, z: Tensor) -> Tensor:
        return F.dropout(z, self.dropout, self.training)


def _make_attention_mask(mask: Tensor | None) -> Tensor | None:
    """Return which steps may attend to which; every one to itself, so that no row is empty."""
    if mask is None:
        return None
    steps = torch.arange(mask.shape[1], device=mask.device)
    before, same = steps.unsqueeze(1) > steps, steps.unsqueeze(1) == steps
    return ((before & mask.unsqueeze(1)) | same).unsqueeze(1)


def _next_valid_size(size: int, heads: int) -> int:
    step = heads if heads % 2 == 0 else 2 * heads
    return -(-size // step) * step
