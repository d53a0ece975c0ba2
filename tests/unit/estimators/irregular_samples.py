"""A small problem: sequences of different lengths at irregular times."""

import numpy as np

SMALL = {"hidden_size": 6, "epochs": 3, "lr": 0.02, "random_state": 0, "backend": "reference"}
SMALL |= {"ensemble": 1}


def sequences(count=24, features=2, missing=0.0, seed=0):
    """Return sequences, their times, a class and a number of each."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(2, 7, count)
    X = [rng.normal(size=(n, features)) for n in lengths]
    t = [rng.exponential(600.0, n).cumsum() for n in lengths]
    y = np.array([x[:, 0].mean() for x in X])
    for x in X:
        x[rng.random(x.shape) < missing] = np.nan
    return X, t, np.where(y > 0, "up", "down"), y


def padded(parts, fill=0.0):
    """Return sequences as one array, and their lengths."""
    lengths = np.array([len(part) for part in parts])
    array = np.full((len(parts), lengths.max(), *parts[0].shape[1:]), fill)
    for row, part in zip(array, parts, strict=True):
        row[: len(part)] = part
    return array, lengths
