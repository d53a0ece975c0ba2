"""A gated memory beside a continuous-time cell: CfC-mmRNN and its kin."""

from typing import Any, ClassVar, NamedTuple, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from tauflow._internal.checks import check_finite, check_one_of
from tauflow.wirings import AbstractWiring

from .base import AbstractCell, StateTensor
from .cfc import CfCCell
from .cfc_heads import CfCConfig, cfc_step
from .gated import lstm_update, shift_forget_gate
from .init import Generator
from .ltc import LTCCell
from .option_names import check_option_names
from .wired_cfc import WiredCfCCell

CORE_CELLS: dict[str, type[AbstractCell]] = {
    "cfc": CfCCell,
    "wired-cfc": WiredCfCCell,
    "ltc": LTCCell,
}


class MixedMemoryConfig(NamedTuple):
    """What a memory and a closed-form core are beside their tensors.

    Args:
        core: the core's form.
        reads_state: whether the core reads [u; v], rather than [x; u].
    """

    core: CfCConfig
    reads_state: bool


class MixedMemoryCell(AbstractCell):
    r"""LSTM memory c and a continuous-time core with state v; with CfC as core, CfC-mmRNN.

    With i, f, g, o the four blocks of W_x x + W_h v + b:

    .. math::
        c' = \sigma(f + b_f)\, c + \sigma(i) \tanh(g), \qquad u = \sigma(o) \tanh(c')

    The two published forms differ in where u goes:

    - ``form="input"``: v' = core(input u, state v). TensorFlow code; XOR, IMDB, Walker2d, driving.
    - ``form="state"``: v' = core(input x, state u). PyTorch code; PhysioNet.

    The state is [v; c], the output the core's.

    Source: Hasani et al. 2022, "Closed-form continuous-time neural networks", "Mixed-memory";
    Lechner & Hasani 2020, "Learning long-term dependencies in irregularly-sampled time series",
    Eqs. 2-7.

    Differs from the TensorFlow code: without time steps dt is 1 there for the plain cell and 0 for
    this one; here it is 1 for every cell (pass ``dt=0.0`` to reproduce).

    Args:
        input_size: features D per time point.
        hidden_size: neurons of the core, or its wiring.
        core: ``"cfc"``, ``"wired-cfc"`` or ``"ltc"``.
        form: ``"input"`` or ``"state"``.
        forget_bias: b_f, a constant.
        **core_options: options of the core's cell.
    """

    paper: ClassVar[str] = "Hasani et al. 2022, Closed-form continuous-time neural networks"

    def __init__(
        self,
        input_size: int,
        hidden_size: int | AbstractWiring,
        *,
        core: str = "cfc",
        form: str = "input",
        forget_bias: float = 1.0,
        **core_options: Any,
    ) -> None:
        cell_class = CORE_CELLS[check_one_of(CORE_CELLS, core=core)]
        units = hidden_size.units if isinstance(hidden_size, AbstractWiring) else hidden_size
        super().__init__(input_size, units)
        self.form = check_one_of(("input", "state"), form=form)
        self.forget_bias = check_finite(forget_bias=forget_bias)
        core_input = units if self.form == "input" else input_size
        check_option_names(cell_class, core_options, extra_names=("core", "form", "forget_bias"))
        size: Any = hidden_size  # only some cores take a wiring; the others refuse it
        self.core = cell_class(core_input, size, **core_options)
        self.takes_wiring = cell_class.takes_wiring
        self.W_x = nn.Parameter(torch.empty(4 * units, input_size))
        self.W_h = nn.Parameter(torch.empty(4 * units, units))
        self.b = nn.Parameter(torch.empty(4 * units))
        self.reset_parameters()

    @property
    def state_parts(self) -> dict[str, int]:
        """The core's state v and the memory c."""
        return {"v": self.core.state_size, "c": self.hidden_size}

    @property
    def output_size(self) -> int:
        """Width of the core's output."""
        return self.core.output_size

    def reset_parameters(self, generator: Generator = None) -> None:
        """Draw W_x Glorot uniform and W_h orthogonal, b = 0 (``"input"``) or U(-0.1, 0.1)."""
        nn.init.xavier_uniform_(self.W_x, generator=generator)
        nn.init.orthogonal_(self.W_h, generator=generator)
        if self.form == "input":
            nn.init.zeros_(self.b)
        else:
            nn.init.uniform_(self.b, -0.1, 0.1, generator=generator)
        self.core.reset_parameters(generator)

    def step(
        self, x: Float[Tensor, "B I"], h: StateTensor, dt: Float[Tensor, "B 1"]
    ) -> StateTensor:
        """Return [v; c] after ``dt``, given the new input ``x``."""
        v, c = h.split([self.core.state_size, self.hidden_size], dim=-1)
        b = shift_forget_gate(self.b, self.forget_bias)
        c, u = lstm_update(x @ self.W_x.T + v @ self.W_h.T + b, c)
        v = self.core(u, v, dt) if self.form == "input" else self.core(x, u, dt)
        return torch.cat([v, c], dim=-1)

    def static_config(self) -> "MixedMemoryConfig":
        """Return the form of a cell whose core is a :class:`CfCCell`."""
        return MixedMemoryConfig(cast(CfCCell, self.core).static_config(), self.form == "input")

    def packed_parameters(self) -> tuple[Tensor, ...]:
        """Return the core's tensors, W_x, W_h and the gates' bias."""
        core: Any = self.core  # every one in CORES has tensors
        return (
            *core.packed_parameters(),
            self.W_x,
            self.W_h,
            shift_forget_gate(self.b, self.forget_bias),
        )

    def max_stable_dt(self) -> float:
        """Return that of the core."""
        return self.core.max_stable_dt()

    def readout(self, h: Float[Tensor, "*batch S"]) -> Float[Tensor, "*batch H"]:
        """Return the core's output."""
        return self.core.readout(h[..., : self.core.state_size])


def mixed_memory_update(
    config: MixedMemoryConfig, h: Tensor, x: Tensor, dt: Tensor, *tensors: Tensor
) -> Tensor:
    """Return [v; c] after one step of a memory and a closed-form core, as they were built."""
    (*core, W_x, W_h, b), (v, c) = tensors, h.chunk(2, dim=-1)
    c, u = lstm_update(F.linear(x, W_x, b) + F.linear(v, W_h), c)
    read = [u, v] if config.reads_state else [x, u]
    v = cfc_step(config.core, torch.cat(read, dim=-1), dt, *core)
    return torch.cat([v, c], dim=-1)
