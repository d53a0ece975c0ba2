"""Evaluation mode for a while."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def evaluation_mode(module: nn.Module) -> Iterator[None]:
    """Put a module into evaluation mode for a while, and each part into its mode of before.

    Several threads may do so with a module that is in evaluation mode already.
    """
    trained = [part for part in module.modules() if part.training]
    if not trained:
        yield
        return
    try:
        module.eval()
        yield
    finally:
        for part in trained:
            part.training = True
