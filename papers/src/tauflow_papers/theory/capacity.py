r"""How many random associations a threshold unit can store: Gardner's capacity, measured.

A network :math:`\xi^{t+1} = \mathrm{sign}(J \xi^t)` of N threshold units repeats a random sequence
if each unit separates the states that precede its +1 from those that precede its -1. The longest
sequence has :math:`T \sim 2N` steps, as many as a perceptron stores patterns.

Sources: Gardner 1988, "The space of interactions in neural network models"; Cover 1965,
"Geometrical and statistical properties of systems of linear inequalities"; Kim et al. 2022, "Gated
neural ODEs", Section 4 and Appendix C, for sequences.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from tauflow._internal.checks import check_at_least, check_one_of, check_positive, shape_error
from tauflow._internal.sanitize import format_count
from tauflow.errors import ArgumentError

PATTERNS = ("normal", "sequence")

_Floats = NDArray[np.float64]
_ROUNDING_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Separation:
    """Whether a plane through zero separates labelled patterns.

    Args:
        separable: whether there is one.
        weights: its normal, of length one; zero if no plane separates.
        margin: least distance of a pattern from the plane, on its right side; 0 without a plane.
        converged: whether the answer is certain. If not separable, a sum of patterns times labels
            with positive coefficients vanishes, which proves it.
        iterations: of the method.
    """

    separable: bool
    weights: Float[Tensor, " N"]
    margin: float
    converged: bool
    iterations: int


def separate(patterns: Float[Tensor, "P N"], labels: Tensor) -> Separation:
    r"""Search for a plane through zero that separates patterns by their labels.

    Of the points :math:`y_i x_i` a plane has all on one side unless their convex hull holds zero.
    The point of a cone nearest to :math:`(0, 1)`, over columns :math:`(y_i x_i, 1)`, tells which:
    it is reached if the hull holds zero, and what is missing is the normal of a plane if not. It is
    found in finitely many steps.

    Source: Lawson & Hanson 1974, "Solving least squares problems", Algorithm 23.10.

    Args:
        patterns: one per row.
        labels: +1 or -1 for each, (P,).

    Raises:
        ShapeError: the two do not fit together.
        ArgumentError: a label is neither +1 nor -1, or a pattern is not finite.
    """
    if patterns.ndim != 2 or labels.shape != patterns.shape[:1]:
        expected = f"({patterns.shape[0]},)"
        raise shape_error("separate", "labels", labels, expected, "Give one label per pattern.")
    y = labels.detach().double().cpu().numpy()
    if not bool((np.abs(y) == 1).all()):
        raise ArgumentError("separate: labels must be +1 or -1. Map them with 2 * labels - 1.")
    x = patterns.detach().double().cpu().numpy()
    if odd := int((~np.isfinite(x).all(axis=1)).sum()):
        raise ArgumentError(
            f"separate: {odd} of {format_count(len(x), 'pattern')} {'is' if odd == 1 else 'are'} "
            "not finite. Leave "
            "them out."
        )
    points = x * y[:, None] / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-300)
    cone = np.vstack([points.T, np.ones(len(points))])
    target = np.append(np.zeros(points.shape[1]), 1.0)
    coefficients, iterations, done = _project_onto_cone(cone, target)
    normal = cone[:-1] @ coefficients
    length = float(np.linalg.norm(normal))
    weights = normal / length if length > _ROUNDING_TOLERANCE else np.zeros_like(normal)
    margin = float((x * y[:, None] @ weights).min()) if len(x) else math.inf
    separable = bool(length > _ROUNDING_TOLERANCE and margin > 0)
    return Separation(
        separable,
        torch.from_numpy(weights if separable else np.zeros_like(weights)),
        margin if separable else 0.0,
        separable or (done and length <= math.sqrt(_ROUNDING_TOLERANCE)),
        iterations,
    )


def separable_fraction(patterns: int, neurons: int) -> float:
    r"""Return which fraction of all labellings of P patterns a plane in N dimensions separates.

    .. math:: 2^{1 - P} \sum_{k=0}^{N-1} \binom{P - 1}{k},

    exactly, for patterns in general position; 1/2 for P = 2 N. Source: Cover 1965, Theorem 1.
    """
    check_at_least(1, patterns=patterns)
    check_at_least(1, neurons=neurons)
    ways = sum(math.comb(patterns - 1, k) for k in range(min(neurons, patterns)))
    return float(Fraction(2 * ways, 2**patterns))


@dataclass(frozen=True)
class CapacityCurve:
    """Share of random associations that could be stored, by their number.

    Args:
        neurons: N, inputs of the unit.
        patterns: P, associations to store.
        fraction: of the trials in which a plane was found.
        error: standard error of the fraction.
        expected: the fraction by :func:`separable_fraction`.
        undecided: trials without a certain answer; not counted.
        trials: for each number of patterns.
    """

    neurons: int
    patterns: Int[Tensor, " M"]
    fraction: Float[Tensor, " M"]
    error: Float[Tensor, " M"]
    expected: Float[Tensor, " M"]
    undecided: Int[Tensor, " M"]
    trials: int

    @property
    def loads(self) -> Float[Tensor, " M"]:
        """Patterns for each neuron, P / N."""
        return self.patterns.double() / self.neurons

    @property
    def capacity(self) -> float:
        """Load at which half of the trials succeed, between the measured ones; NaN outside them."""
        loads, fraction = self.loads.tolist(), self.fraction.tolist()
        for at in range(len(loads) - 1):
            high, low = fraction[at], fraction[at + 1]
            if high >= 0.5 > low:
                return float(loads[at] + (high - 0.5) / (high - low) * (loads[at + 1] - loads[at]))
        return math.nan


def capacity_curve(
    neurons: int,
    *,
    loads: Sequence[float] = (1.0, 1.5, 1.75, 2.0, 2.25, 2.5, 3.0),
    trials: int = 100,
    patterns: str = "normal",
    seed: int = 0,
) -> CapacityCurve:
    """Measure how many random associations a threshold unit can store; the capacity is 2 N.

    Args:
        neurons: N.
        loads: patterns for each neuron to try, rising.
        trials: for each load.
        patterns: ``"normal"``: normal patterns with random labels; ``"sequence"``: the states of a
            random sequence of +1 and -1, labelled with the next value of one neuron, as a
            recurrent network has to store them.
        seed: of the patterns.
    """
    check_at_least(1, neurons=neurons)
    check_at_least(1, trials=trials)
    check_one_of(PATTERNS, patterns=patterns)
    if not loads or list(loads) != sorted(loads):
        raise ArgumentError(f"loads must be rising numbers, got {tuple(loads)}. Sort them.")
    counts = [max(1, round(check_positive(load=load) * neurons)) for load in loads]
    generator = torch.Generator().manual_seed(check_at_least(0, seed=seed))
    fractions, errors, undecided = [], [], []
    for count in counts:
        answers = []
        for _ in range(trials):
            separated = separate(*_sample_associations(patterns, count, neurons, generator))
            if separated.converged:
                answers.append(separated.separable)
        share = sum(answers) / len(answers) if answers else math.nan
        fractions.append(share)
        errors.append(math.sqrt(share * (1 - share) / len(answers)) if answers else math.nan)
        undecided.append(trials - len(answers))
    return CapacityCurve(
        neurons,
        torch.tensor(counts),
        torch.tensor(fractions, dtype=torch.float64),
        torch.tensor(errors, dtype=torch.float64),
        torch.tensor([separable_fraction(count, neurons) for count in counts]).double(),
        torch.tensor(undecided),
        trials,
    )


def _sample_associations(
    kind: str, count: int, neurons: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    if kind == "normal":
        x = torch.randn(count, neurons, generator=generator, dtype=torch.float64)
        return x, _sample_signs((count,), generator)
    sequence = _sample_signs((count + 1, neurons), generator)
    return sequence[:-1], sequence[1:, 0]


def _sample_signs(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return 2.0 * torch.randint(0, 2, shape, generator=generator).double() - 1.0


def _project_onto_cone(columns: _Floats, target: _Floats) -> tuple[_Floats, int, bool]:
    """Return the coefficients, not negative, of the point of a cone nearest to the target.

    Returns:
        The coefficients, iterations, and whether the method came to its end.
    """
    size = columns.shape[1]
    x = np.zeros(size)
    free = np.zeros(size, dtype=bool)
    most = 10 * size + 100
    for iteration in range(most):
        slope = columns.T @ (target - columns @ x)
        slope[free] = -math.inf
        if free.all() or slope.max() <= _ROUNDING_TOLERANCE:
            return x, iteration, True
        free[int(slope.argmax())] = True
        while True:
            trial = np.zeros(size)
            trial[free] = np.linalg.lstsq(columns[:, free], target, rcond=None)[0]
            negative = free & (trial <= 0)
            if not negative.any():
                x = trial
                break
            share = float((x[negative] / (x[negative] - trial[negative])).min())
            x = x + share * (trial - x)
            free &= x > 1e-14
            x[~free] = 0.0
            if not free.any():
                return x, iteration, False
    return x, most, False
