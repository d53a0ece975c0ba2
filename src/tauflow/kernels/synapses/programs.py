"""The conductance-based LTC over sequences: on the CPU in compiled loops, on a GPU in Triton."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tauflow.cells.ltc import LTCCell, LTCForm
from tauflow.kernels import synapses as layout
from tauflow.kernels.cpu.binding import (
    announce,
    array_or_empty,
    as_array,
    carried,
    loops_of,
    make_steps,
    run_slices,
    slice_count,
    written,
)
from tauflow.kernels.engine.needs import NUMBA, TRITON
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
from tauflow.kernels.gpu.plan import batch_tile
from tauflow.solvers import TABLEAUS

from .triton_plan import (
    LOG2E,
    StepPlan,
    backward_weights,
    forward_weights,
    sensory_sums,
    source_gradients,
    weight_gradients,
    with_factors,
)


def ltc_limits(call: KernelCall) -> str | None:
    """Return why the numba kernel cannot serve a call of an :class:`LTCCell`."""
    return NUMBA.why_not(call)


def run_ltc(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run an :class:`LTCCell`."""
    cell = call.cell
    assert isinstance(cell, LTCCell)
    form, tensors = cell.as_form(), cell.tensors()
    u, gap = cell.hoist(form, call.x, call.dt, *tensors)
    if torch.compiler.is_compiling():
        tensors = *tensors, cell.synapses_x, cell.synapses
        states, last = run(IN_LOOPS, form, call.mask, u, call.h, gap, *tensors)
        return cell.readout(states), last
    program = NumbaLTC(layout.layout_of(cell, "synapses_x"), layout.layout_of(cell, "synapses"))
    states, last = run(program, form, call.mask, u, call.h, gap, *tensors)
    y = cell.readout(states)
    # without a map it is a view of the states, which are kept, and the caller may change the result
    return y.clone() if y.requires_grad and cell.output_mapping == "none" else y, last


_QUIET = np.errstate(all="ignore")
"""Infinite products come through without a word, as in torch."""


@_QUIET
def forward_side(weights: Tensor, order: layout.Layout) -> layout.Side:
    """Return weights (4, S, N) as the loop forward takes them."""
    sigma, mu, w, E = as_array(layout.in_order(weights.detach(), order.forward_index))
    return layout.Side(_packed((sigma * _LOG2E, mu, w, w * E)), *order.forward)


_LOG2E = np.float32(LOG2E)


def _packed(rows: Sequence[Any]) -> Any:
    """Return four rows as one array; by NumPy, whose small operations cost a fifth of torch's."""
    packed = np.empty((4, rows[0].size), np.float32)
    for place, row in zip(packed, rows, strict=True):
        place[:] = row
    return packed


def method_of(form: LTCForm, leak: Tensor, C: Tensor) -> layout.Method:
    """Return the solver as the loops take it."""
    a, b = make_steps(form.solver) if form.solver in TABLEAUS else _WITHOUT_STAGES[form.solver]
    return layout.Method(form.substeps, a, b, as_array(leak), as_array(C))


_WITHOUT_STAGES = {
    solver: (np.zeros((side, side), np.float32), array_or_empty(None, 1))
    for solver, side in (("fused", 0), ("exponential", 1))
}


@cache
def _loops() -> Any:
    """Import the compiled loops, which takes seconds where they have to be compiled."""
    loops = loops_of("synapses.numba_loop")
    announce("LTC", loops.ltc_forward, loops.ltc_backward)
    return loops


class OperatorLTC(Operator):
    """What the programs for the LTC have in common."""

    advance = staticmethod(LTCCell.advance)

    @staticmethod
    def encode(form: LTCForm) -> list[str]:
        """Return a form as words."""
        return [form.solver, str(form.substeps)]

    @staticmethod
    def decode(words: Sequence[str]) -> LTCForm:
        """Return the form that :meth:`encode` wrote; the gap was scaled before."""
        return LTCForm(words[0], int(words[1]), 1.0, 0.0)


