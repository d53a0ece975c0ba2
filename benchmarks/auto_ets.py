"""AutoETS of statsforecast as a model of the board of pretrained forecasters.

It is no dependency of tauflow: ``pip install statsforecast``, then
``python -m benchmarks pretrained --model benchmarks.auto_ets:forecast``.
"""

import numpy as np

_POINTS = 400
_SEASONS = (4, 7, 12, 24)  # of more than 24 samples AutoETS fits none
_LEVELS = (20, 40, 60, 80)


def forecast(t: np.ndarray, y: np.ndarray, q: np.ndarray) -> np.ndarray | None:
    """Return quantiles 0.1 to 0.9, (Q, 9); ``None`` where times are not even or there are few.

    The season is the one of 4, 7, 12 and 24 samples at which values are correlated most.
    """
    gap = np.median(np.diff(t))
    steps = (q - t[-1]) / gap
    is_even = np.allclose(np.diff(t), gap, rtol=1e-3) and np.allclose(steps, steps.round())
    if not is_even or len(t) < 3 * _SEASONS[-1]:
        return None
    from statsforecast.models import AutoETS

    y = y[-_POINTS:]
    model = AutoETS(season_length=max(_SEASONS, key=lambda lag: _correlate(y, lag)))
    ahead = steps.round().astype(int)
    by_level = model.forecast(y=y, h=int(ahead[-1]), level=list(_LEVELS))
    below = [by_level[f"lo-{level}"] for level in reversed(_LEVELS)]
    above = [by_level[f"hi-{level}"] for level in _LEVELS]
    return np.stack([*below, by_level["mean"], *above], 1)[ahead - 1]


def _correlate(y: np.ndarray, lag: int) -> float:
    away = y - y.mean()
    return float((away[lag:] * away[:-lag]).sum())
