"""The loops over time of closed-form cells in torch operations, forwards and back."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from tauflow.cells.activations import Activation
from tauflow.cells.cfc_heads import ClosedFormHeads

from .torch_activations import by_value, value_and_slope
from .torch_synapses import block_size


@dataclass(frozen=True)
class Form:
    """What a run needs besides tensors with gradients.

    Args:
        heads: for its options; its parameters are not read.
        phi: activation of the layers before the heads.
        mask: (B, T), or ``None``.
        own: how many parameters of the closed form come before the layers'.
    """

    heads: ClosedFormHeads
    phi: Activation
    mask: Tensor | None
    own: int


class Inputs(NamedTuple):
    """The tensors of a run by their roles."""

    x: Tensor  # (B, T, D)
    h: Tensor  # (B, N)
    dt: Tensor  # (B, T, 1)
    own: Sequence[Tensor]  # |w_tau| and A of the pure form, (N,)
    layers: Sequence[tuple[Tensor, Tensor]]  # weight and bias; the heads come last

    @classmethod
    def of(cls, form: Form, inputs: Sequence[Tensor]) -> "Inputs":
        """Return the tensors of a flat list."""
        x, h, dt, *others = inputs
        own, dense = others[: form.own], others[form.own :]
        return cls(x, h, dt, own, list(zip(dense[::2], dense[1::2], strict=True)))


class Kept(NamedTuple):
    """What the backward pass reads."""

    states: Tensor  # (T + 1, B, N)
    hidden: Sequence[Tensor]  # of each layer before the heads, (T, B, width)
    heads: Tensor  # (T, B, blocks N)
    p: Tensor  # (T, B, N); empty in the pure form


def time_first(values: Tensor) -> Tensor:
    """Return (B, T, ...) as contiguous (T, B, ...)."""
    return values.transpose(0, 1).contiguous()


def forward(form: Form, inputs: Inputs, *, keep: bool) -> tuple[Tensor, Tensor, Kept]:
    """Return the states after every step (B, T, N), the last one and what the backward reads."""
    (W, b), *deep = inputs.layers
    (B, T, D), h = inputs.x.shape, inputs.h
    N, steps = h.shape[1], T if keep else 1
    first = torch.addmm(b, time_first(inputs.x).flatten(0, 1), W[:, :D].T).view(T, B, -1)
    z = [first, *(h.new_empty(steps, B, len(bias)) for _, bias in deep)]
    closed = _PureForm(inputs, z[-1]) if inputs.own else _GatedForm(form, inputs, z[-1], N)
    each = [_each(layer, T) for layer in z]
    W_h, phi = W[:, D:].T, by_value(form.phi)
    valid = None if form.mask is None else time_first(form.mask).unsqueeze(-1)
    states = h.new_empty(T + 1, B, N)
    states[0] = h
    for t, after in enumerate(states[1:].unbind()):
        at = each[0][t].addmm_(h, W_h)
        for (weight, bias), to in zip(deep, each[1:], strict=True):
            value = form.phi(at) if phi is None else phi.apply_(at)
            at = torch.addmm(bias, value, weight.T, out=to[t])
        closed.respond(t, after)
        if valid is not None:
            torch.where(valid[t], after, h, out=after)
        h = after
    # a copy for one sequence too: the states are kept, and the caller may change the result
    y = states[1:].transpose(0, 1).clone(memory_format=torch.contiguous_format)
    return y, h.clone(), Kept(states, z[:-1], z[-1], closed.p)


class _PureForm:
    """The pure form, step by step.

    Args:
        inputs: of the run.
        z: what the head reads, (T, B, N), or (1, B, N) if every step overwrites the one before.
    """

    def __init__(self, inputs: Inputs, z: Tensor) -> None:
        self.w_tau, self.A = inputs.own
        self.p = z.new_empty(0)
        minus_dt = (-time_first(inputs.dt)).unbind()
        self.parts = list(zip(_each(z, len(minus_dt)), minus_dt, strict=True))

    def respond(self, t: int, after: Tensor) -> None:
        """Write the states after step t."""
        z, minus_dt = self.parts[t]
        decay = z.abs().add_(self.w_tau).mul_(minus_dt).exp_()
        torch.addcmul(self.A, decay.mul_(self.A), z, value=-1, out=after)


class _GatedForm:
    """The forms with a time gate, step by step, in place of what the heads read.

    Args:
        form: of the run.
        inputs: of the run.
        z: what the heads read, (T, B, blocks N), or (1, B, blocks N) likewise.
        N: neurons.
    """

    def __init__(self, form: Form, inputs: Inputs, z: Tensor, N: int) -> None:
        phi = by_value(form.heads.phi)
        assert phi is not None
        self.phi, self.bias, self.blends = phi, form.heads.time_bias, form.heads.mode == "default"
        self.p = z[..., 3 * N :] if self.bias else torch.empty_like(z[..., :N])
        signed = (time_first(inputs.dt) * form.heads.time_sign).unbind()
        blocks = z[..., : 2 * N], z[..., :N], z[..., N : 2 * N], z[..., 2 * N : 3 * N], self.p
        self.parts = list(
            zip(*(_each(block, len(signed)) for block in blocks), signed, strict=True)
        )

    def respond(self, t: int, after: Tensor) -> None:
        """Write the states after step t."""
        both, g, h, t_a, p, signed = self.parts[t]
        self.phi.apply_(both)
        if self.bias:
            p.addcmul_(t_a, signed)
        else:
            torch.mul(t_a, signed, out=p)
        p.sigmoid_()
        torch.addcmul((1 - p).mul_(g) if self.blends else g, h, p, out=after)


def _each(values: Tensor, steps: int) -> tuple[Tensor, ...]:
    """Return the entry of every step; a single one stands for all."""
    return values.unbind() * (steps // len(values))


class _Responses(NamedTuple):
    """How states react in a block of steps, (t, B, ..., N)."""

    heads: Tensor  # to each block of what the heads read
    gap: Tensor | None  # to the gap, if it wants a gradient
    own: Sequence[Tensor]  # to |w_tau| and A


class Back:
    """The way back through time, a block of steps at a time.

    Args:
        form: of the run.
        inputs: of the run.
        kept: by the forward pass.
        wanted: which inputs want gradients.
    """

    def __init__(self, form: Form, inputs: Inputs, kept: Kept, wanted: Sequence[bool]) -> None:
        self.form, self.kept, self.layers, self.own = form, kept, inputs.layers, inputs.own
        self.x, self.dt = time_first(inputs.x), time_first(inputs.dt)
        self.skipped = None if form.mask is None else ~time_first(form.mask).unsqueeze(-1)
        self.g_x = torch.empty_like(self.x) if wanted[0] else None
        self.g_dt = torch.empty_like(self.dt) if wanted[2] else None
        self.g_own = [torch.zeros_like(tensor) for tensor in self.own]
        self.g_layers = [(torch.zeros_like(W), torch.zeros_like(b)) for W, b in self.layers]

    def run(self, g_y: Tensor | None, g_last: Tensor | None) -> list[Tensor | None]:
        """Return the gradients of the inputs, in their order."""
        (T, B), states = self.x.shape[:2], self.kept.states
        widest = max(len(bias) for _, bias in self.layers)
        length = max(1, block_size(self.x) // (B * widest))
        g = torch.zeros_like(states[0]) if g_last is None else g_last
        pulls = states.new_zeros(T, 1, 1) if g_y is None else time_first(g_y)
        for first in reversed(range(0, T, length)):
            part = slice(first, min(first + length, T))
            g = self._block(part, g, pulls[part])
        to_x, to_dt = (None if to is None else to.transpose(0, 1) for to in (self.g_x, self.g_dt))
        layers = [tensor for pair in self.g_layers for tensor in pair]
        return [to_x, g, to_dt, *self.g_own, *layers]

    def _block(self, part: slice, g: Tensor, pulls: Tensor) -> Tensor:
        """Go back through the steps of a block; return the gradient of the state before it."""
        hidden = [value_and_slope(self.form.phi, kept[part]) for kept in self.kept.hidden]
        responses = self._pure_responses(part) if self.own else self._gated_responses(part)
        slopes = responses.heads
        skipped = None if self.skipped is None else self.skipped[part]
        if skipped is not None:
            slopes.masked_fill_(skipped.unsqueeze(-1), 0.0)
        g_after = torch.empty_like(self.kept.states[part])
        deltas = [torch.empty_like(value) for value, _ in hidden]
        deltas.append(torch.empty_like(self.kept.heads[part]))
        each = [delta.unbind() for delta in (*deltas, deltas[-1].view_as(slopes))]
        each_slope = [slope.unbind() for _, slope in hidden] + [slopes.unbind()]
        weights = [W for W, _ in self.layers]
        weights[0] = weights[0][:, self.x.shape[2] :]
        for t in reversed(range(len(pulls))):
            g = torch.add(g, pulls[t], out=g_after[t])
            torch.mul(each_slope[-1][t], g.unsqueeze(1), out=each[-1][t])
            for layer in reversed(range(len(hidden))):
                pull = each[layer + 1][t] @ weights[layer + 1]
                torch.mul(pull, each_slope[layer][t], out=each[layer][t])
            pull = each[0][t] @ weights[0]
            g = pull if skipped is None else torch.where(skipped[t], g, pull)
        if skipped is not None:
            g_after.masked_fill_(skipped, 0.0)
        self._add_time_gradients(part, g_after, responses)
        self._add_dense_gradients(part, [value for value, _ in hidden], deltas)
        return g

    def _gated_responses(self, part: slice) -> _Responses:
        heads, p, mode = self.kept.heads[part], self.kept.p[part], self.form.heads.mode
        signed = self.dt[part] * self.form.heads.time_sign
        g, h, t_a = heads.unflatten(2, (-1, p.shape[2])).unbind(2)[:3]
        phi = by_value(self.form.heads.phi)
        assert phi is not None
        found = torch.empty_like(heads).unflatten(2, (-1, p.shape[2]))
        to_g, to_h, to_a, *to_b = found.unbind(2)
        rest = 1 - p
        gate = torch.mul(p, rest, out=to_b[0] if to_b else None)
        if mode == "no_gate":
            to_g.copy_(phi.slope(g))
            gate.mul_(h)
        else:
            torch.mul(phi.slope(g), rest, out=to_g)
            gate.mul_(h - g)
        torch.mul(phi.slope(h), p, out=to_h)
        torch.mul(gate, signed, out=to_a)
        gap = None if self.g_dt is None else gate * t_a * self.form.heads.time_sign
        return _Responses(found, gap, [])

    def _pure_responses(self, part: slice) -> _Responses:
        (w_tau, A), z, dt = self.own, self.kept.heads[part], self.dt[part]
        size = z.abs()
        decay = (size + w_tau).mul_(-dt).exp_()
        pull = A * decay
        gap = None if self.g_dt is None else (size + w_tau).mul_(pull).mul_(z)
        own = [pull * z * dt, 1 - decay * z]
        return _Responses((size.mul_(dt) - 1).mul_(pull).unsqueeze(2), gap, own)

    def _add_time_gradients(self, part: slice, g_after: Tensor, responses: _Responses) -> None:
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
