"""Character trajectories: tell a letter from the movement of the pen, part of it unseen."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from tauflow._internal.checks import check_one_of, check_within
from tauflow._internal.sanitize import format_count
from tauflow.batch import SequenceBatch
from tauflow.data.card import DatasetCard, TaskData
from tauflow.data.store import fetch_files, read_checksums
from tauflow.errors import DataError
from tauflow_papers.datasets.cache import Arrays, load_or_parse
from tauflow_papers.datasets.kept_steps import dt_from_positions
from tauflow_papers.datasets.splines import natural_cubic_spline
from tauflow_papers.datasets.splits import stratified_split

from .character_labels import SECOND_HALF_LABELS
from .matlab import read_matlab

CHARACTERS = "abcdeghlmnopqrsuvwyz"
CHANNELS, STEPS, HALF = 3, 182, 1429
DROP, DROP_SEED = 0.7, 56789
FILL_OPTIONS = ("spline", "skip", "zero")
TIME_OPTIONS = ("steps", "standard")
_VERSION = 1

CHARACTER_TRAJECTORIES = DatasetCard(
    name="character-trajectories",
    title="Character trajectories",
    task="classify",
    input_size=1 + CHANNELS,
    target_size=len(CHARACTERS),
    time_unit="sample",
    sizes=(2000, 429, 429),
    source=(
        "Williams et al. 2006, Extracting motion primitives from natural handwriting data (UCI); "
        "protocol of Kim et al. 2022, Gated neural ODEs, Tables 1A and 4, after Kidger et al. "
        "2020; JeffreyHoa/character_trajectories@96683b925e23f3e1c2225787912262edb052e0f9"
    ),
    licence="CC BY 4.0",
    split=(
        "70/15/15 by class, as scikit-learn's train_test_split with random_state 0, then 1, does"
    ),
    loss="cross_entropy",
    metric="accuracy",
    targets=tuple(CHARACTERS),
    per_step=False,
    folder="character_trajectories",
    base_url=(
        "https://raw.githubusercontent.com/JeffreyHoa/character_trajectories/"
        "96683b925e23f3e1c2225787912262edb052e0f9/data/"
    ),
    files=read_checksums("tauflow_papers.datasets.real", "character_trajectories"),
    noncausal_options={"fill": "spline"},
    notes=(
        "Features: time 0 to 181, then the velocity of the pen in x and y and the change of its "
        "force, each of these standardised with mean and deviation of the training part; "
        "time='standard' scales the time alike.",
        "Trials are padded at the end with their last value to the longest, 182 steps; the "
        "fraction drop of all steps, padding included, is removed (0.3, 0.5 and 0.7 are "
        "published). The statistics are those of the steps that remain, padding included.",
        "fill='spline', as published, puts a natural cubic spline through what remains: every gap "
        "is 1, and there is no dt. Such inputs look ahead. fill='skip' gives the remaining steps "
        "alone, with dt; fill='zero' gives all steps, with observed false and 0 where removed, "
        "for models that are told what was observed.",
        "The answer is read at the last step, for shorter trials after their end.",
        "All trials are one writer's. The trials in files of a course contest are those of UCI in "
        "another order, and keep rows of zeros at both ends, removed here; their labels are those "
        "of the file and, for its unlabelled half, of a labelled copy matched trial by trial. The "
        "published order, and so the published split and removal, cannot be rebuilt.",
    ),
)


class Trials(NamedTuple):
    """Trials on the common grid.

    Args:
        values: (N, 182, 3).
        steps: steps that remain, increasing, (N, K).
        labels: (N,).
    """

    values: NDArray[np.float64]
    steps: NDArray[np.int64]
    labels: NDArray[np.int64]


def load_character_trajectories(
    root: str | Path | None = None,
    *,
    download: bool = True,
    drop: float = DROP,
    fill: str = "spline",
    time: str = "steps",
) -> TaskData:
    """Load the trials, with a fraction of their steps removed.

    Args:
        root: where the files are.
        download: whether to fetch missing files.
        drop: fraction of the steps of every trial that is removed at random.
        fill: ``"spline"``, ``"skip"`` or ``"zero"``; see the card's notes.
        time: how the feature of time is scaled: ``"steps"``, 0 to 181 as published, or
            ``"standard"``, to mean 0 and deviation 1 over the grid. Gaps stay steps.

    Raises:
        ArgumentError, UnknownNameError: an option has no such value.
        DataError: a file does not hold what it should.
        DataNotFoundError, ChecksumError: see :func:`tauflow.data.store.fetch_files`.
    """
    check_within(0.0, 0.98, drop=drop)  # two steps remain at least
    check_one_of(FILL_OPTIONS, fill=fill)
    check_one_of(TIME_OPTIONS, time=time)
    paths = fetch_files(CHARACTER_TRAJECTORIES, root, download=download)
    arrays = load_trials(paths)
    labels = arrays["labels"]
    remaining = sample_remaining_steps(len(labels), STEPS, drop)
    train, others = stratified_split(labels, 0.7, seed=0)
    valid, test = (others[part] for part in stratified_split(labels[others], 0.5, seed=1))
    trials = Trials(standardise_trials(arrays["values"], remaining, train), remaining, labels)
    batch = _make_batch(trials, fill, time)
    parts = [batch[torch.from_numpy(part)] for part in (train, valid, test)]
    return TaskData(CHARACTER_TRAJECTORIES, *parts)


def load_trials(paths: list[Path]) -> Arrays:
    """Return what :func:`read_trials` reads, from the cache if it was read before."""
    return load_or_parse(CHARACTER_TRAJECTORIES, paths, _VERSION, lambda: read_trials(paths))


def read_trials(paths: list[Path]) -> Arrays:
    """Return all trials on the common grid, ``values`` (N, 182, 3), and their ``labels``.

    Args:
        paths: the two MATLAB files.

    Raises:
        DataError: a file does not hold the trials.
    """
    by_name = {path.name: path for path in paths}
    first, second = (by_name[f"trajectories_{part}.mat"] for part in ("train", "xtest"))
    content = read_matlab(first)
    codes = content.get("ytrain")
    if (
        not isinstance(codes, np.ndarray)
        or codes.shape != (1, HALF)
        or not np.isin(codes, np.arange(1, len(CHARACTERS) + 1)).all()
    ):
        raise DataError(
            f"{first}: ytrain must hold {format_count(HALF, 'number')} from 1 to "
            f"{len(CHARACTERS)}. Get the file "
            "again."
        )
    known = [CHARACTERS.index(letter) for letter in SECOND_HALF_LABELS]
    trials = _read_file_trials(first, content.get("xtrain")) + _read_file_trials(
        second, read_matlab(second).get("xtest")
    )
    return {
        "values": np.stack([pad_to_grid(trial) for trial in trials]),
        "labels": np.concatenate([codes[0].astype(np.int64) - 1, known]),
    }


def _read_file_trials(path: Path, cells: object) -> list[NDArray[np.float64]]:
    """Return the trials of a file, (T, 3) each, without rows of zeros at their ends."""
    if not isinstance(cells, list) or len(cells) != HALF:
        raise DataError(
            f"{path} must hold a cell array of {format_count(HALF, 'trial')}. Get the file again."
        )
    trials = []
    for number, cell in enumerate(cells):
        fits = cell.shape[:1] == (CHANNELS,) and np.isfinite(cell).all()
        moving = np.flatnonzero((cell != 0).any(0)) if fits else np.zeros(0, np.int64)
        if len(moving) == 0:
            raise DataError(
                f"{path}, trial {number}: expected {format_count(CHANNELS, 'row')} of finite "
                "numbers, not all "
                f"zero, got shape {cell.shape}. Get the file again."
            )
        trial = cell[:, moving[0] : moving[-1] + 1].T.astype(np.float64)
        if len(trial) > STEPS:
            raise DataError(
                f"{path}, trial {number} has {format_count(len(trial), 'step')}, expected {STEPS} "
                "at most. Get the "
                "file again."
            )
        trials.append(trial)
    return trials


def pad_to_grid(trial: NDArray[np.float64]) -> NDArray[np.float64]:
    """Pad a trial (T, 3) with its last row to (182, 3)."""
    return np.pad(trial, ((0, STEPS - len(trial)), (0, 0)), mode="edge")


def sample_remaining_steps(count: int, steps: int, drop: float) -> NDArray[np.int64]:
    """Return the steps of every trial that remain, (count, K), after random removal.

    Trial after trial draws a permutation from one PyTorch generator, whose first
    ``int(steps * drop)`` entries are removed, as Kidger et al. do.
    """
    generator = torch.Generator().manual_seed(DROP_SEED)
    is_left = np.ones((count, steps), dtype=bool)
    for trial in is_left:
        order = torch.randperm(steps, generator=generator)
        trial[order[: int(steps * drop)].numpy()] = False
    return np.nonzero(is_left)[1].reshape(count, -1)


def standardise_trials(
    values: NDArray[np.float64], steps: NDArray[np.int64], train: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Standardise every channel by what remains of the training trials."""
    seen = np.take_along_axis(values, steps[..., None], axis=1)[train]
    mean, deviation = seen.mean((0, 1)), seen.std((0, 1), ddof=1)
    scaled: NDArray[np.float64] = (values - mean) / (deviation + 1e-5)
    return scaled


