"""Skip tests that need downloaded files where these are missing."""

import functools
import hashlib
from pathlib import Path

import pytest

from tauflow.data.card import TaskData
from tauflow.data.registry import DATASETS, is_available, load_task
from tauflow.data.store import fetch_files


@functools.cache
def load_or_skip(name: str, **options) -> TaskData:
    if not is_available(name):
        pytest.skip(reason=f"{name} is not here; get it with 'tauflow data get {name}'")
    return load_task(name, download=False, **options)


def file_or_skip(name: str) -> Path:
    """Return the only file of a data set."""
    load_or_skip(name)
    (path,) = fetch_files(DATASETS[name], download=False)
    return path


def target_hashes(data: TaskData) -> list[str]:
    """Hash the targets of every part: their order shows in them, and integers do not round."""
    parts = [data.train, *([] if data.valid is None else [data.valid]), data.test]
    return [content_hash(part.y) for part in parts]


def content_hash(*tensors) -> str:
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]
