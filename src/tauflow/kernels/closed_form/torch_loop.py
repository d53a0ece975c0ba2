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
from tauflow.cells.cfc_heads import ClosedForm, ClosedFormTensors
from tauflow.kernels.engine.program import GAPS, STATE, Buffers, Gradients, Program, Pulls, Wants, X
from tauflow.kernels.engine.program import Inputs as Given

from .torch_pointwise import (
    GatedForm,
    PureForm,
    Responses,
    by_value,
    each,
    gated_responses,
    gates_of,
    pure_responses,
    value_and_slope,
)

_BLOCK_BYTES = {"cpu": 1 << 20}  # an array that stays in the cache with four others
_BLOCK_BYTES_ELSEWHERE = 1 << 26  # an array that keeps a GPU busy for longer than its launch takes


def block_size(like: Tensor) -> int:
    """Return how many entries an array of a block of steps may have."""
    return _BLOCK_BYTES.get(like.device.type, _BLOCK_BYTES_ELSEWHERE) // like.element_size()


class Inputs(NamedTuple):
    """The tensors of a run by their roles."""

    x: Tensor  # (B, T, D)
    h: Tensor  # (B, N)
    dt: Tensor  # (B, T, 1)
    own: Sequence[Tensor]  # |w_tau| and A of the pure form, (N,)
    layers: Sequence[tuple[Tensor, Tensor]]  # weight and bias; the heads come last

    @classmethod
    def of(cls, form: ClosedForm, inputs: Given) -> "Inputs":
        """Return the tensors of a flat list."""
        x, h, dt, *others = inputs
        packed = ClosedFormTensors(*others)
        own = (packed.rate, packed.amplitude) if form.pure else ()
        if not form.layers:
            return cls(x, h, dt, own, [(packed.first, packed.heads_bias)])
        deep = zip(packed.deep, packed.deep_bias, strict=True)
        first, last = (packed.first, packed.first_bias), (packed.heads, packed.heads_bias)
        return cls(x, h, dt, own, [first, *deep, last])


class Kept(NamedTuple):
    """What the backward pass reads."""

    states: Tensor  # (T + 1, B, N)
    p: Tensor  # (T, B, N); empty in the pure form
    heads: Tensor  # (T, B, blocks N)
    hidden: Sequence[Tensor]  # of each layer before the heads, (T, B, width)

    @classmethod
    def of(cls, tape: Sequence[Tensor]) -> "Kept":
        """Return the tensors of a flat list."""
        states, p, *hidden, heads = tape
        return cls(states, p, heads, hidden)


def time_first(values: Tensor) -> Tensor:
    """Return (B, T, ...) as contiguous (T, B, ...)."""
    return values.transpose(0, 1).contiguous()


class TorchClosedForm(Program):
    """Closed-form cells in torch operations; the tape is what :class:`Kept` reads."""

    name = "closed_form/torch"
    advance = staticmethod(CfCCell.advance)

    def allocate(self, form: ClosedForm, inputs: Given, wants: Wants) -> Buffers:
        """Return memory for what :meth:`forward` writes."""
        (B, T, _), h, new = inputs[X].shape, inputs[STATE], inputs[X].new_empty
        first, *deep = (len(bias) for _, bias in Inputs.of(form, inputs).layers)
        z = [new(T, B, first), *(new(T if wants else 1, B, width) for width in deep)]
        p, states = gates_of(form, z[-1], h.shape[1]), new(T + 1, *h.shape)
        return Buffers(new(B, T, h.shape[1]), torch.empty_like(h), (states, p, *z))

    def forward(
        self, form: ClosedForm, mask: Tensor | None, inputs: Given, out: Buffers, wants: Wants
    ) -> None:
        """Run all steps."""
        given, kept = Inputs.of(form, inputs), Kept.of(out.tape)
        (W, b), *deep = given.layers
        T, D, z = given.x.shape[1], given.x.shape[2], out.tape[2:]
        torch.addmm(b, time_first(given.x).flatten(0, 1), W[:, :D].T, out=z[0].flatten(0, 1))
        dt = time_first(given.dt)
        closed = PureForm(given.own, dt, z[-1]) if given.own else GatedForm(form, dt, z[-1], kept.p)
        steps_of = [each(layer, T) for layer in z]
        W_h, phi = W[:, D:].T, by_value(form.outer)
        valid = None if mask is None else time_first(mask).unsqueeze(-1)
        kept.states[0] = h = given.h
        for t, after in enumerate(kept.states[1:].unbind()):
            at = steps_of[0][t].addmm_(h, W_h)
            for (weight, bias), to in zip(deep, steps_of[1:], strict=True):
                value = form.outer(at) if phi is None else phi.apply_(at)
                at = torch.addmm(bias, value, weight.T, out=to[t])
            closed.respond(t, after)
            if valid is not None:
                torch.where(valid[t], after, h, out=after)
            h = after
        out.y.copy_(kept.states[1:].transpose(0, 1))
        out.last.copy_(h)

    def backward(
        self,
        form: ClosedForm,
        mask: Tensor | None,
        inputs: Given,
        tape: Sequence[Tensor],
        pulls: Pulls,
        wants: Wants,
    ) -> Gradients:
        """Return the gradients of the inputs."""
        back = _Back(form, mask, Inputs.of(form, inputs), Kept.of(tape), wants)
        to_x, to_h, to_dt, *own = back.run(*pulls)
        (to_first, to_bias), *others = back.g_layers
        if not form.layers:
            layers: list[Tensor | None] = [to_first, None, None, None, None, to_bias]
        else:
            *deep, (to_heads, to_heads_bias) = others
            stacks = [torch.stack(part) if deep else None for part in zip(*deep, strict=True)]
            to_deep, to_deep_bias = stacks or (None, None)
            layers = [to_first, to_bias, to_deep, to_deep_bias, to_heads, to_heads_bias]
        return [to_x, to_h, to_dt, *layers, *(own or (None, None))]