def fill_by_spline(trials: Trials) -> NDArray[np.float64]:
    """Return natural cubic splines through the steps that remain, on the whole grid.

    The first and the last value that remain also stand at the ends of the grid.
    """
    grid = np.arange(STEPS, dtype=np.float64)
    filled = np.empty_like(trials.values)
    inner_first, inner_last = trials.steps[:, 0] > 0, trials.steps[:, -1] < STEPS - 1
    for first in (False, True):
        for last in (False, True):
            rows = np.flatnonzero((inner_first == first) & (inner_last == last))
            if not len(rows):
                continue
            times = trials.steps[rows].astype(np.float64)
            seen = np.take_along_axis(trials.values[rows], trials.steps[rows][..., None], axis=1)
            ends = (int(first), int(last))
            seen = np.pad(seen, ((0, 0), ends, (0, 0)), mode="edge")
            times = np.pad(times, ((0, 0), ends), constant_values=(0, STEPS - 1))
            filled[rows] = natural_cubic_spline(times, seen, grid)
    return filled


def _make_batch(trials: Trials, fill: str, scale: str) -> SequenceBatch:
    grid = np.arange(STEPS, dtype=np.float64)
    time = np.broadcast_to(grid, (len(trials.labels), STEPS))
    dt = observed = None
    values = fill_by_spline(trials) if fill == "spline" else trials.values
    if fill == "skip":
        time = trials.steps.astype(np.float64)
        values = np.take_along_axis(values, trials.steps[..., None], axis=1)
        dt = torch.from_numpy(dt_from_positions(trials.steps))
    if fill == "zero":
        seen = np.zeros(values.shape, dtype=bool)
        np.put_along_axis(seen, trials.steps[..., None], True, axis=1)
        values = np.where(seen, values, 0)
        observed = torch.from_numpy(np.pad(seen, ((0, 0), (0, 0), (1, 0)), constant_values=True))
    if scale == "standard":
        time = (time - grid.mean()) / grid.std(ddof=1)
    x = np.concatenate([time[..., None], values], axis=2).astype(np.float32)
    labels = torch.from_numpy(trials.labels)
    return SequenceBatch(x=torch.from_numpy(x), y=labels, dt=dt, observed=observed)
