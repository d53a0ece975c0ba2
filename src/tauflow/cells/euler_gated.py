"""GRU and LSTM as flows stepped by Euler's method."""

from collections.abc import Callable
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from tauflow.solvers import FlowSolver
from tauflow.solvers.semi_implicit import Pair

from .base import DtTensor, InputTensor, Precomputed, StateTensor
from .gated_flow import AbstractPackedFlowCell, integrate_gated_flow, lerp


class EulerGRUCell(AbstractPackedFlowCell):
    r"""Gated recurrent unit as a flow, stepped by Euler's method.

    .. math::
        z, r = \sigma(W_{zr} h + U_{zr} x + b_{zr}) \text{ (two blocks)}

        \tau \dot h = z \odot (-h + \tanh(W_n (r \odot h) + U_n x + b_n))

    Steps are stable over time steps of up to 2 tau ``substeps``, 2 by default
    (:meth:`max_stable_dt`); over longer ones the state may grow until it overflows.

    The weights pack the blocks z, r, n. Parameters: 3 (N N + N + N D), and N (D + 1) for an affine
    initial state.

    Source: Kim et al. 2022, "Gated neural ODEs: trainability, expressivity and interpretability",
    Appendix D and the released code, after Cho et al. 2014.

    Differs from ``torch.nn.GRU``: z is the weight of what is new, not of what is kept, and r acts
    before the recurrent product. Differs from the paper: the initial state is zero by default,
    there affine.

    Args:
        input_size: features D per time point.
        hidden_size: neurons N.
        tau: time constant, in the unit of ``dt``.
        solver: ``"euler"``, ``"midpoint"``, ``"heun"``, ``"rk4"``, or an adaptive one such as
            ``"tsit5"`` (needs ``tauflow[ode]``).
        substeps: solver steps per sample, where they are fixed.
        rtol: relative tolerance of an adaptive solver.
        atol: its absolute tolerance.
        initial_state: ``"zeros"``, ``"affine"`` (V x_1 + a of the first input), ``"learned"`` or
            ``"fixed"`` (drawn once from N(0, 2 / (N + 1)), not trained).
        init: ``"glorot_normal"``, ``"glorot_uniform"`` or ``"kaiming"``.
    """

    paper: ClassVar[str] = "Kim et al. 2022, Gated neural ODEs"
    gates: ClassVar[int] = 3

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        tau: float = 1.0,
        solver: str = "euler",
        substeps: int = 1,
        rtol: float = 1e-6,
        atol: float = 1e-6,
        initial_state: str = "zeros",
        init: str = "glorot_normal",
    ) -> None:
        super().__init__(
            input_size,
            hidden_size,
            tau=tau,
            substeps=substeps,
            initial_state=initial_state,
            init=init,
        )
        self.flow_solver = FlowSolver(solver, substeps, rtol, atol)

    def precompute(self, x: InputTensor, dt: DtTensor) -> Precomputed:
        """Return dt in time constants, the input's share of z and r, and of n; the weights."""
        gates = 2 * self.hidden_size
        input_projection = F.linear(x, self.W_x, self.b)
        return Precomputed(
            (dt / self.tau, input_projection[..., :gates], input_projection[..., gates:]),
            (self.W_h[:gates].T, self.W_h[gates:].T),
        )

    def update(
        self,
        h: StateTensor,
        scaled_dt: Float[Tensor, "B 1"],
        input_zr: Float[Tensor, "B G"],
        input_n: StateTensor,
        W_zr: Float[Tensor, "S G"],
        W_n: Float[Tensor, "S S"],
    ) -> StateTensor:
        """Return the state after the time step."""
        return integrate_gated_flow(
            _gru_terms(input_zr, input_n, W_zr, W_n), h, scaled_dt, self.flow_solver
        )

    def update_gate(self, x: Float[Tensor, "B I"], h: StateTensor) -> StateTensor:
        """Return z."""
        (_, *drives), weights = self.precompute(x, torch.ones_like(x[..., :1]))
        return _gru_terms(*drives, *weights)(h)[0]


