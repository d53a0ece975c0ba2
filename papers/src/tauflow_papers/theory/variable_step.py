r"""Variable steps as MATLAB's ode45 and ode23 take them, with separate steps for every row.

The study of trajectory lengths counts the points that its solver returned, so that its numbers
depend on the conventions of that solver: a maximum norm of the error, a longest step of a tenth of
the span, several output points per step. The library's adaptive solvers have others, and return
states, not steps.

Source: Shampine & Reichelt 1997, "The MATLAB ODE Suite"; Dormand & Prince 1980, "A family of
embedded Runge-Kutta formulae"; Bogacki & Shampine 1989, "A 3(2) pair of Runge-Kutta formulas".
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tauflow._internal.checks import check_at_least, check_positive
from tauflow._internal.registry import Registry

Field = Callable[[Tensor, Tensor], Tensor]
"""Maps times (B,) and states (B, S) to the rates of the states, (B, S)."""
FieldFor = Callable[[Tensor], Field]
"""Maps the numbers of some rows, (R,), to the field of these rows."""


@dataclass(frozen=True)
class EmbeddedPair:
    """An explicit Runge-Kutta pair whose last stage is the first one of the next step.

    Args:
        name: what users call it.
        order: one more than the order of the error estimate, whose root scales the step.
        c: times of the stages, in units of the step.
        a: row i holds the weights of the stages before stage i; the last row is the step itself.
        error: weights of the stages in the error estimate.
        dense: row i holds the coefficients of s, s^2, ... of stage i's weight at the share s of
            the step.
        refine: output points per step.
    """

    name: str
    order: int
    c: tuple[float, ...]
    a: tuple[tuple[float, ...], ...]
    error: tuple[float, ...]
    dense: tuple[tuple[float, ...], ...]
    refine: int


ODE45 = EmbeddedPair(
    name="ode45",
    order=5,
    c=(0.0, 1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0),
    a=(
        (),
        (1 / 5,),
        (3 / 40, 9 / 40),
        (44 / 45, -56 / 15, 32 / 9),
        (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
        (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
        (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
    ),
    error=(71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40),
    dense=(
        (1.0, -183 / 64, 37 / 12, -145 / 128),
        (0.0, 0.0, 0.0, 0.0),
        (0.0, 1500 / 371, -1000 / 159, 1000 / 371),
        (0.0, -125 / 32, 125 / 12, -375 / 64),
        (0.0, 9477 / 3392, -729 / 106, 25515 / 6784),
        (0.0, -11 / 7, 11 / 3, -55 / 28),
        (0.0, 3 / 2, -4.0, 5 / 2),
    ),
    refine=4,
)
ODE23 = EmbeddedPair(
    name="ode23",
    order=3,
    c=(0.0, 1 / 2, 3 / 4, 1.0),
    a=((), (1 / 2,), (0.0, 3 / 4), (2 / 9, 1 / 3, 4 / 9)),
    error=(-5 / 72, 1 / 12, 1 / 9, -1 / 8),
    dense=((1.0, -4 / 3, 5 / 9), (0.0, 1.0, -2 / 3), (0.0, 4 / 3, -8 / 9), (0.0, -1.0, 1.0)),
    refine=1,
)
PAIRS: Registry[EmbeddedPair] = Registry(
    "pair", {pair.name: pair for pair in (ODE45, ODE23)}, plugins=False
)


@dataclass(frozen=True, eq=False)
class SolverPath:
    """Every output point of a solve.

    Args:
        t: times of each row, (P,), the start included; P differs from row to row.
        y: states of each row, (P, S).
        accepted: steps that each row took, (B,).
        rejected: steps that each row tried in vain, (B,).
        converged: whether each row reached the end of the span, (B,).
        refine: output points per step.
    """

    t: tuple[Tensor, ...]
    y: tuple[Tensor, ...]
    accepted: Int[Tensor, " B"]
    rejected: Int[Tensor, " B"]
    converged: Bool[Tensor, " B"]
    refine: int


@torch.no_grad()
def solve_variable_step(
    field_for: FieldFor,
    y: Float[Tensor, "B S"],
    span: float,
    *,
    pair: EmbeddedPair = ODE45,
    rtol: float = 1e-3,
    atol: float = 1e-6,
    max_step: float | None = None,
    refine: int | None = None,
    max_steps: int = 100_000,
) -> SolverPath:
    """Integrate ``dy/dt = field(t, y)`` from 0 to ``span`` and return every output point.

    A step is accepted where ``|error| <= max(rtol * |y|, atol)`` for every component, the larger of
    the states before and after the step counting. The defaults are those of MATLAB.

    Args:
        field_for: gives the field of some rows, so that rows that are done cost nothing.
        y: states at time 0; float64 is advised.
        span: length of time, above 0.
        pair: :data:`ODE45` or :data:`ODE23`.
        rtol: error allowed in a step, relative to the state, above 0.
        atol: error allowed in a step, in the unit of the state, above 0.
        max_step: longest step; by default a tenth of the span.
        refine: output points per step, equally spaced in time; by default that of the pair.
        max_steps: steps that a row may try, rejected ones included.

    Returns:
        The output points, with ``converged`` false for rows that did not reach the end.
    """
    limits = _Limits(
        rtol=check_positive(rtol=rtol),
        threshold=check_positive(atol=atol) / rtol,
        longest=min(span, 0.1 * span if max_step is None else check_positive(max_step=max_step)),
        span=check_positive(span=span),
    )
    record = _OutputPoints(y, pair.refine if refine is None else check_at_least(1, refine=refine))
    rows = torch.arange(y.shape[0], device=y.device)
    field, method = field_for(rows), _PairTensors(pair, y)
    state = _choose_first_steps(field, rows, y, method, limits)
    for _ in range(check_at_least(1, max_steps=max_steps)):
        state, goes_on = _try_step(field, state, method, limits, record)
        if not bool(goes_on.all()):
            state = state.take(goes_on)
            if state.rows.numel() == 0:
                break
            field = field_for(state.rows)
    return record.path()


@dataclass(frozen=True)
class _Limits:
    rtol: float
    threshold: float
    longest: float
    span: float


@dataclass(frozen=True, eq=False)
class _State:
    """Where the rows stand that still run."""

    rows: Tensor  # (R,) their numbers
    t: Tensor  # (R,)
    y: Tensor  # (R, S)
    slope: Tensor  # (R, S)
    h: Tensor  # (R,) the step to try next
    failed: Tensor  # (R,) whether a step from here was rejected

    def take(self, keep: Tensor) -> "_State":
        return _State(*(getattr(self, part.name)[keep] for part in fields(self)))


class _PairTensors:
    """A pair's coefficients as tensors."""

    def __init__(self, pair: EmbeddedPair, like: Tensor) -> None:
        def tensor(values: Sequence[object]) -> Tensor:
            return torch.tensor(values, dtype=like.dtype, device=like.device)

        self.root = 1 / pair.order
        self.c = pair.c
        self.a = [tensor(row) for row in pair.a]
        self.error = tensor(pair.error)
        self.dense = tensor(pair.dense)  # (K, powers)

    def step(
        self, field: Field, t: Tensor, y: Tensor, slope: Tensor, h: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the state after a step, (R, S), and the slopes of its stages, (K, R, S)."""
        stages = y.new_empty(len(self.c), *y.shape)
        stages[0] = slope
        after = y
        for i in range(1, len(self.c)):
            after = y + h[:, None] * _combine_stages(self.a[i], stages[:i])
            stages[i] = field(t + self.c[i] * h, after)
        return after, stages

    def interpolate(self, y: Tensor, h: Tensor, stages: Tensor, shares: Tensor) -> Tensor:
        """Return the states at shares of the step, (R, points, S)."""
        powers = shares[:, None] ** torch.arange(1, self.dense.shape[1] + 1, device=y.device)
        weights = powers @ self.dense.T  # (points, K)
        return y[:, None] + h[:, None, None] * torch.einsum("kbs,pk->bps", stages, weights)


class _OutputPoints:
    """The output points in the order of the solve, and the counts."""

    def __init__(self, y: Tensor, refine: int) -> None:
        count = y.shape[0]
        self.refine = refine
        self.shares = torch.arange(1, refine, dtype=y.dtype, device=y.device) / refine
        self.rows, self.t = [torch.arange(count, device=y.device)], [y.new_zeros(count)]
        self.y = [y]
        self.accepted = torch.zeros(count, dtype=torch.long, device=y.device)
        self.rejected = torch.zeros_like(self.accepted)
        self.converged = torch.zeros_like(self.accepted, dtype=torch.bool)

    def count(self, rows: Tensor, accept: Tensor, done: Tensor) -> None:
        """Count the attempts of rows (R,)."""
        self.accepted[rows[accept]] += 1
        self.rejected[rows[~accept]] += 1
        self.converged[rows[done]] = True

    def add(self, rows: Tensor, t: Tensor, y: Tensor) -> None:
        """Add points t (R, refine) and y (R, refine, S) of rows (R,)."""
        self.rows.append(rows.repeat_interleave(self.refine))
        self.t.append(t.flatten())
        self.y.append(y.flatten(0, 1))

    def path(self) -> SolverPath:
        """Return the points row by row."""
        rows = torch.cat(self.rows)
        order = torch.argsort(rows, stable=True)
        lengths = torch.bincount(rows, minlength=self.accepted.numel()).tolist()
        return SolverPath(
            t=torch.cat(self.t)[order].split(lengths),
            y=torch.cat(self.y)[order].split(lengths),
            accepted=self.accepted,
            rejected=self.rejected,
            converged=self.converged,
            refine=self.refine,
        )


def _choose_first_steps(
    field: Field, rows: Tensor, y: Tensor, method: _PairTensors, limits: _Limits
) -> _State:
    """Choose first steps short enough for the component that changes fastest."""
    t = y.new_zeros(y.shape[0])
    slope = field(t, y)
    pace = (slope / y.abs().clamp_min(limits.threshold)).abs().amax(dim=-1)
    pace = pace / (0.8 * limits.rtol**method.root)
    h = torch.where(limits.longest * pace > 1, 1 / pace, limits.longest)
    return _State(rows, t, y, slope, h, torch.zeros_like(rows, dtype=torch.bool))


def _try_step(
    field: Field, state: _State, method: _PairTensors, limits: _Limits, record: _OutputPoints
) -> tuple[_State, Tensor]:
    """Try one step of every row; return where they stand and which of them go on, (R,)."""
    t, y = state.t, state.y
    numbers = torch.finfo(y.dtype)
    shortest = 16 * numbers.eps * t.clamp_min(numbers.tiny)
    h = torch.maximum(state.h, shortest).clamp_max(limits.longest)
    last = 1.1 * h >= limits.span - t
    h = torch.where(last, limits.span - t, h)
    after, stages = method.step(field, t, y, state.slope, h)
    scale = torch.maximum(y.abs(), after.abs()).clamp_min(limits.threshold)
    error = h * (_combine_stages(method.error, stages) / scale).abs().amax(dim=-1) / limits.rtol
    # A state that is not finite has no error to compare: it counts as a failure.
    error = error.nan_to_num(nan=math.inf, posinf=math.inf)
    accept = error <= 1
    # A row that cannot take even the shortest step stops, unfinished.
    stuck = ~accept & (h <= shortest)
    record.count(state.rows, accept, accept & last)
    time = torch.where(last, limits.span, t + h)
    if bool(accept.any()):
        start, length = t[accept, None], h[accept]
        points = method.interpolate(y[accept], length, stages[:, accept], record.shares)
        record.add(
            state.rows[accept],
            torch.cat([start + length[:, None] * record.shares, time[accept, None]], dim=1),
            torch.cat([points, after[accept, None]], dim=1),
        )
    moved = accept.unsqueeze(-1)
    state = _State(
        rows=state.rows,
        t=torch.where(accept, time, t),
        y=torch.where(moved, after, y),
        slope=torch.where(moved, stages[-1], state.slope),
        h=_choose_next_steps(h, error, accept, state.failed, method.root),
        failed=~accept,
    )
    return state, ~(stuck | accept & last)


def _choose_next_steps(
    h: Tensor, error: Tensor, accept: Tensor, failed: Tensor, root: float
) -> Tensor:
    """Return the steps to try next; ``error`` is relative to what is allowed.

    A step keeps its length after a success that cost failures, and halves after a second failure.
    """
    scaled = error**root
    grown = torch.where(failed, h, h / (1.25 * scaled).clamp_min(0.2))
    shrunk = h * torch.where(failed, 0.5, (0.8 / scaled).clamp_min(0.1))
    return torch.where(accept, grown, shrunk)


def _combine_stages(weights: Tensor, stages: Tensor) -> Tensor:
    """Return the weighted sum of stages (K, R, S)."""
    return (weights @ stages.flatten(1)).view(stages.shape[1:])