class NumbaLTC(OperatorLTC):
    """The LTC in compiled loops.

    The parameters are those of :meth:`LTCCell.tensors`; the tape is a ``layout.Tape``.

    Args:
        *layouts: orders of the sensory and of the recurrent synapses; without them, those of two
            more inputs, which are zero where no synapse exists.
    """

    name = "synapses/numba"
    reads_y = True

    def __init__(self, *layouts: layout.Layout) -> None:
        self._layouts = layouts

    def _orders(self, inputs: Inputs) -> tuple[layout.Layout, ...]:
        return self._layouts or tuple(map(layout.layout_from, inputs[-2:]))

    def allocate(self, form: LTCForm, inputs: Inputs, wants: Wants) -> Buffers:
        """Return memory for what :meth:`forward` writes."""
        h, gap = inputs[STATE], inputs[GAPS]
        (B, T, _), N, new = gap.shape, h.shape[1], new_for(h)
        explicit = form.solver in TABLEAUS
        E = form.substeps * (len(TABLEAUS[form.solver].b) if explicit else 1)
        keeps_slopes = len(wants) > 0 and (explicit or wants[GAPS])
        kept = new(2, B if wants else 0, T, E, N)
        tape = kept, new(B if keeps_slopes else 0, T, E, N)
        return Buffers(h.new_empty(B, T, N), torch.empty_like(h), tape)

    def forward(
        self, form: LTCForm, mask: Tensor | None, inputs: Inputs, out: Buffers, wants: Wants
    ) -> None:
        """Run all steps."""
        _, h, _, weights_x, weights, leak, C, *_ = inputs
        sensory, recurrent = self._orders(inputs)
        run_slices(
            _loops().ltc_forward,
            h.shape[0],
            _samples(form, mask, inputs),
            forward_side(weights_x, sensory),
            forward_side(weights, recurrent),
            method_of(form, leak, C),
            as_array(h),
            written(out.y),
            layout.Tape(*map(written, out.tape)),
        )
        out.last.copy_(out.y[:, -1])

    def backward(
        self,
        form: LTCForm,
        mask: Tensor | None,
        inputs: Inputs,
        tape: Sequence[Tensor],
        pulls: Pulls,
        wants: Wants,
    ) -> Gradients:
        """Return the gradients of the inputs."""
        u, h, _, weights_x, weights, leak, C, *maps = inputs
        states, kept, slopes = tape
        (B, T, N), slices = states.shape, slice_count(states.shape[0])
        sensory, recurrent = self._orders(inputs)
        to_h, to_gap = carried(pulls.last, h), h.new_empty(B, T)
        to_u = torch.empty_like(u, memory_format=torch.contiguous_format)
        sides = [_backward_side(weights_x, sensory), _backward_side(weights, recurrent)]
        sums = [np.zeros((slices, *side.weights.shape), np.float32) for side in sides]
        to_neurons = h.new_zeros(slices, 3, N)
        gradients = layout.Gradients(
            written(to_h), written(to_u), written(to_gap), sums[0], sums[1], written(to_neurons)
        )
        run_slices(
            _loops().ltc_backward,
            B,
            _samples(form, mask, inputs),
            *sides,
            method_of(form, leak, C),
            layout.Tape(as_array(kept), as_array(slopes)),
            layout.Pulls(as_array(states), array_or_empty(pulls.y, 3)),
            gradients,
        )
        to_neuron = to_neurons.sum(0)
        return [
            to_u,
            to_h,
            (to_gap / form.substeps).unsqueeze(-1) if wants[GAPS] else None,
            _summed(sums[0], weights_x, sensory),
            _summed(sums[1], weights, recurrent),
            to_neuron[:2],
            to_neuron[2],
            *(None for _ in maps),
        ]


def _samples(form: LTCForm, mask: Tensor | None, inputs: Inputs) -> layout.Samples:
    delta = as_array(inputs[GAPS])[:, :, 0] / np.float32(form.substeps)
    return layout.Samples(as_array(inputs[X]), delta, array_or_empty(mask, 2, "bool"))


@_QUIET
def _backward_side(weights: Tensor, order: layout.Layout) -> layout.Side:
    sigma, mu, w, E = as_array(layout.in_order(weights, order.backward_index))
    return layout.Side(_packed((sigma * _LOG2E, mu, w * sigma, E)), *order.backward)


@_QUIET
def _summed(sums: Any, weights: Tensor, order: layout.Layout) -> Tensor:
    """Add the gradients of all slices up, and apply the factors that the loops leave out."""
    sigma, _, w, _ = as_array(layout.in_order(weights, order.backward_index))
    to_sigma, to_mu, to_w, to_E = sums.sum(0)
    found = _packed((-w * to_sigma, -w * sigma * to_mu, to_w, w * to_E))
    return layout.from_order(torch.from_numpy(found), order.backward_index, weights)


IN_LOOPS = OPERATORS[NumbaLTC.name] = NumbaLTC()
"""Without layouts of its own."""

MOST_NEURONS = 1024
"""A program holds the potentials of its sequences in registers."""


def triton_ltc_limits(call: KernelCall) -> str | None:
    """Return why the Triton kernels cannot serve a call of an :class:`LTCCell`."""
    cell = call.cell
    assert isinstance(cell, LTCCell)
    if cell.solver != "fused":
        return f"the triton kernel of LTCCell has solver 'fused' only, not {cell.solver!r}"
    if cell.hidden_size > MOST_NEURONS:
        return (
            f"the triton kernel of LTCCell holds at most {MOST_NEURONS} neurons on the chip, "
            f"not {cell.hidden_size}"
        )
    return TRITON.why_not(call)


