"""Many float arrays in one, which a compiled function takes at the cost of two."""

from typing import Any, NamedTuple

import numpy as np

Array = Any
_ALIGNMENT = 16  # floats in the widest vector
_AXES = 4


class SharedMemory(NamedTuple):
    """Arrays one after the other.

    Args:
        floats: (K,), all entries.
        places: (arrays, 6): where each array starts and ends, and its shape, filled up with ones in
            front.
        views: the arrays, on the memory of ``floats``.
    """

    floats: Array
    places: Array
    views: list[Array]


def share(arrays: list[Array]) -> SharedMemory:
    """Copy arrays of up to four axes into one memory."""
    starts = np.cumsum([0] + [-(-a.size // _ALIGNMENT) * _ALIGNMENT for a in arrays])
    floats = np.zeros(starts[-1], np.float32)
    places = np.ones((len(arrays), 2 + _AXES), np.int64)
    views = []
    for place, start, array in zip(places, starts, arrays, strict=False):
        end = start + array.size
        place[:2], place[2 + _AXES - array.ndim :] = (start, end), array.shape
        views.append(floats[start:end].reshape(array.shape))
        views[-1][...] = array
    return SharedMemory(floats, places, views)
