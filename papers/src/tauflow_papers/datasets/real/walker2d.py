"""Walker2d: predict the next simulator state from frames of which one in ten is lost."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tauflow._internal.checks import check_one_of
from tauflow.batch import SequenceBatch
from tauflow.data.card import DatasetCard, TaskData
from tauflow.data.preprocess import cut_windows
from tauflow.data.store import fetch_files, read_checksums
from tauflow.errors import ArgumentError
from tauflow_papers.datasets.cache import load_or_parse
from tauflow_papers.datasets.kept_steps import drop_frames, dt_from_positions
from tauflow_papers.datasets.splines import natural_cubic_spline

from .rollouts import read_rollout

LENGTH = 64
STRIDE = 16
GRID = 84  # steps that the longest window spans
FILL_OPTIONS = ("skip", "spline")
TIME_OPTIONS = ("gap", "feature")
PREDICT_OPTIONS = ("state", "change")
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
    files=read_checksums("tauflow_papers.datasets.real", "walker2d"),
    noncausal_options={"fill": "spline"},
    notes=(
        "Each frame is kept with probability 0.9 (the authors' seed 891374, one stream over the "
        "training, validation and test parts); windows of 64 kept frames, 16 apart. Not scaled.",
        "dt is the number of simulator steps since the last kept frame, 1 to 6. The first frame of "
        "a rollout counts from the step before it; the first dt of a later window is the true one.",
        "The target is always one simulator step ahead, however long the next time step is.",
        "Parts share no rollout; windows of one rollout overlap.",
        "Predicting that nothing changes has a test MSE of 4.538.",
        "fill='spline' puts the windows back onto the simulator's 84 steps, with natural cubic "
        "splines where frames are lost and the last frame after the end, as the gated neural ODEs "
        "of Kim et al. 2022 seem to have had them; errors count at kept frames only. Such inputs "
        "look ahead: results are not comparable with those of kept frames alone.",
        "time='feature' adds the time since the first frame of the window as the last input, and "
        "leaves out dt.",
        "predict='change' has the difference to the present frame as target. Errors are the same "
        "numbers, as a prediction of it is one of the next state.",
        "The CfC code reports the last epoch although it tracks the best one; the ODE-LSTM code "
        "restores the best one by validation loss.",
    ),
)

Frames = tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]
"""States, the states one step later, and the steps since the frame before, of kept frames."""


def load_walker2d(
    root: str | Path | None = None,
    *,
    download: bool = True,
    fill: str = "skip",
    time: str = "gap",
    predict: str = "state",
) -> TaskData:
    """Load the windows of Lechner and Hasani 2020, Table 5, or of Kim et al. 2022, Table 5.

    Args:
        root: where the files are.
        download: whether to fetch missing files.
        fill: ``"skip"`` for the kept frames alone, or ``"spline"``; see the card's notes.
        time: how a model is told the time, ``"gap"`` for dt, or ``"feature"``.
        predict: the next ``"state"``, or its ``"change"`` from the present one, for kept frames.

    Raises:
        ArgumentError: changes of filled windows are asked for.
        UnknownNameError: an option has no such value.
        DataError, DataNotFoundError, ChecksumError: see :func:`tauflow.data.store.fetch_files`.
    """
    check_one_of(FILL_OPTIONS, fill=fill)
    check_one_of(TIME_OPTIONS, time=time)
    check_one_of(PREDICT_OPTIONS, predict=predict)
    if predict == "change" and fill != "skip":
        raise ArgumentError("predict='change' is for kept frames. Leave out fill.")
    paths = fetch_files(WALKER2D, root, download=download)
    parsed = load_or_parse(WALKER2D, paths, 1, partial(_parse_files, paths))
    rollouts = np.split(parsed["frames"], parsed["ends"][:-1])
    order = np.random.RandomState(SPLIT_SEED).permutation(len(rollouts))
    rollouts = [rollouts[index] for index in order]
    rng = np.random.RandomState(DROP_SEED)
    frames = [_cut_rollouts(rollouts[part], rng) for part in (TRAIN, VALID, TEST)]
    if predict == "change":
        frames = [(x, y - x, dt) for x, y, dt in frames]
    make = _make_frame_batch if fill == "skip" else _interpolate_to_grid
    train, valid, test = (make(part, timed=time == "feature") for part in frames)
    card = replace(WALKER2D, input_size=WALKER2D.input_size + (time == "feature"))
    return TaskData(card, train, valid=valid, test=test)


def _parse_files(paths: list[Path]) -> dict[str, NDArray[Any]]:
    rollouts = [read_rollout(path, WALKER2D.input_size) for path in paths]
    return {
        "frames": np.concatenate(rollouts),
        "ends": np.cumsum([len(rollout) for rollout in rollouts]),
    }


def _cut_rollouts(rollouts: list[NDArray[np.float32]], rng: np.random.RandomState) -> Frames:
    """Return the windows of all rollouts, (W, 64, 17) twice and (W, 64)."""
    cut = [_cut_windows(rollout, rng) for rollout in rollouts]
    x, y, dt = (np.concatenate(arrays) for arrays in zip(*cut, strict=True))
    return x, y, dt


def _cut_windows(rollout: NDArray[np.float32], rng: np.random.RandomState) -> Frames:
    now, following = rollout[:-1], rollout[1:]
    remaining = drop_frames(len(now), KEEP, rng)
    x, y, dt = now[remaining], following[remaining], dt_from_positions(remaining)
    return (
        cut_windows(x, LENGTH, STRIDE),
        cut_windows(y, LENGTH, STRIDE),
        cut_windows(dt, LENGTH, STRIDE),
    )


def _compute_elapsed(dt: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return the steps since the first frame of each window, (W, 64)."""
    elapsed: NDArray[np.int64] = np.cumsum(dt, axis=1, dtype=np.int64)
    return elapsed - elapsed[:, :1]


def _make_frame_batch(frames: Frames, *, timed: bool) -> SequenceBatch:
    x, y, dt = frames
    if timed:
        x = np.concatenate([x, _compute_elapsed(dt)[..., None].astype(np.float32)], axis=-1)
    return SequenceBatch(
        x=torch.from_numpy(x),
        y=torch.from_numpy(y),
        dt=None if timed else torch.from_numpy(dt),
    )


def _interpolate_to_grid(frames: Frames, *, timed: bool) -> SequenceBatch:
    """Return windows of 84 simulator steps, with targets at those whose frame was kept."""
    x, y, dt = frames
    steps, rows = _compute_elapsed(dt), np.arange(len(x))[:, None]
    grid = np.arange(GRID, dtype=np.float64)
    filled = natural_cubic_spline(steps.astype(np.float64), x.astype(np.float64), grid)
    ended = grid[None, :] > steps[:, -1:]
    filled = np.where(ended[..., None], x[:, -1:], filled).astype(np.float32)
    known = np.zeros((len(x), GRID), np.bool_)
    known[rows, steps] = True
    targets = np.zeros((len(x), GRID, y.shape[-1]), np.float32)
    targets[rows, steps] = y
    if timed:
        clock = np.broadcast_to(grid[None, :, None].astype(np.float32), (len(x), GRID, 1))
        filled = np.concatenate([filled, clock], axis=-1)
    return SequenceBatch(
        x=torch.from_numpy(filled),
        y=torch.from_numpy(targets),
        dt=None if timed else torch.ones(len(x), GRID),
        y_mask=torch.from_numpy(known),
    )
