"""Whole sequences of the gated cells: through torch's own fused operators."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from threading import Thread
from typing import Any

import torch
from torch import Tensor

from tauflow.cells.gated import AbstractGatedCell, ElmanCell, GRUCell, LSTMCell

from .engine.kernel_spec import (
    KernelCall,
    is_under_transform,
)
from .engine.torch_state import assume_constant_result, is_forward_mode


def lstm_unsupported_reason(call: KernelCall) -> str | None:
    """Return why torch's LSTM cannot serve the call."""
    reason = gated_unsupported_reason(call)
    if reason is None and call.x.device.type == "cpu":
        return lstm_dtype_unsupported_reason(
            _operand_dtype(call),
            is_traced=torch.compiler.is_compiling(),
            needs_grad=torch.is_grad_enabled(),
            saves_for_backward=_should_save_for_backward(call),
        )
    return reason


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

    Both are in one dtype, by which torch chooses its operator: under autocast gaps and states have
    more digits, which the operator would round itself.
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
    """Return what the LSTM reads as tensors that nobody else holds.

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
    whole: AbstractContextManager[object] = nullcontext()
    if _is_autocast(call):
        whole, weights = torch.autocast("cpu", enabled=False), [w.float() for w in weights]
    weights = _flatten_weights(weights)
    with whole:
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


# What the processor can do: oneDNN computes an LSTM in half precision only where the processor has
# the instructions (AVX-512 and later on x86), less what ``ONEDNN_MAX_CPU_ISA`` takes away; torch
# asks the processor alone, and not at all while it compiles. So the operator is tried, once for
# each way of calling it.
_HALF_DTYPES = (torch.bfloat16, torch.float16)


@assume_constant_result
def lstm_dtype_unsupported_reason(
    dtype: torch.dtype, *, is_traced: bool, needs_grad: bool, saves_for_backward: bool
) -> str | None:
    """Return why torch's LSTM cannot run in a dtype on this processor.

    Args:
        dtype: of the operands.
        is_traced: whether the call is being compiled, for which torch takes other operators.
        needs_grad: whether gradients are recorded.
        saves_for_backward: whether the operator keeps what a backward pass reads.
    """
    if dtype not in _HALF_DTYPES or _is_lstm_supported(
        dtype, is_traced, needs_grad, saves_for_backward
    ):
        return None
    return f"torch has no fused LSTM in {dtype} for this processor, which lacks the instructions"


@cache
def _is_lstm_supported(
    dtype: torch.dtype, is_traced: bool, needs_grad: bool, saves_for_backward: bool
) -> bool:
    if is_traced and (dtype is torch.float16 or not torch.backends.mkldnn.is_available()):
        return True  # the compiler takes the operator apart
    attempt = _run_mkldnn_layer if is_traced else _run_torch_lstm
    return _can_run(lambda: attempt(dtype, needs_grad, saves_for_backward))


def _can_run(attempt: Callable[[], Any]) -> bool:
    """Whether an attempt succeeds, in a thread that knows no autocast, transform or tracing."""
    succeeded = []

    def run() -> None:
        try:
            attempt()
        except RuntimeError:  # oneDNN's "could not create a primitive descriptor"
            return
        succeeded.append(True)

    thread = Thread(target=run)
    thread.start()
    thread.join()
    return bool(succeeded)


def _make_one_neuron_operands(dtype: torch.dtype) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Return features, a state, and the weights of one neuron."""
    shapes = ((1, 1, 1), (1, 1, 1), (4, 1), (4, 1), (4,), (4,))
    x, h, *weights = (torch.zeros(shape, dtype=dtype, device="cpu") for shape in shapes)
    return x, h, weights


def _run_torch_lstm(dtype: torch.dtype, needs_grad: bool, saves_for_backward: bool) -> None:
    x, h, weights = _make_one_neuron_operands(dtype)
    with torch.set_grad_enabled(needs_grad):
        x.requires_grad_(needs_grad)
        y, *_ = torch.lstm(x, [h, h], weights, True, 1, 0.0, saves_for_backward, False, True)
        if needs_grad:
            y.sum().backward()


def _run_mkldnn_layer(dtype: torch.dtype, needs_grad: bool, saves_for_backward: bool) -> None:
    """Run what the compiler makes of an LSTM that is not trained."""
    x, h, weights = _make_one_neuron_operands(dtype)
    kind = 2  # LSTM, in torch's enumeration of recurrent layers
    with torch.no_grad():
        torch.mkldnn_rnn_layer(
            x,
            weights[0],
            weights[1],
            weights[2],
            weights[3],
            h,
            h,
            reverse=False,
            batch_sizes=[],
            mode=kind,
            hidden_size=1,
            num_layers=1,
            has_biases=True,
            bidirectional=False,
            batch_first=False,
            train=saves_for_backward,
        )
