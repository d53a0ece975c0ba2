"""The policy of ``RecurrentPPO`` around a sequence module."""

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from tauflow._internal.checks import check_within
from tauflow._internal.optional_deps import require
from tauflow.errors import ArgumentError
from tauflow.models import ActorModel, SequenceModel
from tauflow.sequence import SequenceModule

if TYPE_CHECKING:
    _Base: Any = object
else:
    try:
        from sb3_contrib.common.recurrent.policies import RecurrentActorCriticPolicy as _Base
    except ModuleNotFoundError:  # building a policy says what to install
        _Base = object

_States = tuple[Tensor, Tensor]


class RecurrentPolicy(_Base):  # type: ignore[misc]
    """Actor and critic for ``RecurrentPPO`` with a sequence module in place of each LSTM.

    ::

        rnn = partial(tauflow.CfC, hidden_size=32)
        model = RecurrentPPO(RecurrentPolicy, env, policy_kwargs={"rnn": rnn, "dt": "dt"})

    States start from the cell's own initial state at the start of every episode, also in
    ``predict`` without a state. Cells that model missing features, such as
    :class:`tauflow.GRUD`, take NaN in observations as not measured. ``VecNormalize`` is no part of
    a policy; with a time step among the observations, leave it out of ``norm_obs_keys``.

    Args:
        observation_space: of the environment.
        action_space: of the environment.
        lr_schedule: maps the progress left, 1 to 0, to a learning rate.
        rnn: makes the sequence module of the actor, and a second one for the critic, of the number
            of features: ``rnn(input_size)``. To save the policy it must be one that pickle takes,
            such as a ``functools.partial`` of a class.
        dt: time since the observation before, in the unit of the cell's time constants: a number,
            or the name of an entry of a ``Dict`` observation space with one element, which is no
            feature then. An environment that skips lost frames says so by a longer time step.
        shared_lstm: whether the critic reads the actor's outputs, without gradients to them.
        enable_critic_lstm: whether the critic has its own sequence module; if neither, it
            reads the features.
        **options: of sb3-contrib's ``RecurrentActorCriticPolicy``, such as ``net_arch``.

    Raises:
        MissingExtraError: sb3-contrib is not installed (extra ``sb3``).
        ArgumentError: ``dt`` is no such entry, or the module has both directions or returns the
            last output only.
    """

    critic: Any
    lstm_critic: Any

    def __init__(
        self,
        observation_space: Any,
        action_space: Any,
        lr_schedule: Callable[[float], float],
        *,
        rnn: Callable[[int], SequenceModule],
        dt: float | str = 1.0,
        shared_lstm: bool = False,
        enable_critic_lstm: bool = True,
        **options: Any,
    ) -> None:
        require("sb3_contrib", extra="sb3")
        from gymnasium import spaces
        from stable_baselines3.common.torch_layers import CombinedExtractor

        self._make_rnn, self._dt, self._has_critic = rnn, dt, enable_critic_lstm
        self._features_space = _remove_time_step(observation_space, dt)
        if isinstance(observation_space, spaces.Dict):
            options = {"features_extractor_class": CombinedExtractor, **options}
        super().__init__(
            observation_space,
            action_space,
            lr_schedule,
            shared_lstm=shared_lstm,
            enable_critic_lstm=enable_critic_lstm,
            lstm_hidden_size=1,  # of networks that are replaced below
            **options,
        )
        self.lstm_actor = self._cores[0]
        self.lstm_hidden_state_shape = (1, 1, self.lstm_actor.hidden_size)
        if self.lstm_critic is not None:
            self.lstm_critic = self._cores[1]
        if self.critic is not None:
            self.critic = nn.Linear(self.features_dim, self.lstm_output_dim)
        del self._cores
        self.optimizer = self.optimizer_class(
            self.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs
        )

    def make_features_extractor(self) -> Any:
        """Return the extractor of features, with the time step behind them if it is observed."""
        extractor = self.features_extractor_class(
            self._features_space, **self.features_extractor_kwargs
        )
        return _TimedExtractor(extractor, self._dt) if isinstance(self._dt, str) else extractor

    def _build_mlp_extractor(self) -> None:
        """Build the sequence modules, whose outputs the policy and value networks read."""
        inputs = self.features_dim - isinstance(self._dt, str)
        dt = None if isinstance(self._dt, str) else float(self._dt)
        count = 2 if self._has_critic else 1
        self._cores = [_Core(self._make_rnn(inputs), inputs, dt) for _ in range(count)]
        self.lstm_output_dim = self._cores[0].rnn.output_size
        super()._build_mlp_extractor()

    @staticmethod
    def _process_sequence(
        features: Tensor, lstm_states: _States, episode_starts: Tensor, lstm: "_Core"
    ) -> tuple[Tensor, _States]:
        """Run a sequence module; sb3-contrib calls this for actor and critic."""
        outputs: tuple[Tensor, _States] = lstm(features, lstm_states, episode_starts)
        return outputs

    def predict(
        self,
        observation: Any,
        state: tuple[Any, ...] | None = None,
        episode_start: Any = None,
        deterministic: bool = False,
    ) -> tuple[Any, tuple[Any, ...] | None]:
        """Return actions and the next state.

        Args:
            observation: of one or several environments.
            state: what the call before returned; ``None`` at the start of episodes.
            episode_start: bool, which environments start an episode with this observation; without
                a state all do.
            deterministic: whether to return the likeliest action, or to draw one.
        """
        if state is None:
            tensors, _ = self.obs_to_tensor(observation)
            first = next(iter(tensors.values())) if isinstance(tensors, dict) else tensors
            episode_start = np.ones(len(first), dtype=bool)
        return super().predict(observation, state, episode_start, deterministic)  # type: ignore[no-any-return]

    def actor_model(self) -> SequenceModel:
        """Return a copy of the actor as a model, to export, stream or analyse.

        It reads flat observations, (B, T, I), those of a ``Dict`` next to each other in the order
        of their names, and gives the logits of discrete actions, or the means of continuous ones,
        from which ``predict(deterministic=True)`` takes the largest, or which it clips to the
        action space. ``dt`` is an argument of the model as of any.

        Raises:
            ArgumentError: observations are changed before the sequence module reads them: images,
                categories, or a custom extractor of features; or the policy network has an
                activation that :class:`~tauflow.models.ActorModel` has not.
        """
        extractor = self.pi_features_extractor
        extractor = extractor.extractor if isinstance(self._dt, str) else extractor
        _check_flat(self._features_space, extractor)
        rnn = copy.deepcopy(self.lstm_actor.rnn)
        hidden = list(self.mlp_extractor.policy_net)
        model = ActorModel(
            rnn,
            self.action_net.out_features,
            hidden_sizes=[layer.out_features for layer in hidden[::2]],
            activation=type(hidden[1]).__name__ if hidden else "Tanh",
            squash=self.squash_output,
        )
        model.head.load_state_dict(nn.Sequential(*hidden, self.action_net).state_dict())
        return model.to(self.device).eval()

    def _get_constructor_parameters(self) -> dict[str, Any]:
        """Return what ``policy.save`` stores to build it again."""
        return {
            **super()._get_constructor_parameters(),
            "rnn": self._make_rnn,
            "dt": self._dt,
            "shared_lstm": self.shared_lstm,
            "enable_critic_lstm": self.enable_critic_lstm,
            "share_features_extractor": self.share_features_extractor,
        }


