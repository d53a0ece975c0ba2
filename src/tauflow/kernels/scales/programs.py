"""The CT-GRU over sequences, in compiled loops on the CPU."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from tauflow.cells.ct_gru import CTGRUCell, multiscale_update
from tauflow.kernels import scales as arrays
from tauflow.kernels.cpu.binding import (
    announce,
    array_or_empty,
    as_array,
    carried,
    find_blas,
    loops_of,
    run_slices,
    why_no_blas,
    written,
)
from tauflow.kernels.engine.needs import NUMBA
from tauflow.kernels.engine.program import (
    GAPS,
    STATE,
    Buffers,
    Gradients,
    Inputs,
    KernelCall,
    Pulls,
    TruthOperator,
    Wants,
    X,
)
from tauflow.kernels.engine.run import OPERATORS, run
from tauflow.kernels.engine.workspace import empty, new_for


def scales_limits(call: KernelCall) -> str | None:
    """Return why the compiled loops cannot serve a call of a :class:`CTGRUCell`."""
    return NUMBA.why_not(call) or why_no_blas()


def run_scales(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run a :class:`CTGRUCell`."""
    cell = call.cell
    assert isinstance(cell, CTGRUCell)
    N = cell.hidden_size
    x = torch.cat([call.x, torch.ones_like(call.x[..., :1])], dim=-1)
    h = torch.cat([cell.readout(call.h), call.h], dim=1)
    weights = torch.cat([cell.W_x, cell.shifted_bias().unsqueeze(-1)], dim=1), cell.W_h, cell.W_q
    y, last = run(PROGRAM, cell.decays_first, call.mask, x, h, cell.factors(call.dt), *weights)
    return y, last[:, N:]


@cache
def _loops() -> Any:
    """Import the compiled loops, which takes seconds where they have to be compiled."""
    loops = loops_of("scales.numba_loop")
    announce("CT-GRU", loops.scales_forward, loops.scales_backward)
    return loops


class NumbaScales(TruthOperator):
    """Memories on several time scales in compiled loops.

    Inputs end with a one, for the bias. What stands for gaps is what they leave of each memory,
    (B, T, M); the form is whether this comes before the input acts. The state is the sums of each
    neuron's memories, which no step reads, and the memories, to which the sums' gradients come too.
    The parameters are [W_x, b], with ln tau taken off, W_h and W_q. The tape is the inputs as rows
    (T B, D + 1), and a :class:`~tauflow.kernels.scales.Tape`.
    """

    name = "scales/numba"
    copies_x = True

    @staticmethod
    def advance(
        form: bool,
        h: Tensor,
        step: tuple[Tensor, Tensor],
        W_x: Tensor,
        W_h: Tensor,
        W_q: Tensor,
    ) -> Tensor:
        """Take a step of the cell, beside whose memories their sums stand."""
        (x, left), N = step, len(W_q)
        gates, q = F.linear(x, W_x).split([len(W_h), N], dim=-1)
        H = multiscale_update(form, h[:, N:], gates, q, left, W_h.T, W_q.T)
        return torch.cat([H.unflatten(-1, (-1, N)).sum(-2), H], dim=-1)

    def allocate(self, form: bool, inputs: Inputs, wants: Wants) -> Buffers:
        """Return memory for what :meth:`forward` writes."""
        x, h, left, W_x, _, W_q = inputs
        (B, T, _), N, keep, new = left.shape, len(W_q), len(wants) > 0, new_for(x)
        rows = x.transpose(0, 1).clone(memory_format=torch.contiguous_format)
        tape = (
            rows.view(T * B, x.shape[2]),
            new(T + 1 if keep else 2, B, h.shape[1] - N),
            new(T, B, len(W_x)),
            new(T if keep else 1, B, N),
            new(T if keep else 1, B, N),
        )
        return Buffers(h.new_empty(B, T, N), torch.empty_like(h), tape)

    def forward(
        self, form: bool, mask: Tensor | None, inputs: Inputs, out: Buffers, wants: Wants
    ) -> None:
        """Run all steps."""
        _, h, _, W_x, *_ = inputs
        rows, memories, read, *_ = out.tape
        (B, T, N), last = out.y.shape, out.y.shape[1]
        torch.mm(rows, W_x.T, out=read.view(T * B, -1))
        memories[0] = h[:, N:]
        run_slices(
            _loops().scales_forward, B, *self._shared(form, mask, inputs, out.tape, written(out.y))
        )
        out.last[:, :N] = out.y[:, -1]
        out.last[:, N:] = memories[last % len(memories)]

    @staticmethod
    def _shared(
        form: bool, mask: Tensor | None, inputs: Inputs, tape: Sequence[Tensor], out: Any
    ) -> tuple[Any, ...]:
        """Return what the loops take, but for gradients."""
        _, _, left, _, W_h, W_q = inputs
        valid = array_or_empty(mask, 2, "bool")
        return (
            find_blas(),
            arrays.Weights(as_array(W_h), as_array(W_q)),
            arrays.Tape(*map(written, tape[1:])),
            arrays.Run(form, as_array(left), valid, out),
        )

    def backward(
        self,
        form: bool,
        mask: Tensor | None,
        inputs: Inputs,
        tape: Sequence[Tensor],
        pulls: Pulls,
        wants: Wants,
    ) -> Gradients:
        """Return the gradients of the inputs."""
        _, h, left, W_x, W_h, W_q = inputs
        rows, _, read, sums, chosen = tape
        (B, T, M), N, G = left.shape, len(W_q), len(W_h)
        to_h = carried(pulls.last, h)
        to_memories = to_h[:, N:] + to_h[:, :N].repeat(1, M)
        to_read = empty(*read.shape)
        to_left = left.new_empty((B, T, M) if wants[GAPS] else (0, 0, 0))
        run_slices(
            _loops().scales_backward,
            B,
            *self._shared(form, mask, inputs, tape, array_or_empty(pulls.y, 3)),
            arrays.Deltas(written(to_read), written(to_left), written(to_memories)),
        )
        flat = to_read.view(T * B, -1)
        # One product for both, and this way round, which is twice as fast.
        to_W = torch.cat([sums.view(T * B, N), rows], dim=1).T @ flat
        return [
            (flat @ W_x).view(T, B, -1).transpose(0, 1) if wants[X] else None,
            torch.cat([to_h.new_zeros(B, N), to_memories], dim=1) if wants[STATE] else None,
            to_left if wants[GAPS] else None,
            to_W[N:].T,
            to_W[:N, :G].T,
            flat[:, G:].T @ chosen.view(T * B, N),
        ]


PROGRAM = OPERATORS[NumbaScales.name] = NumbaScales()
