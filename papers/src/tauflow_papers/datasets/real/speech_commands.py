"""Speech Commands: tell which of ten words was spoken, from the spectrum over one second."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from tauflow._internal.checks import check_one_of
from tauflow._internal.sanitize import format_count
from tauflow.batch import SequenceBatch
from tauflow.data.card import DatasetCard, TaskData
from tauflow.data.store import fetch_files
from tauflow.errors import DataError
from tauflow_papers.datasets.cache import Arrays, load_or_parse
from tauflow_papers.datasets.mfcc import mfcc
from tauflow_papers.datasets.splits import stratified_split

from .spoken_words import LISTS, RATE, WORDS, Clip, read_clips

ARCHIVE = "speech_commands_v0.02.tar.gz"
WINDOW, MELS, COEFFICIENTS = 200, 64, 20
STEPS = 1 + RATE // (WINDOW // 2)
SPLIT_OPTIONS = ("random", "by_speaker")
_SPLITS = ("train", "valid", "test")
_VERSION = 1

SPEECH_COMMANDS = DatasetCard(
    name="speech-commands",
    title="Speech Commands",
    task="classify",
    input_size=1 + COEFFICIENTS,
    target_size=len(WORDS),
    time_unit="frame of 6.25 ms",
    sizes=(24_482, 5_246, 5_247),
    source=(
        "Warden 2018, Speech Commands, version 0.02; protocol of Kim et al. 2022, Gated neural "
        "ODEs, Table 1C, after Kidger et al. 2020"
    ),
    licence="CC BY 4.0",
    split=(
        "70/15/15 by word, as scikit-learn's train_test_split with random_state 0, then 1, does"
    ),
    loss="cross_entropy",
    metric="accuracy",
    targets=WORDS,
    per_step=False,
    folder="speech_commands",
    base_url="https://storage.googleapis.com/download.tensorflow.org/data/",
    files={ARCHIVE: "af14739ee7dc311471de98f5f9d2c9191b18aedfe957f4a6ff791c709868ff58"},
    notes=(
        "A download of 2.4 GB. Clips of ten words that last exactly one second: 34,975.",
        "Features: time 0 to 160, then 20 mel-frequency cepstral coefficients of 161 frames (64 "
        "filters, windows of 200 samples, 100 apart, logarithm with a floor of 1e-6), each "
        "standardised with mean and deviation of the training part. There is no dt.",
        "With such short windows the lowest filters lie between two frequencies and are silent, "
        "as in the published features.",
        "In the published random split the same person speaks in all parts; split='by_speaker' is "
        "the official one, in which none does. Its sizes follow from the official lists; that the "
        "parts hold 34,975 clips together is checked.",
        "Clips are sorted by word and file name. The published order is that of a directory "
        "listing, so the published parts cannot be rebuilt.",
        "The paper's caption calls the number a test MSE; it is an accuracy.",
    ),
)


def load_speech_commands(
    root: str | Path | None = None, *, download: bool = True, split: str = "random"
) -> TaskData:
    """Load the coefficients of all clips of one second.

    Args:
        root: where the archive is.
        download: whether to fetch it if it is missing.
        split: ``"random"`` as published, or ``"by_speaker"``.

    Raises:
        UnknownNameError: there is no such split.
        DataError: the archive does not hold what it should.
        DataNotFoundError, ChecksumError: see :func:`tauflow.data.store.fetch_files`.
    """
    check_one_of(SPLIT_OPTIONS, split=split)
    (archive,) = fetch_files(SPEECH_COMMANDS, root, download=download)
    # The checksum was just verified, and hashing gigabytes again would take as long as loading.
    checksum = SPEECH_COMMANDS.files[ARCHIVE]
    arrays = load_or_parse(
        SPEECH_COMMANDS, [], _VERSION, lambda: read_features(archive), sha256=checksum
    )
    words = arrays["words"]
    if split == "random":
        train, others = stratified_split(words, 0.7, seed=0)
        parts = [train, *(others[half] for half in stratified_split(words[others], 0.5, seed=1))]
    else:
        parts = [np.flatnonzero(arrays["official"] == part) for part in range(len(_SPLITS))]
    for name, part in zip(_SPLITS, parts, strict=True):
        if not len(part):
            raise DataError(f"{archive} has no clip for the {name} part. Get the file again.")
    batches = _standardise_splits(arrays["features"], words, parts)
    sizes = SPEECH_COMMANDS.sizes if split == "random" else _get_sizes(archive, parts)
    return TaskData(replace(SPEECH_COMMANDS, sizes=sizes), *batches)


def read_features(archive: Path) -> Arrays:
    """Return features (N, 161, 20), words (N,) and official parts (N,), by word and file name.

    Raises:
        DataError: the archive does not hold what it should.
    """
    clips: list[tuple[int, str]] = []
    features: list[NDArray[np.float32]] = []
    lists: dict[str, set[str]] = {}
    for item in read_clips(archive):
        if not isinstance(item, Clip):
            lists[item[0]] = item[1]
        elif len(item.sound) == RATE:
            clips.append((item.word, item.name))
            features.append(compute_features(item.sound))
    missing = [file for file, part in LISTS.items() if part not in lists]
    if missing or not clips:
        lacks = missing[0] if missing else f"clip of {format_count(RATE, 'sample')}"
        raise DataError(f"{archive} has no {lacks}. Get the file again.")
    order = sorted(range(len(clips)), key=clips.__getitem__)
    names = [f"{WORDS[word]}/{name}" for word, name in clips]
    official = [1 if name in lists["valid"] else 2 * (name in lists["test"]) for name in names]
    return {
        "features": np.stack([features[index] for index in order]),
        "words": np.array([clips[index][0] for index in order], np.int64),
        "official": np.array([official[index] for index in order], np.int64),
    }


def compute_features(sound: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return the 20 coefficients of every frame of a clip of one second, (161, 20)."""
    cepstrum = mfcc(sound, rate=RATE, window=WINDOW, mels=MELS, coefficients=COEFFICIENTS)
    return cepstrum.astype(np.float32)


def _standardise_splits(
    features: NDArray[np.float32], words: NDArray[np.int64], parts: list[NDArray[np.int64]]
) -> list[SequenceBatch]:
    train = features[parts[0]]
    mean = train.mean((0, 1), dtype=np.float64)
    deviation = train.std((0, 1), ddof=1, dtype=np.float64) + 1e-5
    batches = []
    for part in parts:
        x = np.empty((len(part), STEPS, 1 + COEFFICIENTS), np.float32)
        x[..., 0] = np.arange(STEPS)
        x[..., 1:] = (features[part] - mean) / deviation
        batches.append(SequenceBatch(x=torch.from_numpy(x), y=torch.from_numpy(words[part])))
    return batches


def _get_sizes(archive: Path, parts: list[NDArray[np.int64]]) -> tuple[int, int, int]:
    train, valid, test = map(len, parts)
    clips = sum(SPEECH_COMMANDS.sizes)
    if train + valid + test != clips:
        raise DataError(
            f"{archive} has {format_count(train + valid + test, 'clip')} of one second, expected "
            f"{clips}. Get the "
            "file again."
        )
    return train, valid, test
