"""Flows over sequences: which calls are served, and what is between torch and the loops."""

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from tauflow.cells.activations import Activation
from tauflow.cells.base import AbstractPureCell
from tauflow.cells.ct_rnn import CTRNNCell, CTRNNForm
from tauflow.cells.ltc_neuronal import NeuronalForm, NeuronalLTCCell
from tauflow.cells.ode_lstm import ODELSTMCell, ODELSTMForm
from tauflow.kernels import flow as arrays
from tauflow.kernels.cpu.binding import (
    announce,
    array_or_empty,
    as_array,
    carried,
    find_blas,
    loops_of,
    make_steps,
    run_slices,
    slice_count,
    why_no_blas,
    written,
    written_or_empty,
)
from tauflow.kernels.engine.activations import (
    activation_of,
    code_of,
    number_of,
    shows_its_slope,
)
from tauflow.kernels.engine.needs import NUMBA, TRITON
from tauflow.kernels.engine.program import (
    GAPS,
    Buffers,
    Gradients,
    Inputs,
    KernelCall,
    Operator,
    Pulls,
    Wants,
)
from tauflow.kernels.engine.run import OPERATORS, run
from tauflow.kernels.engine.torch_state import fixed_when_traced
from tauflow.kernels.engine.workspace import empty, new_for
from tauflow.kernels.gpu.plan import multiplied_as, why_not_persistent
from tauflow.solvers import TABLEAUS, GapSolver

FlowForm = CTRNNForm | ODELSTMForm | NeuronalForm


def _why_not(solver: str, phi: Activation) -> str | None:
    """Return which solver or activation the compiled flows lack."""
    if solver not in TABLEAUS:
        return f"its compiled loops have fixed steps only, not solver {solver!r}"
    code = code_of(phi)
    if code is None or not shows_its_slope(code):
        return "its compiled loops do not know this activation"
    return None


def _why_no_row(solver: str) -> str | None:
    """Return why a table is not in the form that the Triton kernel takes."""
    table = TABLEAUS[solver]
    if len(table.b) > 4 or any(weight for row in table.a for weight in row[:-1]):
        return (
            "the triton kernel takes tables of up to four stages, each of which reads the one "
            f"before it only, unlike solver {solver!r}"
        )
    return None


def ct_rnn_limits(call: KernelCall) -> str | None:
    """Return why the compiled loops cannot serve a call of a :class:`CTRNNCell`."""
    assert isinstance(call.cell, CTRNNCell)
    return NUMBA.why_not(call) or why_no_blas() or _why_not(call.cell.solver, call.cell.phi)


def ode_lstm_limits(call: KernelCall) -> str | None:
    """Return why the compiled loops cannot serve a call of an :class:`ODELSTMCell`."""
    assert isinstance(call.cell, ODELSTMCell)
    phi = call.cell.flow.phi if call.cell.form == "tensorflow" else torch.tanh
    return NUMBA.why_not(call) or why_no_blas() or _why_not(call.cell.solver, phi)


def neuronal_limits(call: KernelCall) -> str | None:
    """Return why the compiled loops cannot serve a call of a :class:`NeuronalLTCCell`."""
    cell = call.cell
    assert isinstance(cell, NeuronalLTCCell)
    if cell.solver != "fused":
        return f"the numba kernel of NeuronalLTCCell has solver 'fused' only, not {cell.solver!r}"
    if not any(cell.phi is phi for phi in (torch.tanh, torch.sigmoid, torch.relu, F.hardtanh)):
        return (
            "the numba kernel of NeuronalLTCCell knows the activations tanh, sigmoid, relu and "
            "hardtanh"
        )
    return NUMBA.why_not(call) or why_no_blas()


def triton_flow_limits(call: KernelCall) -> str | None:
    """Return why the Triton kernel cannot serve a call of a :class:`CTRNNCell`."""
    cell = call.cell
    assert isinstance(cell, CTRNNCell)
    if cell.clip is not None:
        return "the triton kernel does not clip the state between solver steps"
    reason = TRITON.why_not(call) or _why_not(cell.solver, cell.phi) or _why_no_row(cell.solver)
    return reason or why_not_persistent(
        call.x.device, multiplied_as(call), 0, 1, cell.hidden_size, 0
    )


