"""The library's solver loop, watched: why and where a sample stopped, and its exact end state.

torchode hands back a status, but neither the time nor the step size at which a sample failed, and
reads even the last state off an interpolating polynomial. Its step size controller sees all three,
so that is where this module looks. Time is scaled to [0, 1] for every sample, in float64.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tauflow._internal.checks import shape_error
from tauflow._internal.optional_deps import require
from tauflow.errors import SolverError

Field = Callable[[Tensor], Tensor]
AfterStep = Callable[[Tensor, Tensor, Tensor], None]
"""Called with state before a step (B, S), scaled step size (B,), and which samples took it (B,)."""


@dataclass(frozen=True, eq=False)
class SolverStatistics:
    """Statistics of an adaptive solve.

    Args:
        evaluations: calls of the field; each is for the whole batch.
        accepted: steps that each sample took, (B,).
        rejected: steps that each sample tried in vain, (B,).
    """

    evaluations: int
    accepted: Tensor
    rejected: Tensor


@dataclass(frozen=True)
class SolverSettings:
    """How to solve, as :func:`~tauflow.solvers.integrate_adaptive` takes it."""

    where: str
    method: str
    rtol: float
    atol: float
    max_steps: int


class BogackiShampine:
    """The pair of orders 3 and 2 as a step method of the library, which lacks it.

    Source: Bogacki & Shampine 1989, "A 3(2) pair of Runge-Kutta formulas".
    """

    def __init__(self, torchode: Any) -> None:
        methods = torchode.single_step_methods.runge_kutta
        self.tableau = methods.ButcherTableau.from_lists(
            c=[0.0, 1 / 2, 3 / 4, 1.0],
            a=[[], [1 / 2], [0.0, 3 / 4], [2 / 9, 1 / 3, 4 / 9]],
            b=[2 / 9, 1 / 3, 4 / 9, 0.0],
            b_low_order=[7 / 24, 1 / 4, 1 / 3, 1 / 8],
        )
        method = methods.ExplicitRungeKutta(None, self.tableau)
        self.init, self.step, self.merge_states = method.init, method.step, method.merge_states
        self.build_interpolation = lambda data: (
            torchode.interpolation.ThirdOrderPolynomialInterpolation.from_k(
                data.t0, data.dt, data.y0, data.y1, data.k
            )
        )

    def convergence_order(self) -> int:
        """Return the order of the steps."""
        return 3


METHODS: dict[str, Callable[[Any], Any]] = {
    "dopri5": lambda torchode: torchode.Dopri5(),
    "tsit5": lambda torchode: torchode.Tsit5(),
    "bosh3": BogackiShampine,
    "adaptive_heun": lambda torchode: torchode.Heun(),
}


class TrackingController:
    """The library's integral controller, with a memory of where each sample is."""

    def __init__(
        self, torchode: Any, settings: SolverSettings, moves: Tensor, after_step: AfterStep | None
    ) -> None:
        self.inner = torchode.IntegralController(atol=settings.atol, rtol=settings.rtol)
        self.moves, self.after_step = moves, after_step
        self.state: Tensor | None = None
        self.time = self.step = moves.double()
        self.broken = self.stuck = moves
        self.merge_states = self.inner.merge_states

    def init(self, term: Any, problem: Any, order: int, dt0: None, **extra: Any) -> Any:
        """Choose the first steps; a time step of zero is one step, whatever the field."""
        step, state, f0 = self.inner.init(term, problem, order, dt0, **extra)
        return torch.where(self.moves, step, torch.ones_like(step)), state, f0

    def adapt_step_size(
        self, time: Tensor, step: Tensor, h: Tensor, result: Any, state: Any, stats: Any
    ) -> tuple[Tensor, Tensor, Any, Tensor]:
        """Accept or reject, choose the next steps, and note where every sample is."""
        with torch.no_grad():
            accept, after, state, _ = self.inner.adapt_step_size(
                time, step, h, result, state, stats
            )
            running = time < 1
            good = (result.y.isfinite() & result.error_estimate.isfinite()).all(dim=-1)
            taken = accept & good & running
            self.time = torch.where(taken, time + step, time)
            self.step = torch.where(good, after, step)
            self.broken = ~good & running
            self.stuck = (self.time < 1) & good & (self.time + self.step <= self.time)
            status = (self.broken | self.stuck).long()
        self.state = torch.where(taken.unsqueeze(-1), result.y, h)
        if self.after_step is not None:
            self.after_step(h, step, taken)
        return accept & good, after, state, status


