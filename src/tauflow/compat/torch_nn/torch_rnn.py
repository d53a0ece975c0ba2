"""A sequence module behind the interface of ``torch.nn.LSTM``."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from tauflow._internal.checks import check_bool
from tauflow.errors import ArgumentError
from tauflow.sequence import SequenceModule
from tauflow.sequence.states import State


class TorchRNN(nn.Module):
    """A sequence module called as ``torch.nn.LSTM`` and ``GRU`` are: time first, states in parts.

    ::

        lstm = TorchRNN(tauflow.LSTM(8, 32, 2))  # in place of nn.LSTM(8, 32, 2)
        output, (h_n, c_n) = lstm(input)  # input: (T, B, 8)

    Its parameters are those of the module, which is its attribute ``rnn``.

    Args:
        rnn: any sequence module that returns sequences.
        batch_first: whether batches are (B, T, I), or (T, B, I) as is torch's default.

    Raises:
        ArgumentError: ``rnn`` is no such module.
    """

    def __init__(self, rnn: SequenceModule, *, batch_first: bool = False) -> None:
        super().__init__()
        if not isinstance(rnn, SequenceModule) or not rnn.return_sequences:
            raise ArgumentError(
                "TorchRNN: rnn must be a sequence module that returns sequences, such as "
                f"tauflow.LSTM(8, 32), got {rnn!r}."
            )
        self.rnn = rnn
        self.batch_first = check_bool(batch_first=batch_first)

    def forward(
        self, input: Tensor | PackedSequence, hx: State | None = None, **timing: Any
    ) -> tuple[Tensor | PackedSequence, Tensor | tuple[Tensor, ...]]:
        """Run the module.

        Args:
            input: (T, B, I), or (B, T, I) if ``batch_first``; (T, I); or a PackedSequence.
            hx: parts of the state, each (L D, B, N) with L layers and D directions, such as (h, c)
                of an LSTM, or the only one.
            **timing: ``dt``, ``t``, ``mask``, ``lengths``, ``observed`` and ``episode_start``, see
                :meth:`~tauflow.sequence.SequenceModule.forward`, with the axes of the input.

        Returns:
            The outputs, in the form of the input, and the state, as ``hx`` is.

        Raises:
            ShapeError, DtypeError, ArgumentError, TimeError, NonFiniteError: as the module's.
        """
        swap = isinstance(input, Tensor) and input.ndim == 3 and not self.batch_first
        if not swap:
            y, h = self.rnn(input, hx, **timing)
            return y, self.rnn.to_torch_state(h)
        steps = {name: _swap_axes(value) for name, value in timing.items() if name != "lengths"}
        y, h = self.rnn(_swap_axes(input), hx, **{**timing, **steps})
        return y.transpose(0, 1), self.rnn.to_torch_state(h)

    def flatten_parameters(self) -> None:
        """Do nothing, see :meth:`~tauflow.sequence.SequenceModule.flatten_parameters`."""

    @property
    def all_weights(self) -> list[list[nn.Parameter]]:
        """The parameters of each cell, layer by layer, forward first."""
        return self.rnn.all_weights

    def __getattr__(self, name: str) -> Any:
        """Return ``input_size``, ``hidden_size``, ``num_layers`` and others of the module."""
        if name in ("input_size", "hidden_size", "num_layers", "bidirectional", "proj_size"):
            return getattr(self.rnn, name)
        return super().__getattr__(name)


def _swap_axes(value: Any) -> Any:
    """Return a tensor with its first two axes swapped; numbers and ``None`` as they are."""
    return value.transpose(0, 1) if isinstance(value, torch.Tensor) and value.ndim >= 2 else value
