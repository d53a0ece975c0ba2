"""Point processes whose intensity is known, and streams of them.

The seven synthetic processes of Shchur et al. 2020, "Fast and flexible temporal point processes
with triangular maps", Section 6.2, with the parameters of its public repository, drawn here by
other means; and the files of that repository, where they are at hand.
"""

import hashlib
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from scipy.optimize import brentq

Floats = NDArray[np.float64]
END = 100.0
"""Streams are observed from 0 to it."""
_SWING = 0.99
_SIGMA = math.sqrt(math.log(37))
_LOG_NORMAL = stats.lognorm(s=_SIGMA, scale=math.exp(-(_SIGMA**2) / 2))  # mean 1, sd 6
_GAMMA = stats.gamma(4, scale=1 / 4)  # mean 1

REPOSITORY = "https://github.com/shchur/triangular-tpp"
DIGESTS = {
    "hawkes1": "045af2fe2b86292caa7dcd1501e81e492e63c39974ceb3131a8fc38a8a327b2e",
    "hawkes2": "a793699a9117ac2d093ec67b4c63319c89ec7bd574965806c63b0c0c04bf0d07",
    "nonstationary_poisson": "9e619b88228df1ad8e7605c3b60ecefe893b864ce01e5f6b77d342a18842713d",
    "nonstationary_renewal": "8d2d59afeb623889e70f4e2e00e8022b102e4f974c6ab87314cf07d547a86e9a",
    "pubg": "f03574a1aae139f1bfeb6d654096ee2a0ad9e82bdfe541920d93a51f03e76a84",
    "reddit_askscience_comments": (
        "4e2278fe4a90106302235aa331ea52d21b71a180353c7107630087bf651cd901"
    ),
    "self_correcting": "b3c420f02b1abf158e0aef05be1f748945b819ffb88a583617fb2ae9db468000",
    "stationary_poisson": "1eabf72f0948f052648ae1ef4ac287c782033c2d5c794089c9b34fbfadf497a2",
    "stationary_renewal": "a4ef5725af99db9e0012ef3547c2f9833e257ba118c4c370f7d335babe344509",
    "taxi": "a395608f3ebc41e42c14778048426cc8ed443c130b1a64173a450877462a4505",
    "twitter": "28b312c8e5b5ba28c949ef342364460f626e5089c8333b59e20c91195a9590df",
    "yelp_airport": "16c9d7a6c23197f6053b620b6831d216e5e44aef2c16f46c3c2452a750b6b88e",
    "yelp_mississauga": "70b82847ea477e8049f70ac494fedc11c19d6b3562bb3e3955014c3696e66a0d",
}
"""SHA-256 of ``data/NAME.pkl`` of the repository, whose licence is MIT."""


@dataclass(frozen=True)
class Process:
    """A point process on [0, ``END``].

    Args:
        draw: a stream of event times, (T,), by a generator.
        log_likelihood: of such a stream, with nothing between its last event and the end.
    """

    draw: Callable[[np.random.Generator], Floats]
    log_likelihood: Callable[[Floats], float]


def _make_hawkes(base: float, branching: Sequence[float], decay: Sequence[float]) -> Process:
    """Return a process of rate base + sum over events and j of a_j b_j exp(-b_j age)."""

    def draw(random: np.random.Generator) -> Floats:
        generation = random.uniform(0, END, random.poisson(base * END))
        times = [generation]
        while len(generation):  # each event has Poisson(a_j) children of kind j
            children = [
                np.repeat(generation, counts) + random.exponential(1 / b, counts.sum())
                for a, b in zip(branching, decay, strict=True)
                for counts in [random.poisson(a, len(generation))]
            ]
            generation = np.concatenate(children)
            generation = generation[generation < END]
            times.append(generation)
        return np.sort(np.concatenate(times))

    def log_likelihood(t: Floats) -> float:
        a, b = np.array(branching), np.array(decay)
        excited, total = np.zeros(len(a)), 0.0
        for gap in np.diff(t, prepend=0.0):
            excited *= np.exp(-b * gap)
            total += math.log(base + excited.sum())
            excited += a * b
        compensator = base * END - (a * np.expm1(-b * (END - t[:, None]))).sum()
        return total - float(compensator)

    return Process(draw, log_likelihood)


