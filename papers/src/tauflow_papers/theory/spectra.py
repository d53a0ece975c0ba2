"""Jacobian spectra of random networks, with and without gates, beside what theory says of them."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Complex
from torch import Tensor

from tauflow._internal.checks import check_at_least, check_one_of, check_positive, check_within
from tauflow.analysis.flow import as_flow
from tauflow.analysis.flow_field import simulate
from tauflow.cells import AbstractCell, GNODECell, LEMCell
from tauflow.errors import ArgumentError

from .mean_field import RandomODE, mean_field

GATED_NETWORKS = ("mgru", "gnode", "lem")
"""Networks whose spectra can be computed, by name."""


@dataclass(frozen=True)
class Spectrum:
    """Eigenvalues of the Jacobian of a network's velocity at its final state.

    Args:
        eigenvalues: per unit of time.
        final_speed: norm of the velocity there, over the square root of the number of neurons.
        settled: whether that is below the tolerance, so that the place is a fixed point.
    """

    eigenvalues: Complex[Tensor, " S"]
    final_speed: float
    settled: bool

    @property
    def abscissa(self) -> float:
        """Largest real part."""
        return float(self.eigenvalues.real.max())

    def share_within(self, radius: float) -> float:
        """Return which share of the eigenvalues is at most ``radius`` from zero: slow modes."""
        check_positive(radius=radius)
        return float((self.eigenvalues.abs() <= radius).double().mean())


def gating_spectrum(
    network: str,
    *,
    neurons: int = 1000,
    sigma_w: float = 1.5,
    sigma_z: float = 0.0,
    steps: int = 1000,
    tolerance: float = 1e-6,
    seed: int = 0,
) -> Spectrum:
    r"""Return the spectrum of a random network after a long run without input.

    All weights have Kaiming scaling: variance :math:`\sigma^2` over the fan-in, with
    :math:`\sigma_w` in the target and :math:`\sigma_z` in the gate; biases are zero. The
    run takes one step of a time constant after another, as the networks themselves do (LEM forward
    and backward); the Jacobian is that of the flow in continuous time. Without gating,
    ``sigma_z=0``, every gate is 1/2.

    Source: Kim et al. 2022, "Gated neural ODEs", Appendix B and Figure 5. Not said there: the
    state at the start, here standard normal; the last activation of ``"gnode"``, here none.

    Args:
        network: ``"mgru"``, ``"gnode"`` (three layers of tanh between, as wide as the state; one
            for the gate) or ``"lem"`` (whose state is twice as wide).
        neurons: N.
        sigma_w: scale of the target's weights.
        sigma_z: scale of the gates' weights.
        steps: of the run.
        tolerance: of the final speed.
        seed: of weights and start.
    """
    check_one_of(GATED_NETWORKS, network=network)
    check_at_least(1, neurons=neurons)
    check_within(0.0, math.inf, sigma_w=sigma_w)
    check_within(0.0, math.inf, sigma_z=sigma_z)
    generator = torch.Generator().manual_seed(check_at_least(0, seed=seed))
    build = _make_lem if network == "lem" else _make_mgru if network == "mgru" else _make_gnode
    with torch.random.fork_rng(devices=[]):  # a cell draws weights first, which are overwritten
        cell = build(neurons, sigma_w, sigma_z, generator)
    return _simulate_spectrum(cell, steps, tolerance, generator, spread=1.0)


@dataclass(frozen=True)
class MeasuredRadius:
    r"""Spectral radius of a sampled network and that of the mean-field theory.

    Args:
        radius: of the Jacobian J of F at the fixed point that the sample reached; in a finite
            network a few percent above the theory, as the outermost of N eigenvalues is.
        mean_gain: square root of tr(J^T J) / N, the other side of Eq. 33 of Kim et al. 2022, which
            fluctuates less.
        variance: mean square of the state there.
        expected_radius: :math:`\rho` of the theory.
        expected_variance: C_h of the theory.
        settled: whether the sample reached a fixed point; in chaos none is reached.
    """

    radius: float
    mean_gain: float
    variance: float
    expected_radius: float
    expected_variance: float
    settled: bool


@torch.no_grad()
def measure_radius(
    family: RandomODE,
    *,
    neurons: int = 1000,
    steps: int = 1000,
    tolerance: float = 1e-6,
    seed: int = 0,
) -> MeasuredRadius:
    """Sample one network of a family, run it to rest, and measure its spectral radius.

    Args:
        family: what to sample; without inputs.
        neurons: N; the hidden layers have ``family.aspect`` times as many.
        steps: of one time constant, to come to rest.
        tolerance: speed, over the square root of N, that counts as rest.
        seed: of weights and start.

    Raises:
        ArgumentError: the family has inputs, which the sample would not.
    """
    if family.sigma_u * family.input_power:
        raise ArgumentError(
            "measure_radius: samples run without input, but the family has sigma_u="
            f"{family.sigma_u} and input_power={family.input_power}. Set one of them to 0."
        )
    generator = torch.Generator().manual_seed(check_at_least(0, seed=seed))
    cell = sample_network(family, neurons, generator)
    theory = mean_field(family)
    spread = math.sqrt(theory.variance) if theory.converged and theory.variance else 1.0
    flow = as_flow(cell, dt=1.0)
    start = spread * torch.randn(1, neurons, generator=generator, dtype=torch.float64)
    h = simulate(flow, start, steps=steps).states[:, -1]
    speed = float(flow.speed(h)) / math.sqrt(neurons)
    jacobian = flow.linearise(h)[1][0] + torch.eye(neurons, dtype=h.dtype)
    return MeasuredRadius(
        radius=float(torch.linalg.eigvals(jacobian).abs().max()),
        mean_gain=float(jacobian.square().sum() / neurons) ** 0.5,
        variance=float(h.square().mean()),
        expected_radius=math.sqrt(theory.squared_radius),
        expected_variance=theory.variance,
        settled=speed < tolerance,
    )


@torch.no_grad()
def sample_network(
    family: RandomODE, neurons: int, generator: torch.Generator | None = None
) -> GNODECell:
    """Sample a neural ODE of a family, without gate, with time constant 1 and one input.

    Args:
        family: what to draw.
        neurons: N.
        generator: of the weights; the global one, which otherwise is left alone, by default.
    """
    hidden = max(1, round(family.aspect * check_at_least(1, neurons=neurons)))
    deep = family.layers > 1
    with torch.random.fork_rng(devices=[], enabled=generator is not None):
        cell = GNODECell(
            1,
            neurons,
            layers=family.layers,
            units=hidden if deep else None,
            gate_layers=0,
            activation=family.activation if deep else None,
            final_activation=family.final_activation,
        )
    weights = [cell.W_h, *cell.W_F]
    for weight, gain in zip(weights, family.gains, strict=True):
        _sample_weight(weight, math.sqrt(gain), generator)
    for bias in (cell.b, *cell.b_F):
        bias.copy_(family.sigma_b * _sample_normal(bias.shape, generator))
    cell.W_x.copy_(family.sigma_u * _sample_normal(cell.W_x.shape, generator))
    return cell


@torch.no_grad()
def _simulate_spectrum(
    cell: AbstractCell, steps: int, tolerance: float, generator: torch.Generator, *, spread: float
) -> Spectrum:
    """Run a network without input in steps of one time constant; linearise the flow there."""
    size = cell.state_size
    start = spread * torch.randn(1, size, generator=generator, dtype=torch.float64)
    h = simulate(as_flow(cell, dt=1.0), start, steps=check_at_least(1, steps=steps)).states[:, -1]
    flow = as_flow(cell, dt=0)
    speed = float(flow.speed(h)) / math.sqrt(size)
    return Spectrum(flow.eigenvalues(h)[0], speed, speed < check_positive(tolerance=tolerance))


def _make_mgru(
    neurons: int, sigma_w: float, sigma_z: float, generator: torch.Generator
) -> AbstractCell:
    cell = GNODECell(1, neurons, layers=1, final_activation="tanh")
    return _sample_weights(cell, [sigma_w, sigma_z], generator)


def _make_gnode(
    neurons: int, sigma_w: float, sigma_z: float, generator: torch.Generator
) -> AbstractCell:
    cell = GNODECell(1, neurons, layers=3, units=neurons, activation="tanh")
    with torch.no_grad():
        for weight in cell.W_F:
            _sample_weight(weight, sigma_w, generator)
    return _sample_weights(cell, [sigma_w, sigma_z], generator)


def _make_lem(
    neurons: int, sigma_w: float, sigma_z: float, generator: torch.Generator
) -> AbstractCell:
    return _sample_weights(LEMCell(1, neurons), [sigma_z, sigma_z, sigma_w, sigma_w], generator)


@torch.no_grad()
def _sample_weights(
    cell: GNODECell | LEMCell, scales: list[float], generator: torch.Generator
) -> AbstractCell:
    """Draw the recurrent weights block by block; no biases and no input weights."""
    for name, parameter in cell.named_parameters():
        if name.startswith(("b", "W_x")):
            parameter.zero_()
    for block, scale in zip(cell.W_h.chunk(len(scales)), scales, strict=True):
        _sample_weight(block, scale, generator)
    return cell


def _sample_weight(weight: Tensor, scale: float, generator: torch.Generator | None) -> None:
    weight.copy_(scale / math.sqrt(weight.shape[1]) * _sample_normal(weight.shape, generator))


def _sample_normal(shape: torch.Size, generator: torch.Generator | None) -> Tensor:
    """Draw from N(0, 1), in single precision, so that a seed stands for the same numbers always."""
    return torch.randn(shape, generator=generator, dtype=torch.float32)