def run_flow(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run a :class:`CTRNNCell`, an :class:`ODELSTMCell` or a fused :class:`NeuronalLTCCell`."""
    cell = call.cell
    assert isinstance(cell, AbstractPureCell)
    form, tensors = cell.as_form(), cell.tensors()
    x, dt = cell.hoist(form, call.x, call.dt, *tensors)
    return run(PROGRAM, form, call.mask, x, call.h, dt, *tensors)


class Roles(NamedTuple):
    """Parameters, or their gradients, by what the loops do with them; see ``arrays.Field``."""

    W_1: Any = None
    scale: Any = None
    leak: Any = None
    W_2: Any = None
    b_2: Any = None
    recurrent: Any = None
    drive: Any = None
    drive_bias: Any = None


class Settings(NamedTuple):
    """What the loops take of a form, and the role of each parameter, if they read it."""

    phi: Activation
    damping: float
    solver: str
    substeps: int
    clip: float | None
    roles: tuple[str, ...]


_HOISTED = ("", "")  # W_x and b


def settings_of(form: FlowForm) -> Settings:
    """Return what the loops take of a form."""
    if isinstance(form, ODELSTMForm):
        return _of_ode_lstm(form)
    return _of_neuronal(form) if isinstance(form, NeuronalForm) else _of_flow(form)


def _of_flow(form: CTRNNForm) -> Settings:
    roles = (*_HOISTED, "W_1", "scale")
    gap = form.gap
    return Settings(form.phi, form.damping, gap.solver, gap.substeps, form.clip, roles)


def _of_ode_lstm(form: ODELSTMForm) -> Settings:
    if form.follow is not None:
        roles: tuple[str, ...] = ("recurrent", "drive", "drive_bias", "W_1", "scale")
    else:
        roles = ("recurrent", "W_1", "drive_bias", "W_2", "b_2")
    return _of_flow(form.flow)._replace(roles=_HOISTED + roles)


def _of_neuronal(form: NeuronalForm) -> Settings:
    roles = (*_HOISTED, "W_1", "scale", "leak")
    return Settings(form.phi, 0.0, form.solver, form.substeps, None, roles)


@cache
def _loops() -> Any:
    """Import the compiled loops, which takes seconds where they have to be compiled."""
    loops = loops_of("flow.numba_loop")
    announce("flow", loops.flow_forward, loops.flow_backward)
    return loops


class FlowOperator(Operator):
    """What all programs for flows have in common."""

    @staticmethod
    def advance(form: FlowForm, *arguments: Any) -> Tensor:
        """Take one step of the cell."""
        if isinstance(form, ODELSTMForm):
            return ODELSTMCell.advance(form, *arguments)
        if isinstance(form, NeuronalForm):
            return NeuronalLTCCell.advance(form, *arguments)
        return CTRNNCell.advance(form, *arguments)

    @staticmethod
    def encode(form: FlowForm) -> list[str]:
        """Return a form as words; the length of steps is in the gap."""
        if isinstance(form, NeuronalForm):
            return ["neuronal", str(number_of(form.phi)), form.solver, str(form.substeps)]
        kind = "flow"
        if isinstance(form, ODELSTMForm):
            kind = "layers" if form.follow is None else "follow"
            form = form.flow
        floats = [form.damping] if form.clip is None else [form.damping, form.clip]
        gap, phi = form.gap, str(number_of(form.phi))
        numbers = [str(fixed_when_traced(number)) for number in floats]
        return [kind, phi, gap.solver, str(gap.substeps), *numbers]

    @staticmethod
    def decode(words: Sequence[str]) -> FlowForm:
        """Return the form that :meth:`encode` wrote."""
        kind, number, solver, substeps, *others = words
        phi = activation_of(int(number))
        if kind == "neuronal":
            return NeuronalForm(phi, solver, int(substeps))
        damping, *clips = map(float, others)
        clip = clips[0] if clips else None
        flow = CTRNNForm(phi, damping, GapSolver(solver, int(substeps)), None, clip)
        if kind == "flow":
            return flow
        return ODELSTMForm(flow, CTRNNCell.advance if kind == "follow" else None)


class NumbaFlow(FlowOperator):
    """Flows in compiled loops.

    The tape is: states (T + 1, B, N), where phi was evaluated and its values, and those of a
    memory: gates, c and u; see :mod:`tauflow.kernels.flow`.
    """

    name = "flow/numba"

    def allocate(self, form: Any, inputs: Inputs, wants: Wants) -> Buffers:
        """Return memory for what :meth:`forward` writes."""
        x, h, dt, *parameters = inputs
        settings = settings_of(form)
        own = _by_role(settings, parameters)
        (B, T, _), N, new = dt.shape, own.W_1.shape[1], new_for(x)
        kept = T if wants else 1
        stages = 1 if settings.solver == "fused" else len(TABLEAUS[settings.solver].b)
        E = settings.substeps * stages
        tape = [
            x.new_empty(T + 1 if wants else 2, B, N),
            new(kept, E, B, N),
            new(kept, E, B, own.W_1.shape[0]),
        ]
        if own.recurrent is not None:
            gates = x.transpose(0, 1).clone(memory_format=torch.contiguous_format)
            tape += [gates, x.new_empty(T + 1, B, N), x.new_empty(T, B, N)]
        return Buffers(x.new_empty(B, T, N), torch.empty_like(h), tuple(tape))

    def forward(
        self, form: Any, mask: Tensor | None, inputs: Inputs, out: Buffers, wants: Wants
    ) -> None:
        """Run all steps."""
        _, h, dt, *_ = inputs
        N, states = out.y.shape[2], out.tape[0]
        states[0] = h[:, :N]
        if h.shape[1] > N:
            out.tape[4][0] = h[:, N:]
        run_slices(
            _loops().flow_forward,
            dt.shape[0],
            find_blas(),
            *self._shared(form, inputs, out.tape),
            self._sequence(form, mask, inputs, states, written(out.y)),
        )
        out.last[:, :N] = states[dt.shape[1] % states.shape[0]]
        if h.shape[1] > N:
            out.last[:, N:] = out.tape[4][-1]

    def _shared(self, form: Any, inputs: Inputs, tape: Sequence[Tensor]) -> tuple[Any, ...]:
        """Return field, tape and memory as the loops take them."""
        settings = settings_of(form)
        own = _by_role(settings, inputs[3:])
        code = code_of(settings.phi)
        assert code is not None
        ones = torch.ones(own.W_1.shape[0]) if own.scale is own.W_2 is None else None
        a, b = arrays.FUSED if settings.solver == "fused" else make_steps(settings.solver)
        field = arrays.Field(
            arrays.make_numbers(code, settings.damping, settings.clip),
            as_array(own.W_1),
            array_or_empty(own.W_2, 2),
            array_or_empty(own.b_2, 1),
            array_or_empty(ones if own.scale is None else own.scale, 1),
            array_or_empty(own.leak, 1),
            a,
            b,
            settings.substeps,
        )
        gates, c, u = tape[3:] if own.recurrent is not None else (None, None, None)
        memory = arrays.Memory(
            array_or_empty(own.recurrent, 2),
            array_or_empty(own.drive, 2),
            array_or_empty(own.drive_bias, 1),
            *(written_or_empty(one, 3) for one in (gates, c, u)),
        )
        return field, arrays.Tape(written(tape[1]), written(tape[2])), memory

    def _sequence(
        self, form: Any, mask: Tensor | None, inputs: Inputs, states: Tensor, out: Any
    ) -> arrays.Sequence:
        x, h, dt, *_ = inputs
        delta = dt.detach().squeeze(-1) / settings_of(form).substeps
        behind_memory = h.shape[1] > states.shape[2]
        valid = delta.new_empty(len(delta), 0, dtype=torch.bool) if mask is None else mask
        drive = array_or_empty(None if behind_memory else x, 3)
        return arrays.Sequence(drive, as_array(delta), as_array(valid), written(states), out)

    def backward(
        self,
        form: Any,
        mask: Tensor | None,
        inputs: Inputs,
        tape: Sequence[Tensor],
        pulls: Pulls,
        wants: Wants,
    ) -> Gradients:
        """Return the gradients of the inputs."""
        _, h, dt, *parameters = inputs
        settings = settings_of(form)
        own = _by_role(settings, parameters)
        states, at, f, *memory = tape
        (B, T, _), N = dt.shape, states.shape[2]
        to_last = carried(pulls.last, h)
        to_z, to_F = empty(*f.shape), empty(*at.shape) if own.W_2 is not None else None
        to_neurons = h.new_zeros(slice_count(B), 2, N, dtype=torch.float64)  # over all steps
        to_dt = h.new_zeros(B, T) if wants[GAPS] else None
        to_drive = h.new_empty(T, B, f.shape[-1])
        to_gates = torch.empty_like(memory[0]) if memory else None
        to_h, to_c = to_last, None
        if memory:
            to_h, to_c = (part.contiguous() for part in to_last.split(N, dim=1))
        deltas = arrays.Deltas(
            written(to_z),
            written_or_empty(to_F, 4),
            written(to_neurons),
            written_or_empty(to_dt),
            written(to_drive),
            written_or_empty(to_gates, 3),
            written(to_h),
            written_or_empty(to_c),
        )
        run_slices(
            _loops().flow_backward,
            B,
            find_blas(),
            *self._shared(form, inputs, tape),
            self._sequence(form, mask, inputs, states, array_or_empty(pulls.y, 3)),
            deltas,
        )
        rows, first, second = _flat(to_drive), *to_neurons.sum(0).to(h.dtype)
        found = {
            "": None,
            "W_1": _flat(to_z).T @ _flat(at),
            "scale": first,
            "leak": second,
            "drive_bias": rows.sum(0) if memory else None,
        }
        if to_F is not None:
            found |= {"W_2": _flat(to_F).T @ _flat(f), "b_2": _flat(to_F).sum(0)}
        if to_gates is not None:
            found["recurrent"] = _flat(to_gates).T @ _flat(states[:-1])
            found["drive"] = None if own.drive is None else rows.T @ _flat(memory[2])
        to_x = to_drive if to_gates is None else to_gates
        return [
            to_x.transpose(0, 1),
            to_h if to_c is None else torch.cat([to_h, to_c], dim=1),
            None if to_dt is None else (to_dt / settings.substeps).unsqueeze(-1),
            *(found[role] for role in settings.roles[: len(parameters)]),
        ]


def _by_role(settings: Settings, parameters: Sequence[Tensor]) -> Roles:
    """Return the parameters by their roles; a trailing one may be left out."""
    named = zip(settings.roles, parameters, strict=False)
    return Roles(**{role: parameter for role, parameter in named if role})


def _flat(tensor: Tensor) -> Tensor:
    """Return (..., F) as (M, F)."""
    return tensor.view(-1, tensor.shape[-1])


PROGRAM = OPERATORS[NumbaFlow.name] = NumbaFlow()
