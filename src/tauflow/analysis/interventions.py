"""Interventions on a network: lesions of neurons and perturbations of the state."""

import copy
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from tauflow._internal.checks import check_finite, shape_error
from tauflow.cells.base import AbstractCell
from tauflow.cells.contract_checks import call_update_gate
from tauflow.errors import ArgumentError

from .flow import visited_states
from .unwrap import unwrap_forward_module

_Model = TypeVar("_Model", bound=nn.Module)


class _LesionedCell(AbstractCell):
    """A cell some of whose neurons are held at a value.

    Args:
        cell: the cell, which may be such a cell itself.
        held: which entries of the state are held, (S,).
        value: what they are held at.
    """

    cell: AbstractCell
    keep: Tensor
    offset: Tensor

    def __init__(self, cell: AbstractCell, held: Tensor, value: float) -> None:
        super().__init__(cell.input_size, cell.hidden_size)
        self.uses_dt, self.uses_observed = cell.uses_dt, cell.uses_observed
        like = next(cell.parameters())
        keep, offset = (~held).to(like), value * held.to(like)
        if isinstance(cell, _LesionedCell):  # what it holds too is held at the later value
            keep, offset = keep * cell.keep, offset + keep * cell.offset
            cell = cell.cell
        self.cell = cell
        self.register_buffer("keep", keep)
        self.register_buffer("offset", offset)

    @property
    def state_parts(self) -> dict[str, int]:
        """Those of the cell."""
        return self.cell.state_parts

    @property
    def output_size(self) -> int:
        """That of the cell."""
        return self.cell.output_size

    @property
    def has_time_unit(self) -> bool:
        """As the cell."""
        return self.cell.has_time_unit

    def step(self, x: Tensor, h: Tensor, dt: Tensor, observed: Tensor | None = None) -> Tensor:
        """Step the cell from a state with the neurons held, and hold them afterwards."""
        features = () if observed is None else (observed,)
        return self._hold(self.cell.step(x, self._hold(h), dt, *features))

    def update_gate(self, x: Tensor, h: Tensor, dt: Tensor | None = None) -> Tensor:
        """That of the cell, from a state with the neurons held."""
        dt = torch.ones_like(x[..., :1]) if dt is None else dt
        return call_update_gate(self.cell, x, self._hold(h), dt)

    def readout(self, h: Tensor) -> Tensor:
        """That of the cell."""
        return self.cell.readout(h)

    def initial_state(self, x: Tensor) -> Tensor:
        """That of the cell, with the neurons held."""
        return self._hold(self.cell.initial_state(x))

    def max_stable_dt(self) -> float:
        """That of the cell."""
        return self.cell.max_stable_dt()

    def _hold(self, h: Tensor) -> Tensor:
        return h * self.keep + self.offset


def lesion(
    model: _Model,
    neurons: Sequence[int] | Set[int] | int,
    *,
    layer: int = 0,
    value: float = 0.0,
    parts: Sequence[str] | None = None,
) -> _Model:
    """Return a copy of a model in which some neurons are silent.

    Their entries of the state are held before and after each step, so that neither the other
    neurons nor the output receive anything else from them. The copy runs, trains and is analysed as
    any model; its cell runs by its own step, without fused kernels, and is no flow: at a time step
    of zero the neurons are held too. :func:`~tauflow.analysis.as_flow` takes it as a map.

    Args:
        model: a sequence module of one direction, or a model around one.
        neurons: their indices in the layer, from 0, or that of one.
        layer: which layer they belong to, from 0.
        value: what they are held at, such as their mean activity.
        parts: names of the parts of the state (``cell.state_parts``) in which they are held, each
            as wide as there are neurons. By default all, for cells whose parts all hold one entry
            for each neuron; with others, as those of GRU-D, they have to be named.

    Raises:
        ArgumentError: there are no such neurons, layer or parts, the parts have to be named, or
            the model has no sequence module of one direction.
    """
    check_finite(value=value)
    lesioned = copy.deepcopy(model)
    module = unwrap_forward_module("lesion", lesioned, takes_cells=False)
    if not 0 <= layer < module.num_layers:
        raise ArgumentError(
            f"lesion: layer={layer}, but the module has {module.num_layers}, counted from 0."
        )
    cell = module.each_cell[layer]
    chosen = list(neurons) if isinstance(neurons, Set) else np.atleast_1d(neurons).tolist()
    entries = _find_entries(cell, chosen, parts)
    held = _LesionedCell(cell, entries, value).train(cell.training)
    module.cells._modules[str(layer)] = held  # of a copy, past what fixes its parts
    return lesioned


