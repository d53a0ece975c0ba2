"""The CT-GRU over sequences, in compiled loops on the CPU."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from tauflow.cells.ct_gru import CTGRUCell, multiscale_update
from tauflow.kernels import ct_gru as arrays
from tauflow.kernels.cpu.binding import (
    import_kernels,
    initial_grad_state,
    input_array,
    input_array_or_empty,
    log_compilation,
    parallel_for,
)
from tauflow.kernels.engine.autograd import OPERATORS, run_kernel
from tauflow.kernels.engine.kernel_call import KernelCall
from tauflow.kernels.engine.kernel_spec import (
    DT,
    STATE,
    BoolConfigKernel,
    Gradients,
    GradOutputs,
    Inputs,
    NeedsInputGrad,
    Outputs,
    X,
)
from tauflow.kernels.engine.requirements import NUMBA
from tauflow.kernels.engine.workspace import empty, get_allocator


def ct_gru_unsupported_reason(call: KernelCall) -> str | None:
    """Return why the compiled loops cannot serve a call of a :class:`CTGRUCell`."""
    return NUMBA.unsupported_reason(call)


def run_ct_gru(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run a :class:`CTGRUCell`."""
    cell = call.cell
    assert isinstance(cell, CTGRUCell)
    N = cell.hidden_size
    x = torch.cat([call.x, torch.ones_like(call.x[..., :1])], dim=-1)
    h = torch.cat([cell.readout(call.h), call.h], dim=1)
    weights = torch.cat([cell.W_x, cell.shifted_bias().unsqueeze(-1)], dim=1), cell.W_h, cell.W_q
    y, last = run_kernel(
        NUMBA_CT_GRU, cell.decays_first, call.mask, x, h, cell.decay_factors(call.dt), *weights
    )
    return y, last[:, N:].contiguous()


@cache
def _load_kernels() -> Any:
    """Import the compiled loops, which takes seconds where they have to be compiled."""
    loops = import_kernels("ct_gru.numba_loop")
    log_compilation("CT-GRU", loops.ct_gru_forward, loops.ct_gru_backward)
    return loops


class NumbaCTGRU(BoolConfigKernel):
    """Memories on several time scales in compiled loops.

    Inputs end with a one, for the bias. What stands for time steps is what they leave of each
    memory, (B, T, M); the form is whether this comes before the input acts. The state is the sums
    of each neuron's memories, which no step reads, and the memories, to which the sums' gradients
    come too. The parameters are [W_x, b], with ln tau taken off, W_h and W_q. Saved are the inputs
    as rows (T B, D + 1), and a :class:`~tauflow.kernels.ct_gru.CTGRUActivations`.
    """

    name = "scales/numba"
    saves_x = True

    @staticmethod
    def update(
        config: bool,
        h: Tensor,
        x: Tensor,
        left: Tensor,
        W_x: Tensor,
        W_h: Tensor,
        W_q: Tensor,
    ) -> Tensor:
        """Take a step of the cell, beside whose memories their sums stand."""
        N = len(W_q)
        gates, q = F.linear(x, W_x).split([len(W_h), N], dim=-1)
        H = multiscale_update(config, h[:, N:], gates, q, left, W_h.T, W_q.T)
        return torch.cat([H.unflatten(-1, (-1, N)).sum(-2), H], dim=-1)

    def allocate(self, config: bool, inputs: Inputs, needs_input_grad: NeedsInputGrad) -> Outputs:
        """Return memory for what :meth:`forward` writes."""
        x, h, left, W_x, _, W_q = inputs
        (B, T, _), N, keep, new = left.shape, len(W_q), len(needs_input_grad) > 0, get_allocator(x)
        rows = x.transpose(0, 1).clone(memory_format=torch.contiguous_format)
        saved = (
            rows.view(T * B, x.shape[2]),
            new(T + 1 if keep else 2, B, h.shape[1] - N),
            new(T, B, len(W_x)),
            new(T if keep else 1, B, N),
            new(T if keep else 1, B, N),
        )
        return Outputs(h.new_empty(B, T, N), h.new_empty(h.shape), saved)

    def forward(
        self,
        config: bool,
        mask: Tensor | None,
        inputs: Inputs,
        out: Outputs,
        needs_input_grad: NeedsInputGrad,
    ) -> None:
        """Run all steps."""
        _, h, _, W_x, *_ = inputs
        rows, memories, read, *_ = out.saved_tensors
        (B, T, N), last = out.y.shape, out.y.shape[1]
        torch.mm(rows, W_x.T, out=read.view(T * B, -1))
        memories[0] = h[:, N:]
        parallel_for(
            _load_kernels().ct_gru_forward,
            B,
            *self._pack_arguments(config, mask, inputs, out.saved_tensors, out.y),
        )
        out.last[:, :N] = out.y[:, -1]
        out.last[:, N:] = memories[last % len(memories)]

    @staticmethod
    def _pack_arguments(
        config: bool, mask: Tensor | None, inputs: Inputs, saved_tensors: Sequence[Tensor], out: Any
    ) -> tuple[Any, ...]:
        """Return what the loops take, but for gradients."""
        _, _, left, _, W_h, W_q = inputs
        valid = input_array_or_empty(mask, 2, torch.bool)
        return (
            arrays.CTGRUWeights(input_array(W_h), input_array(W_q)),
            arrays.CTGRUActivations(*saved_tensors[1:]),
            arrays.CTGRUSequence(config, input_array(left), valid, out),
        )

    def backward(
        self,
        config: bool,
        mask: Tensor | None,
        inputs: Inputs,
        saved_tensors: Sequence[Tensor],
        grad_outputs: GradOutputs,
        needs_input_grad: NeedsInputGrad,
    ) -> Gradients:
        """Return the gradients of the inputs."""
        _, h, left, W_x, W_h, W_q = inputs
        rows, _, read, sums, chosen = saved_tensors
        (B, T, M), N, G = left.shape, len(W_q), len(W_h)
        grad_h = initial_grad_state(grad_outputs.last, h)
        grad_memories = grad_h[:, N:] + grad_h[:, :N].repeat(1, M)
        grad_read = empty(*read.shape)
        grad_left = left.new_empty((B, T, M) if needs_input_grad[DT] else (0, 0, 0))
        parallel_for(
            _load_kernels().ct_gru_backward,
            B,
            *self._pack_arguments(
                config, mask, inputs, saved_tensors, input_array_or_empty(grad_outputs.y, 3)
            ),
            arrays.CTGRUGradients(grad_read, grad_left, grad_memories),
        )
        flat = grad_read.view(T * B, -1)
        # One product for both, and this way round, which is twice as fast.
        grad_W = torch.cat([sums.view(T * B, N), rows], dim=1).T @ flat
        return [
            (flat @ W_x).view(T, B, -1).transpose(0, 1) if needs_input_grad[X] else None,
            torch.cat([grad_h.new_zeros(B, N), grad_memories], dim=1)
            if needs_input_grad[STATE]
            else None,
            grad_left if needs_input_grad[DT] else None,
            grad_W[N:].T,
            grad_W[:N, :G].T,
            flat[:, G:].T @ chosen.view(T * B, N),
        ]


NUMBA_CT_GRU = OPERATORS[NumbaCTGRU.name] = NumbaCTGRU()
