"""Similarity of two sets of states, and of dynamics, against other formulas and invariances."""

import math

import numpy as np
import pytest
import scipy.spatial
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tauflow.analysis import (
    dynamical_similarity,
    linear_cka,
    participation_ratio,
    principal_components,
    procrustes_distance,
)
from tauflow.errors import ArgumentError, DtypeError, ShapeError

F64 = torch.float64
SEEDS = st.integers(0, 10_000)


def generator(seed):
    return torch.Generator().manual_seed(seed)


def random_states(seed, *shape):
    return torch.randn(*shape, dtype=F64, generator=generator(seed))


def random_rotation(seed, size):
    return torch.linalg.qr(random_states(seed, size, size))[0]


def moved(states, seed, scale):
    """Return states rotated or reflected, scaled and shifted."""
    shift = 5 * random_states(seed + 1, states.shape[-1])
    return scale * states @ random_rotation(seed, states.shape[-1]) + shift


@settings(max_examples=30, deadline=None)
@given(SEEDS, st.floats(1e-3, 1e3), st.integers(2, 9), st.integers(1, 6), st.integers(1, 6))
def test_rotation_scale_and_shift_change_nothing(seed, scale, n, p, q):
    a, b = random_states(seed, n, p), random_states(seed + 7, n, q)
    other = moved(a, seed, scale)
    for measure in (linear_cka, procrustes_distance):
        assert measure(other, b) == pytest.approx(measure(a, b), abs=1e-9)
        assert measure(b, a) == pytest.approx(measure(a, b), abs=1e-12)
    assert linear_cka(a, other) == pytest.approx(1)
    assert procrustes_distance(a, other) < 1e-6
    assert 0 <= linear_cka(a, b) <= 1 + 1e-12
    assert 0 <= procrustes_distance(a, b) <= math.sqrt(2)
    assert participation_ratio(other) == pytest.approx(participation_ratio(a))
    assert 1 - 1e-9 <= participation_ratio(a) <= min(n - 1, p) + 1e-9


@settings(max_examples=20, deadline=None)
@given(SEEDS)
def test_procrustes_distance_is_a_metric(seed):
    a, b, c = (random_states(seed + 20_000 * k, 7, 3 + k) for k in range(3))
    direct = procrustes_distance(a, c)
    assert direct <= procrustes_distance(a, b) + procrustes_distance(b, c) + 1e-12


@pytest.mark.parametrize("seed", range(3))
def test_procrustes_distance_is_that_of_scipy(seed):
    a = random_states(seed, 20, 4)
    b = a + random_states(seed + 10, 20, 4)
    disparity = scipy.spatial.procrustes(a.numpy(), b.numpy())[2]
    distance = procrustes_distance(a.reshape(4, 5, 4), b.reshape(4, 5, 4))
    assert 1 - (1 - distance**2 / 2) ** 2 == pytest.approx(disparity)


def centring(n):
    return np.eye(n) - 1 / n


@pytest.mark.parametrize(("n", "p", "q"), [(30, 4, 6), (6, 4, 9), (5, 20, 30)])
def test_cka_is_the_alignment_of_centred_kernels(n, p, q):
    a, b = random_states(0, n, p), random_states(1, n, q)
    K, L = (centring(n) @ (s @ s.T).numpy() @ centring(n) for s in (a, b))
    expected = np.trace(K @ L) / math.sqrt(np.trace(K @ K) * np.trace(L @ L))
    assert linear_cka(a, b) == pytest.approx(expected)


def unbiased_hsic(K, L):
    """As Song et al. 2012 write it, with the diagonals removed."""
    n, ones = len(K), np.ones(len(K))
    K, L = (M - np.diag(np.diag(M)) for M in (K, L))
    middle = (ones @ K @ ones) * (ones @ L @ ones) / ((n - 1) * (n - 2))
    return (np.trace(K @ L) + middle - 2 / (n - 2) * (ones @ K @ L @ ones)) / (n * (n - 3))


