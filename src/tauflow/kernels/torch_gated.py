"""Whole sequences of the gated cells through torch's own fused operators."""

from collections.abc import Callable

import torch
from torch import Tensor

from tauflow.cells.gated import AbstractGatedCell, ElmanCell, GRUCell, LSTMCell

from .spec import KernelCall, under_transform


def gated_limits(call: KernelCall) -> str | None:
    """Return why torch's operator cannot serve the call."""
    if call.mask is not None:
        return "torch's fused recurrent operators take no step mask"
    if under_transform(call):
        return "torch's fused recurrent operators do not run under torch.func transforms"
    if call.x.shape[0] == 0:
        return "torch's fused recurrent operators need at least one sequence"
    return None


def _features(call: KernelCall) -> Tensor:
    cell = call.cell
    assert isinstance(cell, AbstractGatedCell)
    return cell.features(call.x, call.dt)


def run_lstm(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run an :class:`LSTMCell` with ``torch.lstm``."""
    cell = call.cell
    assert isinstance(cell, LSTMCell)
    h, c = (part.unsqueeze(0) for part in call.h.split(cell.hidden_size, dim=-1))
    bias = cell.input_bias()
    weights = [cell.W_x, cell.W_h, bias, torch.zeros_like(bias)]
    state = [h.contiguous(), c.contiguous()]
    y, h, c = torch.lstm(_features(call), state, weights, True, 1, 0.0, cell.training, False, True)
    return y, torch.cat([h[0], c[0]], dim=-1)


def run_gru(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run a :class:`GRUCell` with ``torch.gru``."""
    cell = call.cell
    assert isinstance(cell, GRUCell)
    return _single_state(torch.gru, call, [cell.W_x, cell.W_h, cell.b, cell.b_h])


def run_elman(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run an :class:`ElmanCell` with ``torch.rnn_tanh``."""
    cell = call.cell
    assert isinstance(cell, ElmanCell)
    return _single_state(
        torch.rnn_tanh, call, [cell.W_x, cell.W_h, cell.b, torch.zeros_like(cell.b)]
    )


def _single_state(
    operator: Callable[..., tuple[Tensor, Tensor]], call: KernelCall, weights: list[Tensor]
) -> tuple[Tensor, Tensor]:
    h = call.h.unsqueeze(0).contiguous()
    y, h = operator(_features(call), h, weights, True, 1, 0.0, call.cell.training, False, True)
    return y, h[0]