def _gru_terms(
    input_zr: Tensor, input_n: Tensor, W_zr: Tensor, W_n: Tensor
) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """Return what maps a state to z and the target."""

    def terms(h: Tensor) -> Pair:
        z, r = torch.sigmoid(torch.addmm(input_zr, h, W_zr)).chunk(2, dim=-1)
        return z, torch.tanh(torch.addmm(input_n, r * h, W_n))

    return terms


class EulerLSTMCell(AbstractPackedFlowCell):
    r"""Long short-term memory as a flow, stepped by Euler's method.

    .. math::
        i, f, g, o = \text{the four blocks of } W_x x + W_h h + b

        \tau \dot c = -c + \sigma(f)\, c + \sigma(i) \tanh(g), \qquad
        \tau \dot h = -h + \sigma(o) \tanh(c)

    The step of h takes the new c, so that with :math:`\alpha = dt / \tau = 1` it is
    :class:`~tauflow.cells.gated.LSTMCell`, whose packing of the weights it shares. The state is
    [h; c], (B, 2 N). Parameters: 4 (N N + N + N D), and 2 N (D + 1) for an affine initial state.

    Steps are stable over time steps of up to 2 tau ``substeps``, 2 by default
    (:meth:`max_stable_dt`); over longer ones the state may grow until it overflows.

    Source: Hochreiter & Schmidhuber 1997; as a baseline of Kim et al. 2022, "Gated neural ODEs:
    trainability, expressivity and interpretability", Appendix G.

    Differs from the paper: it does not say how the LSTM is stepped where alpha is not 1, nor are
    its LSTMs released; this is the flow whose Euler step at alpha = 1 is the LSTM. The initial
    state is zero by default; the paper's counts imply an affine one of h and c.

    Args:
        input_size: features D per time point.
        hidden_size: neurons N.
        tau: time constant, in the unit of ``dt``.
        substeps: Euler steps per sample.
        initial_state: ``"zeros"``, ``"affine"`` (V x_1 + a of the first input), ``"learned"`` or
            ``"fixed"`` (drawn once from N(0, 2 / (N + 1)), not trained).
        init: ``"glorot_normal"``, ``"glorot_uniform"`` or ``"kaiming"``.
    """

    paper: ClassVar[str] = "Hochreiter & Schmidhuber 1997; Kim et al. 2022, Gated neural ODEs"
    state_names = ("h", "c")  # the hidden state and the memory
    gates: ClassVar[int] = 4

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        tau: float = 1.0,
        substeps: int = 1,
        initial_state: str = "zeros",
        init: str = "glorot_normal",
    ) -> None:
        super().__init__(
            input_size,
            hidden_size,
            tau=tau,
            substeps=substeps,
            initial_state=initial_state,
            init=init,
        )

    def precompute(self, x: InputTensor, dt: DtTensor) -> Precomputed:
        """Return a step in time constants, the input's share of the gates; the weight."""
        alpha = dt / (self.tau * self.substeps)
        return Precomputed((alpha, F.linear(x, self.W_x, self.b)), (self.W_h.T,))

    def update(
        self,
        h: StateTensor,
        alpha: Float[Tensor, "B 1"],
        input_projection: Float[Tensor, "B G"],
        W_h: Float[Tensor, "N G"],
    ) -> StateTensor:
        """Return [h; c] after the time step."""
        h, c = h.split(self.hidden_size, dim=-1)
        for _ in range(self.substeps):
            i, f, g, o = torch.addmm(input_projection, h, W_h).chunk(4, dim=-1)
            target = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            c = lerp(c, target, alpha)
            h = lerp(h, torch.sigmoid(o) * torch.tanh(c), alpha)
        return torch.cat([h, c], dim=-1)
