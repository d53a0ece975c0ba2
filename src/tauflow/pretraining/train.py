"""Training on generated series, which a killed process takes up again to the last bit."""

import copy
import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tauflow._internal.atomic_write import write_atomically
from tauflow._internal.tensor_file import read_tensor_file, write_tensor_file
from tauflow.errors import CheckpointError
from tauflow.version import VERSION

from .features import LAG_CHANGE, Features, compute_features
from .network import NetworkOptions, ZeroShotNetwork, pinball_loss
from .population import MEMBER_POINTS, Population
from .series import draw_series
from .shared_draws import Floats

CHECKPOINT, RECORD = "checkpoint.safetensors", "record.json"
KIND = "pretraining checkpoint"
_QUERIES, _MOST_AHEAD = 6, 32
_SHORTEST, _LONGEST = 1.5, 800.0
_POINTS, _FEWEST_SERIES, _MOST_SERIES = 2500, 6, 64
_MEMBERS = (1, 1, 1, 1, 1, 2, 4, 8, 16, 32, 64)
_HELD_OUT_SEED = 10**6
_FAR = 20.0
_BETAS, _WEIGHT_DECAY, _WARM_UP, _AVERAGING = (0.9, 0.98), 0.01, 200, 0.999


@dataclass(frozen=True)
class TrainingOptions:
    """How to train.

    Args:
        steps: of the optimizer, in all.
        decay_steps: of these, the last ones, over which the learning rate falls to zero.
        lr: learning rate before.
        seed: of the weights and of the series.
        every: steps between checkpoints.
        held_out: batches of series that are never trained on, and measured at checkpoints.
        hours: process hours after which this run ends, to be taken up again.
        network: sizes.
    """

    steps: int = 1_000_000
    decay_steps: int = 0
    lr: float = 2e-3
    seed: int = 0
    every: int = 1000
    held_out: int = 48
    hours: float = math.inf
    network: NetworkOptions = field(default_factory=NetworkOptions)