@pytest.mark.parametrize(("n", "p", "q"), [(30, 4, 6), (12, 20, 30)])
def test_debiased_cka_is_made_of_unbiased_estimates(n, p, q):
    a = random_states(0, n, p) + 3  # the estimator needs no centring
    b = torch.cat([a, random_states(1, n, q - p)], dim=1)
    K, L = ((s @ s.T).numpy() for s in (a, b))
    expected = unbiased_hsic(K, L) / math.sqrt(unbiased_hsic(K, K) * unbiased_hsic(L, L))
    assert linear_cka(a, b, debiased=True) == pytest.approx(expected)


def test_debiased_cka_of_few_unrelated_states_is_near_zero():
    pairs = [(random_states(2 * k, 20, 300), random_states(2 * k + 1, 20, 300)) for k in range(20)]
    biased = np.mean([linear_cka(a, b) for a, b in pairs])
    debiased = np.mean([linear_cka(a, b, debiased=True) for a, b in pairs])
    assert biased > 0.9
    assert abs(debiased) < 0.05


def test_participation_ratio_counts_dimensions():
    states = random_states(0, 5, 400, 6) * torch.tensor([3.0, 2.0, 1.0, 0.3, 0.1, 0.0], dtype=F64)
    variances = principal_components(states).variances
    expected = float(variances.sum() ** 2 / variances.square().sum())
    assert participation_ratio(states) == pytest.approx(expected)
    line = torch.outer(torch.linspace(-1, 1, 9, dtype=F64), random_states(1, 4))
    assert participation_ratio(line) == pytest.approx(1)
    corners = torch.cat([torch.eye(5), -torch.eye(5)])
    assert participation_ratio(corners * 1e30) == pytest.approx(5)


def trajectories(operator, *, starts=None, trials=20, samples=15):
    """States of a linear system, by default from random starts."""
    states = [random_states(0, trials, len(operator)) if starts is None else starts]
    for _ in range(samples - 1):
        states.append(states[-1] @ operator.T)
    return torch.stack(states, dim=1)


def rotating(angle, decay):
    """An operator whose planes turn by an angle and its double, slowly decaying."""
    blocks = []
    for turn in (angle, 2 * angle):
        cosine, sine = math.cos(turn), math.sin(turn)
        blocks.append(decay * torch.tensor([[cosine, -sine], [sine, cosine]], dtype=F64))
    return torch.block_diag(*blocks)


def test_dynamics_are_compared_whatever_the_coordinates():
    system = trajectories(rotating(0.3, 0.98))
    same = dynamical_similarity(system, moved_linearly(system), rank=4, starts=5)
    other = dynamical_similarity(system, trajectories(rotating(0.9, 0.98)), rank=4, starts=5)
    assert same.converged
    assert same.angle < 1e-6
    assert same.distance < 1e-6
    assert other.angle > 0.3
    Q = same.rotation
    torch.testing.assert_close(Q @ Q.T, torch.eye(4, dtype=F64))
    A, B = same.operators
    torch.testing.assert_close(Q @ B @ Q.T, A)
    expected = torch.linalg.eigvals(rotating(0.3, 0.98))
    eigenvalues = torch.linalg.eigvals(A)
    torch.testing.assert_close(eigenvalues.abs().sort().values, expected.abs().sort().values)
    torch.testing.assert_close(eigenvalues.angle().sort().values, expected.angle().sort().values)


def moved_linearly(states):
    """Rotate, reflect and scale states, in more dimensions."""
    wide = torch.nn.functional.pad(states, (0, 3))
    return 7 * wide @ random_rotation(3, wide.shape[-1])


def test_of_symmetric_operators_the_spectra_alone_differ():
    """Hoffman & Wielandt 1953: to pair sorted eigenvalues is the best that rotations can do."""
    first = torch.tensor([0.99, 0.9, 0.2], dtype=F64)
    second = torch.tensor([0.95, 0.3, 0.1], dtype=F64)
    Q = random_rotation(1, 3)
    # starts along all axes alike leave the fitted operators symmetric
    runs = [
        trajectories(operator, starts=torch.eye(3, dtype=F64))
        for operator in (Q @ torch.diag(first) @ Q.T, torch.diag(second))
    ]
    similarity = dynamical_similarity(*runs, rank=3)
    assert similarity.converged
    assert similarity.distance == pytest.approx(float((first - second).norm()))
    assert similarity.angle == pytest.approx(
        math.acos(float(first @ second / (first.norm() * second.norm())))
    )


