"""Half-Cheetah: predict the next observation of a simulated runner, at a regular pace."""

from pathlib import Path

import numpy as np
import torch

from tauflow.batch import SequenceBatch
from tauflow.data.card import DatasetCard, TaskData
from tauflow.data.preprocess import cut_windows
from tauflow.data.store import fetch_files, read_checksums

from .rollouts import read_rollout

LENGTH = 32
STRIDE = 10
VALID, TEST, TRAIN = slice(0, 5), slice(5, 15), slice(15, 25)

HALF_CHEETAH = DatasetCard(
    name="half-cheetah",
    title="Half-Cheetah",
    task="regress",
    input_size=17,
    target_size=17,
    time_unit="simulator step",
    sizes=(970, 485, 970),
    source=(
        "Hasani, Lechner et al. 2021, Liquid Time-constant Networks; "
        "raminmh/liquid_time_constant_networks@4a8a4fa"
    ),
    licence="Apache-2.0",
    split="by trace, in the order of file names: validation 0-4, test 5-14, training 15-24",
    loss="mse",
    metric="mse",
    forecast=True,
    folder="half_cheetah",
    base_url=(
        "https://raw.githubusercontent.com/raminmh/liquid_time_constant_networks/"
        "4a8a4fa22a91c4067b6944a264819ff30a4aae9d/experiments_with_ltcs/data/cheetah/"
    ),
    files=read_checksums("tauflow_papers.datasets.real", "half_cheetah"),
    notes=(
        "Windows of 32 steps, 10 apart; the target is the observation one step later. Not scaled.",
        "There is no dt: every time step is one simulator step.",
        "Parts share no trace; windows of one trace overlap.",
        "The paper speaks of 25 rollouts; 31 traces are published, of which the first 25 are used.",
        "Predicting that nothing changes has a test MSE of 62.9.",
    ),
)


def load_half_cheetah(root: str | Path | None = None, *, download: bool = True) -> TaskData:
    """Load the windows of Hasani et al. 2021, Table 6.

    For errors see :func:`tauflow.data.store.fetch_files`.
    """
    paths = fetch_files(HALF_CHEETAH, root, download=download)
    return TaskData(
        HALF_CHEETAH,
        _make_split(paths[TRAIN]),
        valid=_make_split(paths[VALID]),
        test=_make_split(paths[TEST]),
    )


def _make_split(paths: list[Path]) -> SequenceBatch:
    x, y = [], []
    for path in paths:
        trace = read_rollout(path, HALF_CHEETAH.input_size)
        x.append(cut_windows(trace[:-1], LENGTH, STRIDE))
        y.append(cut_windows(trace[1:], LENGTH, STRIDE))
    return SequenceBatch(
        x=torch.from_numpy(np.concatenate(x)), y=torch.from_numpy(np.concatenate(y))
    )
