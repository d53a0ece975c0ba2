"""Flows over sequences: which calls are served, and what is between torch and the loops."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from tauflow.cells.activations import Activation
from tauflow.cells.ct_rnn import CTRNNCell, CTRNNConfig, ct_rnn_update
from tauflow.cells.ltc_neuronal import NeuronalLTCCell, NeuronalLTCConfig, neuronal_ltc_update
from tauflow.cells.ode_lstm import ODELSTMCell, ODELSTMConfig, ode_lstm_update
from tauflow.kernels.engine.activations import (
    decode_activation,
    encode_activation,
    find_activation_code,
    has_slope_from_value,
)
from tauflow.kernels.engine.kernel_spec import (
    KernelCall,
    OperatorKernel,
)
from tauflow.kernels.engine.requirements import NUMBA, TRITON
from tauflow.kernels.engine.torch_state import guard_float
from tauflow.kernels.gpu.plan import get_matmul_dtype, persistent_unsupported_reason
from tauflow.solvers import TABLEAUS, FlowSolver

FlowConfig = CTRNNConfig | ODELSTMConfig | NeuronalLTCConfig


def _solver_unsupported_reason(solver: str, phi: Activation) -> str | None:
    """Return which solver or activation the compiled flows lack."""
    if solver not in TABLEAUS:
        return f"its compiled loops have fixed steps only, not solver {solver!r}"
    code = find_activation_code(phi)
    if code is None or not has_slope_from_value(code):
        return "its compiled loops do not know this activation"
    return None


def _tableau_unsupported_reason(solver: str) -> str | None:
    """Return why a table is not in the form that the Triton kernel takes."""
    table = TABLEAUS[solver]
    if len(table.b) > 4 or any(weight for row in table.a for weight in row[:-1]):
        return (
            "the triton kernel takes tables of up to four stages, each of which reads the one "
            f"before it only, unlike solver {solver!r}"
        )
    return None


def ct_rnn_unsupported_reason(call: KernelCall) -> str | None:
    """Return why the compiled loops cannot serve a call of a :class:`CTRNNCell`."""
    assert isinstance(call.cell, CTRNNCell)
    return NUMBA.unsupported_reason(call) or _solver_unsupported_reason(
        call.cell.solver, call.cell.phi
    )


def ode_lstm_unsupported_reason(call: KernelCall) -> str | None:
    """Return why the compiled loops cannot serve a call of an :class:`ODELSTMCell`."""
    assert isinstance(call.cell, ODELSTMCell)
    phi = call.cell.flow.phi if call.cell.form == "tensorflow" else torch.tanh
    return NUMBA.unsupported_reason(call) or _solver_unsupported_reason(call.cell.solver, phi)


def neuronal_unsupported_reason(call: KernelCall) -> str | None:
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
    return NUMBA.unsupported_reason(call)


def triton_flow_unsupported_reason(call: KernelCall) -> str | None:
    """Return why the Triton kernel cannot serve a call of a :class:`CTRNNCell`."""
    cell = call.cell
    assert isinstance(cell, CTRNNCell)
    if cell.clip is not None:
        return "the triton kernel does not clip the state between solver steps"
    reason = (
        TRITON.unsupported_reason(call)
        or _solver_unsupported_reason(cell.solver, cell.phi)
        or _tableau_unsupported_reason(cell.solver)
    )
    return reason or persistent_unsupported_reason(
        call.x.device, get_matmul_dtype(call), 0, 1, cell.hidden_size, 0
    )


class ParametersByRole(NamedTuple):
    """Parameters, or their gradients, by what the loops do with them; see ``arrays.Field``."""

    W_1: Any = None
    scale: Any = None
    leak: Any = None
    W_2: Any = None
    b_2: Any = None
    recurrent: Any = None
    drive: Any = None
    drive_bias: Any = None


class FlowSettings(NamedTuple):
    """What the loops take of a form, and the role of each parameter."""

    phi: Activation
    damping: float
    solver: str
    substeps: int
    clip: float | None
    roles: tuple[str, ...]


def get_flow_settings(config: FlowConfig) -> FlowSettings:
    """Return what the loops take of a form."""
    if isinstance(config, ODELSTMConfig):
        return _ode_lstm_settings(config)
    return (
        _neuronal_settings(config)
        if isinstance(config, NeuronalLTCConfig)
        else _ct_rnn_settings(config)
    )


def _ct_rnn_settings(config: CTRNNConfig) -> FlowSettings:
    roles = ("W_1", "scale")
    gap = config.flow_solver
    return FlowSettings(config.phi, config.damping, gap.solver, gap.substeps, config.clip, roles)


def _ode_lstm_settings(config: ODELSTMConfig) -> FlowSettings:
    if config.flow_reads_input:
        roles: tuple[str, ...] = ("recurrent", "drive", "drive_bias", "W_1", "scale")
    else:
        roles = ("recurrent", "W_1", "drive_bias", "W_2", "b_2")
    return _ct_rnn_settings(config.flow)._replace(roles=roles)


def _neuronal_settings(config: NeuronalLTCConfig) -> FlowSettings:
    roles = ("W_1", "scale", "leak")
    return FlowSettings(config.phi, 0.0, config.solver, config.substeps, None, roles)


class FlowKernel(OperatorKernel):
    """What all programs for flows have in common."""

    @staticmethod
    def update(config: FlowConfig, *arguments: Tensor) -> Tensor:
        """Take one step of the cell."""
        if isinstance(config, ODELSTMConfig):
            return ode_lstm_update(config, *arguments)
        if isinstance(config, NeuronalLTCConfig):
            return neuronal_ltc_update(config, *arguments)
        return ct_rnn_update(config, *arguments)

    @staticmethod
    def encode(config: FlowConfig) -> list[str]:
        """Return a form as words; the length of steps is in the gap."""
        if isinstance(config, NeuronalLTCConfig):
            return [
                "neuronal",
                str(encode_activation(config.phi)),
                config.solver,
                str(config.substeps),
            ]
        kind = "flow"
        if isinstance(config, ODELSTMConfig):
            kind = "follow" if config.flow_reads_input else "layers"
            config = config.flow
        floats = [config.damping] if config.clip is None else [config.damping, config.clip]
        gap, phi = config.flow_solver, str(encode_activation(config.phi))
        numbers = [str(guard_float(number)) for number in floats]
        return [kind, phi, gap.solver, str(gap.substeps), *numbers]

    @staticmethod
    def decode(words: Sequence[str]) -> FlowConfig:
        """Return the form that :meth:`encode` wrote."""
        kind, number, solver, substeps, *others = words
        phi = decode_activation(int(number))
        if kind == "neuronal":
            return NeuronalLTCConfig(phi, solver, int(substeps))
        damping, *clips = map(float, others)
        clip = clips[0] if clips else None
        flow = CTRNNConfig(phi, damping, FlowSolver(solver, int(substeps)), None, clip)
        if kind == "flow":
            return flow
        return ODELSTMConfig(flow, kind == "follow")
