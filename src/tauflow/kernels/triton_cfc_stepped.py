"""Closed-form cells step by step: matrix products of torch, and one launch for what is between.

Everything is allocated before the first step and nothing waits for the device, so that a sequence
can be captured as a CUDA graph; else :mod:`.cuda_graphs` records some steps, and replays them.
"""

from torch import Tensor

from .cuda_graphs import run_loop
from .triton_cfc_core import Core, Gradients, Results
from .triton_cfc_plan import RECORDED
from .triton_cfc_steps import Forward
from .triton_cfc_steps_back import Backward


def forward_by_steps(core: Core, h: Tensor, results: Results, *, keep: bool) -> None:
    """Run the sequences from states h, (B, N)."""
    loop = Forward(core, h, results, keep)
    run_loop(loop, record=core.way == RECORDED)
    results.last.copy_(loop.carried.state)
    if core.memory is not None:
        results.last_c.copy_(loop.carried.cell)


def backward_by_steps(core: Core, gradients: Gradients) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Run the sequences backwards; return what :func:`.triton_cfc_launch.run_backward` does."""
    loop = Backward(core, gradients)
    run_loop(loop, record=core.way == RECORDED)
    to_state, to_memory, pulled, *_, g_rate, g_amplitude = loop.carried
    g_h = (to_state + pulled).to(gradients.last.dtype)
    return g_h, to_memory.to(gradients.last_c.dtype), g_rate, g_amplitude
