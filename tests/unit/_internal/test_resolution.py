"""Times whose time steps the rounding of their type has spoilt, told from those that are fine."""

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from tauflow._internal.time_precision import (
    find_precision_loss,
    is_precise_enough,
    spacing,
    to_torch_float_dtype,
)

HALF, SINGLE, DOUBLE = torch.float16, torch.float32, torch.float64


def lost(*sequences, dtype=SINGLE):
    """Return which sequence has lost its time steps in a type, ``None`` if none has."""
    rounded = [torch.as_tensor(times, dtype=DOUBLE).to(dtype) for times in sequences]
    rows = torch.cat([torch.full((len(times) - 1,), i) for i, times in enumerate(rounded)])
    ends = torch.cat([times[1:] for times in rounded])
    loss_of_digits = find_precision_loss(ends, torch.cat([times.diff() for times in rounded]), rows)
    return None if loss_of_digits is None else int(rows[loss_of_digits.place])


@pytest.mark.parametrize("dtype", [HALF, SINGLE, DOUBLE])
@given(number=st.floats(1e-3, 6e4))
def test_the_spacing_is_that_of_the_type(dtype, number):
    value = torch.tensor(number, dtype=dtype)
    above = torch.nextafter(value, torch.tensor(torch.inf, dtype=dtype))
    assert spacing(dtype, float(value)) == float(above.double() - value.double())


@example(start=6.875, scale=0.0, jitter=0.05, seed=0)
@given(
    start=st.floats(0, 9.5),
    scale=st.floats(-3, 3),
    jitter=st.sampled_from([0.05, 0.5]),
    seed=st.integers(0, 2**32 - 1),
)
def test_gaps_that_rounding_changes_are_refused_and_others_are_not(start, scale, jitter, seed):
    """Held against the exact times, which the function does not see.

    Whole numbers where the type has halves are taken for exact: that rounding made them whole by
    chance, all fifty, cannot be told from them.
    """
    chance = torch.Generator().manual_seed(seed)
    shares = 1 + jitter * (2 * torch.rand(50, generator=chance, dtype=DOUBLE) - 1)
    exact = 10**start + (10**scale * shares).cumsum(0)
    rounded = exact.float().double()
    error = float(((rounded.diff() - exact.diff()).abs() / exact.diff()).median())
    is_whole = bool((rounded == rounded.round()).all())
    if error > 0.02 and not (is_whole and spacing(SINGLE, float(rounded.max())) <= 0.5):
        assert lost(exact) == 0
    if error < 0.001:
        assert lost(exact) is None


@pytest.mark.parametrize("gap", [1.0, 0.1, 60.0, 3600.0])
def test_seconds_since_1970_do_not_fit_into_single_precision(gap):
    times = 1.7e9 + gap * np.arange(20)
    assert lost(times) == 0
    assert lost(times, dtype=DOUBLE) is None
    assert lost(times - times[0]) is None


def test_times_that_rounding_alone_has_made_equal_are_refused():
    assert lost(1.7e9 + np.arange(5)) == 0
    assert lost([2e5 + 0.3, 2e5 + 0.301]) == 0
    assert lost(np.arange(5.0), 1.7e9 + np.arange(5)) == 1


@pytest.mark.parametrize(
    "times",
    [
        0.1 * np.arange(1, 301),
        np.cumsum(np.random.default_rng(0).exponential(0.03, 1000)),
        np.sort(np.random.default_rng(1).uniform(0, 30, 3000)),
        np.array([29.99999, 30.0, 31.0, 32.5]),
        [5.0, 5.0, 5.0],
        [0.0, 0.0, 1.0, 1.0, 7.5],
        [1000.5, 1000.5, 1000.5],
        [-3.0, -1.0, 2.0],
        2e6 + np.arange(40),
        [738_000.0] * 4,
        [0.0] * 3,
        np.array([1e-30, 2e-30, 5e-30]),
    ],
)
def test_fine_times_raise_no_alarm(times):
    assert lost(times) is None


def test_one_tiny_gap_at_random_raises_no_alarm():
    """A short sequence among others may consist of one small time step; its error harms nothing."""
    others = [np.cumsum(np.random.default_rng(i).exponential(0.3, 100)) for i in range(5)]
    assert lost(*others, [30.0, 30.00001]) is None


def test_a_sequence_with_long_gaps_is_no_measure_for_others():
    assert lost(0.1 * np.arange(100), 0.1 * np.arange(90), [0.0, 1e5, 2.5e5]) is None


@pytest.mark.parametrize("dtype", [torch.bfloat16, HALF])
def test_whole_numbers_are_exact_in_half_precision_too(dtype):
    assert lost(np.arange(128), dtype=dtype) is None
    assert lost(np.linspace(0.1, 90, 300), dtype=dtype) == 0


def test_no_gap_is_no_loss():
    nothing = torch.zeros(0)
    assert find_precision_loss(nothing, nothing, nothing.long()) is None
    assert is_precise_enough(SINGLE, 1.7e9, 12_800.0)
    assert not is_precise_enough(SINGLE, 1.7e9, 12_799.0)
    assert not is_precise_enough(SINGLE, 10.0, 0.0)


def test_what_was_lost_is_said():
    precision_loss = find_precision_loss(
        torch.full((2,), 1.7e9), torch.zeros(2), torch.zeros(2).long()
    )
    assert precision_loss is not None
    assert precision_loss.describe("times", SINGLE) == (
        "times have dtype float32, in which numbers near 1.7e+09 lie 128 apart: rounding has "
        "changed most time steps by more than 1%, or to 0."
    )


def test_types_of_arrays():
    kinds = ("<f2", ">f4", "f8", np.longdouble, "i8", "M8[s]")
    expected = [HALF, SINGLE, DOUBLE, DOUBLE, None, None]
    assert [to_torch_float_dtype(np.dtype(kind)) for kind in kinds] == expected