def run_triton_ltc(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run an :class:`LTCCell` with the fused solver."""
    cell = call.cell
    assert isinstance(cell, LTCCell)
    form, tensors = cell.as_form(), cell.tensors(torch.float32)
    u, gap = cell.hoist(form, call.x.float(), call.dt.float(), *tensors)
    h = call.h.to(torch.promote_types(call.x.dtype, cell.w.dtype))
    states, last = run(PROGRAM, form, call.mask, u, h, gap, *tensors)
    return cell.readout(states), last


class TritonLTC(OperatorLTC):
    """The fused solver in one launch; everything but the state is float32.

    The tape is the potentials around every sub-step (B, T K + 1, N), 1 / m (B, T K, N) and, if gaps
    want a gradient, the slopes (D - G v') / m (B, T K, N).
    """

    name = "synapses/triton"
    uncompiled = True

    def allocate(self, form: LTCForm, inputs: Inputs, wants: Wants) -> Buffers:
        """Return memory for what :meth:`forward` writes."""
        h, u, K = inputs[STATE], inputs[X], form.substeps
        (B, T, _), N = u.shape, h.shape[1]
        kept, sloped = B if wants else 0, B if wants and wants[GAPS] else 0
        tape = (
            u.new_empty(kept, T * K + 1, N),
            u.new_empty(kept, T * K, N),
            u.new_empty(sloped, T * K, N),
        )
        return Buffers(h.new_empty(B, T, N), h.new_empty(B, N), tape)

    def forward(
        self, form: LTCForm, mask: Tensor | None, inputs: Inputs, out: Buffers, wants: Wants
    ) -> None:
        """Run all steps."""
        from .triton_loop import ltc_forward

        u, h, gap, weights_x, weights, leak, C, *_ = inputs
        (B, T, _), N, delta = u.shape, h.shape[1], _delta(form, gap)
        plan = StepPlan.of(batch_tile(B, h.device, StepPlan.MOST_ROWS), N, backward=False)
        drive_x, conductance_x = sensory_sums(u, forward_weights(weights_x), leak)
        ltc_forward[(-(-B // plan.rows),)](
            drive_x,
            conductance_x,
            delta,
            _bytes(mask, delta),
            h.contiguous(),
            forward_weights(weights),
            C.contiguous(),
            out.y,
            out.last,
            *out.tape,
            B,
            T,
            N,
            form.substeps,
            MASKED=mask is not None,
            KEEP=len(wants) > 0,
            SLOPES=len(out.tape[2]) > 0,
            **plan.launch(),
        )

    def backward(
        self,
        form: LTCForm,
        mask: Tensor | None,
        inputs: Inputs,
        tape: Sequence[Tensor],
        pulls: Pulls,
        wants: Wants,
    ) -> Gradients:
        """Return the gradients of the inputs."""
        from .triton_loop import ltc_backward

        u, h, gap, weights_x, weights, _, C, *maps = inputs
        potentials, reciprocals, slopes = tape
        assert pulls.y is not None
        assert pulls.last is not None
        (B, T, _), N, delta = u.shape, h.shape[1], _delta(form, gap)
        to_h, (to_drive_x, to_conductance_x) = h.new_empty(B, N), u.new_empty(2, B, T, N)
        to_delta = u.new_empty(B if len(slopes) else 0, T)
        plan = StepPlan.of(batch_tile(B, u.device, StepPlan.MOST_ROWS), N, backward=True)
        programs, one_block = -(-B // plan.rows), plan.block == plan.width
        to_C, to_weights = u.new_empty(programs, N), u.new_empty(programs * one_block, 4, N, N)
        to_drives = u.new_empty(0 if one_block else B, T * form.substeps + 1, N)
        ltc_backward[(programs,)](
            delta,
            _bytes(mask, delta),
            backward_weights(weights).transpose(1, 2).contiguous(),
            C.contiguous(),
            potentials,
            reciprocals,
            slopes,
            pulls.y.contiguous(),
            pulls.last.contiguous(),
            to_h,
            to_drive_x,
            to_conductance_x,
            to_delta,
            to_C,
            to_weights,
            to_drives,
            B,
            T,
            N,
            form.substeps,
            MASKED=mask is not None,
            SLOPES=len(slopes) > 0,
            **plan.launch(),
        )
        if one_block:
            sums = to_weights.sum(0).transpose(1, 2)
        else:
            sums = weight_gradients(
                potentials.flatten(0, 1), weights, to_drives.flatten(0, 1), None
            )
        sent = (to_drive_x.flatten(0, 1), to_conductance_x.flatten(0, 1))
        sensory = u.flatten(0, 1), weights_x, *sent
        return [
            source_gradients(*sensory).view(u.shape) if wants[X] else None,
            to_h,
            (to_delta / form.substeps).unsqueeze(-1) if len(slopes) else None,
            with_factors(weight_gradients(*sensory), weights_x),
            with_factors(sums, weights),
            torch.stack([sum_of.sum(0) for sum_of in sent]),
            to_C.sum(0),
            *(None for _ in maps),
        ]


def _delta(form: LTCForm, gap: Tensor) -> Tensor:
    """Return the lengths of sub-steps, (B, T)."""
    return (gap / form.substeps).squeeze(-1).contiguous()


def _bytes(mask: Tensor | None, other: Tensor) -> Tensor:
    """Return a mask as a kernel reads it, or any tensor in place of none."""
    return other if mask is None else mask.contiguous().view(torch.uint8)


PROGRAM = OPERATORS[TritonLTC.name] = TritonLTC()
