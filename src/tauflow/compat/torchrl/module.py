"""A sequence module that reads and writes TensorDicts, with states that restart with episodes."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tauflow._internal.optional_deps import require_package
from tauflow.errors import ArgumentError
from tauflow.sequence import SequenceModule

if TYPE_CHECKING:
    _Base: Any = object
else:
    try:
        from tensordict.nn import TensorDictModuleBase as _Base
    except ModuleNotFoundError:  # building one says what to install
        _Base = object


class RecurrentModule(_Base):  # type: ignore[misc]
    """Any sequence module in the place of TorchRL's ``LSTMModule`` and ``GRUModule``.

    ::

        rnn = RecurrentModule(tauflow.CfC(4, 32), in_key="observation", out_key="embedding")
        env = TransformedEnv(env, Compose(InitTracker(), rnn.make_tensordict_primer()))

    It takes one step of a batch of environments, or in TorchRL's recurrent mode,
    ``set_recurrent_mode(True)``, whole pieces of trajectories, (B, T, I). Where ``is_init`` is
    true the state restarts.

    Args:
        rnn: sequence module of one direction that returns sequences.
        in_key: entry of features.
        out_key: entry of outputs.
        state_key: entry of the state; the next one is written to ``("next", state_key)``.
        dt: time since the observation before: a number, or the entry that holds it, of one element.

    Raises:
        MissingExtraError: TorchRL is not installed.
        ArgumentError: ``rnn`` has both directions or returns the last output only.
    """

    def __init__(
        self,
        rnn: SequenceModule,
        *,
        in_key: str = "observation",
        out_key: str = "embedding",
        state_key: str = "recurrent_state",
        dt: float | str = 1.0,
    ) -> None:
        require_package("torchrl")
        super().__init__()
        if not isinstance(rnn, SequenceModule) or rnn.bidirectional or not rnn.return_sequences:
            raise ArgumentError(
                "rnn must be a sequence module of one direction that returns sequences, such as "
                f"tauflow.CfC(4, 32), got {rnn!r}."
            )
        self.rnn, self.dt, self.state_key = rnn, dt, state_key
        self.in_keys = [in_key, "is_init", state_key, *([dt] if isinstance(dt, str) else [])]
        self.out_keys = [out_key, ("next", state_key)]

    def make_tensordict_primer(self) -> Any:
        """Return the transform that gives an environment the entry of the state."""
        from torchrl.data import Unbounded
        from torchrl.envs import TensorDictPrimer

        initial = self.rnn.initial_state()[0].detach()
        spec = Unbounded(shape=initial.shape, dtype=initial.dtype, device=initial.device)
        return TensorDictPrimer(
            {self.state_key: spec}, default_value=0.0, expand_specs=True
        )  # the first step of an episode takes the cell's own initial state, whatever it is

    def forward(self, tensordict: Any) -> Any:
        """Write outputs and states of a step, or of pieces of trajectories.

        Args:
            tensordict: with the entries ``in_keys``. Its batch is (B,) or () of a step, (B, T) or
                (T,) in recurrent mode, in which the state of the last step is written alone and
                those before it are zero.
        """
        from torchrl.modules import recurrent_mode

        x, h = tensordict[self.in_keys[0]], tensordict[self.state_key]
        start = tensordict["is_init"].reshape(x.shape[:-1])
        dt: Any = self.dt
        if isinstance(dt, str):
            dt = tensordict[dt].reshape(x.shape[:-1])
        if not recurrent_mode():
            y, last = self.rnn.step(x, h, dt, episode_start=start)
        else:
            y, end = self.rnn(x, h[..., 0, :], dt=dt, episode_start=start)
            assert isinstance(end, Tensor)
            last = torch.cat([torch.zeros_like(h[..., 1:, :]), end.unsqueeze(-2)], dim=-2)
        tensordict[self.out_keys[0]] = y
        tensordict[self.out_keys[1]] = last
        return tensordict
