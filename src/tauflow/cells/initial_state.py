"""Initial states of cells."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from tauflow._internal.checks import check_one_of
from tauflow._internal.fixed_options import FixedOptionsMeta, FixedOptionsModule

from .base import StateTensor
from .init import Generator
from .weight_schemes import init_bias_, init_weight_

INITIAL_STATES = ("zeros", "affine", "learned", "fixed")


class InitialState(FixedOptionsModule, metaclass=FixedOptionsMeta):
    r"""The state before the first input, :math:`h_0`.

    ``"zeros"``: no parameters. ``"affine"``: :math:`h_0 = V x_1 + a` of the first input, with
    S (D + 1) parameters. ``"learned"``: :math:`h_0 = a`, S parameters. ``"fixed"``: a vector
    drawn once and kept as a buffer, which training leaves alone and a state dict holds.

    Source: Kim et al. 2022, "Gated neural ODEs", Appendices E and G, but for ``"learned"``.

    Args:
        kind: one of the four names.
        input_size: features D per time point.
        state_size: width S of the state.
        hidden_size: neurons N; a fixed or learned vector is drawn from N(0, 2 / (N + 1)).
    """

    a: Tensor

    def __init__(self, kind: str, input_size: int, state_size: int, hidden_size: int) -> None:
        super().__init__()
        self.kind = check_one_of(INITIAL_STATES, initial_state=kind)
        self.state_size, self.hidden_size = state_size, hidden_size
        if kind == "affine":
            self.V = nn.Parameter(torch.empty(state_size, input_size))
        if kind == "fixed":
            self.register_buffer("a", torch.empty(state_size))
        elif kind != "zeros":
            self.a = nn.Parameter(torch.empty(state_size))

    def reset_parameters(self, scheme: str = "glorot_normal", generator: Generator = None) -> None:
        """Draw V by a scheme of weights and a as biases are, or the vector from N(0, 2/(N+1))."""
        if self.kind == "affine":
            init_weight_(self.V, scheme, generator)
            init_bias_(self.a, generator)
        elif self.kind != "zeros":
            nn.init.normal_(self.a, std=math.sqrt(2 / (self.hidden_size + 1)), generator=generator)

    def forward(self, x: Float[Tensor, "B I"]) -> StateTensor:
        """Return the state before the first input ``x``, in its dtype."""
        if self.kind == "zeros":
            return x.new_zeros(x.shape[0], self.state_size)
        if self.kind == "affine":
            return F.linear(x, self.V, self.a).to(x.dtype)
        return self.a.to(x.dtype).expand(x.shape[0], -1)

    def extra_repr(self) -> str:
        """Show the kind."""
        return repr(self.kind)
