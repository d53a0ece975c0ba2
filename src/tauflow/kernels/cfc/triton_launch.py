"""What the launches of closed-form kernels work on, and those that take whole sequences."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tauflow.cells.cfc_heads import CfCConfig, CfCParameters
from tauflow.kernels.gpu.plan import ROWS, CorePlan

from .config import CfCCode, CoreActivations, CorePreactivationGrads


class CfCLSTMTensors(NamedTuple):
    """A memory beside the core.

    Args:
        gates: (T, B, 4 N), products with input and bias, i, f, g, o after the forward pass.
        cells: (T, B, N) float32, the memory after every step.
        weights: (4 N, N), what the gates read the state by.
        start: (B, N), the memory before the first step.
        reads_state: whether the core reads [u; v], or u in place of the state.
    """

    gates: Tensor
    cells: Tensor
    weights: Tensor
    start: Tensor
    reads_state: bool


@dataclass(frozen=True)
class TritonCore:
    """A closed-form cell over a batch of sequences.

    Args:
        form: the closed form.
        precision: of products of float32 tiles.
        parameters: of the core.
        recurrent: the columns of its first layer that multiply what changes from step to step.
        activations: values of the layers.
        dt: (B, T) float32.
        mask: (B, T) bytes, or ``None``.
        memory: beside it, or ``None``.
    """

    form: CfCConfig
    precision: str
    parameters: CfCParameters
    recurrent: Tensor
    activations: CoreActivations
    dt: Tensor
    mask: Tensor | None
    memory: CfCLSTMTensors | None

    @property
    def neurons(self) -> int:
        """N."""
        return self.activations.heads.shape[2] // (1 if self.form.is_pure_mode else 4)

    @property
    def units(self) -> int:
        """U, or N without a backbone."""
        return self.activations.first.shape[2] if self.form.layers else self.neurons

    @property
    def rows(self) -> int:
        """K N: of the heads' weights."""
        return self.parameters.heads_bias.shape[0]

    def head_constants(self) -> dict[str, Any]:
        """Return the constants of kernels that join heads."""
        code = CfCCode.from_config(self.form)
        phi = code.phi
        return {
            "MODE": code.mode,
            "SIGN": float(code.sign),
            "TIME_BIAS": bool(code.time_bias),
            "PHI": int(phi.code),
            "SCALE": float(phi.scale),
            "RATE": float(phi.rate),
            "MASKED": self.mask is not None,
        }

    def backbone(self) -> tuple[int, float, float]:
        """Return the backbone's activation as constants."""
        phi = CfCCode.from_config(self.form).outer
        return int(phi.code), float(phi.scale), float(phi.rate)

    def layers(self) -> dict[str, Any]:
        """Return the constants of kernels that hold all layers."""
        code, scale, rate = self.backbone()
        kind = 0 if self.memory is None else 1 if self.memory.reads_state else 2
        return {
            **self.head_constants(),
            "LAYERS": self.form.layers,
            "OUTER": code,
            "OUTER_SCALE": scale,
            "OUTER_RATE": rate,
            "MIXED": kind,
            "SLOPES": self.activations.slopes.shape[0] > 0,
            "PRECISION": self.precision,
            **self._plan().launch_arguments(),
        }

    def _plan(self) -> CorePlan:
        memory = self.memory
        return CorePlan.choose(
            self.form.layers,
            self.rows // self.neurons,
            self.neurons,
            self.units,
            memory=memory is not None,
            reads_state=memory is not None and memory.reads_state,
        )


class CfCResults(NamedTuple):
    """What a forward pass returns: outputs (B, T, N), and the last state and memory, (B, N)."""

    out: Tensor
    last: Tensor
    last_c: Tensor


class CfCGradients(NamedTuple):
    """What a backward pass reads and writes.

    Args:
        out: gradient of the outputs, (B, T, N).
        last: of the last state, (B, N).
        last_c: of the last memory, (B, N).
        deltas: gradients before biases and activations, written.
        gates: of the gates before their activation, (T, B, 4 N), written.
        dt: (B, T), written; empty if not wanted.
    """

    out: Tensor
    last: Tensor
    last_c: Tensor
    deltas: CorePreactivationGrads
    gates: Tensor
    dt: Tensor


def _get_lstm_tensors(core: TritonCore) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return gates, cells, weights and start; some other tensor in place of none."""
    if core.memory is None:
        return (core.dt,) * 4
    return core.memory[:4]


def launch_forward(core: TritonCore, h: Tensor, results: CfCResults, *, keep: bool) -> None:
    """Run the sequences from states h, (B, N)."""
    from .triton_forward import cfc_forward

    parameters, (T, B, _) = core.parameters, core.activations.first.shape
    gates, cells, weights, start = _get_lstm_tensors(core)
    cfc_forward[(-(-B // ROWS),)](
        *core.activations,
        core.recurrent,
        *parameters[2:],
        h,
        core.dt,
        core.dt if core.mask is None else core.mask,
        results.out,
        results.last,
        gates,
        cells,
        weights,
        start,
        results.last_c,
        B,
        T,
        core.neurons,
        core.units,
        core.activations.heads.shape[2],
        KEEP=keep,
        **core.layers(),
    )


def launch_backward(
    core: TritonCore, gradients: CfCGradients
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Run the sequences backwards.

    Returns:
        Gradients of the first state and memory, (B, N), and of rate and amplitude, (..., N).
    """
    from .triton_backward import cfc_backward

    parameters, (T, B, _), N = core.parameters, core.activations.first.shape, core.neurons
    gates, cells, weights, start = _get_lstm_tensors(core)
    programs = -(-B // ROWS)
    grad_h, grad_c = torch.empty_like(gradients.last), torch.empty_like(gradients.last_c)
    grad_rate, grad_amplitude = core.dt.new_empty(2, programs if core.form.is_pure_mode else 0, N)
    cfc_backward[(programs,)](
        *core.activations,
        core.recurrent,
        parameters.deep,
        parameters.heads,
        parameters.rate,
        parameters.amplitude,
        core.dt,
        core.dt if core.mask is None else core.mask,
        gradients.out,
        gradients.last,
        grad_h,
        gradients.dt,
        grad_rate,
        grad_amplitude,
        *gradients.deltas,
        gates,
        cells,
        weights,
        start,
        gradients.last_c,
        grad_c,
        gradients.gates,
        B,
        T,
        N,
        core.units,
        core.activations.heads.shape[2],
        GAPS=len(gradients.dt) > 0,
        **core.layers(),
    )
    return grad_h, grad_c, grad_rate, grad_amplitude
