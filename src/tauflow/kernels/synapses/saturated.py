"""The LRC over sequences, in compiled loops on the CPU."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tauflow.cells.lrc import LRCCell, LRCForm
from tauflow.kernels import synapses as layout
from tauflow.kernels.cpu.binding import (
    announce,
    array_or_empty,
    as_array,
    carried,
    loops_of,
    run_slices,
    slice_count,
    written,
    written_or_empty,
)
from tauflow.kernels.engine.needs import NUMBA
from tauflow.kernels.engine.program import (
    GAPS,
    STATE,
    Buffers,
    Gradients,
    Inputs,
    KernelCall,
    Operator,
    Pulls,
    Wants,
    X,
)
from tauflow.kernels.engine.run import OPERATORS, run
from tauflow.kernels.engine.workspace import new_for

from .triton_plan import LOG2E


def lrc_limits(call: KernelCall) -> str | None:
    """Return why the compiled loops cannot serve a call of an :class:`LRCCell`."""
    return NUMBA.why_not(call)


def run_lrc(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run an :class:`LRCCell`."""
    cell = call.cell
    assert isinstance(cell, LRCCell)
    form, tensors = cell.as_form(), cell.tensors()
    x, dt = cell.hoist(form, call.x, call.dt, *tensors)
    states, last = run(PROGRAM, form, call.mask, x, call.h, dt, *tensors)
    # of states that are kept, and the caller may change the result
    return states.clone() if states.requires_grad else states, last


@cache
def _loops() -> Any:
    """Import the compiled loops, which takes seconds where they have to be compiled."""
    loops = loops_of("synapses.numba_saturated")
    announce("LRC", loops.lrc_forward, loops.lrc_backward)
    return loops


class NumbaLRC(Operator):
    """The LRC in compiled loops.

    The parameters are those of :meth:`LRCCell.tensors`; the tape is what every sub-step began with
    and came to, (4, B, T, substeps, N).
    """

    name = "saturated/numba"
    reads_y = True
    advance = staticmethod(LRCCell.advance)

    @staticmethod
    def encode(form: LRCForm) -> list[str]:
        """Return a form as words."""
        return [form.elastance, form.solver, str(form.substeps)]

    @staticmethod
    def decode(words: Sequence[str]) -> LRCForm:
        """Return the form that :meth:`encode` wrote."""
        return LRCForm(words[0], words[1], int(words[2]))

    def allocate(self, form: LRCForm, inputs: Inputs, wants: Wants) -> Buffers:
        """Return memory for what :meth:`forward` writes."""
        h, gap = inputs[STATE], inputs[GAPS]
        (B, T, _), N = gap.shape, h.shape[1]
        parts = 3 if form.elastance == "none" else 4
        kept = new_for(h)(parts, B if wants else 0, T, form.substeps, N)
        return Buffers(h.new_empty(B, T, N), torch.empty_like(h), (kept,))

    def forward(
        self, form: LRCForm, mask: Tensor | None, inputs: Inputs, out: Buffers, wants: Wants
    ) -> None:
        """Run all steps."""
        h = inputs[STATE]
        run_slices(
            _loops().lrc_forward,
            h.shape[0],
            _samples(form, mask, inputs),
            _side(inputs[3]),
            _side(inputs[4]),
            _method(form, inputs, forwards=True),
            as_array(h),
            written(out.y),
            written(out.tape[0]),
        )
        out.last.copy_(out.y[:, -1])

    def backward(
        self,
        form: LRCForm,
        mask: Tensor | None,
        inputs: Inputs,
        tape: Sequence[Tensor],
        pulls: Pulls,
        wants: Wants,
    ) -> Gradients:
        """Return the gradients of the inputs."""
        _, h, _, of_x, of_h, _, *gate = inputs
        states, kept = tape
        (B, T, N), slices = states.shape, slice_count(states.shape[0])
        to_h, to_gap = carried(pulls.last, h), h.new_empty(B, T)
        to_u = h.new_empty(B, T, of_x.shape[1])
        sides = [_side(of_x), _side(of_h)]
        sums = [np.zeros((slices, *side.weights.shape), np.float32) for side in sides]
        to_neurons = h.new_zeros(slices, 3, N)
        to_q = h.new_empty(B, T, form.substeps, N) if gate else None
        gradients = layout.SaturatedGradients(
            written(to_h),
            written(to_u),
            written(to_gap),
            sums[0],
            sums[1],
            written(to_neurons),
            written_or_empty(to_q, 4),
        )
        run_slices(
            _loops().lrc_backward,
            B,
            _samples(form, mask, inputs),
            *sides,
            _method(form, inputs, forwards=False),
            as_array(kept),
            layout.Pulls(as_array(states), array_or_empty(pulls.y, 3)),
            gradients,
        )
        to_neuron = to_neurons.sum(0)
        found: list[Tensor | None] = [
            to_u,
            to_h,
            to_gap.unsqueeze(-1) if wants[GAPS] else None,
            _summed(sums[0], of_x),
            _summed(sums[1], of_h),
            to_neuron[:2],
        ]
        if to_q is None:
            return found
        found[X] = torch.cat((to_u, to_q.sum(2)), dim=-1)
        to_W = to_q.view(-1, N).T @ kept[0].view(-1, N)
        return [*found, None, None, to_W, *(to_neuron[2] for _ in gate[3:])]


def _samples(form: LRCForm, mask: Tensor | None, inputs: Inputs) -> layout.Samples:
    x, delta = as_array(inputs[X]), as_array(inputs[GAPS])[:, :, 0] / np.float32(form.substeps)
    return layout.Samples(x[:, :, : inputs[3].shape[1]], delta, array_or_empty(mask, 2, "bool"))


def _method(form: LRCForm, inputs: Inputs, *, forwards: bool) -> layout.Saturation:
    """Return solver, neurons and elastance as the loops take them."""
    x, _, _, of_x, _, neurons, *gate = inputs
    drive = None if form.elastance == "none" else x[..., of_x.shape[1] :]
    W = gate[2] if gate else None
    if W is not None and forwards:
        W = W.T
    return layout.Saturation(
        form.substeps,
        form.solver == "hybrid",
        as_array(neurons),
        array_or_empty(drive, 3),
        array_or_empty(None if W is None else W.reshape(-1), 1),
        array_or_empty(gate[3] if len(gate) > 3 else None, 1),
    )


def _side(weights: Tensor) -> layout.Side:
    """Return sigma, mu, w and k, (4, S, N), as the loops take them."""
    packed = as_array(weights.detach()).reshape(4, -1).copy()
    with np.errstate(all="ignore"):  # infinite products come through without a word, as in torch
        packed[0] *= np.float32(LOG2E)
    return layout.Side(packed, *layout.DENSE.forward)


def _summed(sums: Any, weights: Tensor) -> Tensor:
    """Add the gradients of all slices up, and apply the factors that the loops leave out."""
    found = sums.sum(0)
    with np.errstate(all="ignore"):
        found[1] *= -as_array(weights[0].detach()).reshape(-1)
    found[0] *= -1
    return torch.from_numpy(found).view_as(weights)


PROGRAM = OPERATORS[NumbaLRC.name] = NumbaLRC()
