"""An actor or critic of rsl_rl with any recurrent network, whose states restart with episodes."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tauflow._internal.optional_deps import require_package
from tauflow.errors import ArgumentError
from tauflow.sequence import SequenceModule
from tauflow.sequence.modules import build

if TYPE_CHECKING:
    _Base: Any = object
else:
    try:
        from rsl_rl.models import RNNModel as _Base
    except ModuleNotFoundError:  # building one says what to install
        _Base = object


class RecurrentModel(_Base):  # type: ignore[misc]
    """``RNNModel`` of rsl_rl with a network of tauflow in the place of its LSTM or GRU.

    In the configuration of a runner::

        "actor": {"class_name": "tauflow.compat.rsl_rl:RecurrentModel",
                  "rnn_type": "cfc", "rnn_hidden_dim": 64, ...}

    Where an episode ends, the state restarts at that of the network. Scripts and ONNX files of the
    whole model are not supported: export its parts, ``model.rnn.rnn`` by :mod:`tauflow.export`.

    Args:
        *arguments: as of ``RNNModel``, as all that are not named here.
        rnn_type: catalog name of the network.
        rnn_hidden_dim: its neurons.
        rnn_num_layers: its layers.
        rnn_options: further arguments of it, such as ``{"backend": "reference"}``.
        dt: time between two observations, in the unit of the network.
        **options: as of ``RNNModel``.

    Raises:
        MissingExtraError: rsl_rl is not installed.
        ArgumentError: the outputs of the network are not ``rnn_hidden_dim`` wide.
    """

    def __init__(
        self,
        *arguments: Any,
        rnn_type: str = "cfc",
        rnn_hidden_dim: int = 64,
        rnn_num_layers: int = 1,
        rnn_options: Mapping[str, Any] | None = None,
        dt: float = 1.0,
        **options: Any,
    ) -> None:
        require_package("rsl_rl", package="rsl-rl-lib")
        super().__init__(*arguments, rnn_hidden_dim=rnn_hidden_dim, **options)
        layers = {} if rnn_num_layers == 1 else {"num_layers": rnn_num_layers}
        rnn = build(rnn_type, self.obs_dim, rnn_hidden_dim, **layers, **(rnn_options or {}))
        if rnn.output_size != rnn_hidden_dim:
            raise ArgumentError(
                f"{rnn_type} has outputs of {rnn.output_size}, expected rnn_hidden_dim="
                f"{rnn_hidden_dim}. Choose other rnn_options."
            )
        self.rnn = EpisodeRNN(rnn, dt)


class EpisodeRNN(nn.Module):
    """A sequence module with the methods of ``rsl_rl.modules.RNN``.

    Args:
        rnn: sequence module.
        dt: time between two observations.
    """

    def __init__(self, rnn: SequenceModule, dt: float) -> None:
        super().__init__()
        self.rnn, self.dt = rnn, dt
        self.hidden_state: Tensor | None = None
        """That of all environments after the last step, (1, B, S)."""

    def forward(
        self, input: Tensor, masks: Tensor | None = None, hidden_state: Tensor | None = None
    ) -> Tensor:
        """Return the outputs of a step, (1, B, H), or of padded trajectories, (T, B', H).

        Args:
            input: observations, (B, I), or with ``masks`` (T, N, I).
            masks: which steps of trajectories are there, (T, N).
            hidden_state: at their starts, (1, N, S).
        """
        if masks is None:
            h = self._restart(len(input)) if self.hidden_state is None else self.hidden_state[0]
            y, h = self.rnn.step(input, h, self.dt)
            self.hidden_state = h.unsqueeze(0)
            return y.unsqueeze(0)
        from rsl_rl.utils import unpad_trajectories

        h = self._restart(input.shape[1]) if hidden_state is None else hidden_state[0]
        y, _ = self.rnn(input.transpose(0, 1), h, dt=self.dt, mask=masks.T.bool())
        unpadded: Tensor = unpad_trajectories(y.transpose(0, 1), masks)
        return unpadded

    def reset(self, dones: Tensor | None = None, hidden_state: Tensor | None = None) -> None:
        """Set the state of all environments, or restart that of those that are done."""
        if dones is None:
            self.hidden_state = hidden_state
        elif self.hidden_state is not None:
            is_done = (dones == 1).reshape(-1, 1)
            restarted = self._restart(len(is_done))
            self.hidden_state = torch.where(is_done, restarted, self.hidden_state)

    def detach_hidden_state(self, dones: Tensor | None = None) -> None:
        """Cut the gradient of the state, of all environments or of those that are done."""
        if self.hidden_state is not None:
            detached = self.hidden_state.detach()
            if dones is not None:
                detached = torch.where((dones == 1).reshape(-1, 1), detached, self.hidden_state)
            self.hidden_state = detached

    def _restart(self, count: int) -> Tensor:
        """Return the first state of so many episodes, (B, S)."""
        state: Tensor = self.rnn.initial_state(count)
        return state
