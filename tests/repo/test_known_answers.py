"""The processes and languages whose answers are known are what they say they are."""

import itertools
import sys

import numpy as np
import pytest
import torch
from scipy import stats
from sources import ROOT

sys.path.insert(0, str(ROOT))
from benchmarks import languages, truth_page
from benchmarks.processes import DIGESTS, END, PROCESSES, draw_streams, read_streams


def excite(t, times, branching, decay):
    age = t - times[times < t]
    return 0.2 + sum(
        (a * b * np.exp(-b * age)).sum() for a, b in zip(branching, decay, strict=True)
    )


def hazard_of(distribution, age):
    return distribution.pdf(age) / distribution.sf(age)


def last_before(t, times):
    return max(times[times < t], default=0.0)


def swing(t):
    return 1 + 0.99 * np.sin(2 * np.pi * t / 100)


def area(a, b):
    nodes, weights = np.polynomial.legendre.leggauss(20)
    return (b - a) / 2 * (weights * swing(a + (b - a) * (nodes + 1) / 2)).sum()


SIGMA = np.sqrt(np.log(37))
LOG_NORMAL = stats.lognorm(SIGMA, scale=np.exp(-(SIGMA**2) / 2))
GAMMA = stats.gamma(4, scale=0.25)
INTENSITIES = {
    "hawkes1": lambda t, times: excite(t, times, [0.8], [1]),
    "hawkes2": lambda t, times: excite(t, times, [0.4, 0.4], [1, 20]),
    "self_correcting": lambda t, times: np.exp(t - (times < t).sum()),
    "stationary_poisson": lambda t, times: 1.0,
    "stationary_renewal": lambda t, times: hazard_of(LOG_NORMAL, t - last_before(t, times)),
    "nonstationary_poisson": lambda t, times: swing(t),
    "nonstationary_renewal": lambda t, times: (
        hazard_of(GAMMA, area(last_before(t, times), t)) * swing(t)
    ),
}


@pytest.mark.parametrize("name", PROCESSES)
def test_the_likelihood_is_that_of_the_intensity_and_streams_come_from_it(name):
    (times,) = draw_streams(name, 1, seed=3)
    assert (np.diff(times) > 0).all()
    assert 0 < times[0] < times[-1] < END
    intensity = INTENSITIES[name]
    nodes, weights = np.polynomial.legendre.leggauss(40)
    hazards = []
    for low, high in itertools.pairwise([0.0, *times, END]):
        # nodes crowd at the last event, where some intensities change fast
        u = (nodes + 1) / 2
        at, slope = low + (high - low) * u**4, (high - low) * 4 * u**3
        rates = np.array([intensity(t, times) for t in at])
        hazards.append((weights / 2 * slope * rates).sum())
    events = sum(np.log(intensity(t, times)) for t in times)
    expected = events - sum(hazards)
    assert PROCESSES[name].log_likelihood(times) == pytest.approx(expected, rel=1e-4, abs=1e-3)
    assert stats.kstest(hazards[:-1], "expon").pvalue > 0.01


def test_a_file_of_the_repository_is_skipped_or_has_its_digest(tmp_path):
    assert read_streams(tmp_path, "taxi") is None
    (tmp_path / "taxi.pkl").write_bytes(b"another")
    with pytest.raises(ValueError, match=r"not the file of .* Get data/taxi\.pkl again"):
        read_streams(tmp_path, "taxi")
    assert set(PROCESSES) < set(DIGESTS)


def draw(name, T=23):
    task = languages.TASKS[name]
    x, y = task.draw(4, T, torch.Generator().manual_seed(0))
    assert x.max() < task.tokens
    assert y.max() < task.classes
    return x.tolist(), y.tolist()


def test_regular_languages_have_the_answers_of_their_automata():
    for x, y in zip(*draw("parity"), strict=True):
        assert y == [sum(x[: k + 1]) % 2 for k in range(len(x))]
    for x, y in zip(*draw("cycle"), strict=True):
        assert y[-1] == (x.count(2) - x.count(0)) % 5
    for x, y in zip(*draw("arithmetic"), strict=True):
        value = 0
        for k in range(0, len(x), 2):
            sign = "+-*"[x[k - 1] - 5] if k else "+"
            value = eval(f"(value {sign} {x[k]}) % 5")
            assert y[k] == value


def test_words_of_a5_are_products_of_even_permutations():
    even = [
        p for p in itertools.permutations(range(5)) if round(np.linalg.det(np.eye(5)[list(p)])) == 1
    ]
    assert len(even) == len(languages.make_product_table()) == 60
    matrices = [np.eye(5)[list(p)] for p in even]
    for x, y in zip(*draw("a5", 9), strict=True):
        product = np.eye(5)
        for token, answer in zip(x, y, strict=True):
            product = product @ matrices[token]
            assert (product == matrices[answer]).all()


def test_copying_asks_for_the_symbols_in_their_order():
    for x, y in zip(*draw("copying", 40), strict=True):
        assert [token for token in x[:32] if token < 8] == y[32:]
        assert x[32:] == [9] * 8
        assert set(y[:32]) == {languages.IGNORED}


def test_networks_have_the_same_budget():
    for name in languages.MODELS:
        model = languages.build(languages.TASKS["cycle"], name)
        used = sum(parameter.numel() for parameter in model.parameters())
        assert 0.8 * languages.BUDGET < used <= languages.BUDGET, name


def test_the_tables_show_means_over_seeds_and_states_that_overflow():
    row = {"task": "parity", "accuracy": 1.0, "longer_accuracy": None}
    rows = [
        {**row, "model": "slice"},
        *({**row, "model": "lstm", "longer_accuracy": share} for share in (0.5, 0.7)),
    ]
    line = truth_page.make_languages(rows).splitlines()[-1]
    cells = [cell.strip() for cell in line.split("|")[2:-1]]
    assert cells[:3] == ["100 / overflows", "100 ± 0 / 60 ± 14", "not run"]
    drawn = {"task": "hawkes1", "seed": 0, "streams": "drawn", "constant_rate_excess": 0.5}
    table = truth_page.make_events([{**drawn, "model": "s2p2", "excess": 0.01}])
    assert "| 0.500 | not run | 0.010 |" in table
