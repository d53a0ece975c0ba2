"""Data sets by name."""

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tauflow._internal.registry import Registry, suggest_name
from tauflow.errors import DataError, OptionError

from . import store
from .card import DatasetCard, TaskData
from .datasets.pendulum import PENDULUM, load_pendulum

Loader = Callable[..., TaskData]

DATASETS: Registry[DatasetCard] = Registry("data set")
"""Cards of the data sets; add one of your own with :func:`register`."""

_LOADERS: Registry[Loader] = Registry("data set")


def register(card: DatasetCard, loader: Loader) -> None:
    """Add a data set.

    Args:
        card: its description.
        loader: called as ``loader(root, download=..., **options)``.

    Raises:
        ArgumentError: the name is taken.
    """
    DATASETS.add(card.name, card)
    _LOADERS.add(card.name, loader)


def load_task(
    name: str, *, root: str | Path | None = None, download: bool = True, **options: Any
) -> TaskData:
    """Load a data set, of the sizes that its card states.

    Args:
        name: one of :data:`DATASETS`.
        root: where its files are; by default the folder that ``TAUFLOW_DATA`` names, then the
            user's cache.
        download: whether to fetch files that are missing.
        options: of the data set's own loader.

    Raises:
        UnknownNameError: no such data set.
        OptionError: the data set has no such option.
        DataNotFoundError: a file is missing, and may not or cannot be downloaded.
        ChecksumError: a file's bytes are not the published ones.
        DataError: a file does not hold what it should, or the task is not what its card states.
    """
    loader = _LOADERS[name]
    _check_options(name, loader, options)
    data = loader(root, download=download, **options)
    if data.sizes != data.card.sizes:
        raise DataError(
            f"{name}: loading gave {data.sizes} training, validation and test sequences, expected "
            f"{data.card.sizes}. Results would not be comparable; please report this."
        )
    return data


def has_noncausal_inputs(name: str, options: Mapping[str, Any]) -> bool:
    """Whether the inputs of a data set, loaded with these options, are made of later samples too.

    Raises:
        UnknownNameError: no such data set.
    """
    defaults = {key: p.default for key, p in inspect.signature(_LOADERS[name]).parameters.items()}
    chosen = {**defaults, **options}
    return any(chosen.get(key) == value for key, value in DATASETS[name].noncausal_options.items())


def is_available(name: str, root: str | Path | None = None) -> bool:
    """Whether a data set can be loaded without a download; files are not opened.

    Raises:
        UnknownNameError: no such data set.
    """
    card = DATASETS[name]
    return not card.files or store.find_data_folder(card, root) is not None


def get_local_size(name: str, root: str | Path | None = None) -> int | None:
    """Return how large the files of a data set are that are here; ``None`` if they are not.

    Generated data have no files, 0 bytes.

    Raises:
        UnknownNameError: no such data set.
    """
    card = DATASETS[name]
    files = store.list_local_files(card, root) if card.files else []
    return None if card.files and not files else sum(file.stat().st_size for file in files)


def fetch_dataset(name: str, root: str | Path | None = None) -> Path | None:
    """Download and verify a data set, unless it is available locally.

    Returns:
        Its folder, or ``None`` if the data set is generated and has no files.

    Raises:
        UnknownNameError: no such data set.
        DataNotFoundError: a file cannot be downloaded.
        ChecksumError: a file's bytes are not the published ones.
        DataError: a file without a published digest does not hold the data set.
    """
    card = DATASETS[name]
    if not card.files:
        return None
    if not all(card.files.values()):
        load_task(name, root=root)  # only reading such a file tells whether it is the right one
    return store.fetch_files(card, root)[0].parent


def _check_options(name: str, loader: Loader, options: dict[str, Any]) -> None:
    known = [key for key in inspect.signature(loader).parameters if key not in ("root", "download")]
    for key in options:
        if key not in known:
            have = f"It has: {', '.join(known)}." if known else "It has none."
            raise OptionError(
                f"data set {name!r} has no option {key!r}.{suggest_name(key, known)} {have}"
            )


register(PENDULUM, load_pendulum)
