"""MNIST as sequences: row by row, or as the events of a pixel stream that changes."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from tauflow._internal.checks import check_at_least, check_within
from tauflow.batch import SequenceBatch
from tauflow.data.card import DatasetCard, TaskData
from tauflow.data.store import fetch_files, read_checksums
from tauflow.errors import DataError
from tauflow_papers.datasets.cache import load_or_parse

from .idx import read_idx

SIDE = 28
CLASSES = 10
TRAIN_SIZE, TEST_SIZE = 60_000, 10_000
HOLDOUT = 0.1
BRIGHTNESS_THRESHOLD = 128
STEPS = 256
_VERSION = 1

SEQ_MNIST = DatasetCard(
    name="seq-mnist",
    title="MNIST, row by row",
    task="classify",
    input_size=SIDE,
    target_size=CLASSES,
    time_unit="row",
    sizes=(54_000, 6_000, TEST_SIZE),
    source=(
        "LeCun, Cortes and Burges, The MNIST database of handwritten digits; protocol of Hasani, "
        "Lechner et al. 2021, Liquid Time-constant Networks, Table 3"
    ),
    licence="CC BY-SA 3.0 as commonly stated",
    split="official training and test images; the last tenth of the training images validates",
    loss="cross_entropy",
    metric="accuracy",
    targets=tuple("0123456789"),
    per_step=False,
    folder="mnist",
    base_url="https://ossci-datasets.s3.amazonaws.com/mnist/",
    files=read_checksums("tauflow_papers.datasets.real", "mnist"),
    notes=(
        "28 steps of 28 pixels, divided by 255; the answer is read after the last row.",
        "There is no dt: every time step is one row.",
        "The writers of the validation images are among those of the training images; the "
        "official test images have other writers.",
    ),
)

EVENT_MNIST = replace(
    SEQ_MNIST,
    name="event-mnist",
    title="MNIST, events",
    input_size=1,
    time_unit="256 pixels",
    sizes=(TRAIN_SIZE, 0, TEST_SIZE),
    source=(
        "LeCun, Cortes and Burges, The MNIST database of handwritten digits; protocol of Lechner "
        "and Hasani 2020, Learning Long-Term Dependencies in Irregularly-Sampled Time Series, "
        "Table 4"
    ),
    split="official training and test images; no validation part",
    notes=(
        "Pixels above 128 are 1, others 0, read row by row. A step is a pixel that differs from "
        "the one before it (always the first); its dt is the number of pixels since the previous "
        "step, counting from the start of the image, divided by 256.",
        "Unlike in event-coded XOR there is no step at the end, so the length of the last run is "
        "lost.",
        "Padded to 256 steps as published; images have 53 on average and at most 105, so that "
        "steps=105 gives the same results in less time. Padding has mask false, and 0 in x and dt.",
        "The paper has no validation part; the option holdout=0.1 takes the last tenth of the "
        "training images.",
    ),
)


def load_seq_mnist(
    root: str | Path | None = None, *, download: bool = True, holdout: float = HOLDOUT
) -> TaskData:
    """Load MNIST with a row of pixels per step.

    Args:
        root: where the files are.
        download: whether to fetch missing files.
        holdout: fraction of the training images, taken from their end, that validates.

    Raises:
        ArgumentError: ``holdout`` is not between 0 and 0.5.
        DataError: a file does not hold the images or labels of MNIST.
        DataNotFoundError, ChecksumError: see :func:`tauflow.data.store.fetch_files`.
    """
    check_within(0.0, 0.5, holdout=holdout)
    train, test = (
        SequenceBatch(x=torch.from_numpy(images / np.float32(255)), y=torch.from_numpy(labels))
        for images, labels in read_mnist(fetch_files(SEQ_MNIST, root, download=download))
    )
    return _make_task(SEQ_MNIST, train, test, holdout)


def load_event_mnist(
    root: str | Path | None = None,
    *,
    download: bool = True,
    holdout: float = 0.0,
    steps: int = STEPS,
) -> TaskData:
    """Load MNIST with a step per change of the pixel stream.

    Args:
        root: where the files are.
        download: whether to fetch missing files.
        holdout: fraction of the training images, taken from their end, that validates.
        steps: length to pad to; longer streams are cut off.

    Raises:
        ArgumentError: ``holdout`` is not between 0 and 0.5, or ``steps`` is below 1.
        DataError: a file does not hold the images or labels of MNIST.
        DataNotFoundError, ChecksumError: see :func:`tauflow.data.store.fetch_files`.
    """
    check_within(0.0, 0.5, holdout=holdout)
    check_at_least(1, steps=steps)
    paths = fetch_files(EVENT_MNIST, root, download=download)
    arrays = load_or_parse(EVENT_MNIST, paths, _VERSION, lambda: _load_events(paths))
    train, test = (_make_event_batch(arrays, part, steps) for part in ("train", "test"))
    return _make_task(EVENT_MNIST, train, test, holdout)


def read_mnist(
    paths: list[Path],
) -> list[tuple[NDArray[np.uint8], NDArray[np.int64]]]:
    """Return images (N, 28, 28) and labels (N,) of the training and of the test part.

    Args:
        paths: the four files; their names tell them apart.

    Raises:
        DataError: a file does not hold the images or labels of MNIST.
    """
    by_name = {path.name: path for path in paths}
    parts = []
    for stem, size in (("train", TRAIN_SIZE), ("t10k", TEST_SIZE)):
        images_path = by_name[f"{stem}-images-idx3-ubyte.gz"]
        labels_path = by_name[f"{stem}-labels-idx1-ubyte.gz"]
        images, labels = read_idx(images_path, 3), read_idx(labels_path, 1)
        for path, array, shape in (
            (images_path, images, (size, SIDE, SIDE)),
            (labels_path, labels, (size,)),
        ):
            if array.shape != shape:
                raise DataError(
                    f"{path} has shape {array.shape}, expected {shape}. Get the file again."
                )
        if labels.max() >= CLASSES:
            row = int(np.argmax(labels >= CLASSES))
            raise DataError(
                f"{labels_path} holds the label {labels[row]} in entry {row}, expected 0 to 9. "
                "Get the file again."
            )
        parts.append((images, labels.astype(np.int64)))
    return parts


def encode_changes(
    pixels: NDArray[np.bool_],
) -> tuple[NDArray[np.uint8], NDArray[np.int32], NDArray[np.int64]]:
    """Return the pixels that differ from the one before, and how long ago that was.

    Args:
        pixels: (N, P).

    Returns:
        For all images one after the other: the pixel of every step and the pixels since the
        previous step, (S,); and the number of steps of every image, (N,).
    """
    previous = np.empty_like(pixels)
    previous[:, 1:] = pixels[:, :-1]
    previous[:, 0] = ~pixels[:, 0]  # the first pixel is always a change
    changed = pixels != previous
    images, positions = np.nonzero(changed)
    first = np.diff(images, prepend=-1) != 0
    before = np.where(first, -1, np.roll(positions, 1))
    counts = changed.sum(1)
    return (
        pixels[changed].astype(np.uint8),
        (positions - before).astype(np.int32),
        counts.astype(np.int64),
    )


def _load_events(paths: list[Path]) -> dict[str, NDArray[np.generic]]:
    arrays: dict[str, NDArray[np.generic]] = {}
    for part, (images, labels) in zip(("train", "test"), read_mnist(paths), strict=True):
        pixels = (images > BRIGHTNESS_THRESHOLD).reshape(len(images), -1)
        values, elapsed, counts = encode_changes(pixels)
        arrays[f"{part}_values"] = values
        arrays[f"{part}_elapsed"] = elapsed
        arrays[f"{part}_counts"] = counts
        arrays[f"{part}_labels"] = labels
    return arrays


def _make_event_batch(
    arrays: dict[str, NDArray[np.generic]], split: str, steps: int
) -> SequenceBatch:
    counts = arrays[f"{split}_counts"].astype(np.int64)
    step = np.arange(int(counts.max()))
    is_full = step < counts[:, None]
    x, dt = (np.zeros((len(counts), max(steps, len(step))), np.float32) for _ in range(2))
    x[:, : len(step)][is_full] = arrays[f"{split}_values"]
    dt[:, : len(step)][is_full] = arrays[f"{split}_elapsed"].astype(np.float32) / STEPS
    mask = np.arange(steps) < counts[:, None]
    return SequenceBatch(
        x=torch.from_numpy(x[:, :steps, None].copy()),
        y=torch.from_numpy(arrays[f"{split}_labels"].astype(np.int64)),
        dt=torch.from_numpy(dt[:, :steps].copy()),
        mask=torch.from_numpy(mask),
    )


def _make_task(
    card: DatasetCard, train: SequenceBatch, test: SequenceBatch, holdout: float
) -> TaskData:
    held = int(holdout * TRAIN_SIZE)
    left = TRAIN_SIZE - held
    return TaskData(
        replace(card, sizes=(left, held, TEST_SIZE)),
        train=train[:left],
        valid=train[left:] if held else None,
        test=test,
    )
