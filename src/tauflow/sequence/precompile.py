"""Compile kernels before they are needed, as when an image of a container is made."""

import time
from collections.abc import Callable

import torch

from tauflow.cells.registry import MODELS
from tauflow.kernels import KERNELS

from .modules import build


def precompile(
    *models: str, done: Callable[[str, float], object] | None = None
) -> dict[str, float]:
    """Compile, or read from disk, what models run on a CPU: forwards, backwards, as a stream.

    Compiled kernels are kept on disk for later processes of the same user on processors of the same
    kind, in the folder that ``NUMBA_CACHE_DIR`` names or in the user's cache.

    Args:
        *models: names of the catalog; by default one of every cell that has compiled loops, and
            one of those whose steps are recorded.
        done: called with a model's name and the seconds that it took, as soon as it is compiled.

    Returns:
        Seconds that each model took, by its name.

    Raises:
        UnknownNameError: no such model.
    """
    seconds: dict[str, float] = {}
    for name in models or _default_models():
        entry = MODELS[name]
        began = time.perf_counter()
        rnn = build(entry.name, 2, 4)
        x = torch.zeros(2, 16, 2)  # short sequences do without
        with torch.no_grad():
            rnn(x)
        rnn(x)[0].sum().backward()
        rnn.stream().step(x[0, :1], 1.0)
        seconds[entry.name] = time.perf_counter() - began
        if done is not None:
            done(entry.name, seconds[entry.name])
    return seconds


def _default_models() -> list[str]:
    """Return the first name in the catalog of every cell with compiled loops, and one more."""
    compiled_cells = {
        row.cell: None for row in KERNELS if row.backend == "numba" and row.device is None
    }
    first: dict[type, str] = {}
    for entry in MODELS.values():
        first.setdefault(entry.cell, entry.name)
    others = [name for cell, name in first.items() if cell not in compiled_cells]
    return [*(first[cell] for cell in compiled_cells), *others[:1]]
