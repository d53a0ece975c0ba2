"""Tasks that are generated: oscillating cells, and the parity of bits that come as events."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tauflow.data.card import DatasetCard
from tauflow_papers.datasets.synthetic.xor import PAD, encode_events

from .board import SPLIT, Board, Columns, flatten_sequences

Floats = NDArray[np.float64]
Derivative = Callable[[Floats], Floats]

SERIES, SAMPLES, MEASURED = 300, 40, 0.5
_NOISE = 0.05  # of a variable's deviation
_SUBSTEPS = 20  # of Runge-Kutta between two points of the grid
_STREAMS, _SHORTEST, _LONGEST = 2000, 4, 12


def simulate_repressilator(rng: np.random.RandomState) -> Floats:
    r"""Return paths of the repressilator on a grid of 200 points over 60 lifetimes of mRNA.

    .. math::
        \dot m_i = -m_i + \frac{\alpha}{1 + p_{i-1}^n} + \alpha_0, \qquad
        \dot p_i = -\beta\,(p_i - m_i), \qquad i = 1, 2, 3

    Source: Elowitz and Leibler 2000, "A synthetic oscillatory network of transcriptional
    regulators", Nature 403, Box 1. Parameters of each series are drawn around published ones.

    Returns:
        Logarithms of 1 + concentration, (series, 200, 6).
    """
    alpha = rng.uniform(100.0, 300.0, (SERIES, 1))
    beta = rng.uniform(1.0, 6.0, (SERIES, 1))
    power = rng.uniform(1.8, 2.4, (SERIES, 1))
    start = rng.uniform(0.0, 40.0, (SERIES, 6))

    def derive(state: Floats) -> Floats:
        m, p = state[:, :3], state[:, 3:]
        made = alpha / (1.0 + np.roll(p, 1, axis=1) ** power) + alpha / 1000.0
        return np.concatenate([made - m, beta * (m - p)], axis=1)

    return np.log1p(_integrate(derive, start, 60.0))


def simulate_mapk(rng: np.random.RandomState) -> Floats:
    r"""Return paths of a MAPK cascade with negative feedback, 200 points over 4,000 seconds.

    A kinase phosphorylates the next one twice, and the last one inhibits the first step:

    .. math::
        v_1 = \frac{V_1\, x_1}{(1 + x_8 / K_I)\,(K_1 + x_1)}

    with :math:`x_8` the doubly phosphorylated MAPK; all other rates are of Michaelis-Menten form.

    Source: Kholodenko 2000, "Negative feedback and ultrasensitivity can bring about oscillations
    in the mitogen-activated protein kinase cascades", Eur. J. Biochem. 267, Tables 1 and 2.
    Maximal rates of each series are the published ones times factors from 0.8 to 1.25.

    Returns:
        Concentrations of the five phosphorylated kinases in units of 100 nM, (series, 200, 5).
    """
    fast = np.array([2.5, 0.25, 0.75, 0.75, 0.5, 0.5])
    v1, v2, v5, v6, v9, v10 = (fast * rng.uniform(0.8, 1.25, (SERIES, 6))).T
    k3, k4, k7, k8 = (0.025 * rng.uniform(0.8, 1.25, (SERIES, 4))).T
    start = rng.uniform(0.0, 1.0, (SERIES, 5)) * np.array([90.0, 100.0, 100.0, 100.0, 100.0])

    def derive(state: Floats) -> Floats:
        a, b, bb, c, cc = state.T  # MKKK-P, MKK-P, MKK-PP, MAPK-P, MAPK-PP
        first, second, third = 100.0 - a, 300.0 - b - bb, 300.0 - c - cc
        r1 = v1 * first / ((1.0 + cc / 9.0) * (10.0 + first))
        r2 = v2 * a / (8.0 + a)
        r3, r4 = k3 * a * second / (15.0 + second), k4 * a * b / (15.0 + b)
        r5, r6 = v5 * bb / (15.0 + bb), v6 * b / (15.0 + b)
        r7, r8 = k7 * bb * third / (15.0 + third), k8 * bb * c / (15.0 + c)
        r9, r10 = v9 * cc / (15.0 + cc), v10 * c / (15.0 + c)
        change = (r1 - r2, r3 + r5 - r4 - r6, r4 - r5, r7 + r9 - r8 - r10, r8 - r9)
        return np.stack(change, axis=1)

    return _integrate(derive, start, 4000.0) / 100.0


def _integrate(derive: Derivative, state: Floats, duration: float, points: int = 200) -> Floats:
    """Return states at equidistant times, (series, points, variables), by classic Runge-Kutta."""
    h = duration / (points * _SUBSTEPS)
    states = []
    for _ in range(points):
        states.append(state)
        for _ in range(_SUBSTEPS):
            slope = derive(state)
            two = derive(state + h / 2 * slope)
            three = derive(state + h / 2 * two)
            four = derive(state + h * three)
            state = state + h / 6 * (slope + 2 * two + 2 * three + four)
    return np.stack(states, axis=1)


def measure_paths(paths: Floats, rng: np.random.RandomState) -> Columns:
    """Return noisy values of paths at times drawn from their grid, half of the values missing."""
    count, points, size = paths.shape
    places = np.sort(rng.uniform(size=(count, points)).argsort(axis=1)[:, :SAMPLES])
    values = np.take_along_axis(paths, places[..., None], axis=1)
    values = values + _NOISE * paths.std((0, 1)) * rng.standard_normal(values.shape)
    values[rng.uniform(size=values.shape) > MEASURED] = np.nan
    columns = {f"x{number}": values[..., number] for number in range(size)}
    return flatten_sequences(
        {"time": places.astype(np.float64), **columns}, np.ones(places.shape, np.bool_)
    )


def _make_ode_board(
    name: str,
    title: str,
    size: int,
    source: str,
    simulate: Callable[[np.random.RandomState], Floats],
) -> Board:
    def read(paths: list[Path]) -> Columns:
        rng = np.random.RandomState(0)
        return measure_paths(simulate(rng), rng)

    card = DatasetCard(
        name=name,
        title=title,
        task="regress",
        input_size=size + 1,
        target_size=size,
        time_unit="grid point",
        sizes=(210, 45, 45),
        source=f"generated; equations of {source}",
        licence="none needed (generated)",
        split=SPLIT,
        loss="mse",
        metric="mse",
        forecast=True,
        notes=(
            f"{SERIES} series with different parameters and initial states, at {SAMPLES} of "
            "200 grid points; half of the values are missing, the others have noise of 5 % of "
            "the standard deviation. Predict the next row; the time to it is an input.",
        ),
    )
    return Board(card, read, {"id": "sequence", "time": "time", "task": "next-step"})


def _read_parity(paths: list[Path]) -> Columns:
    rng = np.random.RandomState(0)
    lengths = rng.randint(_SHORTEST, _LONGEST + 1, 4 * _STREAMS)
    bits = rng.randint(0, 2, (len(lengths), PAD)) * (np.arange(PAD) < lengths[:, None])
    _, first = np.unique(np.c_[lengths, bits], axis=0, return_index=True)
    chosen = np.sort(first)[:_STREAMS]
    events = encode_events(bits[chosen], lengths[chosen])
    parity = np.array(["even", "odd"])[events.parity]
    columns = {
        "time": events.elapsed.cumsum(1).astype(np.float64),
        "bit": events.values.astype(np.float64),
        "elapsed": events.elapsed.astype(np.float64),
        "parity": parity,
    }
    return flatten_sequences(columns, events.mask)


PARITY = Board(
    DatasetCard(
        name="board-parity",
        title="Event parity",
        task="classify",
        input_size=2,
        target_size=2,
        targets=("even", "odd"),
        time_unit="bit",
        sizes=(1400, 300, 300),
        source="generated; after Lechner and Hasani 2020, event-based encoding of XOR",
        licence="none needed (generated)",
        split=SPLIT,
        loss="cross_entropy",
        metric="accuracy",
        per_step=False,
        notes=(
            "2,000 different streams of 4 to 12 bits, an entry for each "
            "bit that differs from the one before and for the last; is the number of ones even? "
            "The published task has up to 31 bits and 100,000 streams. The bits since the entry "
            "before are dt, and an input.",
        ),
    ),
    _read_parity,
    {"id": "sequence", "time": "time", "target": "parity", "time_unit": None, "scale": False},
)
REPRESSILATOR = _make_ode_board(
    "board-repressilator",
    "Repressilator",
    6,
    "Elowitz and Leibler 2000, Nature 403",
    simulate_repressilator,
)
MAPK = _make_ode_board(
    "board-mapk", "MAPK cascade", 5, "Kholodenko 2000, Eur. J. Biochem. 267", simulate_mapk
)
BOARDS = (PARITY, REPRESSILATOR, MAPK)
