"""Skip tests that need downloaded files where there are none."""

import functools
import hashlib

import pytest

from tauflow.data.card import TaskData
from tauflow.data.catalog import available, load_task


@functools.cache
def load_or_skip(name: str) -> TaskData:
    if not available(name):
        pytest.skip(reason=f"{name} is not here; get it with 'tauflow data get {name}'")
    return load_task(name, download=False)


def content_hash(*tensors) -> str:
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]
