import itertools
import math

import matplotlib as mpl
import numpy as np
import pytest
import torch
from matplotlib import pyplot as plt
from scipy.optimize import linprog

from tauflow.errors import ArgumentError, ShapeError, UnknownNameError
from tauflow_papers.theory import capacity_curve, plot_capacity, separable_fraction, separate

F64 = torch.float64


def solved_by_linear_program(x, y):
    constraints = -(x * y[:, None]).numpy()
    bounds = [(None, None)] * x.shape[1]
    answer = linprog(np.zeros(x.shape[1]), A_ub=constraints, b_ub=-np.ones(len(x)), bounds=bounds)
    return answer.status == 0


@pytest.mark.parametrize("binary", [False, True])
def test_separation_agrees_with_a_linear_program(binary):
    generator, answers = torch.Generator().manual_seed(0), []
    for _ in range(120):
        n, p = (int(torch.randint(1, high, (1,), generator=generator)) for high in (10, 25))
        x = torch.randn(p, n, generator=generator, dtype=F64)
        x = x.sign() if binary else x
        y = torch.randn(p, generator=generator, dtype=F64).sign()
        separation = separate(x, y)
        assert separation.converged
        assert separation.separable is solved_by_linear_program(x, y)
        if separation.separable:
            assert ((x @ separation.weights) * y).min().item() == pytest.approx(separation.margin)
            assert separation.margin > 0
            assert separation.weights.norm().item() == pytest.approx(1.0)
        else:
            assert (separation.margin, separation.weights.abs().sum()) == (0.0, 0.0)
        answers.append(separation.separable)
    assert 30 < sum(answers) < 90


def test_a_known_case():
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]], dtype=F64)
    assert not separate(x, torch.ones(3)).separable  # the three surround zero
    separation = separate(x, torch.tensor([1.0, 1.0, -1.0]))
    torch.testing.assert_close(separation.weights, torch.full((2,), math.sqrt(0.5), dtype=F64))


@pytest.mark.parametrize(("patterns", "neurons"), [(5, 3), (6, 2), (4, 4), (3, 6)])
def test_the_fraction_is_that_of_all_labellings(patterns, neurons):
    x = torch.randn(patterns, neurons, generator=torch.Generator().manual_seed(1), dtype=F64)
    every = itertools.product([-1.0, 1.0], repeat=patterns)
    count = sum(separate(x, torch.tensor(labels)).separable for labels in every)
    assert separable_fraction(patterns, neurons) == pytest.approx(count / 2**patterns)


@pytest.mark.parametrize("neurons", [1, 7, 40])
def test_half_of_the_labellings_of_twice_as_many_patterns(neurons):
    assert separable_fraction(2 * neurons, neurons) == 0.5
    assert separable_fraction(neurons, neurons) == 1.0


@pytest.mark.sampled(2)
@pytest.mark.parametrize("patterns", ["normal", "sequence"])
def test_the_capacity_is_two_for_each_neuron(patterns):
    """20 neurons, 150 trials: four standard errors for each fraction, 0.15 for the capacity."""
    curve = capacity_curve(20, loads=(1.5, 2.0, 2.5), trials=150, patterns=patterns)
    assert curve.patterns.tolist() == [30, 40, 50]
    assert curve.undecided.sum() == 0
    spread = (curve.expected * (1 - curve.expected) / 150).sqrt()
    assert ((curve.fraction - curve.expected).abs() < 4 * spread).all()
    assert curve.expected[1] == 0.5
    assert curve.capacity == pytest.approx(2.0, abs=0.15)


def test_a_capacity_outside_the_loads_is_not_a_number():
    assert math.isnan(capacity_curve(5, loads=(0.5, 1.0), trials=3).capacity)


def test_picture():
    mpl.use("Agg")
    curve = capacity_curve(5, loads=(1.0, 2.0, 3.0), trials=10)
    ax = plot_capacity([curve])
    theory = ax.lines[-3].get_xydata()
    np.testing.assert_allclose(theory[:, 0], np.arange(5, 16) / 5)
    np.testing.assert_allclose(theory[5, 1], 0.5)
    (measured,) = ax.containers
    np.testing.assert_allclose(measured.lines[0].get_ydata(), curve.fraction)
    plt.close("all")


def test_bad_calls_are_refused():
    with pytest.raises(ShapeError, match="one label per pattern"):
        separate(torch.zeros(3, 2), torch.ones(2))
    with pytest.raises(ArgumentError, match=r"\+1 or -1"):
        separate(torch.zeros(3, 2), torch.zeros(3))
    for value in (math.nan, math.inf):
        with pytest.raises(ArgumentError, match="1 of 3 patterns is not finite"):
            separate(torch.tensor([[1.0, 2.0], [0.0, value], [3.0, 1.0]]), torch.ones(3))
    with pytest.raises(ArgumentError, match="rising"):
        capacity_curve(3, loads=(2.0, 1.0))
    with pytest.raises(UnknownNameError, match="normal, sequence"):
        capacity_curve(3, patterns="waves")
