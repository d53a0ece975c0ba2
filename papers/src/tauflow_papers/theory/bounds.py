r"""Bounds on time constants and states that hold for any input, and networks held against them.

A neuron of a liquid time-constant network relaxes towards its potentials (leak and reversal
potentials; 0 and A in the neuronal form) with the time constant

.. math::
    \tau_{sys} = \frac{C}{g_l + \sum_j g_j} \in
        \left[ \frac{C}{g_l + \sum_j w_j}, \frac{C}{g_l} \right]

and stays between the lowest and the highest of its potentials and its initial state. Both hold for
the flow. A solver keeps the states' bounds as follows, with z = d (g_l + sum of w) / C and d the
length of its steps:

- *fused*, *exponential*: for any step, as a step is a weighted mean of state and potentials;
- *euler*, *heun*, *rk4*: for z <= 1. Seen from the highest potential, a stage's rate is
  k = g e - q with the distance e, a conductance g and a pull q >= 0; for z <= 1 the distance after
  the step grows with every q, and is not negative without them, whatever g in each stage. Beyond,
  conductances that change between stages break the bounds;
- *midpoint*: for no step. A neuron at its highest potential that is pulled down at the start of the
  step, and no longer in its middle, ends above.

Source: Hasani et al. 2021, "Liquid Time-constant Networks", Theorems 1 and 2.

Differs from the paper: Theorem 1 is in the form of the main text, as the supplement misprints it;
Theorem 2 counts the initial state in, without which it fails. What the solvers keep is not in the
paper.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tauflow.analysis.network_runs import NetworkRun, get_single_cell, run_network
from tauflow.cells import LTCCell, NeuronalLTCCell
from tauflow.errors import ArgumentError

from .ltc_synapses import LTCSynapses, extract_synapses, map_input

_LONGEST_Z = {
    "fused": math.inf,
    "exponential": math.inf,
    "euler": 1.0,
    "heun": 1.0,
    "rk4": 1.0,
    "midpoint": 0.0,
}
_RANGES = {"sigmoid": (0.0, 1.0), "relu": (0.0, math.inf), "softplus": (0.0, math.inf)}


@dataclass(frozen=True, eq=False)
class LTCBounds:
    """Bounds of each neuron, for any input.

    Args:
        tau_low: smallest time constant, in the unit of ``dt``.
        tau_high: largest one.
        state_low: lowest potential of the neuron.
        state_high: highest one.
        safe_dt: longest time step ``dt`` over which the cell's solver keeps the states' bounds
            whatever the input; infinite for the fused and the exponential one, 0 where no time step
            is safe.
    """

    tau_low: Float[Tensor, " N"]
    tau_high: Float[Tensor, " N"]
    state_low: Float[Tensor, " N"]
    state_high: Float[Tensor, " N"]
    safe_dt: float


@dataclass(frozen=True, eq=False)
class LTCCertificate:
    """Comparison of a network with its bounds, for given inputs.

    A margin is the smallest distance to a bound, negative where it was broken.

    Args:
        bounds: the bounds.
        proven: whether every time step was within the safe one, up to the rounding of time steps,
            so that no other input can break them.
        tau: time constants at the start of each time step, under its input.
        states: states, the initial one first.
        tau_margin: distance of each neuron's time constants to the lower and the upper bound.
        state_margin: the same for its states; the initial state widens the bounds.
        tolerance: rounding that :attr:`holds` forgives, as a share of the bounds' size.
    """

    bounds: LTCBounds
    proven: bool
    tau: Float[Tensor, "B T N"]
    states: Float[Tensor, "B U N"]
    tau_margin: Float[Tensor, "2 N"]
    state_margin: Float[Tensor, "2 N"]
    tolerance: float

    @property
    def holds(self) -> bool:
        """Whether all time constants and states kept their bounds, up to rounding."""
        bounds = self.bounds
        tau_size = bounds.tau_high
        state_size = torch.maximum(bounds.state_low.abs(), bounds.state_high.abs())
        state_size = torch.maximum(state_size, self.states[:, 0].abs().amax(dim=0))
        are_kept = (self.tau_margin >= -self.tolerance * tau_size).all()
        return bool(are_kept & (self.state_margin >= -self.tolerance * state_size).all())


def ltc_bounds(module: nn.Module) -> LTCBounds:
    """Return the bounds of a liquid time-constant network that hold for any input.

    Args:
        module: an LTC or NeuronalLTC, its cell, or a model around it.

    Raises:
        ArgumentError: the module is another one, or its activation can be negative.
    """
    cell = _get_ltc_cell("ltc_bounds", module)
    if isinstance(cell, LTCCell):
        return _compute_conductance_bounds(cell, extract_synapses(cell))
    low, high = _get_range_of_f(cell)
    A, leak = cell.A.detach(), 1 / cell.tau.detach()
    tau_low = 1 / (leak + high)
    return LTCBounds(
        tau_low=tau_low,
        tau_high=1 / (leak + low),
        state_low=A.clamp_max(0),
        state_high=A.clamp_min(0),
        safe_dt=_compute_safe_dt(cell.solver, cell.substeps, tau_low),
    )


def certify_ltc(
    module: nn.Module,
    x: Tensor,
    hx: Tensor | None = None,
    *,
    dt: Tensor | float | None = None,
    t: Tensor | None = None,
) -> LTCCertificate:
    """Run a network and measure how far it stays from the bounds of Theorems 1 and 2.

    Args:
        module: an LTC or NeuronalLTC, its cell, or a model around it.
        x: inputs of any size, (B, T, I) or (T, I).
        hx: states to start from, (B, N).
        dt: time steps; by default 1.
        t: absolute times instead.
    """
    cell = _get_ltc_cell("certify_ltc", module)
    bounds = ltc_bounds(cell)
    with torch.no_grad():
        run = run_network("certify_ltc", cell, x, hx, dt=dt, t=t)
        tau = _compute_time_constants(cell, run)
    start = run.states[:, 0]
    low = torch.minimum(bounds.state_low, start).unsqueeze(1)
    high = torch.maximum(bounds.state_high, start).unsqueeze(1)
    return LTCCertificate(
        bounds=bounds,
        proven=float(run.dt.max()) <= bounds.safe_dt * (1 + torch.finfo(run.dt.dtype).eps),
        tau=tau,
        states=run.states,
        tau_margin=_compute_margins(tau, bounds.tau_low, bounds.tau_high),
        state_margin=_compute_margins(run.states, low, high),
        tolerance=64 * torch.finfo(x.dtype).eps,
    )


def _get_ltc_cell(where: str, module: nn.Module) -> LTCCell | NeuronalLTCCell:
    cell = get_single_cell(where, module)
    if not isinstance(cell, LTCCell | NeuronalLTCCell):
        raise ArgumentError(
            f"{where}: the bounds are those of LTCCell and NeuronalLTCCell, got "
            f"{type(cell).__name__}."
        )
    return cell


def _compute_conductance_bounds(cell: LTCCell, synapses: LTCSynapses) -> LTCBounds:
    infinite = torch.full_like(synapses.E, math.inf)
    lowest = torch.where(synapses.exists, synapses.E, infinite).amin(dim=0)
    highest = torch.where(synapses.exists, synapses.E, -infinite).amax(dim=0)
    low, high = torch.minimum(synapses.V_l, lowest), torch.maximum(synapses.V_l, highest)
    if cell.epsilon and cell.solver == "fused":
        # It acts like one more conductance, towards 0.
        low, high = low.clamp_max(0), high.clamp_min(0)
    fastest = synapses.C / (synapses.g_l + synapses.w.sum(dim=0))
    safe = _compute_safe_dt(cell.solver, cell.substeps, fastest)
    return LTCBounds(
        tau_low=fastest / cell.time_scale,
        tau_high=synapses.C / synapses.g_l / cell.time_scale,
        state_low=low,
        state_high=high,
        safe_dt=max(0.0, (safe - cell.dt_offset) / cell.time_scale),
    )


def _get_range_of_f(cell: NeuronalLTCCell) -> tuple[float | Tensor, float | Tensor]:
    name = cell.options["activation"]
    if name not in _RANGES:
        raise ArgumentError(
            f"the bounds need an activation that is never negative, got {name!r}. With one that "
            f"can be, the flow itself may grow. Use one of: {', '.join(_RANGES)}."
        )
    if cell.w is None:
        return _RANGES[name]
    w = cell.w.detach()
    if bool((w < 0).any()):
        raise ArgumentError(
            "the bounds need a scale w that is never negative. With one that is, the flow itself "
            "may grow. Build the cell without scale=True, or keep w at 0 or more."
        )
    low, high = _RANGES[name]
    return w * low, (w * high).nan_to_num(nan=0.0, posinf=math.inf)


def _compute_safe_dt(solver: str, substeps: int, fastest: Tensor) -> float:
    longest = _LONGEST_Z.get(solver, 0.0)  # of one added to the tableaus nothing is known
    return longest if math.isinf(longest) else longest * substeps * float(fastest.min())


def _compute_time_constants(cell: LTCCell | NeuronalLTCCell, run: NetworkRun) -> Tensor:
    """Return the time constants at the start of each time step, (B, T, N)."""
    before = run.states[:, :-1]
    if isinstance(cell, LTCCell):
        synapses = extract_synapses(cell)
        z = torch.cat([map_input(cell, run.x), before], dim=-1)
        total, _ = synapses.conductance_and_equilibrium(z)
        return synapses.C / total / cell.time_scale
    f = cell.phi(run.x @ cell.W_x.T + before @ cell.W_h.T + cell.b)
    f = f if cell.w is None else cell.w * f
    return 1 / (1 / cell.tau + f)


def _compute_margins(values: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Return the smallest distances to both bounds over batch and time, (2, N)."""
    return torch.stack([(values - low).amin(dim=(0, 1)), (high - values).amin(dim=(0, 1))])