def _draw_self_correcting(random: np.random.Generator) -> Floats:
    """Return a stream of rate exp(t - number of events so far)."""
    times: list[float] = []
    t = 0.0
    while True:
        # the integral of exp(s - n) from t on reaches an exponential draw
        t = len(times) + math.log(math.exp(t - len(times)) + random.exponential())
        if t >= END:
            return np.array(times)
        times.append(t)


def _log_self_correcting(t: Floats) -> float:
    count = np.arange(len(t) + 1)
    bounds = np.concatenate([[0.0], t, [END]])
    compensator = np.exp(bounds[1:] - count) - np.exp(bounds[:-1] - count)
    return float((t - count[:-1]).sum() - compensator.sum())


def _warp(t: Floats) -> Floats:
    """Return the integral from 0 to t of 1 + 0.99 sin(2 pi s / END)."""
    warped: Floats = t + _SWING * END / (2 * np.pi) * (1 - np.cos(2 * np.pi * t / END))
    return warped


def _make_renewal(gaps: Any, *, is_warped: bool) -> Process:
    """Return a process of independent intervals, of a distribution, in time or in warped time."""
    rate = (lambda t: 1 + _SWING * np.sin(2 * np.pi * t / END)) if is_warped else np.ones_like
    warp = _warp if is_warped else np.asarray
    end = float(warp(np.float64(END)))

    def draw(random: np.random.Generator) -> Floats:
        times = np.zeros(0)
        while not len(times) or times[-1] < end:
            more = gaps.rvs(size=256, random_state=random)
            times = np.concatenate([times, times[-1:].sum() + more.cumsum()])
        times = times[times < end]
        if not is_warped:
            return times
        return np.array([brentq(lambda t, s=s: _warp(t) - s, 0, END) for s in times])

    def log_likelihood(t: Floats) -> float:
        s = warp(t)
        total = gaps.logpdf(np.diff(s, prepend=0.0)).sum() + np.log(rate(t)).sum()
        return float(total + gaps.logsf(end - (s[-1] if len(s) else 0.0)))

    return Process(draw, log_likelihood)


PROCESSES = {
    "hawkes1": _make_hawkes(0.2, (0.8,), (1.0,)),
    "hawkes2": _make_hawkes(0.2, (0.4, 0.4), (1.0, 20.0)),
    "self_correcting": Process(_draw_self_correcting, _log_self_correcting),
    "stationary_poisson": _make_renewal(stats.expon(), is_warped=False),
    "stationary_renewal": _make_renewal(_LOG_NORMAL, is_warped=False),
    "nonstationary_poisson": _make_renewal(stats.expon(), is_warped=True),
    "nonstationary_renewal": _make_renewal(_GAMMA, is_warped=True),
}


def draw_streams(name: str, count: int, *, seed: int) -> list[Floats]:
    """Return streams of a process."""
    random = np.random.default_rng(seed)
    return [PROCESSES[name].draw(random) for _ in range(count)]


def measure_entropy(name: str, streams: Sequence[Floats]) -> float:
    """Return the negative log-likelihood per event of the true process."""
    total = sum(PROCESSES[name].log_likelihood(times) for times in streams)
    return -total / sum(map(len, streams))


def read_streams(folder: Path, name: str) -> tuple[list[Floats], float] | None:
    """Return the streams of a file of the repository and their end, or None if there is no file.

    Raises:
        ValueError: the file has another content than the published one.
    """
    path = folder / f"{name}.pkl"
    if not path.is_file():
        return None
    if hashlib.sha256(path.read_bytes()).hexdigest() != DIGESTS[name]:
        raise ValueError(f"{path} is not the file of {REPOSITORY}. Get data/{name}.pkl again.")
    # The files hold NumPy arrays; nothing else of them may run.
    array, number = np.zeros(0), np.float64(0)
    safe = [np.ndarray, np.dtype, *(type(np.dtype(type_name)) for type_name in "fdlO")]
    safe += [
        (array.__reduce__()[0], "numpy.core.multiarray._reconstruct"),
        (number.__reduce__()[0], "numpy.core.multiarray.scalar"),
    ]
    with warnings.catch_warnings(), torch.serialization.safe_globals(safe):
        warnings.simplefilter("ignore")
        content = torch.load(path, map_location="cpu", weights_only=True)
    streams = [
        np.asarray(sequence["arrival_times"], np.float64) for sequence in content["sequences"]
    ]
    return streams, float(content["t_max"])
