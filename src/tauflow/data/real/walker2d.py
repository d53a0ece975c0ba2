"""Walker2d: predict the next simulator state from frames of which one in ten is lost."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tauflow.batch import SequenceBatch
from tauflow.data.cache import cached
from tauflow.data.card import DatasetCard, TaskData
from tauflow.data.preprocess import drop_frames, gaps_from_positions, windows
from tauflow.data.store import locate, read_checksums

from .rollouts import read_rollout

LENGTH = 64
STRIDE = 16
KEEP = 0.9
TEST, VALID, TRAIN = slice(0, 60), slice(60, 100), slice(100, 400)
SPLIT_SEED = 125487
DROP_SEED = 891374

WALKER2D = DatasetCard(
    name="walker2d",
    title="Walker2d",
    task="regress",
    input_size=17,
    target_size=17,
    time_unit="simulator step",
    sizes=(9684, 1272, 1937),
    source=(
        "Lechner and Hasani 2020, Learning Long-Term Dependencies in Irregularly-Sampled Time "
        "Series; raminmh/CfC@59f6e01"
    ),
    licence="MIT",
    split=(
        "by rollout, files shuffled with the authors' seed 125487: the first 60 are the test part, "
        "the next 40 validation, 300 training"
    ),
    loss="mse",
    metric="mse",
    forecast=True,
    folder="walker2d",
    base_url=(
        "https://raw.githubusercontent.com/raminmh/CfC/"
        "59f6e01fd4809331f6dd3ddf0f8bf5890c9e71a7/data/walker/"
    ),
    files=read_checksums("walker2d"),
    notes=(
        "Each frame is kept with probability 0.9 (the authors' seed 891374, one stream over the "
        "training, validation and test parts); windows of 64 kept frames, 16 apart. Not scaled.",
        "dt is the number of simulator steps since the last kept frame, 1 to 6. The first frame of "
        "a rollout counts from the step before it; the first dt of a later window is the true gap.",
        "The target is always one simulator step ahead, however long the next gap is.",
        "Parts share no rollout; windows of one rollout overlap.",
        "Predicting that nothing changes has a test MSE of 4.538.",
        "The CfC code reports the last epoch although it tracks the best one; the ODE-LSTM code "
        "restores the best one by validation loss.",
    ),
)

Arrays = tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]


def load_walker2d(root: str | Path | None = None, *, download: bool = True) -> TaskData:
    """Load the windows of Lechner and Hasani 2020, Table 5; for errors see :func:`locate`."""
    paths = locate(WALKER2D, root, download=download)
    parsed = cached(WALKER2D, paths, 1, partial(_parse, paths))
    rollouts = np.split(parsed["frames"], parsed["ends"][:-1])
    order = np.random.RandomState(SPLIT_SEED).permutation(len(rollouts))
    rollouts = [rollouts[index] for index in order]
    rng = np.random.RandomState(DROP_SEED)
    train, valid, test = (_part(rollouts[part], rng) for part in (TRAIN, VALID, TEST))
    return TaskData(WALKER2D, train, valid=valid, test=test)


def _parse(paths: list[Path]) -> dict[str, NDArray[Any]]:
    rollouts = [read_rollout(path, WALKER2D.input_size) for path in paths]
    return {
        "frames": np.concatenate(rollouts),
        "ends": np.cumsum([len(rollout) for rollout in rollouts]),
    }


def _part(rollouts: list[NDArray[np.float32]], rng: np.random.RandomState) -> SequenceBatch:
    cut = [_windows(rollout, rng) for rollout in rollouts]
    x, y, dt = (torch.from_numpy(np.concatenate(arrays)) for arrays in zip(*cut, strict=True))
    return SequenceBatch(x=x, y=y, dt=dt)


def _windows(rollout: NDArray[np.float32], rng: np.random.RandomState) -> Arrays:
    now, following = rollout[:-1], rollout[1:]
    kept = drop_frames(len(now), KEEP, rng)
    x, y, dt = now[kept], following[kept], gaps_from_positions(kept)
    return windows(x, LENGTH, STRIDE), windows(y, LENGTH, STRIDE), windows(dt, LENGTH, STRIDE)