class _TimedExtractor(nn.Module):
    """An extractor of features that appends the time step."""

    def __init__(self, extractor: Any, name: str) -> None:
        super().__init__()
        self.extractor, self.name = extractor, name
        self.features_dim = extractor.features_dim + 1

    def forward(self, observations: dict[str, Tensor]) -> Tensor:
        """Return features and time step, (B, I + 1)."""
        dt = observations[self.name].reshape(-1, 1)
        return torch.cat([self.extractor(observations), dt], dim=-1)


class _Core(nn.Module):
    """A sequence module, called as sb3-contrib calls an LSTM.

    The state is the first of the two tensors that sb3-contrib keeps; the second stays zero.

    Args:
        rnn: the module.
        input_size: features.
        dt: the time step, or ``None`` if it stands behind the features.
    """

    num_layers = 1

    def __init__(self, rnn: SequenceModule, input_size: int, dt: float | None) -> None:
        super().__init__()
        if not isinstance(rnn, SequenceModule) or rnn.bidirectional or not rnn.return_sequences:
            raise ArgumentError(
                "rnn must make a sequence module of one direction that returns sequences, such as "
                f"functools.partial(tauflow.CfC, hidden_size=32); it made {rnn!r}."
            )
        self.rnn, self.input_size, self.dt = rnn, input_size, dt
        self.hidden_size = rnn.state_size

    def forward(
        self, features: Tensor, states: _States, episode_starts: Tensor
    ) -> tuple[Tensor, _States]:
        """Return outputs (B T, H) and the states of features (B T, I)."""
        h, unused = states
        x = features.reshape(h.shape[1], -1, features.shape[-1])
        starts = episode_starts.reshape(x.shape[:2]) > 0.5
        dt = x[..., -1] if self.dt is None else self.dt
        y, last = self.rnn(
            x[..., : self.input_size],
            h[0],
            dt=dt,
            episode_start=starts if bool(starts.any()) else None,
        )
        return y.flatten(0, 1), (last.unsqueeze(0), unused)


def _remove_time_step(space: Any, dt: float | str) -> Any:
    """Return the space of the features, after a look at the time step."""
    from gymnasium import spaces

    if not isinstance(dt, str):
        check_within(0.0, float("inf"), dt=dt)
        return space
    entries = dict(space.spaces) if isinstance(space, spaces.Dict) else {}
    step = entries.pop(dt, None)
    if not isinstance(step, spaces.Box) or int(np.prod(step.shape)) != 1 or not entries:
        raise ArgumentError(
            f"dt={dt!r} must name an entry with one element, a Box of shape (1,), of a Dict "
            f"observation space that has others too; the observation space is {space}."
        )
    return spaces.Dict(entries)


def _check_flat(space: Any, extractor: Any) -> None:
    """Raise unless features are the flat observations themselves."""
    from gymnasium import spaces
    from stable_baselines3.common.torch_layers import CombinedExtractor, FlattenExtractor

    boxes = list(space.spaces.values()) if isinstance(space, spaces.Dict) else [space]
    is_flat = type(extractor) in (CombinedExtractor, FlattenExtractor)
    if not is_flat or not all(isinstance(b, spaces.Box) and len(b.shape) <= 1 for b in boxes):
        raise ArgumentError(
            f"actor_model: the features of {space} by {type(extractor).__name__} are not the "
            "observations themselves. Only policies on vectors, with sb3's own extractors, are "
            "sequence models."
        )
