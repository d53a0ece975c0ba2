"""The coupled LSTM and CT-RNN that the ODE-LSTM paper calls a bidirectional RNN."""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from tauflow._internal.checks import check_finite
from tauflow.cells.base import AbstractCell, DtTensor, InputTensor, Precomputed, StateTensor
from tauflow.cells.ct_rnn import CTRNNCell
from tauflow.cells.gated import LSTMCell, lstm_update
from tauflow.cells.init import Generator


class BidirectionalRNNCell(AbstractCell):
    r"""An LSTM and a CT-RNN, each of which reads the other's last state.

    .. math::
        [h'; c'] = \mathrm{LSTM}([x; q; dt], [h; c]), \qquad
        q' = \text{CT-RNN}([x; h], q, dt), \qquad y = h' + q'

    The links between the two run in both directions; nothing runs backwards in time. For that, run
    any cell with ``bidirectional=True``. The LSTM gets the time step as a feature, the CT-RNN
    flows over it, in steps that are stable up to a time step of 2 ``substeps`` / ``damping``, 8 by
    default (:meth:`max_stable_dt`). The state is [h; q; c], (B, 3 N).

    Parameters: 5 D N + 10 N^2 + 10 N.

    Source: Lechner & Hasani 2020, "Learning long-term dependencies in irregularly-sampled time
    series", section 6, "Difference between bidirectional RNNs and ODE-LSTM".

    Differs from the paper: there the second network is an ODE-RNN; its code, as here, has the
    CT-RNN, with damping 1 (``damping=0`` is the ODE-RNN), and four Euler steps.

    Args:
        input_size: features D per time point.
        hidden_size: neurons N of each of the two.
        solver: of the CT-RNN: ``"euler"``, ``"midpoint"``, ``"heun"`` or ``"rk4"``.
        substeps: solver steps per sample.
        damping: of the CT-RNN, a constant rate.
        forget_bias: of the LSTM, a constant.
    """

    paper: ClassVar[str] = "Lechner & Hasani 2020, Learning long-term dependencies"
    state_names = ("h", "q", "c")  # the LSTM's output, the CT-RNN's state, the LSTM's memory

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        solver: str = "euler",
        substeps: int = 4,
        damping: float = 1.0,
        forget_bias: float = 1.0,
    ) -> None:
        super().__init__(input_size, hidden_size)
        both = input_size + hidden_size
        bias = check_finite(forget_bias=forget_bias)
        self.lstm = LSTMCell(both, hidden_size, append_dt=True, init="keras", forget_bias=bias)
        self.ct_rnn = CTRNNCell(
            both, hidden_size, solver=solver, substeps=substeps, damping=damping
        )

    def reset_parameters(self, generator: Generator = None) -> None:
        """Draw input weights Glorot uniform, recurrent ones orthogonal; biases 0, the scale 1."""
        self.lstm.reset_parameters(generator)
        self.ct_rnn.reset_parameters(generator)

    def max_stable_dt(self) -> float:
        """Return that of the CT-RNN."""
        return self.ct_rnn.max_stable_dt()

    def precompute(self, x: InputTensor, dt: DtTensor) -> Precomputed:
        """Return what both take from the input, the time step, and the weights of [h; q] as one."""
        D, N = self.input_size, self.hidden_size
        of_x, of_q, of_dt = self.lstm.W_x.split([D, N, 1], dim=1)
        flow_of_x, flow_of_h = self.ct_rnn.W_x.split([D, N], dim=1)
        inputs = torch.cat([x, dt], dim=-1)
        gates = inputs @ torch.cat([of_x, of_dt], dim=1).T + self.lstm.input_bias()
        from_input = x @ flow_of_x.T + self.ct_rnn.b
        state_weights = torch.cat(
            [
                torch.cat([self.lstm.W_h, of_q], dim=1),
                torch.cat([flow_of_h, torch.zeros_like(flow_of_h)], dim=1),
            ]
        )
        drives = torch.cat([gates, from_input], dim=-1)
        flow = self.ct_rnn.packed_parameters()
        return Precomputed((drives, dt), (state_weights.T.contiguous(), *flow))

    def update(
        self,
        h: StateTensor,
        inputs: Float[Tensor, "B G"],
        dt: Float[Tensor, "B 1"],
        W_state_T: Float[Tensor, "both G"],
        *flow: Tensor,
    ) -> StateTensor:
        """Return [h; q; c] after ``dt``, given the new input."""
        N = self.hidden_size
        outputs, c = h.split([2 * N, N], dim=-1)
        gates, from_input = torch.addmm(inputs, outputs, W_state_T).split([4 * N, N], dim=-1)
        c, h_lstm = lstm_update(gates, c)
        q = self.ct_rnn.update(outputs[:, N:], from_input, dt, *flow)
        return torch.cat([h_lstm, q, c], dim=-1)

    def readout(self, h: Float[Tensor, "*batch S"]) -> Float[Tensor, "*batch H"]:
        """Return h + q."""
        return h[..., : self.hidden_size] + h[..., self.hidden_size : 2 * self.hidden_size]
