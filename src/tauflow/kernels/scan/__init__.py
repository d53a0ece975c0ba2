"""Linear diagonal recurrences over whole sequences, in parallel."""

from typing import Any, NamedTuple

Array = Any


class ScanGradients(NamedTuple):
    """Gradients of a scan, written by the loop from the last step to the first one.

    Args:
        x: (B, T, 2 K), of the factors and of what is added.
        first: (B, K), of the last state; becomes that of the first.
    """

    x: Array
    first: Array
