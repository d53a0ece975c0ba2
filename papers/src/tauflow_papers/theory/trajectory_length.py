r"""Trajectory length: how a random continuous-time network deforms a simple input curve.

The states that a network takes along the input are projected onto their first two principal
components; the length of that planar curve measures how complex the network's response is:

.. math::
    l(z) = \int \lVert dz / dt \rVert \, dt

The components are those of the points that the solver puts out, so that a stretch where it takes
short steps weighs more; lengths from different solvers differ by some percent for that reason.

Source: Hasani et al. 2021, "Liquid Time-constant Networks", Figs. 2 and 3 and Table 2; Raghu et al.
2017, "On the expressive power of deep neural networks", for the measure.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tauflow._internal.checks import check_at_least, check_one_of, shape_error
from tauflow.analysis.projection import principal_components
from tauflow.errors import ArgumentError

from .driven_paths import PathSettings, solve_path
from .random_networks import (
    MODEL_NAMES,
    InputSignal,
    NetworkDistribution,
    RandomNetworks,
    check_model_names,
    circular_input,
    sample_random_networks,
)
from .variable_step import SolverPath


@dataclass(frozen=True, eq=False)
class LatentTrajectory:
    """One network's response in the plane of its first two principal components.

    Args:
        t: times of the solver's output points.
        scores: one curve per layer.
    """

    t: Float[Tensor, " P"]
    scores: Float[Tensor, "n P 2"]


@dataclass(frozen=True)
class DepthSummary:
    """Computational depths of many networks.

    Neurons with a tiny time constant make some networks very stiff (see the released law of tau in
    :class:`NetworkDistribution`), so that the mean follows a few of them; the median and the
    quartiles are the stable numbers.

    Args:
        mean: the mean.
        std: the standard deviation, divided by the number of networks.
        median: the median.
        low: the lower quartile.
        high: the upper quartile.
    """

    mean: float
    std: float
    median: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class TrajectoryLengths:
    """Lengths of the latent trajectories of one model, over many random networks.

    Args:
        model: one of :data:`~tauflow_papers.theory.random_networks.MODEL_NAMES`.
        law: what the networks were drawn from.
        solver: how they were solved.
        signal: the input.
        lengths: length of every network's latent trajectory in each layer.
        explained: share of the variance that each component explains, the largest first.
        latent_norm: mean distance of the latent trajectory from its centre.
        accepted: steps the solver took for each network, all layers together.
        output_points: points it put out, without the initial state.
        converged: whether the solver reached the end; else lengths are those of the part solved.
        examples: the first networks' trajectories.
    """

    model: str
    law: NetworkDistribution
    solver: PathSettings
    signal: InputSignal
    lengths: Float[Tensor, "R n"]
    explained: Float[Tensor, "R n k"]
    latent_norm: Float[Tensor, "R n"]
    accepted: Int[Tensor, " R"]
    output_points: Int[Tensor, " R"]
    converged: Bool[Tensor, " R"]
    examples: tuple[LatentTrajectory, ...]

    @property
    def input_length(self) -> float:
        """Length of the input curve."""
        return float(arc_length(self.signal.values))

    def depth(self, convention: str = "released") -> Float[Tensor, " R"]:
        """Return the computational depth of each network.

        Args:
            convention: ``"paper"``: solver steps per input interval, as defined. ``"released"``:
                output points per input sample, as the code behind Table 2 counts; as ode45 puts
                out four points per step, that is four times as much.
        """
        samples = len(self.signal.t)
        if check_one_of(("released", "paper"), convention=convention) == "released":
            return self.output_points.double() / samples
        return self.accepted.double() / (samples - 1)

    def depth_summary(self, convention: str = "released") -> DepthSummary:
        """Summarise the depths of all networks, as Table 2 of the paper and more robustly."""
        depth = self.depth(convention)
        shares = torch.tensor([0.25, 0.5, 0.75], dtype=depth.dtype)
        low, median, high = depth.quantile(shares).tolist()
        std = float(depth.std(correction=0))
        return DepthSummary(float(depth.mean()), std, median, low, high)


@dataclass(frozen=True, eq=False)
class LengthStudy:
    """Trajectory lengths while one setting varies.

    Args:
        vary: the setting's name.
        values: its values.
        results: for each model, one result per value.
    """

    vary: str
    values: tuple[Any, ...]
    results: dict[str, tuple[TrajectoryLengths, ...]]


def arc_length(curve: Float[Tensor, "*batch P D"]) -> Float[Tensor, "*batch"]:
    """Return the summed length of the chords between consecutive points."""
    chords: Tensor = torch.linalg.vector_norm(curve.diff(dim=-2), dim=-1)
    return chords.sum(dim=-1)


def principal_scores(
    points: Float[Tensor, "P k"], components: int = 2
) -> tuple[Float[Tensor, "P c"], Float[Tensor, " k"]]:
    """Project points onto their first principal components.

    The sign of a component is arbitrary; here its largest loading is positive. Points that do not
    differ explain nothing: all shares are 0.

    Args:
        points: the points, one per row; they are centred first.
        components: how many, at most k; missing ones (k = 1) are filled with zeros.

    Returns:
        The scores, and the share of the variance that each of the k components explains.
    """
    if points.ndim != 2:
        raise shape_error("principal_scores", "points", points, "(P, k)", "One row per point.")
    principal = principal_components(points)
    scores = (points.double() - principal.mean) @ principal.axes[:components].T
    missing = max(0, components - scores.shape[1])
    return torch.nn.functional.pad(scores, (0, missing)).to(points), principal.explained.to(points)


def trajectory_lengths(
    model: str,
    law: NetworkDistribution | None = None,
    *,
    tries: int = 100,
    solver: str | PathSettings = "ode45",
    signal: InputSignal | None = None,
    seed: int = 0,
    examples: int = 1,
    at_once: int = 25,
) -> TrajectoryLengths:
    """Measure the trajectory lengths of random networks of one model.

    The draws depend on the seed alone, so that the three models are compared on the same weights,
    biases and time constants. The defaults are the conventions of the released code (its figures:
    25 neurons, one layer).

    Args:
        model: ``"neural-ode"``, ``"ct-rnn"`` or ``"ltc"``.
        law: the networks; by default :class:`NetworkDistribution` as it is.
        tries: networks to draw.
        solver: a name of :data:`~tauflow_papers.theory.driven_paths.PATH_SOLVERS`, or its settings.
        signal: the input; by default a circle of 100 samples.
        seed: of the draws.
        examples: how many of the networks' latent trajectories to keep.
        at_once: networks solved side by side; bounds the memory. The networks stay the same, but
            sums are rounded otherwise for another number of rows, and solvers that choose their
            steps amplify that: lengths may then differ by some percent, depths by some steps.
    """
    law = NetworkDistribution() if law is None else law
    settings = PathSettings(solver) if isinstance(solver, str) else solver
    signal = circular_input() if signal is None else signal
    check_model_names([model])
    check_at_least(1, tries=tries)
    check_at_least(0, examples=examples)
    generator = torch.Generator().manual_seed(seed)
    width = signal.values.shape[1]
    parts: list[TrajectoryLengths] = []
    for done in range(0, tries, check_at_least(1, at_once=at_once)):
        count = min(at_once, tries - done)
        networks = sample_random_networks(law, count, input_size=width, generator=generator)
        path = _solve(model, networks, signal, settings)
        wanted = max(0, min(examples - done, count))
        parts.append(_measure(model, law, settings, signal, path, wanted))
    return _concatenate(parts)


def length_study(
    vary: str,
    values: Sequence[Any],
    *,
    law: NetworkDistribution | None = None,
    models: Sequence[str] = MODEL_NAMES,
    solver: str | PathSettings = "ode45",
    input_points: int = 100,
    tries: int = 100,
    seed: int = 0,
) -> LengthStudy:
    """Measure trajectory lengths of several models while one setting varies.

    Args:
        vary: a field of :class:`NetworkDistribution`, or ``"solver"`` or ``"input_points"``.
        values: the values it takes.
        law: the other settings of the networks.
        models: the models.
        solver: the solver, unless it varies.
        input_points: samples of the circular input, unless they vary.
        tries: networks per model and value.
        seed: of the draws.
    """
    law = NetworkDistribution() if law is None else law
    of_law = {field.name for field in fields(NetworkDistribution)}
    check_one_of((*sorted(of_law), "solver", "input_points"), vary=vary)
    if len(values) == 0:
        raise ArgumentError(f"values is empty; name at least one value of {vary}.")
    results: dict[str, tuple[TrajectoryLengths, ...]] = {}
    for model in check_model_names(models):
        results[model] = tuple(
            trajectory_lengths(
                model,
                replace(law, **{vary: value}) if vary in of_law else law,
                tries=tries,
                solver=value if vary == "solver" else solver,
                signal=circular_input(value if vary == "input_points" else input_points),
                seed=seed,
            )
            for value in values
        )
    return LengthStudy(vary, tuple(values), results)


def _solve(
    model: str, networks: RandomNetworks, signal: InputSignal, settings: PathSettings
) -> SolverPath:
    start = networks.tau.new_zeros(len(networks), networks.state_size)
    return solve_path(
        lambda rows: networks.take(rows).field(model, signal), start, signal, settings
    )


def _measure(
    model: str,
    law: NetworkDistribution,
    settings: PathSettings,
    signal: InputSignal,
    path: SolverPath,
    examples: int,
) -> TrajectoryLengths:
    scores, explained = [], []
    for states in path.y:
        layers = [principal_scores(layer) for layer in states.split(law.width, dim=-1)]
        scores.append(torch.stack([layer[0] for layer in layers]))
        explained.append(torch.stack([layer[1] for layer in layers]))
    return TrajectoryLengths(
        model=model,
        law=law,
        solver=settings,
        signal=signal,
        lengths=torch.stack([arc_length(curves) for curves in scores]),
        explained=torch.stack(explained),
        latent_norm=torch.stack([curves.norm(dim=-1).mean(dim=-1) for curves in scores]),
        accepted=path.accepted,
        output_points=path.accepted * path.refine,
        converged=path.converged,
        examples=tuple(
            LatentTrajectory(path.t[row], scores[row]) for row in range(min(examples, len(scores)))
        ),
    )


def _concatenate(parts: Sequence[TrajectoryLengths]) -> TrajectoryLengths:
    first = parts[0]
    tensors: dict[str, Any] = {
        field.name: torch.cat([getattr(part, field.name) for part in parts])
        for field in fields(first)
        if isinstance(getattr(first, field.name), Tensor)
    }
    return replace(first, **tensors, examples=tuple(e for part in parts for e in part.examples))
