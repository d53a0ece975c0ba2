"""Read recordings of simulated robots, one array per file."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tauflow.errors import DataError


def read_rollout(path: Path, columns: int) -> NDArray[np.float32]:
    """Read and check one recording.

    Args:
        path: an ``.npy`` file, float64 (T, columns).
        columns: expected number of features.

    Returns:
        The recording in single precision, (T, columns).

    Raises:
        DataError: the file does not hold such an array, or a value is not finite.
    """
    try:
        recording: NDArray[np.float64] = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise DataError(f"{path} is not an array file ({error}); get the file again.") from error
    if recording.dtype != np.float64:
        raise DataError(
            f"{path} has dtype {recording.dtype}, expected float64; get the file again."
        )
    if recording.ndim != 2 or recording.shape[1] != columns or len(recording) < 2:
        raise DataError(
            f"{path} has shape {recording.shape}, expected (T, {columns}) with T of 2 or more; "
            "get the file again."
        )
    bad = np.argwhere(~np.isfinite(recording))
    if len(bad):
        row, column = bad[0]
        raise DataError(
            f"{path} holds {recording[row, column]} in row {row}, column {column}; "
            "expected finite numbers. Get the file again."
        )
    return recording.astype(np.float32)
