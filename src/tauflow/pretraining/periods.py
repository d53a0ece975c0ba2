"""Periods of irregular series, by a periodogram of values spread on a fine grid."""

import numpy as np
from numpy.typing import NDArray

from .shared_draws import Floats

MAX_CELLS = 4096
_CELLS_PER_STEP, _CELLS_PER_POINT, _OVERSAMPLING = 4, 16, 4


def compute_periodogram(u: Floats, r: Floats, step: Floats, cells: int) -> tuple[Floats, Floats]:
    """Return frequencies and the share of the variance that each explains, (B, F) both.

    Values are shared out between the two cells of a grid around each time, and the grid goes
    through a Fourier transform, so that the cost grows with the points and not with their product
    with the frequencies.

    Args:
        u: times, (B, T), increasing.
        r: values around zero, (B, T).
        step: a usual short time step, (B,): frequencies reach up to half a cycle in it. Of spans of
            more than 1024 such time steps, or 4 to a point, they reach less far.
        cells: of the grid over each span.

    Source: Press & Rybicki 1989, with linear in place of higher-order spreading.
    """
    batch, _ = u.shape
    span = u[:, -1] - u[:, 0]
    cell = np.maximum(step / _CELLS_PER_STEP, span / cells)
    place = (u - u[:, :1]) / cell[:, None]
    left = np.minimum(place.astype(np.int64), cells - 1)
    part = place - left
    size = _OVERSAMPLING * cells
    width = cells + 1
    flat = (left + width * np.arange(batch)[:, None]).ravel()
    grid = np.bincount(flat, ((1 - part) * r).ravel(), batch * width)
    grid += np.bincount(flat + 1, (part * r).ravel(), batch * width + 1)[: batch * width]
    frequencies = size // (2 * _CELLS_PER_STEP) + 1
    spectrum = np.fft.rfft(grid.reshape(batch, width), size, axis=1)[:, 1:frequencies]
    frequency = np.arange(1, frequencies) / (size * cell[:, None])
    power = 2 * (spectrum.real**2 + spectrum.imag**2)
    power /= u.shape[1] * (r**2).sum(1, keepdims=True) + 1e-12
    # One and a half cycles at least, and no more than half a cycle in the usual short time step.
    is_seen = (frequency * span[:, None] >= 1.5) & (frequency * step[:, None] <= 0.5 + 1e-9)
    return frequency, np.where(is_seen, np.minimum(power, 1.0), 0.0)


def _count_cells(u: Floats, step: Floats) -> NDArray[np.int64]:
    """Return how many cells the grid of each series has, (B,), whatever the others are."""
    most = int(np.clip(_CELLS_PER_POINT * u.shape[1], 64, MAX_CELLS))
    steps = (u[:, -1] - u[:, 0]) / step
    cells = np.clip(np.ceil(steps * _CELLS_PER_STEP), 16, most).astype(int)
    return np.array([_round_up(count) for count in cells.tolist()])


def _round_up(cells: int) -> int:
    """Return the next power of two, or three quarters of it, whose Fourier transform is fast."""
    power = 1 << (cells - 1).bit_length()
    return 3 * power // 4 if cells <= 3 * power // 4 else power


def find_period(u: Floats, r: Floats, step: Floats) -> tuple[Floats, Floats]:
    """Return the frequency of the highest peak and its share of the variance, (B,) both.

    The frequency is read between those of the grid by a parabola through the peak.
    """
    cells, peaks = _count_cells(u, step), np.empty((2, len(u)))
    for count in np.unique(cells).tolist():
        alike = cells == count
        peaks[:, alike] = _find_peak(*compute_periodogram(u[alike], r[alike], step[alike], count))
    return peaks[0], peaks[1]


def _find_peak(frequency: Floats, power: Floats) -> tuple[Floats, Floats]:
    """Return the frequency of the highest peak and its height, (B,) both."""
    best, rows = power.argmax(1), np.arange(len(power))
    top = power[rows, best]
    before = power[rows, np.maximum(best - 1, 0)]
    after = power[rows, np.minimum(best + 1, power.shape[1] - 1)]
    bend = before - 2 * top + after
    is_peak = (bend < -1e-12) & (before > 0) & (after > 0)
    shift = np.where(is_peak, 0.5 * (before - after) / np.where(is_peak, bend, 1.0), 0.0)
    spacing = frequency[:, 0]
    return frequency[rows, best] + np.clip(shift, -0.5, 0.5) * spacing, top