def test_delays_recover_what_one_neuron_hides():
    full = trajectories(rotating(0.3, 0.98), trials=10, samples=40)
    seen = full @ random_states(4, 4, 1)
    similarity = dynamical_similarity(full, seen, rank=4, delays=6, starts=5)
    expected = torch.linalg.eigvals(rotating(0.3, 0.98)).angle().sort().values
    for operator in similarity.operators:
        angles = torch.linalg.eigvals(operator).angle().sort().values
        torch.testing.assert_close(angles, expected, rtol=1e-6, atol=1e-6)


def test_one_seed_gives_one_result():
    a, b = random_states(0, 4, 30, 5), random_states(1, 6, 20, 7)
    first, second, other = (
        dynamical_similarity(a, b, rank=5, starts=3, seed=seed) for seed in (1, 1, 2)
    )
    torch.testing.assert_close(first.search_angles, second.search_angles)
    torch.testing.assert_close(first.rotation, second.rotation)
    assert not torch.allclose(first.search_angles, other.search_angles)
    assert first.search_angles.shape == (3,)
    assert first.angle == first.search_angles.min()
    back = dynamical_similarity(b, a, rank=5)
    forth = dynamical_similarity(a, b, rank=5)
    assert back.angle == pytest.approx(forth.angle, abs=1e-6)


@pytest.mark.parametrize("measure", [linear_cka, procrustes_distance])
def test_states_that_cannot_be_compared_are_refused(measure):
    a = random_states(0, 6, 3)
    with pytest.raises(ShapeError, match=r"a has the samples \(6,\), and b \(5,\)"):
        measure(a, a[:5])
    with pytest.raises(ArgumentError, match="all states of b are equal"):
        measure(a, torch.ones(6, 3))
    with pytest.raises(ArgumentError, match="at least two states, all finite"):
        measure(a.where(a > 0, math.nan), a)
    with pytest.raises(DtypeError, match="b"):
        measure(a, torch.ones(6, 3, dtype=torch.int64))
    with pytest.raises(ShapeError, match="Give several states"):
        measure(a[0], a[0])


def test_too_few_samples_and_wrong_ranks_are_refused():
    a = random_states(0, 3, 2)
    with pytest.raises(ArgumentError, match="at least 4 samples, got 3"):
        linear_cka(a, a, debiased=True)
    with pytest.raises(
        ArgumentError, match="states must be at least two states, all finite; got 1"
    ):
        participation_ratio(a[:1])
    runs = random_states(0, 2, 5, 3)
    with pytest.raises(ArgumentError, match="embedding of a is only 3"):
        dynamical_similarity(runs, runs, rank=4)
    with pytest.raises(ArgumentError, match="with delays=6 and rank=2"):
        dynamical_similarity(runs, runs, rank=2, delays=6)
    with pytest.raises(ShapeError, match=r"\(B, T, S\)"):
        dynamical_similarity(runs[0], runs, rank=2)


@pytest.mark.parametrize("width", [40, 200])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rounding_is_no_dimension(width, dtype):
    states = [random_states(0, 10, 4)]
    for step in range(60):
        states.append(0.95 * states[-1] @ random_rotation(1, 4) + random_states(step + 2, 10, 4))
    a = (torch.stack(states, 1) @ random_states(100, 4, width)).to(dtype)
    b = (a.float() @ random_rotation(101, width).float()).to(dtype)
    with pytest.raises(ArgumentError, match=r"embedding of a is only 4\. Lower rank to 4"):
        dynamical_similarity(a, a, rank=6)
    angle = dynamical_similarity(a, b, rank=4, starts=5).angle
    assert angle < 10 * torch.finfo(dtype).eps ** 0.5
    at_rest = 3 + torch.finfo(torch.float32).eps * torch.randint(-1, 2, (20, 5))
    with pytest.raises(ArgumentError, match="equal up to rounding"):
        participation_ratio(at_rest)
