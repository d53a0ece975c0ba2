"""Run one cell over sequences and keep every state, for analyses that look between the steps."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.func import vjp, vmap

from tauflow._internal.checks import shape_error
from tauflow._internal.sanitize import format_count
from tauflow.cells.base import AbstractCell
from tauflow.errors import ArgumentError
from tauflow.sequence import SequenceModule
from tauflow.sequence.finite_checks import check_finite_states
from tauflow.sequence.inputs import check_dtype_and_device, prepare_inputs
from tauflow.sequence.legacy_parametrizations import recompute_all_parameters

from .unwrap import resolve_observed, unwrap_sequence_module


@dataclass(frozen=True, eq=False)
class CellRun:
    """A cell's states along sequences.

    Args:
        x: the inputs.
        dt: the gaps.
        observed: which features were measured, for cells that model that; what was not may be NaN
            in ``x``.
        states: the states, the initial one first.
    """

    x: Float[Tensor, "B T I"]
    dt: Float[Tensor, "B T 1"]
    observed: Bool[Tensor, "B T I"] | None
    states: Float[Tensor, "B U S"]

    @property
    def t(self) -> Float[Tensor, "B T"]:
        """Time of each sample since the initial state."""
        return self.dt.squeeze(-1).cumsum(dim=1)

    def make_step_map(self, cell: AbstractCell, k: int) -> Callable[[Tensor], Tensor]:
        """Return the map that step k of the cell is, from states (B, S) to states (B, S)."""
        observed = () if self.observed is None else (self.observed[:, k],)
        return lambda h: cell.step(self.x[:, k], h, self.dt[:, k], *observed)


def compute_row_jacobians(
    function: Callable[[Tensor], Tensor], h: Float[Tensor, "B S"]
) -> tuple[Float[Tensor, "B S"], Float[Tensor, "B S S"]]:
    """Return the values of a function of states, and their Jacobians: (b, i, j) of f_i along h_j.

    Rows must not mix, so that one pull-back of unit vector i yields row i of all Jacobians. The
    function itself is called once, and not mapped: it may step adaptively.
    """
    batch, size = h.shape
    value, pull_back = vjp(function, h)[:2]
    units = torch.eye(size, dtype=h.dtype, device=h.device)
    rows = vmap(lambda unit: pull_back(unit.expand(batch, -1))[0])(units)
    return value, rows.transpose(0, 1)


def get_single_cell(where: str, module: nn.Module) -> AbstractCell:
    """Return the cell of a sequence module of one layer and direction, or the cell given.

    Its parameters are those that a pass of its module would compute of pruned ones.
    """
    recompute_all_parameters(module)
    if isinstance(module, AbstractCell):
        return module
    body = unwrap_sequence_module(where, module)
    if not isinstance(body, SequenceModule):
        raise ArgumentError(
            f"{where}: expected a cell or a sequence module such as tauflow.LTC, got "
            f"{type(module).__name__}."
        )
    if len(body.cells) > 1:
        raise ArgumentError(
            f"{where}: {type(body).__name__} has {format_count(len(body.cells), 'cell')}, and one "
            "is looked at. "
            "Pass one of module.cells, with the inputs that it sees."
        )
    return body.cell


def run_cell(
    where: str,
    cell: AbstractCell,
    x: Tensor,
    hx: Tensor | None = None,
    *,
    dt: Tensor | float | None = None,
    t: Tensor | None = None,
    observed: Tensor | None = None,
) -> CellRun:
    """Step a cell through sequences, with the checks of every sequence module.

    Args:
        where: name of the caller, for messages.
        cell: the cell.
        x: inputs, (B, T, I), or (T, I) for a single sequence.
        hx: state to start from, (B, S); by default the cell's own.
        dt: gaps; by default 1.
        t: absolute times instead.
        observed: (B, T, I) bool, which features were measured; by default those that are not NaN.

    Raises:
        ShapeError, DtypeError, TimeError, ArgumentError, NonFiniteError: as for
            :meth:`tauflow.RNN.forward`.
    """
    inputs = prepare_inputs(
        where, cell.input_size, x, dt=dt, t=t, observed=observed, has_initial_state=hx is not None
    )
    check_dtype_and_device(where, cell, inputs.x)
    inputs = resolve_observed(where, cell, inputs)
    h = cell.initial_state(inputs.x[:, 0]) if hx is None else torch.atleast_2d(hx)
    if tuple(h.shape) != (inputs.x.shape[0], cell.state_size):
        raise shape_error(
            where, "hx", h, f"(B, S) = ({inputs.x.shape[0]}, {cell.state_size})", "One row each."
        )
    states = [h]
    for step in range(inputs.x.shape[1]):
        features = () if inputs.observed is None else (inputs.observed[:, step],)
        states.append(cell.step(inputs.x[:, step], states[-1], inputs.dt[:, step], *features))
    check_finite_states(where, cell, hx if hx is None else h, states[-1], inputs)
    return CellRun(inputs.x, inputs.dt, inputs.observed, torch.stack(states, dim=1))
