"""Lane keeping in a closed loop: a car in a rendered world, steered by each network of Table 3."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tauflow.data.card import TaskData
from tauflow.data.registry import load_task
from tauflow.models import ConvolutionalSequenceModel
from tauflow_papers.datasets.synthetic.closed_loop import Drives, drive_closed_loop
from tauflow_papers.theory.driving import DRIVING_MODELS, driving_model

_DRIVES, _STEPS, _BATCH = 256, 800, 4
_RATES = {"ncp": (3e-4, 1e-2), "cf-s": (3e-4, 1e-2)}
"""Learning rates of head and recurrent part, where 1e-3 for both leaves the output constant."""

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

    Each is trained on 256 drives of 16 frames, in batches of four for 800 steps, by Adam at a rate
    of 1e-3 that falls as a cosine; NCP and Cf-S at 3e-4 for their head and 1e-2 for their circuit,
    without which their output stays constant. It then steers six cars for one kilometre on other
    roads.

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
    found: dict[str, dict[str, Any]] = {name: {} for name in _CONDITIONS}
    for name, entry in DRIVING_MODELS.items():
        torch.manual_seed(0)
        model = driving_model(name)
        _train(model, data, *_RATES.get(name, (1e-3, 1e-3)))
        for condition, options in _CONDITIONS.items():
            drives = drive_closed_loop(_make_driver(model), roads=_ROADS, length=_LENGTH, **options)
            found[condition][entry.title] = {
                **_describe(drives),
                "open loop": _test(model, unseen[condition], options.get("noise", 0.0)),
            }
    return {"roads": _ROADS, "length": _LENGTH, "conditions": found}


def _train(
    model: ConvolutionalSequenceModel, data: TaskData, head_rate: float, rate: float
) -> None:
    head = list(model.head.parameters())
    others = [p for p in model.parameters() if all(p is not q for q in head)]
    groups = [{"params": head, "lr": head_rate}, {"params": others, "lr": rate}]
    optimizer = torch.optim.Adam(groups)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, _STEPS)
    x, y = data.train.x, data.train.y
    generator = torch.Generator().manual_seed(0)
    for _ in range(_STEPS):
        rows = torch.randint(len(x), (_BATCH,), generator=generator)
        prediction = model(x[rows])[0]
        loss = (prediction - y[rows]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    model.eval()


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
