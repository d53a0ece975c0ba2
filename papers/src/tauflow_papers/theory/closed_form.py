r"""Trained liquid time-constant networks in closed form, without a solver.

A neuron with total conductance :math:`G = g_l + \sum_j w_j q_j` and equilibrium
:math:`V_\infty = (g_l V_l + \sum_j w_j q_j E_j) / G` has exactly

.. math::
    v(t) = V_\infty + (v_0 - V_\infty)\, e^{-t G / C}

as long as its presynaptic signals, and so every open share q, stay constant. The forms differ in
what they do when they do not:

- ``"exponential"`` freezes them over short pieces of each time step and goes on from the last state
  (exponential Euler); stable for any time step, at the cost of a solver with as many steps;
- ``"corrected"`` takes those at time t for the whole time since the start, as the paper does, with
  the neuron's own equilibrium as limit and v(0) = v_0;
- ``"paper"`` is Algorithm 1 as printed, synapse by synapse, without their conductances:

  .. math::
      v(t) = \sum_j (v_0 - E_j)\, e^{-t (g_l / C + q_j)} (1 - q_j) + E_j

- ``"released"`` is the code behind the paper's figure, with the conductances in both places:

  .. math::
      v(t) = \sum_j (v_0 - E_j)\, e^{-t (g_l + w_j q_j) / C} (1 - q_j)^{w_j} + E_j

Source: Hasani et al. 2022, "Closed-form continuous-time neural networks", Theorem 1, Algorithm 1
and Fig. 3.

The last two are what was published, and no approximation of a neuron with several synapses: their
sums neither start at v_0 nor end at the equilibrium, as every synapse brings a v_0 and an E_j of
its own. Theorem 1 moreover states the solution of an ODE whose leak pulls towards A, and its factor
f(-I) shifts the start to A + (v_0 - A) f(-I).
"""

import time
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tauflow._internal.checks import check_at_least, check_one_of
from tauflow.analysis.network_runs import get_single_cell, run_network
from tauflow.cells import LTCCell
from tauflow.errors import ArgumentError

from .ltc_synapses import LTCSynapses, extract_synapses, map_input, to_solver_time

CLOSED_FORMS: tuple[str, ...] = ("exponential", "corrected", "paper", "released")
"""Names of the forms, see the module's text."""

PRESYNAPTIC: tuple[str, ...] = ("recorded", "own")


@dataclass(frozen=True, eq=False)
class ClosedFormTrace:
    """The states of a trained network and of its closed form, side by side.

    Args:
        form: one of :data:`CLOSED_FORMS`.
        presynaptic: ``"recorded"`` or ``"own"``.
        t: time of each sample since the start.
        solved: potentials by the network's solver.
        closed: potentials by the closed form.
        outputs: how many of the first neurons are the network's outputs.
        solver_seconds: that the solver took, step by step in PyTorch.
        closed_seconds: that the closed form took, likewise.
    """

    form: str
    presynaptic: str
    t: Float[Tensor, "B T"]
    solved: Float[Tensor, "B T N"]
    closed: Float[Tensor, "B T N"]
    outputs: int
    solver_seconds: float = 0.0
    closed_seconds: float = 0.0

    @property
    def squared_error(self) -> Float[Tensor, " N"]:
        """Mean squared error of each neuron."""
        return (self.closed - self.solved).square().mean(dim=(0, 1))

    @property
    def output_error(self) -> float:
        """Mean squared error of the output neurons, the number that the paper reports (0.006)."""
        return float(self.squared_error[: self.outputs].mean())

    @property
    def largest_error(self) -> float:
        """Largest absolute error of any neuron at any time."""
        return float((self.closed - self.solved).abs().max())


