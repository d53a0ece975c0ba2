"""Lane keeping in a closed loop: a car in a rendered world, steered by each network of Table 3."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tauflow.data.card import TaskData
from tauflow.data.registry import load_task
from tauflow.models import ConvolutionalSequenceModel
from tauflow_papers.datasets.synthetic.closed_loop import Drives, drive_closed_loop
from tauflow_papers.theory.driving import DRIVING_MODELS, train_driving_model

_DRIVES, _STEPS = 256, 800
_ROADS, _LENGTH = 6, 1000.0
NOISE = 0.35
"""Variance of the noise on standardised images, that of Figure 5."""

_CONDITIONS: dict[str, dict[str, Any]] = {
    "summer": {"seasons": ("summer",)},
    "summer, noise": {"seasons": ("summer",), "noise": NOISE},
    "winter": {"seasons": ("winter",)},
}


def drive() -> dict[str, Any]:
    """Train the seven networks on rendered drives, and let each steer.

    Each is trained on 256 drives of 16 frames for 800 steps
    (:func:`~tauflow_papers.theory.driving.train_driving_model`). It then steers six cars for one
    kilometre on other roads.

    Returns:
        By condition and network: ``"completed"``, cars that stayed in their lane; ``"driven"``,
        the mean distance inside the lane in m; ``"lateral"``, the root mean square of the distance
        to the middle of the lane in m; and ``"open loop"``, the mean square error of the curvature
        (1/(10 m))^2 on drives that a pure-pursuit driver steers.
    """
    data = load_task("lane-keeping", sizes=(_DRIVES, 0, 1))
    unseen = {
        name: load_task("lane-keeping", sizes=(1, 0, 32), seasons=options["seasons"], seed=1)
        for name, options in _CONDITIONS.items()
    }
    results: dict[str, dict[str, Any]] = {name: {} for name in _CONDITIONS}
    for name, entry in DRIVING_MODELS.items():
        model = train_driving_model(name, data.train.x, data.train.y, _STEPS)
        for condition, options in _CONDITIONS.items():
            drives = drive_closed_loop(_make_driver(model), roads=_ROADS, length=_LENGTH, **options)
            results[condition][entry.title] = {
                **_describe(drives),
                "open loop": _test(model, unseen[condition], options.get("noise", 0.0)),
            }
    return {"roads": _ROADS, "length": _LENGTH, "conditions": results}


def _make_driver(model: ConvolutionalSequenceModel) -> Callable[[Tensor], Tensor]:
    """Return a driver that keeps the network's state from frame to frame."""
    state: Any = None

    @torch.no_grad()
    def steer(frames: Tensor) -> Tensor:
        nonlocal state
        output, latest = model(frames.unsqueeze(1), state)
        state = None if model.rnn is None else latest
        curvature: Tensor = output[:, 0, 0]
        return curvature

    return steer


@torch.no_grad()
def _test(model: ConvolutionalSequenceModel, data: TaskData, noise: float) -> float:
    x = data.test.x
    if noise:
        x = x + noise**0.5 * torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
    return float((model(x)[0] - data.test.y).square().mean())


def _describe(drives: Drives) -> dict[str, float]:
    lateral = torch.from_numpy(drives.lateral)
    return {
        "completed": drives.completed,
        "driven": float(drives.driven.mean()),
        "lateral": float(lateral[lateral.isfinite()].square().mean().sqrt()),
    }
