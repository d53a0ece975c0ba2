"""Run a network over sequences and keep every state, for analyses."""

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
from tauflow.sequence.finite_checks import check_finite_states
from tauflow.sequence.inputs import check_dtype_and_device, prepare_inputs

from .unwrap import iter_layer_steps, resolve_observed, unwrap_forward_module


@dataclass(frozen=True, eq=False)
class NetworkRun:
    """A network's states along sequences.

    Args:
        x: the inputs.
        dt: the time steps.
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


def get_single_cell(where: str, model: nn.Module) -> AbstractCell:
    """Return the cell of a sequence module of one layer and direction, or the cell given."""
    module = unwrap_forward_module(where, model)
    if len(module.cells) > 1:
        raise ArgumentError(
            f"{where}: {type(module).__name__} has {format_count(len(module.cells), 'cell')}, and "
            "one is looked at. Pass one of module.cells, with the inputs that it sees."
        )
    return module.cell


def run_network(
    where: str,
    network: nn.Module,
    x: Tensor,
    hx: Tensor | None = None,
    *,
    dt: Tensor | float | None = None,
    t: Tensor | None = None,
    observed: Tensor | None = None,
) -> NetworkRun:
    """Step a network through sequences, with the checks of every sequence module.

    Args:
        where: name of the caller, for messages.
        network: a cell, a sequence module of one direction or a model around one, in evaluation
            mode.
        x: inputs, (B, T, I), or (T, I) for a single sequence.
        hx: state to start from, (B, S); by default the network's own.
        dt: time steps; by default 1.
        t: absolute times instead.
        observed: (B, T, I) bool, which features were measured; by default those that are not NaN.

    Raises:
        ShapeError, DtypeError, TimeError, ArgumentError, NonFiniteError: as for
            :meth:`tauflow.RNN.forward`.
    """
    module = unwrap_forward_module(where, network)
    inputs = prepare_inputs(
        where, module.input_size, x, dt=dt, t=t, observed=observed, has_initial_state=hx is not None
    )
    check_dtype_and_device(where, module, inputs.x)
    inputs = resolve_observed(where, module.cell, inputs)
    h = None if hx is None else torch.atleast_2d(hx)
    if h is not None and tuple(h.shape) != (len(inputs.x), module.state_size):
        expected = f"(B, S) = ({len(inputs.x)}, {module.state_size})"
        raise shape_error(where, "hx", h, expected, "One row each.")
    states: list[Tensor] = []
    for step in range(inputs.x.shape[1]):
        features = None if inputs.observed is None else inputs.observed[:, step]
        layers = [*iter_layer_steps(module, inputs.x[:, step], h, inputs.dt[:, step], features)]
        if not states:
            states.append(torch.cat([before for _, _, before, _ in layers], dim=-1))
        h = torch.cat([after for *_, after in layers], dim=-1)
        states.append(h)
    sizes = [cell.state_size for cell in module.each_cell]
    ends = states[-1].split(sizes, dim=-1)
    starts = [None] * len(sizes) if hx is None else states[0].split(sizes, dim=-1)
    for cell, start, end in zip(module.each_cell, starts, ends, strict=True):
        check_finite_states(where, cell, start, end, inputs)
    return NetworkRun(inputs.x, inputs.dt, inputs.observed, torch.stack(states, dim=1))
