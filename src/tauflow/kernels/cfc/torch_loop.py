"""Closed-form cells in torch operations, the whole sequence as one node of the graph.

For any device, and for double precision. Inputs are multiplied in one product ahead of the loop
over time, which leaves to each step the products with the state. Activations overwrite what they
read. Their slopes do not depend on the incoming gradient: they are taken for a block of steps at
once, and the loop back has one factor and one product per layer. Gradients of the weights are one
product per block.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from tauflow.cells.cfc import CfCCell
from tauflow.cells.cfc_heads import CfCConfig, CfCParameters
from tauflow.kernels.engine.program import (
    DT,
    STATE,
    Gradients,
    GradOutputs,
    Inputs,
    NeedsInputGrad,
    Outputs,
    SequenceKernel,
    X,
)

from .torch_pointwise import (
    GatedStepper,
    PureStepper,
    StateDerivatives,
    compute_value_and_slope,
    gated_derivatives,
    get_in_place_activation,
    pure_derivatives,
    select_gate_memory,
    unbind_steps,
)

_BLOCK_BYTES = {"cpu": 1 << 20}  # an array that stays in the cache with four others
_BLOCK_BYTES_ELSEWHERE = 1 << 26  # an array that keeps a GPU busy for longer than its launch takes


def compute_block_size(like: Tensor) -> int:
    """Return how many entries an array of a block of steps may have."""
    return _BLOCK_BYTES.get(like.device.type, _BLOCK_BYTES_ELSEWHERE) // like.element_size()


class CfCInputs(NamedTuple):
    """The tensors of a run by their roles."""

    x: Tensor  # (B, T, D)
    h: Tensor  # (B, N)
    dt: Tensor  # (B, T, 1)
    pure_parameters: Sequence[Tensor]  # |w_tau| and A of the pure form, (N,)
    layers: Sequence[tuple[Tensor, Tensor]]  # weight and bias; the heads come last

    @classmethod
    def of(cls, config: CfCConfig, inputs: Inputs) -> "CfCInputs":
        """Return the tensors of a flat list."""
        x, h, dt, *others = inputs
        packed = CfCParameters(*others)
        own = (packed.rate, packed.amplitude) if config.is_pure_mode else ()
        if not config.layers:
            return cls(x, h, dt, own, [(packed.first, packed.heads_bias)])
        deep = zip(packed.deep, packed.deep_bias, strict=True)
        first, last = (packed.first, packed.first_bias), (packed.heads, packed.heads_bias)
        return cls(x, h, dt, own, [first, *deep, last])


class SavedActivations(NamedTuple):
    """What the backward pass reads."""

    states: Tensor  # (T + 1, B, N)
    p: Tensor  # (T, B, N); empty in the pure form
    heads: Tensor  # (T, B, blocks N)
    hidden: Sequence[Tensor]  # of each layer before the heads, (T, B, width)

    @classmethod
    def of(cls, saved_tensors: Sequence[Tensor]) -> "SavedActivations":
        """Return the tensors of a flat list."""
        states, p, *hidden, heads = saved_tensors
        return cls(states, p, heads, hidden)


def to_time_first(values: Tensor) -> Tensor:
    """Return (B, T, ...) as contiguous (T, B, ...)."""
    return values.transpose(0, 1).contiguous()


class TorchCfC(SequenceKernel):
    """Closed-form cells in torch operations."""

    name = "closed_form/torch"
    advance = staticmethod(CfCCell.advance)

    def allocate(
        self, config: CfCConfig, inputs: Inputs, needs_input_grad: NeedsInputGrad
    ) -> Outputs:
        """Return memory for what :meth:`forward` writes."""
        (B, T, _), h, new = inputs[X].shape, inputs[STATE], inputs[X].new_empty
        first, *deep = (len(bias) for _, bias in CfCInputs.of(config, inputs).layers)
        z = [new(T, B, first), *(new(T if needs_input_grad else 1, B, width) for width in deep)]
        p, states = select_gate_memory(config, z[-1], h.shape[1]), new(T + 1, *h.shape)
        return Outputs(new(B, T, h.shape[1]), torch.empty_like(h), (states, p, *z))

    def forward(
        self,
        config: CfCConfig,
        mask: Tensor | None,
        inputs: Inputs,
        out: Outputs,
        needs_input_grad: NeedsInputGrad,
    ) -> None:
        """Run all steps."""
        given, kept = CfCInputs.of(config, inputs), SavedActivations.of(out.saved_tensors)
        (W, b), *deep = given.layers
        T, D, z = given.x.shape[1], given.x.shape[2], out.saved_tensors[2:]
        torch.addmm(b, to_time_first(given.x).flatten(0, 1), W[:, :D].T, out=z[0].flatten(0, 1))
        dt = to_time_first(given.dt)
        closed = (
            PureStepper(given.pure_parameters, dt, z[-1])
            if given.pure_parameters
            else GatedStepper(config, dt, z[-1], kept.p)
        )
        steps_of = [unbind_steps(layer, T) for layer in z]
        W_h, phi = W[:, D:].T, get_in_place_activation(config.outer)
        valid = None if mask is None else to_time_first(mask).unsqueeze(-1)
        kept.states[0] = h = given.h
        for t, after in enumerate(kept.states[1:].unbind()):
            at = steps_of[0][t].addmm_(h, W_h)
            for (weight, bias), to in zip(deep, steps_of[1:], strict=True):
                value = config.outer(at) if phi is None else phi.apply_(at)
                at = torch.addmm(bias, value, weight.T, out=to[t])
            closed.combine_heads(t, after)
            if valid is not None:
                torch.where(valid[t], after, h, out=after)
            h = after
        out.y.copy_(kept.states[1:].transpose(0, 1))
        out.last.copy_(h)

    def backward(
        self,
        config: CfCConfig,
        mask: Tensor | None,
        inputs: Inputs,
        saved_tensors: Sequence[Tensor],
        grad_outputs: GradOutputs,
        needs_input_grad: NeedsInputGrad,
    ) -> Gradients:
        """Return the gradients of the inputs."""
        back = _BackwardPass(
            config,
            mask,
            CfCInputs.of(config, inputs),
            SavedActivations.of(saved_tensors),
            needs_input_grad,
        )
        to_x, to_h, to_dt, *own = back.run(*grad_outputs)
        (to_first, to_bias), *others = back.g_layers
        if not config.layers:
            layers: list[Tensor | None] = [to_first, None, None, None, None, to_bias]
        else:
            *deep, (to_heads, to_heads_bias) = others
            stacks = [torch.stack(part) if deep else None for part in zip(*deep, strict=True)]
            to_deep, to_deep_bias = stacks or (None, None)
            layers = [to_first, to_bias, to_deep, to_deep_bias, to_heads, to_heads_bias]
        return [to_x, to_h, to_dt, *layers, *(own or (None, None))]


TORCH_CFC = TorchCfC()


class _BackwardPass:
    """The backward pass through time, a block of steps at a time.

    Args:
        config: of the run.
        mask: (B, T) bool, or ``None``.
        inputs: of the run.
        saved: by the forward pass.
        needs_input_grad: which inputs want gradients.
    """

    def __init__(
        self,
        config: CfCConfig,
        mask: Tensor | None,
        inputs: CfCInputs,
        saved: SavedActivations,
        needs_input_grad: NeedsInputGrad,
    ) -> None:
        self.form, self.saved, self.layers, self.pure_parameters = (
            config,
            saved,
            inputs.layers,
            inputs.pure_parameters,
        )
        self.x, self.dt = to_time_first(inputs.x), to_time_first(inputs.dt)
        self.skipped = None if mask is None else ~to_time_first(mask).unsqueeze(-1)
        self.g_x = torch.empty_like(self.x) if needs_input_grad[X] else None
        self.g_dt = torch.empty_like(self.dt) if needs_input_grad[DT] else None
        self.grad_pure_parameters = [torch.zeros_like(tensor) for tensor in self.pure_parameters]
        self.g_layers = [(torch.zeros_like(W), torch.zeros_like(b)) for W, b in self.layers]

    def run(self, g_y: Tensor | None, g_last: Tensor | None) -> list[Tensor | None]:
        """Return the gradients of x, h and dt, and of the pure form's parameters."""
        (T, B), states = self.x.shape[:2], self.saved.states
        widest = max(len(bias) for _, bias in self.layers)
        length = max(1, compute_block_size(self.x) // (B * widest))
        g = torch.zeros_like(states[0]) if g_last is None else g_last
        pulls = states.new_zeros(T, 1, 1) if g_y is None else to_time_first(g_y)
        for first in reversed(range(0, T, length)):
            part = slice(first, min(first + length, T))
            g = self._backward_block(part, g, pulls[part])
        to_x, to_dt = (None if to is None else to.transpose(0, 1) for to in (self.g_x, self.g_dt))
        return [to_x, g, to_dt, *self.grad_pure_parameters]

    def _backward_block(self, part: slice, g: Tensor, grad_outputs: Tensor) -> Tensor:
        """Go back through the steps of a block; return the gradient of the state before it."""
        hidden = [
            compute_value_and_slope(self.form.outer, kept[part]) for kept in self.saved.hidden
        ]
        responses = self._compute_derivatives(part)
        slopes = responses.heads
        skipped = None if self.skipped is None else self.skipped[part]
        if skipped is not None:
            slopes.masked_fill_(skipped.unsqueeze(-1), 0.0)
        g_after = torch.empty_like(self.saved.states[part])
        deltas = [torch.empty_like(value) for value, _ in hidden]
        deltas.append(torch.empty_like(self.saved.heads[part]))
        steps_of = [delta.unbind() for delta in (*deltas, deltas[-1].view_as(slopes))]
        each_slope = [slope.unbind() for _, slope in hidden] + [slopes.unbind()]
        weights = [W for W, _ in self.layers]
        weights[0] = weights[0][:, self.x.shape[2] :]
        for t in reversed(range(len(grad_outputs))):
            g = torch.add(g, grad_outputs[t], out=g_after[t])
            torch.mul(each_slope[-1][t], g.unsqueeze(1), out=steps_of[-1][t])
            for layer in reversed(range(len(hidden))):
                pull = steps_of[layer + 1][t] @ weights[layer + 1]
                torch.mul(pull, each_slope[layer][t], out=steps_of[layer][t])
            pull = steps_of[0][t] @ weights[0]
            g = pull if skipped is None else torch.where(skipped[t], g, pull)
        if skipped is not None:
            g_after.masked_fill_(skipped, 0.0)
        self._add_time_gradients(part, g_after, responses)
        self._add_dense_gradients(part, [value for value, _ in hidden], deltas)
        return g

    def _compute_derivatives(self, part: slice) -> StateDerivatives:
        heads, dt, wants_gap = self.saved.heads[part], self.dt[part], self.g_dt is not None
        if self.pure_parameters:
            return pure_derivatives(self.pure_parameters, heads, dt, needs_dt_grad=wants_gap)
        return gated_derivatives(self.form, heads, self.saved.p[part], dt, needs_dt_grad=wants_gap)

    def _add_time_gradients(
        self, part: slice, g_after: Tensor, responses: StateDerivatives
    ) -> None:
        """Add to the gradients of the closed form's own parameters and write those of gaps."""
        for total, response in zip(
            self.grad_pure_parameters, responses.pure_parameters, strict=True
        ):
            total += (g_after * response).sum((0, 1))
        if self.g_dt is not None and responses.dt is not None:
            self.g_dt[part] = (g_after * responses.dt).sum(-1, keepdim=True)

    def _add_dense_gradients(
        self, part: slice, values: Sequence[Tensor], deltas: Sequence[Tensor]
    ) -> None:
        """Add up the gradients of the layers and write those of the inputs."""
        rows = [delta.flatten(0, 1) for delta in deltas]
        for (_, g_b), delta in zip(self.g_layers, rows, strict=True):
            g_b += delta.sum(0)
        for (g_W, _), delta, value in zip(self.g_layers[1:], rows[1:], values, strict=True):
            g_W.addmm_(delta.T, value.flatten(0, 1))
        (W, _), (g_W, _), D = self.layers[0], self.g_layers[0], self.x.shape[2]
        g_W[:, :D].addmm_(rows[0].T, self.x[part].flatten(0, 1))
        g_W[:, D:].addmm_(rows[0].T, self.saved.states[:-1][part].flatten(0, 1))
        if self.g_x is not None:
            torch.mm(rows[0], W[:, :D], out=self.g_x[part].flatten(0, 1))
