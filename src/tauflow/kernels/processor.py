"""What the processor can do of what torch's own operators offer.

oneDNN computes an LSTM in half precision only where the processor has the instructions (AVX-512 and
later on x86), less what ``ONEDNN_MAX_CPU_ISA`` takes away; torch asks the processor alone, and not
at all while it compiles. So the operator is tried, once for each way of calling it.
"""

from collections.abc import Callable
from functools import cache
from threading import Thread
from typing import Any

import torch
from torch import Tensor

_HALF = (torch.bfloat16, torch.float16)


def lstm_objection(dtype: torch.dtype, *, traced: bool, learns: bool, keeps: bool) -> str | None:
    """Return why torch's LSTM cannot run in a dtype on this processor.

    Args:
        dtype: of the operands.
        traced: whether the call is being compiled, for which torch takes other operators.
        learns: whether gradients are recorded.
        keeps: whether the operator keeps what a backward pass reads.
    """
    if dtype not in _HALF or _serves(dtype, traced, learns, keeps):
        return None
    return f"torch has no fused LSTM in {dtype} for this processor, which lacks the instructions"


# The compiler takes the answer as it is. torch.compiler.assume_constant_result sets the same mark,
# but imports the compiler, which takes longer than the whole library.
lstm_objection._dynamo_marked_constant = True  # type: ignore[attr-defined]


@cache
def _serves(dtype: torch.dtype, traced: bool, learns: bool, keeps: bool) -> bool:
    if traced and (dtype is torch.float16 or not torch.backends.mkldnn.is_available()):
        return True  # the compiler takes the operator apart
    attempt = _run_layer if traced else _run_whole
    return _runs(lambda: attempt(dtype, learns, keeps))


def _runs(attempt: Callable[[], Any]) -> bool:
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


def _operands(dtype: torch.dtype) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Return features, a state, and the weights of one neuron."""
    shapes = ((1, 1, 1), (1, 1, 1), (4, 1), (4, 1), (4,), (4,))
    x, h, *weights = (torch.zeros(shape, dtype=dtype, device="cpu") for shape in shapes)
    return x, h, weights


def _run_whole(dtype: torch.dtype, learns: bool, keeps: bool) -> None:
    x, h, weights = _operands(dtype)
    with torch.set_grad_enabled(learns):
        x.requires_grad_(learns)
        y, *_ = torch.lstm(x, [h, h], weights, True, 1, 0.0, keeps, False, True)
        if learns:
            y.sum().backward()


def _run_layer(dtype: torch.dtype, learns: bool, keeps: bool) -> None:
    """Run what the compiler makes of an LSTM that is not trained."""
    x, h, weights = _operands(dtype)
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
            train=keeps,
        )
