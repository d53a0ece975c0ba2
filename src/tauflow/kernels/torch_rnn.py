"""Whole sequences of the gated cells: through torch's own fused operators."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from tauflow.cells.gated import AbstractGatedCell, ElmanCell, GRUCell, LSTMCell

from .engine.kernel_call import KernelCall, is_under_transform
from .engine.torch_state import is_forward_mode


def lstm_unsupported_reason(call: KernelCall) -> str | None:
    """Return why torch's LSTM cannot serve the call."""
    if call.x.device.type == "cpu" and _operand_dtype(call) in (torch.bfloat16, torch.float16):
        # oneDNN needs instructions that torch does not always ask for.
        return f"not every processor has torch's fused LSTM in {_operand_dtype(call)}"
    return gated_unsupported_reason(call)


def gru_unsupported_reason(call: KernelCall) -> str | None:
    """Return why torch's GRU cannot serve the call."""
    assert isinstance(call.cell, GRUCell)
    if call.cell.phi is not torch.tanh:
        return f"torch's fused GRU has tanh, the cell {call.cell.activation}"
    return gated_unsupported_reason(call)


def gated_unsupported_reason(call: KernelCall) -> str | None:
    """Return why torch's operators cannot serve the call."""
    if call.mask is not None:
        return "torch's fused recurrent operators take no step mask"
    if is_under_transform(call):
        return "torch's fused recurrent operators do not run under torch.func transforms"
    if not torch.compiler.is_compiling() and is_forward_mode():
        return "torch's fused recurrent operators have no forward-mode gradients"
    if _has_no_traced_backward(call):
        return "torch's fused LSTM has no backward pass that the compiler can trace on the CPU"
    if call.x.shape[0] == 0:
        return "torch's fused recurrent operators need at least one sequence"
    return None


def _has_no_traced_backward(call: KernelCall) -> bool:
    traced = torch.compiler.is_compiling() and torch.is_grad_enabled()
    return traced and isinstance(call.cell, LSTMCell) and call.x.device.type == "cpu"


def _make_operands(call: KernelCall) -> tuple[Tensor, list[Tensor]]:
    """Return what the operator reads, (B, T, F), and the parts of the state, (1, B, N) each.

    Both are in one dtype, by which torch chooses its operator: under autocast time steps and states
    have more digits, which the operator would round itself.
    """
    cell, dtype = call.cell, _operand_dtype(call)
    assert isinstance(cell, AbstractGatedCell)
    features, h = (part.to(dtype) for part in (cell.features(call.x, call.dt), call.h))
    parts = h.unsqueeze(0).split(cell.hidden_size, dim=-1)
    return features, [part.contiguous() for part in parts]


def _operand_dtype(call: KernelCall) -> torch.dtype:
    """Return the dtype of what the operator reads: that of x, but see :func:`_is_autocast`."""
    return torch.float32 if _is_autocast(call) else call.x.dtype


def _is_autocast(call: KernelCall) -> bool:
    """Whether autocast would convert all of an LSTM on a CPU, and not its products alone.

    Its memory would have the digits of half precision, of which a step adds up the rounding: the
    operator is then left out of autocast.
    """
    converts = call.x.device.type == "cpu" and torch.is_autocast_enabled("cpu")
    return converts and isinstance(call.cell, LSTMCell) and call.x.dtype is not torch.float64


def _should_save_for_backward(call: KernelCall) -> bool:
    """Whether the operator is to keep what a backward pass reads.

    In evaluation mode too: without it cuDNN refuses the backward pass. There is no dropout inside
    that it could switch on.
    """
    return call.cell.training or torch.is_grad_enabled()


def _alias_operands(
    features: Tensor, state: list[Tensor], weights: list[Tensor]
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """Return what the LSTM reads as tensors that are held here alone.

    It keeps what it is given, and its backward pass on the CPU looks at no shape: a parameter that
    was given other ``.data`` in the meantime would be read beyond its end.
    """
    if not torch.is_grad_enabled() or torch.compiler.is_compiling():
        return features, state, weights
    return features.view_as(features), state, [weight.view_as(weight) for weight in weights]


def _flatten_weights(weights: list[Tensor]) -> list[Tensor]:
    """Return weights as cuDNN wants them on a GPU: one after the other in memory.

    It copies those that are not at every call too, and warns of it. The parameters themselves stay
    where optimizers, wrappers and files have them.
    """
    if weights[0].device.type != "cuda" or torch.compiler.is_compiling():
        return weights
    piece = torch.cat([weight.flatten() for weight in weights])
    parts = piece.split([weight.numel() for weight in weights])
    return [part.view_as(weight) for part, weight in zip(parts, weights, strict=True)]


def run_lstm(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run an :class:`LSTMCell` with ``torch.lstm``."""
    cell = call.cell
    assert isinstance(cell, LSTMCell)
    features, state = _make_operands(call)
    bias = cell.input_bias()
    weights = [cell.W_x, cell.W_h, bias, torch.zeros_like(bias)]
    keeps = _should_save_for_backward(call)
    autocast: AbstractContextManager[object] = nullcontext()
    if _is_autocast(call):
        autocast, weights = torch.autocast("cpu", enabled=False), [w.float() for w in weights]
    weights = _flatten_weights(weights)
    with autocast:
        y, h, c = torch.lstm(
            *_alias_operands(features, state, weights), True, 1, 0.0, keeps, False, True
        )
    return y, torch.cat([h[0], c[0]], dim=-1)


def run_gru(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run a :class:`GRUCell` with ``torch.gru``."""
    cell = call.cell
    assert isinstance(cell, GRUCell)
    return _run_single_state(torch.gru, call, [cell.W_x, cell.W_h, cell.b, cell.b_h])


def run_elman(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run an :class:`ElmanCell` with ``torch.rnn_tanh``."""
    cell = call.cell
    assert isinstance(cell, ElmanCell)
    return _run_single_state(
        torch.rnn_tanh, call, [cell.W_x, cell.W_h, cell.b, torch.zeros_like(cell.b)]
    )


def _run_single_state(
    operator: Callable[..., tuple[Tensor, Tensor]], call: KernelCall, weights: list[Tensor]
) -> tuple[Tensor, Tensor]:
    features, (h,) = _make_operands(call)
    keeps = _should_save_for_backward(call)
    weights = _flatten_weights(weights)
    y, h = operator(features, h, weights, True, 1, 0.0, keeps, False, True)
    return y, h[0]
