"""S2P2: a point process whose state passes layers of linear Hawkes processes."""

import math
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tauflow._internal.checks import check_at_least
from tauflow.cells.diagonal import complex_multiply
from tauflow.cells.s5 import hippo_eigenbasis
from tauflow.kernels.scan.chunks import scan_in_chunks
from tauflow.models.neural_hawkes import NeuralHawkes


class S2P2(NeuralHawkes):
    r"""State-space point process: layers of latent linear Hawkes processes, as S5 with jumps.

    The state x of a layer is a linear ODE that an event of type k kicks, in its eigenbasis:

    .. math::
        \dot x = \Lambda x + \Lambda B u, \qquad x(t_i^+) = x(t_i^-) + E_{k_i}, \qquad
        y = 2\, \mathrm{Re}(C x) + D u

    with the input u of the layer held from an event to the next one as it is after the event; that
    of the first layer is 0, and that of the layer above
    :math:`\mathrm{LayerNorm}(\mathrm{GELU}(y) + u)`. With the output h of the last layer, the
    intensities are those of :class:`~tauflow.models.NeuralHawkes`, whose methods are these as well;
    over a stream each layer is one scan.

    Source: Chang et al. 2025, "Deep continuous-time state-space models for marked event sequences",
    Section 3; Smith et al. 2023 for S5.

    Differs from the paper: the rates do not depend on the input; the eigenvalues start at those of
    HiPPO-N with a step 1, and the real parts are negative by construction; the first state is
    that of the event that marks the start.

    Its intensities oscillate between events, so that an exact integral takes many panels: training
    takes the Monte Carlo estimate, as the paper does.

    Args:
        event_types: K.
        hidden_size: width H of inputs and outputs of a layer.
        states: complex states P of a layer; by default ``hidden_size``.
        layers: of latent linear Hawkes processes.
    """

    training_integral: ClassVar[str] = "monte-carlo"

    def __init__(
        self, event_types: int, hidden_size: int, *, states: int | None = None, layers: int = 2
    ) -> None:
        super().__init__(event_types, hidden_size)
        del self.rnn  # the CT-LSTM
        self.hidden_size = check_at_least(1, hidden_size=hidden_size)
        self.states = hidden_size if states is None else check_at_least(1, states=states)
        self.layers = nn.ModuleList(
            _LinearHawkes(event_types + 1, hidden_size, self.states)
            for _ in range(check_at_least(1, layers=layers))
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the layers as S5 does, marks from N(0, 1 / P), weights Glorot uniform."""
        for layer in getattr(self, "layers", ()):
            layer.reset_parameters()
        self._reset_intensities()

    def _run(self, types: Tensor, gaps: Tensor) -> Tensor:
        """Return the states after the start and each event, (B, T + 1, L (2 P + H))."""
        marks = F.pad(types.long(), (1, 0), value=self.event_types)
        dt = F.pad(gaps.to(self.weight.dtype), (1, 0)).unsqueeze(-1)
        u = dt.new_zeros(*marks.shape, self.hidden_size)
        parts = []
        for layer in self._list_layers():
            x = layer.run(marks, dt, u)
            parts += [x, u]
            u = layer.emit(x, u)
        return torch.cat(parts, dim=-1)

    def _read(self, state: Tensor, age: Tensor) -> Tensor:
        """Return h, (..., Q, H), at ages (..., Q) of states."""
        sizes = [2 * self.states, self.hidden_size] * len(self.layers)
        parts = [part.unsqueeze(-2) for part in state.split(sizes, dim=-1)]
        u: Tensor = parts[1].expand(*age.shape, -1)
        for k, layer in enumerate(self._list_layers()):
            x = layer.evolve(parts[2 * k], parts[2 * k + 1], age.unsqueeze(-1))
            u = layer.emit(x, u)
        return u

    def _list_layers(self) -> list["_LinearHawkes"]:
        return [layer for layer in self.layers if isinstance(layer, _LinearHawkes)]

    def _get_rates(self, state: Tensor) -> Tensor:
        rates = [torch.exp(layer.log_rate) for layer in self._list_layers()]
        return torch.cat(rates).to(state.dtype).expand(*state.shape[:-1], -1)

    def _bound_drive(self) -> Tensor:
        """Return what no |w_k^T h| exceeds, (K,): LayerNorm bounds h."""
        norm = self._list_layers()[-1].norm
        largest = math.sqrt(self.hidden_size) * norm.weight.abs() + norm.bias.abs()
        return self.weight.abs() @ largest


class _LinearHawkes(nn.Module):
    """A layer of :class:`S2P2`, with complex numbers as real parts and then imaginary ones."""

    def __init__(self, marks: int, width: int, states: int) -> None:
        super().__init__()
        self.log_rate, self.frequency = (nn.Parameter(torch.empty(states)) for _ in range(2))
        self.B = nn.Parameter(torch.empty(2 * states, width))
        self.C = nn.Parameter(torch.empty(width, 2 * states))
        self.D = nn.Parameter(torch.empty(width))
        self.E = nn.Parameter(torch.empty(marks, 2 * states))
        self.norm = nn.LayerNorm(width)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        states, width = self.log_rate.numel(), self.D.numel()
        self.log_rate.fill_(math.log(0.5))
        self.frequency.copy_(hippo_eigenbasis(states)[0])
        self.B.normal_(0, (2 * width) ** -0.5)
        self.C.normal_(0, (4 * states) ** -0.5)
        self.D.normal_()
        self.E.normal_(0, states**-0.5)
        self.norm.reset_parameters()

    def factor(self, dt: Tensor) -> Tensor:
        """Return exp(Lambda dt), (..., 2 P), of steps, (..., 1), which may be infinite."""
        decay = torch.exp(-torch.exp(self.log_rate).to(dt.dtype) * dt)
        phase = self.frequency.to(dt.dtype) * torch.where(dt.isfinite(), dt, 0.0)
        return torch.cat([decay * torch.cos(phase), decay * torch.sin(phase)], dim=-1)

    def evolve(self, x: Tensor, u: Tensor, dt: Tensor) -> Tensor:
        """Return the state after a step with a held input: it tends to -B u."""
        held = F.linear(u, self.B.to(u.dtype))
        return complex_multiply(self.factor(dt), x + held) - held

    def run(self, marks: Tensor, dt: Tensor, u: Tensor) -> Tensor:
        """Return the states after all marks, (B, T, 2 P), from 0 on; each has the step before it.

        Args:
            marks: (B, T).
            dt: (B, T, 1).
            u: inputs after each of them, (B, T, H).
        """
        a = self.factor(dt)
        held = F.linear(F.pad(u, (0, 0, 1, -1)), self.B)  # that after the event before
        b = complex_multiply(a, held) - held + self.E[marks]
        return scan_in_chunks(a, b, torch.zeros_like(b[:, 0]), is_complex=True)

    def emit(self, x: Tensor, u: Tensor) -> Tensor:
        """Return the input of the layer above."""
        y = 2 * F.linear(x, self.C.to(x.dtype)) + self.D.to(x.dtype) * u
        norm = self.norm
        return F.layer_norm(
            F.gelu(y) + u,
            norm.normalized_shape,
            norm.weight.to(x.dtype),
            norm.bias.to(x.dtype),
            norm.eps,
        )