def solve(
    field: Field,
    h: Tensor,
    dt: Tensor,
    settings: SolverSettings,
    *,
    fractions: Tensor | None = None,
    after_step: AfterStep | None = None,
) -> tuple[Tensor, SolverStatistics]:
    """Integrate ``field`` from ``h`` over each sample's ``dt``.

    Args:
        field: the vector field.
        h: states at the start, (B, S).
        dt: lengths, (B, 1).
        settings: the method, its tolerances and its limit.
        fractions: (B, T), times of interest as fractions of the time step, not decreasing.
        after_step: called after every step.

    Returns:
        The states at the end, (B, S), or at the fractions, (B, T, S), and what it took.

    Raises:
        SolverError: a sample did not reach the end of its time step.
    """
    torchode = require("torchode", extra="ode")
    calls = 0

    def scaled(_time: Tensor, at: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        slope = field(at)
        if slope.shape != at.shape:
            raise shape_error(
                settings.where,
                "field(h)",
                slope,
                f"that of h, {tuple(at.shape)}",
                "A field maps states to their rates of change.",
            )
        # A sample that stays needs no field, which may be infinite there; 0 * inf would be NaN.
        return slope.masked_fill((dt == 0) & ~slope.isfinite(), 0.0) * dt

    start = torch.zeros(h.shape[0], dtype=torch.float64, device=h.device)
    watch = TrackingController(torchode, settings, dt.squeeze(-1) > 0, after_step)
    loop = torchode.AutoDiffAdjoint(
        METHODS[settings.method](torchode),
        watch,
        max_steps=settings.max_steps,
        backprop_through_step_size_control=False,
    )
    times = None if fractions is None else fractions.double()
    problem = torchode.InitialValueProblem(h, start, torch.ones_like(start), times)
    solution = loop.solve(problem, torchode.ODETerm(scaled, with_stats=False))
    unfinished = watch.time < 1
    if bool(unfinished.any()):
        raise _solver_error(watch, unfinished, dt, settings)
    accepted = solution.stats["n_accepted"]
    statistics = SolverStatistics(calls, accepted, solution.stats["n_steps"] - accepted)
    assert watch.state is not None
    return (watch.state if fractions is None else solution.ys), statistics


def _solver_error(
    controller: TrackingController, unfinished: Tensor, dt: Tensor, settings: SolverSettings
) -> SolverError:
    """Say which sample failed, when, with what step, why, and what to try."""
    if bool(controller.broken.any()):
        failed = controller.broken
        why = "the field or the state became NaN or infinite"
        advice = "Look at the field there; bound it, or rescale the state or the unit of time."
    elif bool(controller.stuck.any()):
        failed = controller.stuck
        why = "the step size fell below the resolution of time"
        advice = (
            "The flow may reach infinity or jump within the time step; else loosen rtol and atol, "
            "or use float64."
        )
    else:
        failed = unfinished
        why = f"max_steps={settings.max_steps} was not enough"
        advice = (
            f"Loosen rtol={settings.rtol:g} and atol={settings.atol:g}, or raise max_steps where "
            "you call the solver yourself. A stiff flow may need a fused or a fixed-step solver."
        )
    row = int(failed.nonzero()[0, 0])
    length = float(dt.detach()[row, 0])
    time, step = (float(value[row]) * length for value in (controller.time, controller.step))
    tried = f"with a step size of {step:g}" if step > 0 else "before any step"
    return SolverError(
        f"{settings.where}: {why} in sample {row} at time {time:g} of its time step of {length:g}, "
        f"{tried}. {advice}"
    )
