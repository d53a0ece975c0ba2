r"""Mel-frequency cepstral coefficients of sound, as torchaudio computes them by default."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tauflow._internal.checks import check_at_least
from tauflow._internal.sanitize import format_count
from tauflow.errors import ArgumentError

Floats = NDArray[np.float64]
LOG_OFFSET = 1e-6  # added before the logarithm, so that silence has one


def mfcc(signal: Floats, *, rate: int, window: int, mels: int, coefficients: int) -> Floats:
    r"""Return the coefficients of every frame of a signal.

    With the power spectrum :math:`P` of frames under a periodic Hann window, taken every half
    window, the signal being mirrored at its ends:

    .. math::
        c_k = \sqrt{\tfrac{2 - [k = 0]}{M}} \sum_{m < M}
              \cos\left(\tfrac{\pi}{M} (m + \tfrac12) k\right)
              \log\left(10^{-6} + \sum_f F_{fm} P_f\right)

    Args:
        signal: (..., S), S greater than half the window.
        rate: samples per second.
        window: samples per frame, even.
        mels: M, number of filters :math:`F`, see :func:`mel_filters`.
        coefficients: how many to return, at most M.

    Returns:
        Coefficients, (..., 1 + S // (window // 2), coefficients).

    Raises:
        ArgumentError: the signal is too short, the window odd, or there are too few filters.
    """
    half = check_at_least(2, window=window) // 2
    if window % 2 or signal.shape[-1] <= half or coefficients > check_at_least(1, mels=mels):
        raise ArgumentError(
            f"mfcc: window={window} must be even, its half below the "
            f"{format_count(signal.shape[-1], 'sample')} of "
            f"the signal, and coefficients={coefficients} at most mels={mels}."
        )
    mirrored = np.pad(signal, [(0, 0)] * (signal.ndim - 1) + [(half, half)], mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(mirrored, window, axis=-1)[..., ::half, :]
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)
    power = np.abs(np.fft.rfft(frames * hann, axis=-1)) ** 2
    loudness = np.log(power @ mel_filters(rate, window, mels) + LOG_OFFSET)
    cepstrum: Floats = loudness @ _dct_matrix(mels, check_at_least(1, coefficients=coefficients))
    return cepstrum


@lru_cache(maxsize=8)
def mel_filters(rate: int, window: int, mels: int) -> Floats:
    r"""Return triangular filters, equally wide on the mel scale :math:`2595 \log_{10}(1 + f/700)`.

    Each rises from the middle of the one before, is 1 at its own middle, and falls to the middle of
    the next; together they reach from 0 to half the rate. With many filters and a short window the
    lowest may lie between two frequencies, and are zero.

    Args:
        rate: samples per second.
        window: samples per frame.
        mels: number of filters M.

    Returns:
        Weights, (1 + window // 2, M).
    """
    frequencies = np.linspace(0, rate / 2, window // 2 + 1)
    top = 2595 * np.log10(1 + rate / 2 / 700)
    middles = 700 * (10 ** (np.linspace(0, top, mels + 2) / 2595) - 1)
    low, middle, high = middles[:-2], middles[1:-1], middles[2:]
    rising = (frequencies[:, None] - low) / (middle - low)
    falling = (high - frequencies[:, None]) / (high - middle)
    weights: Floats = np.maximum(0, np.minimum(rising, falling))
    weights.setflags(write=False)
    return weights


def _dct_matrix(mels: int, coefficients: int) -> Floats:
    """Return the first columns of the orthonormal cosine transform, (mels, coefficients)."""
    order = np.arange(coefficients)
    waves = np.cos(np.pi / mels * (np.arange(mels)[:, None] + 0.5) * order)
    scaled: Floats = waves * np.sqrt(np.where(order == 0, 1, 2) / mels)
    return scaled
