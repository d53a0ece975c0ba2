"""The bounds' formulas by hand, and measured lengths beside them."""

import math

import pytest
import torch

from tauflow.errors import ArgumentError, UnknownNameError
from tauflow_papers.theory import (
    NetworkDistribution,
    compare_with_bounds,
    length_lower_bound,
    trajectory_lengths,
)

# sigma_w^2 = 9, sigma_b^2 = 16: sigma_w = 3, sigma_b = 4, root of the sum 5; k = 15.
NUMBERS = {"width": 15, "weight_variance": 9.0, "bias_variance": 16.0, "input_length": 2.0}
BASE = 3 * math.sqrt(15) / 10  # 10 = sqrt(25 + 15 * 5)


def test_theorem_4_by_hand():
    bound = length_lower_bound("neural-ode", depth=0.5, layer=3, **NUMBERS)
    assert bound == pytest.approx(BASE**1.5 * 2.0)
    assert length_lower_bound("ct-rnn", depth=0.5, **NUMBERS) == 0.0  # sigma_w < sigma_b
    swapped = NUMBERS | {"weight_variance": 16.0, "bias_variance": 9.0}
    bound = length_lower_bound("ct-rnn", depth=2.0, **swapped)
    assert bound == pytest.approx((math.sqrt(15) / 10) ** 2 * 2.0)


def test_theorem_5_by_hand():
    arguments = {"depth": 4.0, "layer": 2, "latent_norm": 6.0, "time_step": 0.5, **NUMBERS}
    factor = 2.0 * (3 + 6 / 0.5)
    assert length_lower_bound("ltc", **arguments) == pytest.approx(BASE**8 * factor)
    draft = length_lower_bound("ltc", statement="draft", **arguments)
    assert draft == pytest.approx(BASE**2 * factor)
    released = length_lower_bound("ltc", statement="released", samples=50, **arguments)
    assert released == pytest.approx(BASE**2 * 2.0 * (3 + 6 / 50))


def test_the_bound_of_an_ltc_tends_to_a_constant_in_the_width():
    """Discussion IV says that it grows linearly: here not by a hundredth from 10^6 to 10^12."""
    numbers = {**NUMBERS, "depth": 2.0, "latent_norm": 6.0, "time_step": 0.5}
    narrow, wide = (length_lower_bound("ltc", **numbers | {"width": k}) for k in (10**6, 10**12))
    total = NUMBERS["weight_variance"] + NUMBERS["bias_variance"]
    base = math.sqrt(NUMBERS["weight_variance"] / math.sqrt(total))
    assert wide == pytest.approx(base**2 * (3 + 6 / 0.5) * NUMBERS["input_length"], rel=1e-6)
    assert 1 < wide / narrow < 1.01


def test_huge_bounds_are_infinite_and_bad_numbers_refused():
    huge = {**NUMBERS, "width": 10_000, "depth": 1e6}
    assert length_lower_bound("neural-ode", **huge) == math.inf
    with pytest.raises(UnknownNameError, match="statement='thesis' is unknown"):
        length_lower_bound("ltc", depth=1.0, statement="thesis", **NUMBERS)
    with pytest.raises(ArgumentError, match="depth must be a number of 0 or more"):
        length_lower_bound("ltc", depth=-1.0, **NUMBERS)


@pytest.mark.parametrize("model", ["neural-ode", "ct-rnn"])
def test_measured_lengths_stay_above_theorem_4(model):
    law = NetworkDistribution(
        width=25, layers=2, activation="hardtanh", weight_law="paper", tau_law="paper"
    )
    comparison = compare_with_bounds(trajectory_lengths(model, law, tries=5))
    assert comparison.share_above.tolist() == [1.0, 1.0]


def test_a_comparison_takes_its_numbers_from_the_measurement():
    law = NetworkDistribution(width=6, layers=2, weight_law="paper", tau_law="paper")
    result = trajectory_lengths("ltc", law, tries=3)
    comparison = compare_with_bounds(result, statement="draft")
    assert torch.equal(comparison.measured, result.lengths)
    base = math.sqrt(2 * 6) / math.sqrt(3 + 6 * math.sqrt(3))
    step = math.tau / 99
    for row in range(3):
        depth = float(result.depth()[row])
        for layer in range(2):
            pull = float(result.latent_norm[row, layer]) / min(step, depth)
            expected = base ** (layer + 1) * (math.sqrt(2) + pull) * result.input_length
            assert float(comparison.bound[row, layer]) == pytest.approx(expected)
    below = comparison.measured < comparison.bound
    torch.testing.assert_close(comparison.share_above, 1 - below.double().mean(dim=0))
