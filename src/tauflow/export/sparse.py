"""Wired cells that evaluate only the synapses that exist.

A cell's own step computes with a matrix of all pairs of neurons and a mask of the synapses, which
suits processors with wide vectors. On a microcontroller every pair costs: here a synapse is an
entry of a list, with its source, its target and its parameters.
"""

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tauflow.cells import AbstractCell, LTCCell, MixedMemoryCell, WiredCfCCell
from tauflow.cells.cfc_heads import ClosedFormHeads
from tauflow.cells.ltc import integrate_potentials
from tauflow.solvers.semi_implicit import Pair


def to_sparse(cell: AbstractCell) -> AbstractCell:
    """Return a cell, or a module with the same step, that evaluates existing synapses only.

    Those without missing synapses, and cells without wirings, are returned as they are. The cell
    given may be changed.
    """
    if type(cell) is MixedMemoryCell:
        cell._modules["core"] = to_sparse(cell.core)  # of a copy, past what fixes its parts
    if type(cell) is LTCCell and not bool(cell.synapses.all() and cell.synapses_x.all()):
        return cast(AbstractCell, _SparseLTC(cell))
    if type(cell) is WiredCfCCell:
        for index, layer in enumerate(cell.layers):
            if type(layer) is ClosedFormHeads and _has_missing_synapses(layer):
                cell.layers._modules[str(index)] = _SparseHeads(layer)
    return cell


class _SynapseList(nn.Module):
    """The synapses that a matrix of sources (rows) and targets (columns) says there are."""

    source: Tensor
    target: Tensor

    def __init__(self, present: Tensor) -> None:
        super().__init__()
        source, target = present.nonzero(as_tuple=True)
        self.num_targets = present.shape[1]
        self.register_buffer("source", source)
        self.register_buffer("target", target)

    def select(self, matrix: Tensor) -> Tensor:
        """Return the entries of a matrix, (K,)."""
        return matrix[self.source, self.target]

    def read(self, z: Tensor) -> Tensor:
        """Return the source of each synapse, (B, K), of sources (B, J)."""
        return torch.index_select(z, 1, self.source)

    def sum_by_target(self, values: Tensor) -> Tensor:
        """Sum values (B, K) that have the same target, (B, N)."""
        zeros = values.new_zeros(values.shape[0], self.num_targets)
        return zeros.scatter_add(1, self.target.expand(values.shape[0], -1), values)


class _SparseLTC(nn.Module):
    """An LTC over lists of synapses."""

    def __init__(self, cell: LTCCell) -> None:
        super().__init__()
        self.cell = cell
        self.sensory, self.recurrent = _SynapseList(cell.synapses_x), _SynapseList(cell.synapses)

    def step(self, x: Tensor, h: Tensor, dt: Tensor) -> Tensor:
        """Advance the potentials."""
        u, span = self.cell.map_input(x, dt)
        weights_x, weights, leak, C = self.cell.packed_parameters()
        sensory = _make_currents(self.sensory, weights_x)(u)
        recurrent = _make_currents(self.recurrent, weights)
        config = self.cell.static_config()
        return integrate_potentials(config, h, span, sensory, recurrent, leak, C)

    forward = step

    def readout(self, h: Tensor) -> Tensor:
        """Return the mapped potentials of the motor neurons."""
        return self.cell.readout(h)


def _make_currents(synapses: _SynapseList, weights: Tensor) -> Callable[[Tensor], Pair]:
    """Return what maps sources to their summed conductance x reversal and conductance."""
    sigma, mu, w, E = map(synapses.select, weights.unbind())

    def currents(z: Tensor) -> Pair:
        g = w * torch.sigmoid(sigma * (synapses.read(z) - mu))
        return synapses.sum_by_target(g * E), synapses.sum_by_target(g)

    return currents


class _SparseHeads(nn.Module):
    """Heads whose synaptic inputs are a list; recurrence in the layer and time heads are dense."""

    def __init__(self, layer: ClosedFormHeads) -> None:
        super().__init__()
        assert layer.synapses is not None
        self.layer, self.hidden_size = layer, layer.hidden_size
        self.rows = layer.hidden_size * (1 if layer.mode == "pure" else 2)
        self.inputs = layer.weight.shape[1] - layer.hidden_size
        self.synapses = _SynapseList(layer.synapses[: self.rows, : self.inputs].T)

    def forward(self, z: Tensor, dt: Tensor) -> Tensor:
        """Return the state after ``dt``."""
        layer, rows, bias = self.layer, self.rows, self.layer.bias
        assert layer.synapses is not None
        weight = layer.weight * layer.synapses
        heads = self.synapses.sum_by_target(self.synapses.read(z) * self.synapses.select(weight.T))
        heads = heads + F.linear(z[:, self.inputs :], weight[:rows, self.inputs :], bias[:rows])
        if rows < len(bias):
            heads = torch.cat([heads, F.linear(z, weight[rows:], bias[rows:])], dim=-1)
        return layer.combine_heads(heads, dt, *layer.time_parameters())


def _has_missing_synapses(layer: ClosedFormHeads) -> bool:
    return layer.synapses is not None and not bool(layer.synapses.all())
