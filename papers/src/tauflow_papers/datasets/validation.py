"""What loading a data set must give: the shapes that its card states, and the content."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cache, wraps
from importlib import resources
from typing import Any

import torch
from torch import Tensor

from tauflow._internal.sanitize import format_count
from tauflow._internal.tensor_file import hash_tensors
from tauflow.batch import SequenceBatch
from tauflow.data.card import DatasetCard, TaskData
from tauflow.errors import DataError

DEFAULT = "default"
EVERYTHING, ORDER = "everything", "order(y)"
_REPORT = "Results would not be comparable; please report this."


Loader = Callable[..., TaskData]


def validate(name: str, loader: Loader) -> Loader:
    """Return a loader that raises :class:`DataError` if what it loads is not the data set.

    Args:
        name: of the data set.
        loader: called as ``loader(root, download=..., **options)``.
    """

    @wraps(loader)
    def load(root: Any = None, *, download: bool = True, **options: Any) -> TaskData:
        data = loader(root, download=download, **options)
        for part, batch in get_splits(data).items():
            _check_shapes(f"{name}, {part} part", batch, data.card)
        non_default = get_non_default_options(loader, options)
        check_content(name, data, get_content_digests(name), non_default)
        return data

    return load


def check_content(
    name: str, data: TaskData, digests: Mapping[str, str], options: Mapping[str, Any]
) -> None:
    """Raise :class:`DataError` unless the parts hold what they are known to hold.

    Nothing is known of options that no digest was taken for.

    Args:
        name: what to call the data set in messages.
        data: the task.
        digests: see :func:`get_content_digests`.
        options: those that differ from the defaults.
    """
    text = format_options(options)
    for key, expected in digests.items():
        described, names, part = key.split()
        if described != text:
            continue
        got = compute_content_digest(get_splits(data)[part], names.split(","))
        if got != expected:
            raise DataError(
                f"{name}, {part} part: the content of {names} has the SHA-256 {got[:12]}..., "
                f"expected {expected[:12]}.... {_REPORT}"
            )


def compute_content_digest(batch: SequenceBatch, names: Sequence[str]) -> str:
    """Return a SHA-256 over named tensors of a part.

    Args:
        batch: the part.
        names: of fields; ``"everything"`` for all that are there; ``"order(y)"`` for the places
            that the values of y take when sorted, which rounding does not change.
    """
    if list(names) == [EVERYTHING]:
        return hash_tensors(batch.tensors())
    return hash_tensors(
        {
            name: torch.unique(batch.y, return_inverse=True)[1]
            if name == ORDER
            else getattr(batch, name)
            for name in names
        }
    )


def format_options(options: Mapping[str, Any]) -> str:
    """Return options as one word: ``"default"``, or such as ``"length=32,split=by_time"``."""
    return ",".join(f"{key}={options[key]}" for key in sorted(options)) or DEFAULT


def get_non_default_options(
    loader: Callable[..., TaskData], options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the options that are not what the loader takes by default."""
    known = inspect.signature(loader).parameters
    return {key: value for key, value in options.items() if value != known[key].default}


def get_splits(data: TaskData) -> dict[str, SequenceBatch]:
    """Return the parts that there are, by name."""
    parts = {"train": data.train, "valid": data.valid, "test": data.test}
    return {name: batch for name, batch in parts.items() if batch is not None}


def _check_shapes(where: str, batch: SequenceBatch, card: DatasetCard) -> None:
    sequences, steps = batch.x.shape[:2]
    width = (card.input_size,) if card.image_size is None else card.image_size
    if tuple(batch.x.shape[2:]) != width:
        what = "features" if card.image_size is None else "images"
        raise DataError(
            f"{where}: x has shape {tuple(batch.x.shape)}, expected {what} of the size {width} in "
            f"({sequences}, {steps}, ...), as the card states. {_REPORT}"
        )
    shape = (sequences, steps) if card.per_step else (sequences,)
    shapes = [shape] if card.task == "classify" else [(*shape, card.target_size)]
    if card.task != "classify" and card.target_size == 1:
        shapes.append(shape)
    if tuple(batch.y.shape) not in shapes:
        is_classes = card.task == "classify"
        targets = "classes" if is_classes else format_count(card.target_size, "target")
        raise DataError(
            f"{where}: y has shape {tuple(batch.y.shape)}, expected {shapes[0]} for {targets} per "
            f"{'step' if card.per_step else 'sequence'}, as the card states. {_REPORT}"
        )
    if card.task != "regress":
        _check_classes(where, batch, card)


def _check_classes(where: str, batch: SequenceBatch, card: DatasetCard) -> None:
    y = batch.y
    if card.task == "classify" and (y.is_floating_point() or y.dtype is torch.bool):
        raise DataError(
            f"{where}: y has dtype {y.dtype}, expected integers, as the task is to classify. "
            f"{_REPORT}"
        )
    highest = card.target_size - 1 if card.task == "classify" else 1
    low, high = _compute_range(y)
    if (low < 0 or high > highest) and card.per_step:
        low, high = _compute_range(_select_known_targets(batch))  # padding may hold anything
    if low < 0 or high > highest:
        raise DataError(
            f"{where}: y holds {low:g} to {high:g}, expected 0 to {highest}, as the card states. "
            f"{_REPORT}"
        )


def _compute_range(values: Tensor) -> tuple[float, float]:
    if not values.numel():
        return 0.0, 0.0
    low, high = torch.aminmax(values)
    return low.item(), high.item()


def _select_known_targets(batch: SequenceBatch) -> Tensor:
    """Return the targets that count."""
    counts = batch.mask if batch.y_mask is None else batch.y_mask
    return batch.y if counts is None else batch.y[counts]


def get_content_digests(name: str) -> Mapping[str, str]:
    """Return the SHA-256 of what a data set should hold, from the file ``contents.sha256``.

    A key names the options that differ from the defaults, or ``"default"``, what is hashed, and
    the split: ``"default everything train"``, ``"split=by_time y test"``.

    Loading must give the same bits on every machine, so that only what is computed exactly is
    hashed. Standardised values depend on the order in which a mean is summed up, and values from
    splines, sines and normal numbers on the mathematical library; of such data the classes ``y``
    are hashed, or ``order(y)``, the positions of the values of y when sorted. Both tell every
    change of the split. ``ornstein-uhlenbeck`` and ``lane-keeping`` have nothing exact; ``har``,
    ``power``, ``person-activity`` and ``speech-commands`` are not free to copy or too large.
    """
    return _read_digests().get(name, {})


@cache
def _read_digests() -> dict[str, dict[str, str]]:
    text = (resources.files(__package__) / "contents.sha256").read_text(encoding="ascii")
    listed: dict[str, dict[str, str]] = {}
    for line in text.splitlines():
        digest, name, key = line.split(maxsplit=2)
        listed.setdefault(name, {})[key] = digest
    return listed
