"""Integer functions are what they stand for, to within their last digits."""

import numpy as np
import pytest

from tauflow.export.c_code.fixed_ops import INTEGERS, run_table, scale_gap
from tauflow.export.c_code.fixed_step import pack_gap

NUMPY = {name: function for name, (function, _) in INTEGERS.items()}
RNG = np.random.default_rng(0)
MOST = 2**30


def test_tanh_and_sigmoid():
    z = np.arange(-40_000, 40_000)
    for name, q, exact in (
        ("tanh", 12, np.tanh),
        ("sigmoid", 11, lambda v: 1 / (1 + np.exp(-v))),
    ):
        values = NUMPY[name](z) / 32768
        assert np.abs(values - exact(z / 2.0**q)).max() < 2e-4
        assert (np.diff(values) >= 0).all()


def test_exponential():
    x = RNG.integers(-(2**20) + 1, 2**19, 10_000)
    for q in (15, 10, 4):
        exact = np.minimum(np.exp(x / 65536) * 2.0**q, 32767)
        values = NUMPY["exp"](x, q, 32767)
        assert np.abs(values - exact).max() <= 1 + 3e-4 * 32767


def test_products_with_a_gap_keep_their_digits_however_short_or_long_it_is():
    gap = 10.0 ** RNG.uniform(-6, 6, 10_000)
    m, e = pack_gap(gap)
    assert ((m >= 16384) & (m <= 32767)).all()
    a = RNG.integers(-65535, 65536, 10_000)
    for q in (0, 10, -8):
        exact = np.clip(a * gap * 2.0**-q, -MOST, MOST)
        values = NUMPY["times"](a, m, e, q, MOST)
        assert (np.abs(values - exact) <= 1 + 1e-4 * np.abs(exact)).all()
    assert pack_gap(np.zeros(1)) == (0, 0)


def test_gaps_times_constants():
    m, e = pack_gap(10.0 ** RNG.uniform(-6, 6, 1000))
    factor = 0.37
    exponent = int(np.floor(np.log2(factor))) - 14
    new_m, new_e = scale_gap(m, e, round(factor * 2.0**-exponent), exponent)
    assert (new_m <= 32767).all()
    np.testing.assert_allclose(new_m * 2.0**new_e, m * 2.0**e * factor, rtol=3e-4)


def test_division_keeps_digits_of_large_and_small_numbers():
    a, b = (RNG.integers(1, 2**31, 10_000) >> RNG.integers(0, 31, 10_000) for _ in range(2))
    b = np.maximum(b, 1) * RNG.choice([-1, 1], 10_000)
    exact = np.clip(a / b * 2.0**8, -32767, 32767)
    values = NUMPY["divide"](a, b, 8, 32767)
    assert (np.abs(values - exact) <= 1 + 1e-4 * np.abs(exact)).all()
    assert NUMPY["divide"](np.array([5, -5, 0]), np.zeros(3, int), 8, 99).tolist() == [99, -99, 0]


def test_the_semi_implicit_step_stays_between_the_state_and_its_target():
    count = 10_000
    v = RNG.integers(-(2**29), 2**29, count)
    target = RNG.integers(-32767, 32768, count)
    rate = RNG.integers(1, 2**30, count) >> RNG.integers(0, 30, count)
    gap = 10.0 ** RNG.uniform(-5, 5, count)
    m, e = pack_gap(gap)
    r = gap * rate / 2**10
    exact = v + (target * 32768.0 - v) * r / (1 + r)
    values = NUMPY["relax"](v, target, rate, m, e, 10, MOST)
    assert np.abs(values - exact).max() < 2e-4 * MOST
    low, high = np.minimum(v, target << 15), np.maximum(v, target << 15)
    assert ((values >= low - 2**15) & (values <= high + 2**15)).all()
    still = NUMPY["relax"](v, target, rate, 0 * m, e, 10, MOST)
    assert (still == v).all()


def test_tables_are_linear_between_their_entries():
    table = np.rint(1000 * np.sqrt(np.arange(257))).astype(np.int64)
    v = np.arange(-50, 257 * 16)
    exact = np.interp(np.clip(v, 0, 256 * 16 - 1) / 16, np.arange(257), table)
    assert np.abs(run_table(table, v, 0, 4) - exact).max() <= 1


@pytest.mark.parametrize("s", [0, 1, 5, 31])
def test_shifts_round_to_the_nearest(s):
    v = np.append(RNG.integers(-(2**31), 2**31, 1000), [-(2**31), 2**31 - 1])
    assert (NUMPY["shr"](v, s) == np.floor(v / 2.0**s + 0.5 * (s > 0))).all()
