"""Recurrent networks of ``torch.nn`` as networks of tauflow, with the same weights and outputs."""

import torch
from torch import Tensor, nn

from tauflow._internal.module_hooks import list_hook_kinds
from tauflow.cells.gated import AbstractGatedCell, GRUCell
from tauflow.errors import ArgumentError
from tauflow.sequence import GRU, LSTM, CatalogRNN, Elman, SequenceModule

_MODULES: dict[type[nn.Module], type[CatalogRNN]] = {nn.LSTM: LSTM, nn.GRU: GRU, nn.RNN: Elman}


def from_torch(source: nn.LSTM | nn.GRU | nn.RNN) -> SequenceModule:
    """Convert a ``torch.nn.LSTM``, ``GRU`` or ``RNN``, with its weights.

    Outputs and states are the same, in the layout of tauflow: inputs are (B, T, I) whatever
    ``batch_first`` says, and the state is one tensor, which
    :meth:`~tauflow.sequence.SequenceModule.to_torch_state` gives as torch does. The two biases of
    an LSTM or RNN, which are only ever added, become their sum; a module without biases gets biases
    of 0, which train.

    Args:
        source: the module, with any number of layers, in one direction or both.

    Returns:
        The module, :class:`tauflow.LSTM`, :class:`tauflow.GRU` or :class:`tauflow.Elman`, with the
        dtype, device and training mode of the source, and no memory of it.

    Raises:
        ArgumentError: the source is of another class, or has a projection, hooks or
            ``nonlinearity="relu"``, which tauflow's modules have not.
    """
    if type(source) not in _MODULES:
        raise ArgumentError(
            f"from_torch: source is a {type(source).__name__}, expected a torch.nn.LSTM, GRU or "
            "RNN. Pass the module itself, not its state_dict()."
        )
    if source.proj_size:
        raise ArgumentError(
            f"from_torch: the {type(source).__name__} has proj_size={source.proj_size}, which "
            "projects the state. tauflow's proj_size projects outputs only; there is no such LSTM."
        )
    if getattr(source, "nonlinearity", "tanh") != "tanh":
        raise ArgumentError(
            f"from_torch: the RNN has nonlinearity={source.nonlinearity!r}, and tauflow.Elman "
            "computes tanh only."
        )
    if hooks := list_hook_kinds(source):
        raise ArgumentError(
            f"from_torch: the {type(source).__name__} has {hooks[0]}, which would be left out. "
            "Remove them, and register them on the module that from_torch returns."
        )
    like: Tensor = getattr(source, "weight_ih_l0")  # noqa: B009  # whose type torch does not tell
    with torch.random.fork_rng(devices=[]):  # the initial values are overwritten at once
        module = _MODULES[type(source)](
            source.input_size,
            source.hidden_size,
            num_layers=source.num_layers,
            bidirectional=source.bidirectional,
            dropout=float(source.dropout) if source.num_layers > 1 else 0.0,  # as torch does
        )
    module.to(device=like.device, dtype=like.dtype)
    suffixes = ("", "_reverse") if source.bidirectional else ("",)
    names = [f"l{layer}{suffix}" for layer in range(source.num_layers) for suffix in suffixes]
    for cell, name in zip(module.each_cell, names, strict=True):
        assert isinstance(cell, AbstractGatedCell)
        _copy_layer(cell, source, name)
    return module.train(source.training)


@torch.no_grad()
def _copy_layer(cell: AbstractGatedCell, source: nn.RNNBase, name: str) -> None:
    """Copy the weights of one layer and direction."""
    cell.W_x.copy_(getattr(source, f"weight_ih_{name}"))
    cell.W_h.copy_(getattr(source, f"weight_hh_{name}"))
    zero = torch.zeros_like(cell.b)
    input_bias: Tensor = getattr(source, f"bias_ih_{name}") if source.bias else zero
    state_bias: Tensor = getattr(source, f"bias_hh_{name}") if source.bias else zero
    if isinstance(cell, GRUCell):  # whose reset gate acts on one of the two
        cell.b.copy_(input_bias)
        cell.b_h.copy_(state_bias)
    else:
        cell.b.copy_(input_bias + state_bias)
