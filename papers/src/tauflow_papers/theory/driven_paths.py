"""Solve networks under an input with any solver, and return every point it puts out."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from tauflow._internal.checks import check_one_of, check_positive
from tauflow._internal.optional_deps import require
from tauflow.solvers import ADAPTIVE_METHODS, TABLEAUS, SolverNames, integrate, integrate_path

from .random_networks import InputSignal
from .variable_step import PAIRS, FieldFor, SolverPath, solve_variable_step

IMPLICIT_METHODS: tuple[str, ...] = ("radau", "bdf", "lsoda")
"""Solvers of SciPy: two implicit ones, and one that changes between Adams and implicit formulas."""

PATH_SOLVERS = SolverNames(leading=tuple(PAIRS), trailing=(*ADAPTIVE_METHODS, *IMPLICIT_METHODS))
"""Solvers of :class:`PathSettings`."""

_POINTS_PER_SAMPLE = 4


@dataclass(frozen=True)
class PathSettings:
    """Settings of the solver.

    Args:
        solver: one of :data:`PATH_SOLVERS`. ``"ode45"`` and ``"ode23"`` choose their steps as
            MATLAB does and return their own output points. The fixed-step solvers (``"euler"``,
            ``"midpoint"``, ``"heun"``, ``"rk4"``) take one step per input sample; a stiff network
            may explode, and counts as not converged once its variance is beyond the floats. The
            adaptive solvers of :mod:`tauflow.solvers` know no longest step; their states are read
            at four times per input sample. ``"radau"``, ``"bdf"`` and ``"lsoda"`` need SciPy and
            solve one network after the other.
        rtol: error allowed in a step, relative to the state; fixed-step solvers ignore it.
        atol: error allowed in a step, in the unit of the state.
        max_step: longest step as a share of the span.
        max_steps: steps that a network may try before it counts as not converged; the adaptive
            solvers of :mod:`tauflow.solvers` raise for all networks instead, and those of SciPy
            know no such limit. All output points are kept until a network is measured: at four
            points a step, 100 neurons and this limit, at most 0.3 GB for each network solved side
            by side.
    """

    solver: str = "ode45"
    rtol: float = 1e-2
    atol: float = 1e-4
    max_step: float = 0.1
    max_steps: int = 100_000

    def __post_init__(self) -> None:
        check_one_of(PATH_SOLVERS, solver=self.solver)
        check_positive(rtol=self.rtol)
        check_positive(atol=self.atol)
        check_positive(max_step=self.max_step)


def solve_path(
    field_for: FieldFor, y: Tensor, signal: InputSignal, settings: PathSettings
) -> SolverPath:
    """Integrate from the first to the last sample of the input.

    Args:
        field_for: maps the numbers of some rows, (R,), to their field, which maps times (R,) and
            states (R, S) to rates.
        y: states at time 0, (B, S).
        signal: the input that the field reads, for its sample times.
        settings: the solver.

    Raises:
        MissingExtraError: the solver needs SciPy, which is not installed.
        SolverError: an adaptive solver of :mod:`tauflow.solvers` did not reach the end.
    """
    solver = settings.solver
    if solver in PAIRS:
        return solve_variable_step(
            field_for,
            y,
            signal.span,
            pair=PAIRS[solver],
            rtol=settings.rtol,
            atol=settings.atol,
            max_step=settings.max_step * signal.span,
            max_steps=settings.max_steps,
        )
    if solver in TABLEAUS:
        return _solve_fixed_step(field_for, y, signal, settings)
    return (_solve_implicit if solver in IMPLICIT_METHODS else _solve_adaptive)(
        field_for, y, signal, settings
    )


@torch.no_grad()
def _solve_fixed_step(
    field_for: FieldFor, y: Tensor, signal: InputSignal, settings: PathSettings
) -> SolverPath:
    count = y.shape[0]
    field = _make_autonomous_field(field_for, count, y)
    states = [_append_time(y)]
    for gap in signal.t.diff():
        dt = gap.to(y).expand(count, 1)
        tableau = TABLEAUS[settings.solver]
        states.append(integrate(field, states[-1], dt, tableau=tableau, substeps=1))
    t, path = signal.t.to(y), torch.stack(states, dim=1)[..., :-1]
    # steps too long for a stiff row make it explode: it ends while it has a variance
    small = path.abs().amax(dim=-1) < torch.finfo(path.dtype).max ** 0.45
    points = small.long().cumprod(dim=1).sum(dim=1)
    return SolverPath(
        t=tuple(t[:end] for end in points.tolist()),
        y=tuple(row[:end] for row, end in zip(path, points.tolist(), strict=True)),
        accepted=points - 1,
        rejected=torch.zeros_like(points),
        converged=points == len(t),
        refine=1,
    )


@torch.no_grad()
def _solve_adaptive(
    field_for: FieldFor, y: Tensor, signal: InputSignal, settings: PathSettings
) -> SolverPath:
    count = y.shape[0]
    t = _refine_times(signal.t.to(y), _POINTS_PER_SAMPLE)
    path, statistics = integrate_path(
        _make_autonomous_field(field_for, count, y),
        _append_time(y),
        t.expand(count, -1).contiguous(),
        method=settings.solver,
        rtol=settings.rtol,
        atol=settings.atol,
        max_steps=settings.max_steps,
    )
    converged = torch.ones(count, dtype=torch.bool)
    return _make_shared_path(t, path[..., :-1], statistics.accepted, statistics.rejected, converged)


def _solve_implicit(
    field_for: FieldFor, y: Tensor, signal: InputSignal, settings: PathSettings
) -> SolverPath:
    """Solve one row after the other; rows of a stiff solver share nothing."""
    solve_ivp = require("scipy.integrate", extra="scipy").solve_ivp
    name = {"radau": "Radau", "bdf": "BDF", "lsoda": "LSODA"}[settings.solver]
    paths = []
    for row in range(y.shape[0]):
        field = field_for(torch.tensor([row]))

        def rates(t: float, at: object, field: Callable[..., Tensor] = field) -> object:
            state = torch.as_tensor(at, dtype=y.dtype)[None]
            return field(torch.tensor([t], dtype=y.dtype), state)[0].numpy()

        paths.append(
            solve_ivp(
                rates,
                (0.0, signal.span),
                y[row].numpy(),
                method=name,
                rtol=settings.rtol,
                atol=settings.atol,
                max_step=settings.max_step * signal.span,
            )
        )
    accepted = torch.tensor([len(solution.t) - 1 for solution in paths])
    return SolverPath(
        t=tuple(torch.as_tensor(solution.t, dtype=y.dtype) for solution in paths),
        y=tuple(torch.as_tensor(solution.y.T, dtype=y.dtype) for solution in paths),
        accepted=accepted,
        rejected=torch.zeros_like(accepted),  # SciPy does not count them
        converged=torch.tensor([bool(solution.success) for solution in paths]),
        refine=1,
    )


def _make_autonomous_field(
    field_for: FieldFor, count: int, like: Tensor
) -> Callable[[Tensor], Tensor]:
    """Return the field of all rows with time as the last component of the state."""
    field = field_for(torch.arange(count, device=like.device))

    def augmented(state: Tensor) -> Tensor:
        rates = field(state[:, -1], state[:, :-1])
        return torch.cat([rates, torch.ones_like(state[:, -1:])], dim=-1)

    return augmented


def _append_time(y: Tensor) -> Tensor:
    return torch.cat([y, y.new_zeros(y.shape[0], 1)], dim=-1)


def _refine_times(t: Tensor, points: int) -> Tensor:
    """Return the times with each interval split into so many equal parts."""
    shares = torch.arange(points, dtype=t.dtype) / points
    return torch.cat([(t[:-1, None] + t.diff()[:, None] * shares).flatten(), t[-1:]])


def _make_shared_path(
    t: Tensor, path: Tensor, accepted: Tensor, rejected: Tensor, converged: Tensor
) -> SolverPath:
    """Return a path (B, T, S) whose rows share their times."""
    rows = tuple(path.unbind(0))
    return SolverPath((t,) * len(rows), rows, accepted, rejected, converged, refine=1)
