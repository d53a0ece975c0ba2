"""Parts of larger recordings: patients, letters, a simulated robot and brain waves."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from tauflow.data.card import DatasetCard
from tauflow.errors import DataError
from tauflow_papers.datasets.kept_steps import drop_frames
from tauflow_papers.datasets.real.character_trajectories import (
    CHANNELS,
    CHARACTER_TRAJECTORIES,
    CHARACTERS,
    load_trials,
    sample_remaining_steps,
)
from tauflow_papers.datasets.real.physionet2012 import PHYSIONET2012, load_all_records
from tauflow_papers.datasets.real.physionet_records import VARIABLES
from tauflow_papers.datasets.real.rollouts import read_rollout
from tauflow_papers.datasets.real.walker2d import WALKER2D

from .board import SPLIT, Board, Columns, flatten_sequences

_TRIALS, _LOST = 800, 0.8
_RECORDS, _BIN_HOURS = 2000, 3
_ROLLOUTS, _FRAMES, _FRAMES_KEPT, _WINDOW = 60, 240, 0.9, 32
_EEG_STRIDE, _EEG_KEPT = 14, 0.5
_EEG_SHAPE = (467, 896, 7)


def _read_characters(paths: list[Path]) -> Columns:
    arrays = load_trials(paths)
    chosen = np.random.RandomState(0).permutation(len(arrays["labels"]))[:_TRIALS]
    values = arrays["values"][chosen]
    steps = sample_remaining_steps(len(values), values.shape[1], _LOST)
    seen = np.take_along_axis(values, steps[..., None], axis=1)
    channels = {f"x{number}": seen[..., number] for number in range(CHANNELS)}
    letters = np.array(list(CHARACTERS))[arrays["labels"][chosen]]
    return flatten_sequences(
        {"time": steps.astype(np.float64), **channels, "letter": letters},
        np.ones(steps.shape, np.bool_),
    )


def _read_physionet(paths: list[Path]) -> Columns:
    records = load_all_records(paths)
    owner = np.repeat(np.arange(len(records["counts"])), records["counts"])
    died = records["died"]
    rng = np.random.RandomState(0)
    chosen = np.concatenate(
        [
            rng.permutation(np.flatnonzero(died == kind))[
                : round(_RECORDS * float((died == kind).mean()))
            ]
            for kind in (0, 1)
        ]
    )
    rows = np.isin(owner, chosen)
    owner, times = owner[rows], records["times"][rows]
    values, seen = records["values"][rows], records["observed"][rows]
    bins = np.minimum(times // _BIN_HOURS, 48 // _BIN_HOURS - 1).astype(np.int64)
    keys, place = np.unique(owner * 100 + bins, return_inverse=True)
    sums, counts = (np.zeros((len(keys), len(VARIABLES))) for _ in range(2))
    np.add.at(sums, place, np.where(seen, values, 0.0))
    np.add.at(counts, place, seen)
    means = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    return {
        "sequence": keys // 100,
        "hour": (keys % 100).astype(np.float64) * _BIN_HOURS,
        **{name: means[:, column] for column, name in enumerate(VARIABLES)},
        "died": np.array(["no", "yes"])[died[keys // 100]],
    }


def _read_walker(paths: list[Path]) -> Columns:
    rng = np.random.RandomState(0)
    chosen = np.sort(rng.permutation(len(paths))[:_ROLLOUTS])
    tables = []
    for number in chosen:
        frames = read_rollout(paths[number], WALKER2D.input_size)[:_FRAMES]
        remaining = drop_frames(len(frames), _FRAMES_KEPT, rng)
        rows = frames[remaining].astype(np.float64)
        tables.append(np.c_[np.full(len(rows), number), remaining, rows])
    table = np.concatenate(tables)
    names = [f"x{number}" for number in range(WALKER2D.input_size)]
    columns = {name: table[:, place + 2] for place, name in enumerate(names)}
    return {"sequence": table[:, 0].astype(np.int64), "step": table[:, 1], **columns}


def _read_eeg(paths: list[Path]) -> Columns:
    with np.load(paths[0], allow_pickle=False) as file:
        x, y = file["x"].astype(np.float64), file["y"]
    if x.shape != _EEG_SHAPE:
        raise DataError(f"{paths[0]} has x of shape {x.shape}, expected {_EEG_SHAPE}.")
    series, steps, size = x.shape
    means = x.reshape(series, steps // _EEG_STRIDE, _EEG_STRIDE, size).mean(2)[..., 1:]
    is_seen = np.random.RandomState(0).uniform(size=means.shape[:2]) < _EEG_KEPT
    channels = {f"x{number}": means[..., number] for number in range(size - 1)}
    time = np.broadcast_to(np.arange(means.shape[1], dtype=np.float64), is_seen.shape)
    label = np.array(["negative", "positive"])[y]
    return flatten_sequences({"time": time, **channels, "potential": label}, is_seen)


CHARACTERS_BOARD = Board(
    replace(
        CHARACTER_TRAJECTORIES,
        name="board-characters",
        title="Characters",
        input_size=CHANNELS,
        time_unit="sample",
        sizes=(560, 120, 120),
        split=SPLIT,
        noncausal_options={},
        notes=(
            "800 of 2,858 trials, drawn once; 80% of the steps are dropped, and each "
            "remaining step is a row with its time. Classify the letter.",
        ),
    ),
    _read_characters,
    {"id": "sequence", "time": "time", "target": "letter"},
)
PHYSIONET_BOARD = Board(
    replace(
        PHYSIONET2012,
        name="board-physionet",
        title="Mortality",
        metric="auroc",
        input_size=len(VARIABLES),
        time_unit="median gap",
        targets=("no", "yes"),
        sizes=(1400, 300, 300),
        split=SPLIT,
        notes=(
            "2,000 of 4,000 records of set A, drawn once, stratified by outcome; means "
            "over three hours of 41 variables. Classify death in hospital.",
        ),
    ),
    _read_physionet,
    {"id": "sequence", "time": "hour", "target": "died"},
)
WALKER_BOARD = Board(
    replace(
        WALKER2D,
        name="board-walker2d",
        title="Walker2d",
        input_size=WALKER2D.input_size + 1,
        sizes=(287, 61, 63),
        split=SPLIT,
        noncausal_options={},
        time_unit="simulator step",
        notes=(
            "The first 240 frames of 60 of 400 rollouts, with one frame in ten dropped; "
            "windows of 32 frames. Predict the next remaining frame; the time to it is an "
            "input. Splits are by rollout.",
        ),
    ),
    _read_walker,
    {"id": "sequence", "time": "step", "task": "next-step", "window": _WINDOW, "time_unit": None},
)
EEG_BOARD = Board(
    DatasetCard(
        name="board-eeg",
        title="Slow cortical potentials",
        task="classify",
        input_size=_EEG_SHAPE[2] - 1,
        target_size=2,
        targets=("negative", "positive"),
        time_unit="median gap",
        sizes=(327, 70, 70),
        source="UEA archive, SelfRegulationSCP1: Birbaumer et al. 1999",
        licence="UEA archive, research use",
        split=SPLIT,
        loss="cross_entropy",
        metric="accuracy",
        per_step=False,
        folder="uea_long",
        files={"SelfRegulationSCP1.npz": ""},
        notes=("Means of 14 samples, 64 steps in place of 896, of which half are lost at random.",),
    ),
    _read_eeg,
    {"id": "sequence", "time": "time", "target": "potential"},
)
BOARDS = (CHARACTERS_BOARD, PHYSIONET_BOARD, WALKER_BOARD, EEG_BOARD)
