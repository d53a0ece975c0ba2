"""For which sizes of a call each way to run it is the faster one, as measured."""

import torch

from tauflow._internal.checks import is_tracing
from tauflow.cells.base import AbstractCell
from tauflow.cells.cfc import CfCCell
from tauflow.cells.ct_gru import CTGRUCell
from tauflow.cells.gated import LSTMCell
from tauflow.cells.mixed_memory import MixedMemoryCell
from tauflow.cells.wired_cfc import WiredCfCCell

from .engine.kernel_spec import KernelCall
from .engine.requirements import is_builtin_cell

_MIN_LONG_STEPS = 8
"""Steps of a sequence from which on torch computes what does not depend on the state for all of
them at once. In a shorter one each step does so itself, which spares the calls of operations."""
TRACED_IF_LONG: set[type[AbstractCell]] = set()
"""Cells whose matrices take longer than those calls."""

_MAX_SHORT_WORK = 1 << 19
"""Rows times parameters, up to which the traced step of :data:`_OWN_LOOPS` is faster in short
sequences."""

_OWN_LOOPS = (
    *(CfCCell, MixedMemoryCell, WiredCfCCell),
    *(LSTMCell, CTGRUCell),
)
"""Cells whose own loops are faster in long sequences, those of CfC in short ones, too."""
_MIN_WIRED_SAMPLES = 2048  # of all sequences, from which on they are not where nothing is learnt

_MIN_LAUNCHED_STEPS = 4  # on a GPU, which take less time than to find a trace
_MAX_GRAPH_WORK = 1 << 31  # rows times parameters, from which on products outlast their launches


def is_long(call: KernelCall) -> bool:
    """Whether what does not depend on the state is computed for all steps at once."""
    return call.x.shape[1] >= _MIN_LONG_STEPS


def is_tracing_profitable(call: KernelCall) -> bool:
    """Whether a traced step is faster than the other ways that there are for a call.

    Loops written for a cell are faster where they fuse more of it. Torch's own take tens of
    microseconds for a step, its LSTM excepted.
    """
    if is_tracing():  # before any look at sizes, which compilers would guard
        return torch.compiler.is_compiling() and not isinstance(call.cell, _OWN_LOOPS)
    B, T, _ = call.x.shape
    is_short_served = is_builtin_cell(call.cell) and type(call.cell) not in TRACED_IF_LONG
    if not (is_long(call) or is_short_served):  # to find a user's trace takes longer
        return False
    if not isinstance(call.cell, _OWN_LOOPS):
        return True
    if not is_long(call):
        work = B * sum(parameter.numel() for parameter in call.cell.parameters())
        return work <= _MAX_SHORT_WORK and not isinstance(call.cell, CfCCell)
    learns = torch.is_grad_enabled() and any(
        tensor.requires_grad for tensor in (call.x, call.h, call.dt, *call.cell.parameters())
    )
    is_wired = isinstance(call.cell, WiredCfCCell)
    return is_wired and not learns and B * T >= _MIN_WIRED_SAMPLES


def is_cuda_graph_profitable(call: KernelCall) -> bool:
    """Whether launches take longer than what they launch, and torch is not asked for the same bits.

    Torch refuses to record where it is to compute deterministically, see
    :func:`tauflow.kernels.gpu.graph_loop.can_capture`.
    """
    if is_tracing() or torch.are_deterministic_algorithms_enabled():
        return False
    B, T, _ = call.x.shape
    parameters = sum(parameter.numel() for parameter in call.cell.parameters())
    return T >= _MIN_LAUNCHED_STEPS and B * parameters <= _MAX_GRAPH_WORK


def is_worth_generating(call: KernelCall) -> bool:
    """Whether a call takes longer than to find a trace."""
    return not is_tracing() and call.x.shape[1] >= _MIN_LAUNCHED_STEPS
