"""The call of ``torch.nn.LSTM`` and ``GRU``, with states in parts, for any sequence module."""

from .torch_rnn import TorchRNN

__all__ = ["TorchRNN"]