def _find_entries(cell: AbstractCell, chosen: Sequence[int], parts: Sequence[str] | None) -> Tensor:
    """Return which entries of the state belong to some neurons, bool (S,)."""
    if isinstance(cell, _LesionedCell):
        cell = cell.cell
    name, size = type(cell).__name__, cell.hidden_size
    if not chosen or not all(0 <= neuron < size for neuron in chosen):
        raise ArgumentError(
            f"lesion: neurons={chosen}, but {name} has the neurons 0 to {size - 1}. Choose at "
            "least one of them."
        )
    widths = cell.state_parts
    if parts is None:
        if type(cell).state_parts is not AbstractCell.state_parts:
            raise ArgumentError(
                f"lesion: the state of {name} has the parts {widths}, not all of which need hold "
                "one entry for each neuron. Name those that do: parts=('h',)."
            )
        parts = list(widths)
    unknown = [part for part in parts if widths.get(part) != size]
    if unknown or not parts:
        raise ArgumentError(
            f"lesion: parts={list(parts)}, but the state of {name} has the parts {widths}, and "
            f"only those of width {size} can be held by neuron. Name at least one of them."
        )
    entries = {part: torch.zeros(width, dtype=torch.bool) for part, width in widths.items()}
    for part in parts:
        entries[part][chosen] = True
    return torch.cat(list(entries.values()))


@dataclass(frozen=True)
class Perturbation:
    """Trajectories of a network with and without a displacement of its state.

    Args:
        states: the undisturbed states after each sample.
        perturbed: the states with the displacement, equal before it.
        at: index of the sample after which the state was displaced.
    """

    states: Float[Tensor, "B T S"]
    perturbed: Float[Tensor, "B T S"]
    at: int

    @property
    def distances(self) -> Float[Tensor, "B U"]:
        """Euclidean distance of both from the displacement on, U = T - ``at``."""
        away = (self.perturbed - self.states)[:, self.at :]
        return torch.linalg.vector_norm(away, dim=-1)  # type: ignore[no-any-return]


def perturb(
    model: nn.Module,
    x: Float[Tensor, "B T I"],
    displacement: Tensor,
    *,
    at: int,
    dt: Tensor | float | None = None,
    observed: Tensor | None = None,
) -> Perturbation:
    """Perturb the state of a network once, and follow the trajectory.

    Args:
        model: a cell, a sequence module of one direction, or a model around one.
        x: inputs of the cell or the sequence module.
        displacement: what is added to the state, (S,) or (B, S).
        at: index of the sample after which it is added, from 0.
        dt: time steps: a number, (B, T) or (B, T, 1); by default 1.
        observed: (B, T, I) bool, which features were measured, for cells that model that.

    Raises:
        ArgumentError: there is no such sample.
        ShapeError: a shape does not fit the network.
    """
    model = unwrap_forward_module("perturb", model)
    states = visited_states(model, x, dt=dt, observed=observed)
    B, T, S = states.shape
    if not 0 <= at < T:
        raise ArgumentError(f"perturb: at={at}, but the samples are 0 to {T - 1}. Choose one.")
    if tuple(displacement.shape) not in ((S,), (B, S)):
        raise shape_error(
            "perturb", "displacement", displacement, f"(S,) = ({S},) or (B, S) = ({B}, {S})", ""
        )
    displaced = states[:, at] + displacement.detach().to(states)
    perturbed = [states[:, :at], displaced.unsqueeze(1)]
    if at + 1 < T:
        gaps = dt[:, at + 1 :] if isinstance(dt, Tensor) and dt.ndim > 1 else dt
        later_observed = None if observed is None else observed[:, at + 1 :]
        perturbed.append(
            visited_states(model, x[:, at + 1 :], dt=gaps, observed=later_observed, hx=displaced)
        )
    return Perturbation(states, torch.cat(perturbed, dim=1), at)