def draw_batch(rng: np.random.Generator) -> tuple[Features, Tensor]:
    """Draw series, and return what the network reads of them and what is to be forecast, (B, Q).

    Contexts have one length, from 1 to 800 points. Half of the batches are tables, whose members
    see the others: all points of these, as in a study of people who came at their own times, or
    those before the origin, as with sensors on one clock.
    """
    points = int(np.exp(rng.uniform(np.log(_SHORTEST), np.log(_LONGEST))))
    series = int(np.clip(_POINTS // points, _FEWEST_SERIES, _MOST_SERIES))
    members = min(int(rng.choice(_MEMBERS)), series)
    tables = series // members
    ahead = int(np.clip(points * rng.uniform(0.3, 2), 4, _MOST_AHEAD))
    drawn = draw_series(rng, tables, points + ahead, members)
    t, y = drawn.t, drawn.y
    late = 0.02 * np.arange(ahead) * rng.choice([0, 1, 3], (len(t), 1))
    order = np.argsort(rng.random((len(t), ahead)) + late, 1)
    chosen = np.sort(order[:, :_QUERIES], 1) + points
    q, target = np.take_along_axis(t, chosen, 1), np.take_along_axis(y, chosen, 1)
    others = None
    if members > 1:
        stop = points if rng.random() < 0.4 else points + ahead
        others = _make_population(rng, t[:, :stop], y[:, :stop], members)
    features = compute_features(t[:, :points], y[:, :points], q, others)
    return features, features.to_units(target)


def _make_population(rng: np.random.Generator, t: Floats, y: Floats, members: int) -> Population:
    """Return tables of which each row of t and y is a member; half of the tables are ragged."""
    tables, points = len(t) // members, t.shape[1]
    length = rng.integers(1, points + 1, (tables, members, 1))
    length = np.where(rng.random((tables, 1, 1)) < 0.5, length, points)
    width = min(points, MEMBER_POINTS)
    place = np.maximum(length - width, 0) + np.arange(width)
    t, y = (np.take_along_axis(a.reshape(tables, members, points), place, 2) for a in (t, y))
    y = np.where(place < length, y, np.nan)
    places = np.arange(tables * members)
    return Population(t, y, places // members, places % members)


def compute_loss(network: ZeroShotNetwork, features: Features, target: Tensor) -> Tensor:
    """Return the mean pinball loss over the usual change in as long a time, from the context.

    Far outliers do not count.
    """
    usual = features.queries[..., LAG_CHANGE].exp() + 0.1
    is_near = (target - features.forecasts[:, :, 0]).abs() <= _FAR * usual
    return (pinball_loss(network(features), target) / usual)[is_near].mean()


def compute_rate(options: TrainingOptions, step: int) -> float:
    """Return the learning rate of a step: it rises, stays, and falls over the last steps."""
    left = (options.steps - step) / max(options.decay_steps, 1)
    return options.lr * min(1.0, (step + 1) / _WARM_UP, max(left, 0.0))


class PretrainingRun:
    """A training run: network, average of its weights, optimizer, source of series, and record.

    Args:
        folder: holds checkpoint and record; one that is there is taken up again.
        options: how to train.
        commit: of the source, for the record.
        report: called with a line about each checkpoint.
    """

    def __init__(
        self,
        folder: Path,
        options: TrainingOptions,
        commit: str,
        report: Callable[[str], object] = print,
    ) -> None:
        self.folder, self.options, self.report = folder, options, report
        torch.manual_seed(options.seed)
        self.network = ZeroShotNetwork(options.network)
        self.average = copy.deepcopy(self.network).eval()
        self.optimizer = torch.optim.AdamW(
            self.network.parameters(),
            lr=options.lr,
            betas=_BETAS,
            weight_decay=_WEIGHT_DECAY,
            fused=True,
        )
        self.rng = np.random.default_rng(options.seed)
        self.step = 0
        self.record: dict[str, Any] = {"series": 0, "core_hours": 0.0, "runs": [], "curve": []}
        if (folder / CHECKPOINT).exists():
            self._load()
        sizes = {"parameters": sum(parameter.numel() for parameter in self.network.parameters())}
        self.record |= sizes | {"seed": options.seed, "version": VERSION}
        settings = asdict(options) | {"hours": None if math.isinf(options.hours) else options.hours}
        run = {"commit": commit, "from_step": self.step, "options": settings}
        self.record["runs"].append(run)

    def run(self) -> None:
        """Train until the steps or the hours are over; keep checkpoints on the way."""
        held_out = [
            draw_batch(np.random.default_rng(_HELD_OUT_SEED + place))
            for place in range(self.options.held_out)
        ]
        first = start = time.process_time()
        losses: list[float] = []
        while self.step < self.options.steps:
            losses.append(self.take_step())
            is_over = time.process_time() - first > 3600 * self.options.hours
            if self.step % self.options.every and self.step < self.options.steps and not is_over:
                continue
            self.record["core_hours"] += (time.process_time() - start) / 3600
            start = time.process_time()
            with torch.no_grad():
                held_out_losses = [compute_loss(self.average, *batch).item() for batch in held_out]
            point = {
                "step": self.step,
                "series": self.record["series"],
                "core_hours": round(self.record["core_hours"], 4),
                "training_loss": round(float(np.nanmean(losses)), 5),
                "held_out_loss": round(float(np.mean(held_out_losses)), 5)
                if held_out_losses
                else None,
            }
            losses = []
            self.record["curve"].append(point)
            self.save()
            self.report(json.dumps(point))
            if is_over:
                return

    def take_step(self) -> float:
        """Draw a batch and take one step; return the loss."""
        features, target = draw_batch(self.rng)
        for group in self.optimizer.param_groups:
            group["lr"] = compute_rate(self.options, self.step)
        loss = compute_loss(self.network, features, target)
        self.optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        if torch.isfinite(norm):
            self.optimizer.step()
        self.step += 1
        self.record["series"] += len(target)
        keep = min(_AVERAGING, self.step / (self.step + 20))
        with torch.no_grad():
            means: list[Tensor] = list(self.average.parameters())
            now: list[Tensor] = list(self.network.parameters())
            torch._foreach_lerp_(means, now, 1 - keep)
        return loss.item()

    def save(self) -> None:
        """Write checkpoint and record, each in one step."""
        tensors: dict[str, Tensor] = {}
        for name, network in (("network", self.network), ("average", self.average)):
            tensors |= {f"{name}.{key}": value for key, value in network.state_dict().items()}
        for place, state in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{place}.{key}": value for key, value in state.items()}
        metadata = {"step": self.step, "rng": self.rng.bit_generator.state, "record": self.record}
        metadata["network"] = asdict(self.options.network)
        self.folder.mkdir(parents=True, exist_ok=True)
        write_tensor_file(self.folder / CHECKPOINT, KIND, tensors, metadata)
        text = json.dumps(self.record, indent=1)
        write_atomically(self.folder / RECORD, text.encode())

    def _load(self) -> None:
        path = self.folder / CHECKPOINT
        tensors, metadata = read_tensor_file(
            path, KIND, error=CheckpointError, advice="Train into another folder."
        )
        if metadata["network"] != asdict(self.options.network):
            raise CheckpointError(
                f"{path} is of a network of other sizes, {metadata['network']}. Give these, or "
                "another folder."
            )
        for name, network in (("network", self.network), ("average", self.average)):
            network.load_state_dict(take_tensors(tensors, name))
        state = self.optimizer.state_dict()
        for place in range(len(state["param_groups"][0]["params"])):
            of_parameter = take_tensors(tensors, f"optimizer.{place}")
            if of_parameter:
                state["state"][place] = of_parameter
        self.optimizer.load_state_dict(state)
        self.rng.bit_generator.state = metadata["rng"]
        self.step, self.record = metadata["step"], metadata["record"]


def take_tensors(tensors: dict[str, Tensor], name: str) -> dict[str, Tensor]:
    """Return the tensors whose names begin with a name and a dot, without these."""
    start = name + "."
    return {key[len(start) :]: tensor for key, tensor in tensors.items() if key.startswith(start)}
