"""Recurrent PPO of sb3-contrib, with its LSTM and with networks of tauflow in its place.

CartPole without speeds, 30 % of whose frames never arrive; every policy sees the time since the
frame before. All options are one for all but the network, of 32 neurons.
"""

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from benchmarks.table_tasks import Scores
from gymnasium import spaces

import tauflow
from tauflow.sequence.precompile import precompile

FRAMES = 100_000
EPISODES = 50
Results = Iterator[tuple[str, dict[str, list[Scores]]]]
POLICIES: dict[str, type | None] = {
    "sb3-contrib `MultiInputLstmPolicy`": None,
    "tauflow `LSTM`": tauflow.LSTM,
    "tauflow `CfC`": tauflow.CfC,
}


class LostFrames(gymnasium.Wrapper[Any, Any, Any, Any]):
    """CartPole without speeds, some of whose frames never arrive; the last action is seen too."""

    def __init__(self, lost: float = 0.3) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))
        self.lost = lost
        seen = spaces.Box(-10, 10, (3,), np.float32)
        self.observation_space = spaces.Dict(
            {"seen": seen, "dt": spaces.Box(0, 100, (1,), np.float32)}
        )

    def _observe(self, observation: Any, action: int, frames: int) -> dict[str, Any]:
        seen = np.array([observation[0], 10 * observation[2], action], np.float32)
        return {"seen": seen, "dt": np.array([frames], np.float32)}

    def reset(self, **options: Any) -> Any:
        """Return the first frame."""
        observation, info = self.env.reset(**options)
        return self._observe(observation, 0, 1), info

    def step(self, action: Any) -> Any:
        """Hold the action until a frame arrives, and return it with the sum of the rewards."""
        rewards, frames = 0.0, 0
        while True:
            observation, reward, ended, cut, info = self.env.step(action)
            rewards, frames = rewards + float(reward), frames + 1
            if ended or cut or self.np_random.random() >= self.lost:
                seen = self._observe(observation, 2 * int(action) - 1, frames)
                return seen, rewards, ended, cut, info


def compare(task: str, data: Path, repeats: int) -> Results:
    """Yield the title, and the length of episodes of each policy, after each."""
    del task, data
    precompile("lstm", "cfc")
    rows: dict[str, list[Scores]] = {}
    for seed in range(repeats):
        for name, module in POLICIES.items():
            rows.setdefault(name, []).append(_train(module, seed))
            print(name, rows[name][-1], flush=True)
            yield f"CartPole without velocities, frames lost: {FRAMES:,} steps of training", rows


def _train(module: Any, seed: int) -> Scores:
    from sb3_contrib import RecurrentPPO
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.vec_env import VecNormalize

    from tauflow.compat.sb3 import RecurrentPolicy

    policy: Any = "MultiInputLstmPolicy"
    options: dict[str, Any] = {"lstm_hidden_size": 32, "net_arch": []}
    if module is not None:
        policy = RecurrentPolicy
        options = {"rnn": partial(module, hidden_size=32), "net_arch": []}
        options |= {"dt": "dt"} if module is not tauflow.LSTM else {}
    started = time.process_time()
    environments = VecNormalize(make_vec_env(LostFrames, n_envs=8, seed=seed), norm_obs=False)
    model = RecurrentPPO(
        policy,
        environments,
        policy_kwargs=options,
        batch_size=256,
        n_epochs=5,
        learning_rate=lambda left: 3e-3 * left,
        gae_lambda=0.9,
        seed=seed,
        device="cpu",
    )
    model.learn(FRAMES)
    spent = time.process_time() - started
    fresh = make_vec_env(LostFrames, n_envs=8, seed=1000 + seed)
    lengths, _ = evaluate_policy(
        model, fresh, n_eval_episodes=EPISODES, return_episode_rewards=True
    )
    return {"mean frames of 500": float(np.mean(lengths)), "CPU s": spent}
