"""Long expressive memory."""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from tauflow._internal.checks import check_one_of

from .base import DtTensor, InputTensor, Precomputed, StateTensor
from .gated_flow import AbstractPackedFlowCell, lerp
from .init import Generator, torch_uniform_
from .weight_schemes import SCHEMES


class LEMCell(AbstractPackedFlowCell):
    r"""Long expressive memory: two coupled states, each with a gated time step.

    With :math:`\alpha = dt / (\tau\,\mathrm{substeps})`:

    .. math::
        a = \alpha\, \sigma(W_1 y + V_1 x + b_1), \qquad b = \alpha\, \sigma(W_2 y + V_2 x + b_2)

        z' = (1 - b)\, z + b \tanh(W_z y + V_z x + b_z)

        y' = (1 - a)\, y + a \tanh(W_y z^* + V_y x + b_y)

    where :math:`z^*` is z' (``"forward-backward"``) or z (``"forward"``). The state is [y; z],
    (B, 2 N), and y is emitted. The weights pack the blocks 1, 2, z, y. Parameters:
    4 (N N + N + N D), and 2 N (D + 1) for an affine initial state.

    Steps are stable over time steps of up to 2 tau ``substeps``, 2 by default
    (:meth:`max_stable_dt`); over longer ones the state may grow until it overflows.

    With ``scheme="forward"`` this is the minimal gated unit (:class:`~tauflow.cells.GNODECell` with
    one layer each and tanh) of 2 N neurons [y; z] whose gate sees y alone and whose target couples
    y to z and z to y only.

    Source: Rusch et al. 2022, "Long expressive memory for sequence modeling", Eq. 3.

    Differs from the released code: one bias per block, where it adds two in three of the four; the
    step is the time step over tau, where it is a constant.

    Args:
        input_size: features D per time point.
        hidden_size: neurons N, in y as in z.
        scheme: ``"forward-backward"`` or ``"forward"``.
        tau: time constant, in the unit of ``dt``.
        substeps: steps per sample.
        initial_state: ``"zeros"``, ``"affine"`` (V x_1 + a of the first input), ``"learned"`` or
            ``"fixed"`` (drawn once from N(0, 2 / (N + 1)), not trained).
        init: ``"torch"`` (all from U(-1/sqrt(N), 1/sqrt(N)), as in the released code),
            ``"glorot_normal"``, ``"glorot_uniform"`` or ``"kaiming"``, as in the comparisons of
            Kim et al. 2022.
    """

    paper: ClassVar[str] = "Rusch et al. 2022, Long expressive memory"
    gates: ClassVar[int] = 4
    state_names = ("y", "z")  # the emitted state and the other one

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        scheme: str = "forward-backward",
        tau: float = 1.0,
        substeps: int = 1,
        initial_state: str = "zeros",
        init: str = "torch",
    ) -> None:
        super().__init__(
            input_size,
            hidden_size,
            tau=tau,
            substeps=substeps,
            initial_state=initial_state,
            init=init,
            schemes=("torch", *SCHEMES),
        )
        self.scheme = check_one_of(("forward-backward", "forward"), scheme=scheme)

    def reset_parameters(self, generator: Generator = None) -> None:
        """Draw each block as ``init`` says; an affine start as by Glorot if that is ``"torch"``."""
        if self.init == "torch":
            for tensor in (self.W_x, self.W_h, self.b):
                torch_uniform_(tensor, self.hidden_size, generator)
            self.start.reset_parameters(generator=generator)
        else:
            super().reset_parameters(generator)

    def precompute(self, x: InputTensor, dt: DtTensor) -> Precomputed:
        """Return a step in time constants, the input's share of what y drives and z drives."""
        of_y = 3 * self.hidden_size
        input_projection = F.linear(x, self.W_x, self.b)
        return Precomputed(
            (
                dt / (self.tau * self.substeps),
                input_projection[..., :of_y],
                input_projection[..., of_y:],
            ),
            (self.W_h[:of_y].T, self.W_h[of_y:].T),
        )

    def update(
        self,
        h: StateTensor,
        alpha: Float[Tensor, "B 1"],
        input_projection: Float[Tensor, "B G"],
        input_y: Float[Tensor, "B N"],
        W_12z: Float[Tensor, "N G"],
        W_y: Float[Tensor, "N N"],
    ) -> StateTensor:
        """Return [y; z] after the time step."""
        y, z = h.chunk(2, dim=-1)
        for _ in range(self.substeps):
            gates, z_drive = torch.addmm(input_projection, y, W_12z).split(
                2 * self.hidden_size, dim=-1
            )
            a, b = (alpha * torch.sigmoid(gates)).chunk(2, dim=-1)
            z_new = lerp(z, torch.tanh(z_drive), b)
            source = z_new if self.scheme == "forward-backward" else z
            y = lerp(y, torch.tanh(torch.addmm(input_y, source, W_y)), a)
            z = z_new
        return torch.cat([y, z], dim=-1)

    def update_gate(self, x: Float[Tensor, "B I"], h: StateTensor) -> StateTensor:
        """Return the gates of y and z, in the order of the state."""
        of_gates = 2 * self.hidden_size
        y, _ = h.chunk(2, dim=-1)
        input_projection = F.linear(x, self.W_x[:of_gates], self.b[:of_gates])
        return torch.sigmoid(torch.addmm(input_projection, y, self.W_h[:of_gates].T))
