"""Wired cells in a form in which only the synapses that exist are evaluated.

A cell's own step computes with a matrix of all pairs of neurons and a mask of the synapses, which
suits processors with wide vectors. On a microcontroller every pair costs: here a synapse is a row
of a list, with its source, its target and its parameters. The forms have no parameters of their
own, are for one model as it is now, and are held against it before they are written.
"""

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tauflow.cells import AbstractCell, LTCCell, MixedMemoryCell, WiredCfCCell
from tauflow.cells.cfc_heads import ClosedFormHeads
from tauflow.solvers import integrate_semilinear


def to_sparse(cell: AbstractCell) -> AbstractCell:
    """Return a cell, or a module with the same step, that evaluates existing synapses only.

    Those without missing synapses, and cells without wirings, are returned as they are. The cell
    given may be changed.
    """
    if type(cell) is MixedMemoryCell:
        cell.core = to_sparse(cell.core)
    if type(cell) is LTCCell and not bool(cell.synapses.all() and cell.synapses_x.all()):
        return cast(AbstractCell, _SparseLTC(cell))
    if type(cell) is WiredCfCCell:
        for index, layer in enumerate(cell.layers):
            if type(layer) is ClosedFormHeads and _has_missing_synapses(layer):
                cell.layers[index] = _SparseHeads(layer)
    return cell


class _SparseLTC(nn.Module):
    """The conductance form over a list of synapses."""

    g_l: Tensor
    C: Tensor
    drive: Tensor
    a_in: Tensor | None
    b_in: Tensor | None
    a_out: Tensor | None
    b_out: Tensor | None

    def __init__(self, cell: LTCCell) -> None:
        super().__init__()
        self._cell = (cell,)  # not a part, whose matrices would be exported too
        self.state_size = cell.state_size
        self.recurrent = _SparseSynapses(cell, cell.synapses, "")
        self.sensory = _SparseSynapses(cell, cell.synapses_x, "_x")
        g_l = cell.constrain(cell.g_l)
        for name, value in (("g_l", g_l), ("C", cell.constrain(cell.C)), ("drive", g_l * cell.V_l)):
            self.register_buffer(name, value)
        for name in ("a_in", "b_in", "a_out", "b_out"):
            self.register_buffer(name, getattr(cell, name))

    def step(self, x: Tensor, h: Tensor, dt: Tensor) -> Tensor:
        """Advance the potentials."""
        (cell,) = self._cell
        u = x if self.a_in is None else x * self.a_in
        u = u if self.b_in is None else u + self.b_in
        drive_x, conductance_x = self.sensory(u)
        drive_x = drive_x + self.drive
        conductance_x = conductance_x + self.g_l
        if cell.solver == "fused":
            conductance_x = conductance_x + cell.epsilon

        def terms(v: Tensor) -> tuple[Tensor, Tensor]:
            drive, conductance = self.recurrent(v)
            return drive_x + drive, conductance_x + conductance

        gap = cell.time_scale * dt + cell.dt_offset
        return integrate_semilinear(
            terms, h, gap, solver=cell.solver, substeps=cell.substeps, capacity=self.C
        )

    def readout(self, h: Tensor) -> Tensor:
        """Return the mapped potentials of the motor neurons."""
        y = h[..., : self._cell[0].output_size]
        y = y if self.a_out is None else y * self.a_out
        return y if self.b_out is None else y + self.b_out


class _SparseSynapses(nn.Module):
    """Conductances of a list of synapses, summed over those that end at a neuron."""

    source: Tensor
    target: Tensor
    w: Tensor
    mu: Tensor
    sigma: Tensor
    E: Tensor

    def __init__(self, cell: LTCCell, present: Tensor, kind: str) -> None:
        super().__init__()
        source, target = present.nonzero(as_tuple=True)
        self.neurons = present.shape[1]
        self.register_buffer("source", source)
        self.register_buffer("target", target)
        pick = (source, target)
        values: dict[str, Any] = {n: getattr(cell, f"{n}{kind}") for n in ("w", "mu", "sigma", "E")}
        self.register_buffer("w", cell.constrain(values["w"])[pick] * present[pick])
        for name in ("mu", "sigma", "E"):
            self.register_buffer(name, values[name][pick])

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return the summed conductance x reversal and conductance of sources z, (B, N) each."""
        seen = torch.index_select(z, 1, self.source)
        g = self.w * torch.sigmoid(self.sigma * (seen - self.mu))
        return self._sum_by_target(g * self.E), self._sum_by_target(g)

    def _sum_by_target(self, values: Tensor) -> Tensor:
        return sum_by_target(values, self.target, self.neurons)


class _SparseHeads(nn.Module):
    """Heads whose synaptic inputs are a list; recurrence in the layer and time heads are dense."""

    source: Tensor
    target: Tensor
    own: Tensor
    time: Tensor
    bias: Tensor
    w: Tensor

    def __init__(self, layer: ClosedFormHeads) -> None:
        super().__init__()
        self._layer = (layer,)
        assert layer.synapses is not None
        rows = layer.hidden_size * (1 if layer.mode == "pure" else 2)
        self.inputs = layer.weight.shape[1] - layer.hidden_size
        weight = layer.weight * layer.synapses
        present = layer.synapses[:rows, : self.inputs]
        target, source = present.nonzero(as_tuple=True)
        self.rows, self.hidden_size = rows, layer.hidden_size
        self.register_buffer("source", source)
        self.register_buffer("target", target)
        self.register_buffer("w", weight[target, source])
        self.register_buffer("own", weight[:rows, self.inputs :].contiguous())
        self.register_buffer("time", weight[rows:].contiguous())
        self.register_buffer("bias", layer.bias.detach())

    def forward(self, z: Tensor, dt: Tensor) -> Tensor:
        """Return the state after ``dt``."""
        seen = torch.index_select(z, 1, self.source) * self.w
        heads = sum_by_target(seen, self.target, self.rows)
        heads = heads + F.linear(z[:, self.inputs :], self.own, self.bias[: self.rows])
        if len(self.time):
            heads = torch.cat([heads, F.linear(z, self.time, self.bias[self.rows :])], dim=-1)
        (layer,) = self._layer
        return layer.combine_heads(heads, dt, *layer.time_parameters())


def sum_by_target(values: Tensor, target: Tensor, count: int) -> Tensor:
    """Sum values (B, K) that have the same target, (B, count)."""
    zeros = values.new_zeros(values.shape[0], count)
    return zeros.scatter_add(1, target.expand(values.shape[0], -1), values)


def _has_missing_synapses(layer: ClosedFormHeads) -> bool:
    return layer.synapses is not None and not bool(layer.synapses.all())
