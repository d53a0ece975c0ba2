"""Flows: a network under constant input as an autonomous system, with velocity and Jacobian."""

import copy
import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.func import vjp

from tauflow._internal.checks import check_floating_point, check_positive, check_within, shape_error
from tauflow.cells.base import AbstractCell
from tauflow.cells.contract_checks import call_update_gate
from tauflow.errors import ArgumentError, DtypeError, ShapeError
from tauflow.sequence import SequenceModule
from tauflow.sequence.finite_checks import check_missing_inputs
from tauflow.sequence.inputs import SequenceInputs, prepare_inputs
from tauflow.training.eval_mode import evaluation_mode

from .network_runs import compute_row_jacobians, run_network
from .unwrap import (
    iter_layer_steps,
    resolve_observed,
    unwrap_forward_module,
    unwrap_sequence_module,
)

StateMap: TypeAlias = Callable[[Tensor], Tensor]
_Module = TypeVar("_Module", bound=nn.Module)

_ELEMENTS_PER_CHUNK = 4_000_000
_MAX_ROWS = 256
_ROUNDINGS_SHOWN = 1000
"""Roundings of a state that a map's gate must let through for what it holds back to be known."""


@dataclass(frozen=True)
class Flow:
    r"""An autonomous system: the velocity of every state, :math:`\dot h = f(h)`.

    ``Flow(field)`` is an ordinary differential equation; :func:`as_flow` makes one of a cell, or of
    a map from a state to the next.

    Args:
        velocity: maps states (B, S) to velocities (B, S), each row by itself.
        gap: 0 for a flow in continuous time; for a map, the time that one step takes, and the
            velocity is then (h' - h) / gap.
        state_size: S; ``None`` if any width will do.
        dtype: of the states; double precision, for a root is no better than its rounding.
        device: of the states.
        gate: maps states (B, S) to the factors in (0, 1] that gates put on each velocity; ``None``
            without gates. :func:`as_flow` takes it from the cell's ``update_gate``, at ``dt``
            of the step.
    """

    velocity: StateMap
    gap: float = 0.0
    state_size: int | None = None
    dtype: torch.dtype = torch.float64
    device: torch.device | str = "cpu"
    gate: StateMap | None = None

    def states(self, where: str, h: Float[Tensor, "*batch S"]) -> Float[Tensor, "B S"]:
        """Return states as the flow takes them: two axes, its dtype and device.

        Raises:
            ShapeError: the last axis is not the state's, or the tensor has no axis.
            DtypeError: they are no floating-point tensor, or the velocity does not take this dtype.
        """
        check_floating_point(where, states=h)
        size = self.state_size
        if h.ndim == 0 or (size is not None and h.shape[-1] != size):
            width = "S" if size is None else size
            advice = "Give states of the system, such as visited_states(rnn, x)."
            raise shape_error(where, "states", h, f"(..., {width})", advice)
        states = h.detach().reshape(-1, h.shape[-1]).to(self.device, self.dtype)
        if len(states):  # the velocity may be a function of the caller
            try:
                self.speed(states[:1])
            except RuntimeError as error:
                if "dtype" not in str(error):
                    raise
                raise DtypeError(
                    f"{where}: the velocity does not take states of {self.dtype} ({error}). "
                    "Convert its network with .to(torch.float64), or give Flow the dtype of the "
                    "network."
                ) from error
        return states

    def rescale_time(self, unit: float) -> "Flow":
        """Return the same system with time in another unit.

        Args:
            unit: how much one unit of this flow's time is in the new one: with time constants of
                10 ms, the flow per second is ``flow.rescale_time(0.01)``.

        Raises:
            ArgumentError: ``unit`` is not above 0.
        """
        unit = check_positive(unit=unit)
        return replace(self, velocity=lambda h: self.velocity(h) / unit, gap=self.gap * unit)

    @torch.no_grad()
    def speed(self, h: Float[Tensor, "B S"]) -> Float[Tensor, " B"]:
        """Return the Euclidean norm of the velocity."""
        return torch.linalg.vector_norm(self.velocity(h), dim=-1)  # type: ignore[no-any-return]

    @torch.no_grad()
    def open_speed(self, h: Float[Tensor, "B S"]) -> Float[Tensor, " B"]:
        """Return the speed that the states would have with every gate open.

        A gate that is shut holds a state wherever it is; this speed tells such a state from one to
        which the network has come to rest. Infinite where a gate is 0; also where the gate of a map
        lets less of it through than the rounding of h' can show, so that h' - h says nothing.
        """
        if self.gate is None:
            return self.speed(h)
        gate = self.gate(h)
        shut = _ROUNDINGS_SHOWN * torch.finfo(gate.dtype).eps if self.gap else 0.0
        pull = torch.where(gate > shut, self.velocity(h) / gate, math.inf)
        return torch.linalg.vector_norm(pull, dim=-1)  # type: ignore[no-any-return]

    @torch.no_grad()
    def linearise(
        self, h: Float[Tensor, "B S"]
    ) -> tuple[Float[Tensor, "B S"], Float[Tensor, "B S S"]]:
        """Return velocities and their Jacobians, entry (b, i, j) the slope of f_i along h_j."""
        return compute_row_jacobians(self.velocity, h)

    def chunk_rows(self, size: int) -> int:
        """Return how many states of width ``size`` to linearise at a time, to bound the memory."""
        return max(1, min(_MAX_ROWS, _ELEMENTS_PER_CHUNK // size**2))

    @torch.no_grad()
    def eigenvalues(self, h: Float[Tensor, "B S"]) -> Tensor:
        """Return the eigenvalues of the velocity's Jacobian, complex (B, S), NaN where it is."""
        spectra = []
        for part in h.split(self.chunk_rows(h.shape[-1])):
            jacobian = self.linearise(part)[1]
            finite = jacobian.isfinite().flatten(1).all(dim=1)
            # LAPACK refuses a whole batch for one NaN
            spectrum = _compute_eigenvalues(jacobian.where(finite[:, None, None], 0.0))
            spectra.append(spectrum.where(finite[:, None], complex(math.nan, math.nan)))
        if not spectra:
            return h.to(torch.complex128 if h.dtype == torch.float64 else torch.complex64)
        return torch.cat(spectra)


def _compute_eigenvalues(matrices: Tensor) -> Tensor:
    """Return the eigenvalues of a batch; on the CPU in threads, where torch takes one by one."""
    threads = min(torch.get_num_threads(), len(matrices))
    if matrices.device.type != "cpu" or threads < 2:
        return torch.linalg.eigvals(matrices)  # type: ignore[no-any-return]
    with ThreadPoolExecutor(threads) as pool:
        return torch.cat(list(pool.map(torch.linalg.eigvals, matrices.chunk(threads))))


System: TypeAlias = Flow | AbstractCell | SequenceModule | StateMap
"""What analyses take: see :func:`as_flow`."""


def as_flow(
    system: System,
    x: Float[Tensor, " I"] | None = None,
    *,
    observed: Bool[Tensor, " I"] | None = None,
    dt: float | None = None,
    dtype: torch.dtype = torch.float64,
) -> Flow:
    r"""Return a network with constant input as an autonomous system.

    A cell that follows an ODE (``cell.is_flow``) is by default taken in continuous time: its
    velocity is the derivative of a step at a time step of zero, exactly and without the error of
    its solver. With a time step ``dt`` above zero, and for every other cell, the step itself is the
    system, a map whose velocity is

    .. math:: f(h) = (\mathrm{step}(x, h, dt) - h) / dt .

    Both have the same fixed points, but for those that a Runge-Kutta step of great length may add;
    they differ in their stability. For a cell stepped once by Euler's method the two velocities are
    one. A cell, or a function that is a module, is copied, in evaluation mode.

    Args:
        system: a cell; a sequence module of one direction (its layers are stacked into one state),
            or a model around one, such as :class:`tauflow.SequenceModel`; a function that maps
            states (B, S) to the next ones; or a :class:`Flow`, returned as it is.
        x: the input that is held; zeros by default, as in Kim et al. 2022, Appendix E.3.
        observed: which of its features were measured, for cells that model that; by default those
            that are not NaN. A state that counts the time since each was measured, as that of
            :class:`tauflow.GRUD`, does not come to rest while one is missing.
        dt: the time step, in the unit of the cell's time constants; 0 for continuous time. By
            default 0 for flows, 1 for all others.
        dtype: to compute in; a :class:`Flow` keeps its own.

    Raises:
        ArgumentError: continuous time is asked of a cell that is no flow, the module is
            bidirectional, an argument has nothing to act on, or the system is a whole model such as
            :class:`tauflow.models.Transformer`, which has no state that goes on.
        NonFiniteError: ``x`` is NaN, and the cell does not model missing features.
        ShapeError: ``x`` is not one input.
    """
    if dt is not None:
        dt = check_within(0.0, math.inf, dt=float(dt))
    system = unwrap_sequence_module("as_flow", system)
    if isinstance(system, AbstractCell | SequenceModule):
        return _make_network_flow(system, x, observed, dt, dtype)
    if x is not None or observed is not None or (isinstance(system, Flow) and dt is not None):
        raise ArgumentError(
            f"as_flow: x, observed and dt belong to a cell, not to a {type(system).__name__}. "
            "Leave them out."
        )
    if isinstance(system, Flow):
        return system
    if not callable(system):
        raise ArgumentError(
            "as_flow: the system must be a cell, a sequence module, a function from states to the "
            f"next ones or a Flow, got {type(system).__name__}. Build one of these."
        )
    if dt == 0:
        raise ArgumentError(
            "as_flow: a function is taken as a map from states to the next ones, a dt "
            "above 0 apart. If it returns velocities, wrap it: Flow(function)."
        )
    gap, step = (
        dt or 1.0,
        _convert_dtype(system, dtype) if isinstance(system, nn.Module) else system,
    )
    return Flow(lambda h: (step(h) - h) / gap, gap, dtype=dtype)


@torch.no_grad()
def visited_states(
    network: AbstractCell | SequenceModule | nn.Module,
    x: Float[Tensor, "B T I"],
    *,
    dt: Tensor | float | None = None,
    observed: Bool[Tensor, "B T I"] | None = None,
    hx: Float[Tensor, "B S"] | None = None,
) -> Float[Tensor, "B T S"]:
    """Return the states after every sample of some sequences, where :func:`as_flow` can start.

    Args:
        network: a cell, a sequence module of one direction, or a model around one.
        x: inputs of the cell or the sequence module.
        dt: time steps: a number, (B, T) or (B, T, 1); by default 1.
        observed: which features were measured, for cells that model that; by default those that are
            not NaN.
        hx: states to start from; by default the network's own.
    """
    module = unwrap_forward_module("visited_states", network)
    if x.ndim != 3:
        advice = "Add the batch axis with x.unsqueeze(0)."
        raise shape_error("visited_states", "x", x, "(B, T, I)", advice)
    with evaluation_mode(module):
        run = run_network("visited_states", module, x, hx, dt=dt, observed=observed)
    return run.states[:, 1:]


def _convert_dtype(module: _Module, dtype: torch.dtype) -> _Module:
    """Return a copy of a module that computes in a dtype, without dropout and gradients."""
    return copy.deepcopy(module).eval().to(dtype).requires_grad_(False)


def _make_network_flow(
    network: AbstractCell | SequenceModule,
    x: Tensor | None,
    observed: Tensor | None,
    dt: float | None,
    dtype: torch.dtype,
) -> Flow:
    module = _convert_dtype(unwrap_forward_module("as_flow", network), dtype)
    flows = all(cell.is_flow for cell in module.each_cell)
    gap = dt if dt is not None else 0.0 if flows else 1.0
    if gap == 0 and not flows:
        kind = type(module.cell).__name__
        raise ArgumentError(
            f"as_flow: {kind} is no flow: its step at a time step of zero does not leave the state "
            "alone, so it has no velocity in continuous time. Choose dt above 0."
        )
    device = next((p.device for p in module.parameters()), torch.device("cpu"))
    held = _prepare_held_input(module, x, observed, device, dtype)

    def layers(h: Tensor, dt: Tensor) -> Iterator[tuple[AbstractCell, Tensor, Tensor, Tensor]]:
        rows = len(h)
        known = None if held.observed is None else held.observed[0].expand(rows, -1)
        return iter_layer_steps(module, held.x[0].expand(rows, -1), h, dt, known)

    def step(h: Tensor, dt: Tensor) -> Tensor:
        return torch.cat([after for *_, after in layers(h, dt)], dim=-1)

    def gate(h: Tensor) -> Tensor:
        gaps = torch.full_like(h[:, :1], gap)
        return torch.cat(
            [call_update_gate(cell, x, before, gaps) for cell, x, before, _ in layers(h, gaps)],
            dim=-1,
        )

    def finite_velocity(h: Tensor) -> Tensor:
        return (step(h, torch.full_like(h[:, :1], gap)) - h) / gap

    def velocity(h: Tensor) -> Tensor:
        # The slope along t, as the slope of the pull-back along what is pulled back: torch's
        # forward mode would do it in one pass, but calls Python for every operation.
        start = torch.zeros_like(h[:, :1])
        pull_back = vjp(lambda t: step(h, t), start)[1]
        push_forward = vjp(lambda u: pull_back(u)[0], torch.zeros_like(h))[1]
        return push_forward(torch.ones_like(start))[0]  # type: ignore[no-any-return]

    move = finite_velocity if gap else velocity
    return Flow(move, gap, module.state_size, dtype, device, gate)


def _prepare_held_input(
    module: SequenceModule,
    x: Tensor | None,
    observed: Tensor | None,
    device: torch.device,
    dtype: torch.dtype,
) -> SequenceInputs:
    """Return the input that is held as a call of one sample."""
    size = module.input_size
    held = torch.zeros(size) if x is None else x.detach()
    for name, value in (("x", held), ("observed", observed)):
        if value is not None and value.shape != (size,):
            raise ShapeError(
                f"as_flow: {name} has shape {tuple(value.shape)}, expected ({size},). Give the one "
                "input that is held, without axes of batch and time."
            )
    known = None if observed is None else observed.to(device).view(1, 1, -1)
    inputs = prepare_inputs("as_flow", size, held.to(device, dtype).view(1, 1, -1), observed=known)
    inputs = resolve_observed("as_flow", module.cell, inputs)
    check_missing_inputs("as_flow", module.cell, inputs)
    return inputs
