"""Encoders of latent models, which read the measurements backwards in time."""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from tauflow._internal.allocation_limit import repeat_counted
from tauflow.cells.init import Generator
from tauflow.models.stateless import get_observed
from tauflow.sequence import GRU
from tauflow.sequence.inputs import SequenceInputs


@dataclass(frozen=True, eq=False)
class Observations:
    """Irregular samples in the form that latent models read.

    Args:
        x: (B, T, D), zero where nothing was measured.
        observed: (B, T, D) bool, what was measured.
        valid: (B, T) bool, which steps are there.
        elapsed: (B, T), time since the first valid step, not decreasing.
    """

    x: Tensor
    observed: Tensor
    valid: Tensor
    elapsed: Tensor

    @classmethod
    def from_inputs(cls, inputs: SequenceInputs) -> "Observations":
        """Read a call; the time step in front of the first valid step does not count."""
        x, mask = inputs.x, inputs.mask
        valid = torch.ones_like(x[..., 0], dtype=torch.bool) if mask is None else mask
        is_measured = get_observed(inputs)
        total = inputs.dt.squeeze(-1).double().cumsum(dim=1)  # many small time steps add up
        first = total.gather(1, valid.int().argmax(dim=1, keepdim=True))
        elapsed = (total - first).clamp(min=0).to(inputs.dt.dtype)
        # Not a product with the mask: what was not measured may be NaN.
        return cls(torch.where(is_measured, x, torch.zeros_like(x)), is_measured, valid, elapsed)

    @property
    def has_measurement(self) -> Tensor:
        """Which steps measured anything, (B, T); encoders pass over the others."""
        return self.observed.any(dim=-1)

    def next_event_times(self) -> Tensor:
        """Return when the first measurement at or after each step was, (B, T); inf if none."""
        times = torch.where(self.has_measurement, self.elapsed, torch.inf)
        return times.flip(1).cummin(dim=1).values.flip(1)

    def times_to_next(self) -> Tensor:
        """Return the time from each measurement to the next one, (B, T); 0 after the last."""
        upcoming = self.next_event_times()[:, 1:]
        upcoming = torch.cat([upcoming, torch.full_like(self.elapsed[:, :1], torch.inf)], dim=1)
        known = self.has_measurement & upcoming.isfinite()
        return torch.where(known, upcoming - self.elapsed, torch.zeros_like(upcoming))


def make_dense_net(sizes: list[int], between: type[nn.Module] = nn.Tanh) -> nn.Sequential:
    """Return dense layers with an activation between them."""
    layers: list[nn.Module] = []
    for width, after in pairwise(sizes):
        layers += [nn.Linear(width, after), between()]
    return nn.Sequential(*layers[:-1])


def init_linears_(module: nn.Module, generator: Generator = None) -> None:
    """Draw every dense layer's weight from N(0, 0.01), and set its bias to zero."""
    for part in module.modules():
        if isinstance(part, nn.Linear):
            nn.init.normal_(part.weight, std=0.1, generator=generator)
            nn.init.zeros_(part.bias)


