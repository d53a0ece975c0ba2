"""A wiring given synapse by synapse."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from tauflow._internal.checks import find_type_mismatch
from tauflow._internal.sanitize import format_count
from tauflow.errors import WiringError

from .base import AbstractWiring, Layers, Synapses, check_output_size, make_synapses
from .validation import check_layers

_Matrix = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, init=False)
class ExplicitWiring(AbstractWiring):
    """A wiring given by its synapses.

    Args:
        recurrent: (N, N) integers, +1 excitatory, -1 inhibitory, 0 none; rows are sources.
        sensory: (D, N), likewise; the wiring serves D input features and no other number.
        output_size: output neurons M; all by default.
        layers: names and neurons of the layers, from the input to the output; every neuron is in
            one, and the last layer begins with the output neurons 0 to M - 1. One layer by default.

    Raises:
        WiringError: a matrix is not of integers or has the wrong shape or values, there are fewer
            neurons than outputs, or the layers do not divide the neurons.
    """

    kind: ClassVar[str] = "explicit"

    recurrent: _Matrix = field(repr=False)
    sensory: _Matrix = field(repr=False)
    output_size: int
    neurons_of_layers: tuple[tuple[str, tuple[int, ...]], ...] = field(repr=False)
    units: int = field(compare=False)

    def __init__(
        self,
        recurrent: Tensor | ArrayLike,
        sensory: Tensor | ArrayLike,
        output_size: int | None = None,
        layers: Sequence[tuple[str, Sequence[int]]] | None = None,
    ) -> None:
        matrices = {
            "recurrent": _to_rows(recurrent, "recurrent"),
            "sensory": _to_rows(sensory, "sensory"),
        }
        if wrong := find_type_mismatch(ExplicitWiring.__init__, {"layers": layers}):
            raise WiringError(f"ExplicitWiring: {wrong}. Give names and lists of neurons.")
        units = len(matrices["recurrent"])
        outputs = check_output_size(units, output_size)
        for name, value in {
            **matrices,
            "output_size": outputs,
            "neurons_of_layers": _to_layers(units, outputs, layers),
            "units": units,
        }.items():
            object.__setattr__(self, name, value)
        self._synapses()  # refuses wrong shapes and values now rather than in a model

    def layers(self) -> Layers:
        """Return the layers, from the input to the output."""
        return [(name, list(neurons)) for name, neurons in self.neurons_of_layers]

    def build(self, input_size: int) -> Synapses:
        """Return the synapses.

        Raises:
            WiringError: ``input_size`` is not the number of rows of ``sensory``.
        """
        if input_size != len(self.sensory):
            raise WiringError(
                "ExplicitWiring: sensory has synapses for "
                f"{format_count(len(self.sensory), 'input feature')}, "
                f"but input_size={input_size}. Give it {format_count(input_size, 'row')}."
            )
        return self._synapses()

    def to_dict(self) -> dict[str, Any]:
        """Return the kind and the arguments, for JSON."""
        return {
            "kind": self.kind,
            "recurrent": [list(row) for row in self.recurrent],
            "sensory": [list(row) for row in self.sensory],
            "output_size": self.output_size,
            "layers": [[name, neurons] for name, neurons in self.layers()],
        }

    def _synapses(self) -> Synapses:
        return make_synapses(np.array(self.recurrent, np.int8), np.array(self.sensory, np.int8))


def _to_rows(matrix: Tensor | ArrayLike, name: str) -> _Matrix:
    try:
        array = np.asarray(matrix)
    except ValueError:  # of rows that are not equally long
        array = np.empty(0)
    if array.ndim != 2 or array.dtype.kind not in "iu":
        raise WiringError(
            f"ExplicitWiring: {name} must be a matrix of integers, got shape {array.shape} and "
            f"dtype {array.dtype}. Pass -1, 0 and 1, with sources as rows."
        )
    if array.size and not -1 <= array.min() <= array.max() <= 1:
        raise WiringError(
            f"ExplicitWiring: {name} has entries from {array.min()} to {array.max()}, expected "
            "-1, 0 and 1. Keep the signs only."
        )
    return tuple(tuple(row) for row in array.tolist())


def _to_layers(
    units: int, outputs: int, layers: Sequence[tuple[str, Sequence[int]]] | None
) -> tuple[tuple[str, tuple[int, ...]], ...]:
    if layers is None:
        return (("neurons", tuple(range(units))),)
    frozen = tuple((name, tuple(neurons)) for name, neurons in layers)
    check_layers("ExplicitWiring", frozen, units, outputs)
    return frozen