PROGRAM = TorchClosedForm()


class _Back:
    """The way back through time, a block of steps at a time.

    Args:
        form: of the run.
        mask: (B, T) bool, or ``None``.
        inputs: of the run.
        kept: by the forward pass.
        wanted: which inputs want gradients.
    """

    def __init__(
        self, form: ClosedForm, mask: Tensor | None, inputs: Inputs, kept: Kept, wanted: Wants
    ) -> None:
        self.form, self.kept, self.layers, self.own = form, kept, inputs.layers, inputs.own
        self.x, self.dt = time_first(inputs.x), time_first(inputs.dt)
        self.skipped = None if mask is None else ~time_first(mask).unsqueeze(-1)
        self.g_x = torch.empty_like(self.x) if wanted[X] else None
        self.g_dt = torch.empty_like(self.dt) if wanted[GAPS] else None
        self.g_own = [torch.zeros_like(tensor) for tensor in self.own]
        self.g_layers = [(torch.zeros_like(W), torch.zeros_like(b)) for W, b in self.layers]

    def run(self, g_y: Tensor | None, g_last: Tensor | None) -> list[Tensor | None]:
        """Return the gradients of x, h and dt, and of the pure form's parameters."""
        (T, B), states = self.x.shape[:2], self.kept.states
        widest = max(len(bias) for _, bias in self.layers)
        length = max(1, block_size(self.x) // (B * widest))
        g = torch.zeros_like(states[0]) if g_last is None else g_last
        pulls = states.new_zeros(T, 1, 1) if g_y is None else time_first(g_y)
        for first in reversed(range(0, T, length)):
            part = slice(first, min(first + length, T))
            g = self._block(part, g, pulls[part])
        to_x, to_dt = (None if to is None else to.transpose(0, 1) for to in (self.g_x, self.g_dt))
        return [to_x, g, to_dt, *self.g_own]

    def _block(self, part: slice, g: Tensor, pulls: Tensor) -> Tensor:
        """Go back through the steps of a block; return the gradient of the state before it."""
        hidden = [value_and_slope(self.form.outer, kept[part]) for kept in self.kept.hidden]
        responses = self._responses(part)
        slopes = responses.heads
        skipped = None if self.skipped is None else self.skipped[part]
        if skipped is not None:
            slopes.masked_fill_(skipped.unsqueeze(-1), 0.0)
        g_after = torch.empty_like(self.kept.states[part])
        deltas = [torch.empty_like(value) for value, _ in hidden]
        deltas.append(torch.empty_like(self.kept.heads[part]))
        steps_of = [delta.unbind() for delta in (*deltas, deltas[-1].view_as(slopes))]
        each_slope = [slope.unbind() for _, slope in hidden] + [slopes.unbind()]
        weights = [W for W, _ in self.layers]
        weights[0] = weights[0][:, self.x.shape[2] :]
        for t in reversed(range(len(pulls))):
            g = torch.add(g, pulls[t], out=g_after[t])
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

    def _responses(self, part: slice) -> Responses:
        heads, dt, wants_gap = self.kept.heads[part], self.dt[part], self.g_dt is not None
        if self.own:
            return pure_responses(self.own, heads, dt, wants_gap=wants_gap)
        return gated_responses(self.form, heads, self.kept.p[part], dt, wants_gap=wants_gap)

    def _add_time_gradients(self, part: slice, g_after: Tensor, responses: Responses) -> None:
        """Add to the gradients of the closed form's own parameters and write those of gaps."""
        for total, response in zip(self.g_own, responses.own, strict=True):
            total += (g_after * response).sum((0, 1))
        if self.g_dt is not None and responses.gap is not None:
            self.g_dt[part] = (g_after * responses.gap).sum(-1, keepdim=True)

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
        g_W[:, D:].addmm_(rows[0].T, self.kept.states[:-1][part].flatten(0, 1))
        if self.g_x is not None:
            torch.mm(rows[0], W[:, :D], out=self.g_x[part].flatten(0, 1))
