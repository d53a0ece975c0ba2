"""The coupled oscillatory recurrent cell."""

import math
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tauflow._internal.checks import check_bool, check_positive, check_within
from tauflow.cells.base import DtTensor, InputTensor, Precomputed, StateTensor
from tauflow.cells.init import Generator, torch_uniform_
from tauflow.cells.time_feature import AbstractTimeFeatureCell


class CoRNNCell(AbstractTimeFeatureCell):
    r"""Coupled oscillatory recurrent cell: forced, damped oscillators that drive one another.

    .. math::
        \ddot y = \tanh(W_y y + W_z z + W_x x + b) - \gamma y - \epsilon z, \qquad z = \dot y

        z' = z + s\,(\tanh(W_y y + W_z z + W_x x + b) - \gamma y - \epsilon z), \qquad
        y' = y + s z'

    The state is [y; z], (B, 2 N): positions, which are the output, and velocities. W_h is
    [W_y, W_z], (N, 2 N). The step s is a number of the model, the same for every sample, whatever
    the time step; ``append_dt`` lets the cell feel the time step.

    Parameters: N (F + 2 N) + N with F = D features, or D + 1 with ``append_dt``.

    Source: Rusch & Mishra 2021, "Coupled oscillatory recurrent neural network (coRNN): an accurate
    and (gradient) stable architecture for learning long time dependencies", Eq. 3; the defaults of
    step, frequency and damping are those of the authors' IMDB model.

    The paper allows damping by the old velocity z, as above and in the released code, and by the
    new one z', which ``implicit_damping`` chooses.

    Differs from the released code: positions stand before velocities in the state and in W_h.

    Args:
        input_size: features D per time point.
        hidden_size: oscillators N.
        step_size: s, the step of the integrator; dt in the paper.
        gamma: squared frequency of an oscillator left alone.
        eps: its damping.
        implicit_damping: whether damping acts on the new velocity.
        append_dt: whether the time step is appended to the input as a feature.
    """

    paper: ClassVar[str] = "Rusch & Mishra 2021, Coupled oscillatory recurrent neural network"
    state_names = ("y", "z")  # the positions and the velocities

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        step_size: float = 0.054,
        gamma: float = 4.9,
        eps: float = 4.8,
        implicit_damping: bool = False,
        append_dt: bool = False,
    ) -> None:
        super().__init__(input_size, hidden_size, append_dt=append_dt)
        self.step_size = check_positive(step_size=step_size)
        self.gamma = check_within(0.0, math.inf, gamma=gamma)
        self.eps = check_within(0.0, math.inf, eps=eps)
        self.implicit_damping = check_bool(implicit_damping=implicit_damping)
        self.W_x = nn.Parameter(torch.empty(hidden_size, self.feature_size))
        self.W_h = nn.Parameter(torch.empty(hidden_size, 2 * hidden_size))
        self.b = nn.Parameter(torch.empty(hidden_size))
        self.reset_parameters()

    def reset_parameters(self, generator: Generator = None) -> None:
        """Draw W_x, b and W_h as ``torch.nn.Linear`` does, with fan-in F and 2 N (the code)."""
        torch_uniform_(self.W_x, self.feature_size, generator)
        torch_uniform_(self.b, self.feature_size, generator)
        torch_uniform_(self.W_h, 2 * self.hidden_size, generator)

    def precompute(self, x: InputTensor, dt: DtTensor) -> Precomputed:
        """Return the input's share of the force, ``(*batch, N)``."""
        return Precomputed((self.features(x, dt) @ self.W_x.T + self.b,))

    def update(self, h: StateTensor, input_projection: Float[Tensor, "B N"]) -> StateTensor:
        """Return [y; z] after a new input."""
        force = torch.tanh(input_projection + h @ self.W_h.T)
        y, z = h.split(self.hidden_size, dim=-1)
        s = self.step_size
        if self.implicit_damping:
            z = (z + s * (force - self.gamma * y)) / (1 + s * self.eps)
        else:
            z = z + s * (force - self.gamma * y - self.eps * z)
        return torch.cat([y + s * z, z], dim=-1)