def split_moments(output: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and standard deviation from the two halves of an output."""
    mean, spread = output.chunk(2, dim=-1)
    return mean, spread.abs()


class RecurrentEncoder(nn.Module):
    """A GRU that reads [x; seen; dt] backwards; a dense net maps its state to q(z0).

    Args:
        input_size: features D.
        hidden_size: neurons of the GRU.
        latent_size: N.
        units: neurons of the net's hidden layer.
    """

    def __init__(self, input_size: int, hidden_size: int, latent_size: int, units: int) -> None:
        super().__init__()
        self.gru = GRU(2 * input_size + 1, hidden_size, return_sequences=False)
        self.to_moments = make_dense_net([hidden_size, units, 2 * latent_size])

    def reset_parameters(self, generator: Generator = None) -> None:
        """Draw the GRU as torch does, and the net from N(0, 0.01)."""
        self.gru.cell.reset_parameters(generator)
        init_linears_(self.to_moments, generator)

    def forward(self, observations: Observations) -> tuple[Tensor, Tensor]:
        """Return mean and standard deviation of q(z0), (B, N) each."""
        features = [
            observations.x,
            observations.observed.to(observations.x.dtype),
            observations.times_to_next().unsqueeze(-1),
        ]
        last, _ = self.gru(
            torch.cat(features, dim=-1).flip(1), mask=observations.has_measurement.flip(1)
        )
        return split_moments(self.to_moments(last))


class ODERNNEncoder(nn.Module):
    r"""An ODE-RNN that runs backwards in time, and a dense net from its state to q(z0).

    The state is a pair (y, s) of mean and spread. Between measurements y follows
    :math:`\dot y = f(y)` and s rests; at a measurement, with c = [y; s; x; seen]:

    .. math::
        u, r = \sigma(\mathrm{MLP}_{u, r}(c)), \qquad
        [n; m] = \mathrm{MLP}_n([y \odot r;\; s \odot r;\; x;\; seen])

        y' = (1 - u)\, n + u\, y, \qquad s' = |(1 - u)\, |m| + u\, s|

    The flow takes Euler steps, on a grid that cuts a sequence's whole time into ``steps``.

    Args:
        input_size: features D.
        hidden_size: width of y.
        latent_size: N.
        units: neurons of the hidden layers of f.
        layers: hidden layers of f beyond the first.
        gru_units: neurons of the hidden layers of the gates.
        steps: cells of the grid.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        latent_size: int,
        *,
        units: int,
        layers: int,
        gru_units: int,
        steps: int,
    ) -> None:
        super().__init__()
        self.hidden_size, self.steps = hidden_size, steps
        self.field = make_dense_net([hidden_size, *repeat_counted(units, layers + 1), hidden_size])
        width = 2 * (hidden_size + input_size)
        self.update, self.reset = (
            make_dense_net([width, gru_units, hidden_size]) for _ in range(2)
        )
        self.new_state = make_dense_net([width, gru_units, 2 * hidden_size])
        self.to_moments = make_dense_net([2 * hidden_size, 100, 2 * latent_size])

    def reset_parameters(self, generator: Generator = None) -> None:
        """Draw all weights from N(0, 0.01)."""
        init_linears_(self, generator)

    def forward(self, observations: Observations) -> tuple[Tensor, Tensor]:
        """Return mean and standard deviation of q(z0), (B, N) each."""
        front = observations.next_event_times()[
            :, :1
        ]  # from the first measurement back to the first step
        front = torch.where(front.isfinite(), front, torch.zeros_like(front))
        gaps = torch.cat([front, observations.times_to_next()], dim=1)
        counts, most = self._euler_steps(gaps, observations)
        inputs = torch.cat([observations.x, observations.observed.to(observations.x.dtype)], dim=-1)
        happens = observations.has_measurement.unsqueeze(-1)
        y = s = observations.x.new_zeros(observations.x.shape[0], self.hidden_size)
        for step in reversed(range(inputs.shape[1])):
            after = step + 1  # time steps has the front one first
            y = self._integrate_backwards(
                y, gaps[:, after, None], counts[:, after, None], most[after]
            )
            y_new, s_new = self._update_at_sample(y, s, inputs[:, step])
            y = torch.where(happens[:, step], y_new, y)
            s = torch.where(happens[:, step], s_new, s)
        y = self._integrate_backwards(y, gaps[:, 0, None], counts[:, 0, None], most[0])
        return split_moments(self.to_moments(torch.cat([y, s], dim=-1)))

    def _euler_steps(self, dt: Tensor, observations: Observations) -> tuple[Tensor, list[int]]:
        """Return the Euler steps over every dt, (B, T + 1), and their maxima over the batch."""
        span = torch.where(
            observations.has_measurement,
            observations.elapsed,
            torch.zeros_like(observations.elapsed),
        )
        finest = span.amax(dim=1, keepdim=True) / self.steps
        finest = torch.where(finest > 0, finest, torch.ones_like(finest))
        # The grid has floor(dt / finest) points, so one interval less.
        counts = ((dt / finest).floor() - 1).clamp(min=1).detach()
        most = counts.amax(dim=0) if len(counts) else counts.new_zeros(counts.shape[1])
        return counts, [int(steps) for steps in most.tolist()]

    def _integrate_backwards(self, y: Tensor, dt: Tensor, count: Tensor, most: int) -> Tensor:
        delta = dt / count
        for taken in range(most):
            y = torch.where(taken < count, y - delta * self.field(y), y)
        return y

    def _update_at_sample(self, y: Tensor, s: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
        c = torch.cat([y, s, inputs], dim=-1)
        u, r = torch.sigmoid(self.update(c)), torch.sigmoid(self.reset(c))
        n, m = self.new_state(torch.cat([y * r, s * r, inputs], dim=-1)).chunk(2, dim=-1)
        return (1 - u) * n + u * y, ((1 - u) * m.abs() + u * s).abs()