@torch.no_grad()
def closed_form(
    module: nn.Module,
    x: Tensor,
    hx: Tensor | None = None,
    *,
    form: str = "exponential",
    presynaptic: str = "recorded",
    pieces: int | None = None,
    substeps: int | None = None,
    dt: Tensor | float | None = None,
    t: Tensor | None = None,
) -> ClosedFormTrace:
    """Run a trained network by its solver and by a closed form.

    Args:
        module: an LTC, its cell, or a model around it; any wiring.
        x: inputs, (B, T, I) or (T, I), best ones the network was not trained on.
        hx: states to start from, (B, N).
        form: one of :data:`CLOSED_FORMS`.
        presynaptic: what synapses between neurons read. ``"recorded"``: the network's states, as in
            Algorithm 1; within time steps they are taken as linear. ``"own"``: what the closed form
            found last, so that it runs without the network; its errors can then feed back.
        pieces: pieces of each time step in the exponential form; by default as many as the cell has
            solver steps. The other forms have no such steps.
        substeps: solver steps per time step on the network's side; by default its own. Many give
            the network's ODE itself, for a cell's own few can be far from it.
        dt: time steps; by default 1.
        t: absolute times instead.

    Raises:
        ArgumentError: the module is not an LTC in conductance form.
    """
    check_one_of(CLOSED_FORMS, form=form)
    check_one_of(PRESYNAPTIC, presynaptic=presynaptic)
    cell = get_single_cell("closed_form", module)
    if not isinstance(cell, LTCCell):
        raise ArgumentError(
            f"closed_form: only LTCCell has synapses to translate, got {type(cell).__name__}."
        )
    pieces = cell.substeps if pieces is None else check_at_least(1, pieces=pieces)
    if substeps is not None:
        cell = cell.replace(substeps=substeps)
    start = time.perf_counter()
    run = run_network("closed_form", cell, x, hx, dt=dt, t=t)
    middle = time.perf_counter()
    gaps = to_solver_time(cell, run.dt)
    recorded = run.states if presynaptic == "recorded" else None
    translate = _ClosedFormSolver(form, extract_synapses(cell), pieces, run.states[:, 0], recorded)
    closed = translate.run(map_input(cell, run.x), gaps)
    end = time.perf_counter()
    return ClosedFormTrace(
        form,
        presynaptic,
        run.t,
        run.states[:, 1:],
        closed,
        cell.output_size,
        solver_seconds=middle - start,
        closed_seconds=end - middle,
    )


@dataclass(frozen=True, eq=False)
class _ClosedFormSolver:
    form: str
    synapses: LTCSynapses
    pieces: int
    start: Tensor  # (B, N)
    recorded: Tensor | None  # (B, T + 1, N), by the solver

    def run(self, u: Tensor, gaps: Tensor) -> Tensor:
        """Return the potentials, (B, T, N), for mapped inputs u and time steps in solver time."""
        elapsed, v, potentials = torch.zeros_like(gaps[:, 0]), self.start, []
        for step in range(u.shape[1]):
            elapsed = elapsed + gaps[:, step]
            if self.form == "exponential":
                v = self._advance_over_dt(step, u[:, step], v, gaps[:, step] / self.pieces)
            else:
                # Algorithm 1 reads the signals at the very time that it computes.
                heard = v if self.recorded is None else self.recorded[:, step + 1]
                z = torch.cat([u[:, step], heard], dim=-1)
                v = self._evaluate_from_start(z, elapsed)
            potentials.append(v)
        return torch.stack(potentials, dim=1)

    def _advance_over_dt(self, step: int, u: Tensor, v: Tensor, length: Tensor) -> Tensor:
        """Go on from v piece by piece, each of a length (B, 1)."""
        for piece in range(self.pieces):
            heard = v
            if self.recorded is not None:
                middle = (piece + 0.5) / self.pieces
                heard = torch.lerp(self.recorded[:, step], self.recorded[:, step + 1], middle)
            v = _compute_exact_potentials(self.synapses, torch.cat([u, heard], dim=-1), v, length)
        return v

    def _evaluate_from_start(self, z: Tensor, elapsed: Tensor) -> Tensor:
        if self.form == "corrected":
            return _compute_exact_potentials(self.synapses, z, self.start, elapsed)
        return _compute_published_sum(
            self.synapses, z, self.start, elapsed, self.form == "released"
        )


def _compute_exact_potentials(
    synapses: LTCSynapses, z: Tensor, start: Tensor, elapsed: Tensor
) -> Tensor:
    """Return the exact potentials after a time with conductances held, (B, N)."""
    total, equilibrium = synapses.conductance_and_equilibrium(z)
    return equilibrium + (start - equilibrium) * torch.exp(-elapsed * total / synapses.C)


def _compute_published_sum(
    synapses: LTCSynapses, z: Tensor, start: Tensor, elapsed: Tensor, released: bool
) -> Tensor:
    """Return the published sum over synapses, (B, N)."""
    q = synapses.opening(z)  # (B, Z, N)
    leak = synapses.g_l / synapses.C
    w = synapses.w if released else torch.ones_like(synapses.w)
    capacity = synapses.C if released else torch.ones_like(synapses.C)
    decay = torch.exp(-elapsed.unsqueeze(-1) * (leak + w * q / capacity))
    terms = (start.unsqueeze(1) - synapses.E) * decay * (1 - q) ** w + synapses.E
    return torch.where(synapses.exists, terms, torch.zeros_like(terms)).sum(dim=1)
