r"""A damped, driven pendulum, seen through noise at irregular times; generated, never downloaded.

.. math::
    \ddot\theta = -\omega_0^2 \sin\theta - c\,\dot\theta + a \cos(\nu t + \varphi)
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from tauflow._internal.checks import check_at_least, check_seed, check_within
from tauflow.batch import SequenceBatch
from tauflow.data.card import DatasetCard, TaskData
from tauflow.data.preprocess import dt_from_times

from .sizes import check_sizes

Floats = NDArray[np.float64]

NATURAL_FREQUENCY = 1.0  # rad/s, so that angle and velocity have the same scale
DAMPING = 0.1  # 1/s
DT_LIMITS = (0.2, 4.0)  # in units of the mean time step
SUBSTEPS = 32  # Runge-Kutta steps per time step, at least
MAX_STEP = 1 / 16  # s: time steps of 2 s, the longest by default, add errors of 1e-6; of 8 s, 2e-5

PENDULUM = DatasetCard(
    name="pendulum",
    title="Driven pendulum",
    task="regress",
    input_size=5,
    target_size=3,
    targets=("sin θ", "cos θ", "velocity"),
    time_unit="s",
    sizes=(1024, 256, 256),
    source="generated",
    licence="none needed (generated)",
    split="every sequence is independent; each part has its own random stream",
    loss="mse",
    metric="mse",
    forecast=True,
    notes=(
        "Inputs: sin and cos of the angle and the velocity, each with noise (standard deviation "
        "0.05 by default); the torque; the time until the next observation. Targets: sin, cos and "
        "velocity at the next observation, without noise.",
        "dt is the time since the previous observation; exponential, clipped to a fifth and four "
        "times its mean, by default 0.5 s. The first dt of a sequence is the mean time step.",
        "Start, amplitude, frequency and phase of the torque differ between sequences.",
        "With the defaults, predicting that nothing changes has a test MSE of 0.177.",
    ),
)


@dataclass(frozen=True)
class DrivingTorque:
    """The torque of each of B pendulums, per unit of inertia.

    Args:
        amplitude: (B,), rad/s².
        frequency: (B,), rad/s.
        phase: (B,), rad.
    """

    amplitude: Floats
    frequency: Floats
    phase: Floats

    def __call__(self, time: Floats) -> Floats:
        """Return the torque at one time per pendulum, (B,)."""
        return self.amplitude * np.cos(self.frequency * time + self.phase)


def load_pendulum(
    root: str | Path | None = None,
    *,
    download: bool = True,
    seed: int = 0,
    sizes: Sequence[int] = PENDULUM.sizes,
    steps: int = 48,
    noise: float = 0.05,
    mean_gap: float = 0.5,
) -> TaskData:
    """Generate the pendulum data.

    Args:
        root: not used; nothing is stored.
        download: not used; nothing is downloaded.
        seed: of everything random; a part does not depend on the sizes of the others.
        sizes: number of training, validation (may be 0) and test sequences.
        steps: inputs, and targets, per sequence.
        noise: standard deviation of the noise on angle and velocity.
        mean_gap: mean time between observations before clipping, in seconds, at most 2.

    Raises:
        ArgumentError: an option is outside its range.
    """
    train_size, valid_size, test_size = check_sizes(sizes)
    check_seed(32, seed=seed)
    check_at_least(1, steps=steps)
    check_within(0.0, 10.0, noise=noise)
    check_within(0.001, 2.0, mean_gap=mean_gap)

    def part(stream: int, size: int) -> SequenceBatch:
        rng = np.random.RandomState([seed, stream])
        return _generate(size, steps, noise, mean_gap, rng)

    return TaskData(
        replace(PENDULUM, sizes=(train_size, valid_size, test_size)),
        train=part(0, train_size),
        valid=part(1, valid_size) if valid_size else None,
        test=part(2, test_size),
    )


def simulate(start: Floats, times: Floats, torque: DrivingTorque) -> Floats:
    """Integrate pendulums from observation to observation, by steps of 1/16 s at most.

    Args:
        start: angle (rad) and velocity (rad/s) at the first time, (2, B).
        times: observation times, (B, T), in seconds.
        torque: on the B pendulums.

    Returns:
        Angle and velocity at every time, (2, B, T).
    """
    longest = float(np.diff(times, axis=1).max(initial=0.0))
    # a time step that rounding has made longer than it was drawn takes no step more
    substeps = max(SUBSTEPS, math.ceil(longest / MAX_STEP - 1e-6))
    states = [start]
    for now, following in zip(times.T[:-1], times.T[1:], strict=True):
        states.append(_advance(states[-1], now, following, torque, substeps))
    return np.stack(states, axis=-1)


def _advance(
    state: Floats, now: Floats, following: Floats, torque: DrivingTorque, substeps: int
) -> Floats:
    step = (following - now) / substeps
    for substep in range(substeps):
        state = _rk4_step(
            state, now + substep * step, step, lambda s, t: _compute_derivative(s, t, torque)
        )
    return state


def _compute_derivative(state: Floats, time: Floats, torque: DrivingTorque) -> Floats:
    angle, velocity = state
    pull = -(NATURAL_FREQUENCY**2) * np.sin(angle)
    return np.stack([velocity, pull - DAMPING * velocity + torque(time)])


def _rk4_step(
    state: Floats, time: Floats, step: Floats, flow: Callable[[Floats, Floats], Floats]
) -> Floats:
    k1 = flow(state, time)
    k2 = flow(state + step / 2 * k1, time + step / 2)
    k3 = flow(state + step / 2 * k2, time + step / 2)
    k4 = flow(state + step * k3, time + step)
    return state + step / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def _generate(
    size: int, steps: int, noise: float, mean_gap: float, rng: np.random.RandomState
) -> SequenceBatch:
    driving = DrivingTorque(
        amplitude=rng.uniform(0.0, 1.0, size),
        frequency=rng.uniform(0.5, 1.5, size),
        phase=rng.uniform(0.0, 2 * np.pi, size),
    )
    start = rng.uniform([[-2.0], [-1.0]], [[2.0], [1.0]], (2, size))
    low, high = (limit * mean_gap for limit in DT_LIMITS)
    gaps = np.clip(rng.exponential(mean_gap, (size, steps)), low, high)
    # One observation more than there are inputs: the last is a target only.
    times = np.concatenate([np.zeros((size, 1)), gaps.cumsum(1)], axis=1)
    angle, velocity = simulate(start, times, driving)
    clean = np.stack([np.sin(angle), np.cos(angle), velocity], axis=-1)
    seen = clean[:, :-1] + noise * rng.standard_normal((size, steps, 3))
    torque = driving(times.T[:-1]).T
    x = np.concatenate([seen, torque[..., None], gaps[..., None]], axis=-1)
    return SequenceBatch(
        x=torch.from_numpy(x.astype(np.float32)),
        y=torch.from_numpy(clean[:, 1:].astype(np.float32)),
        dt=torch.from_numpy(dt_from_times(times[:, :-1], first_dt=mean_gap)),
    )
