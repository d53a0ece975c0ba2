"""Validate the sizes, layers and synapses of a wiring before a cell is built from it.

Kernels read as far as the sizes of a cell say, and torch broadcasts a matrix of one row.
"""

from collections.abc import Iterable, Sequence
from numbers import Integral

import torch
from torch import Tensor

from tauflow._internal.checks import is_readable
from tauflow.errors import WiringError

from .base import AbstractWiring, Layers, Synapses


def check_sizes(wiring: AbstractWiring) -> None:
    """Raise :class:`WiringError` unless a wiring has neurons, and outputs among them."""
    name = type(wiring).__name__
    for size in ("units", "output_size"):
        value = getattr(wiring, size, None)
        if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
            raise WiringError(
                f"{name}: {size} must be a positive integer, got {value!r}. Make it a field of "
                "the wiring, or a property."
            )
    if wiring.output_size > wiring.units:
        raise WiringError(
            f"{name}: output_size={wiring.output_size} asks for more outputs than there are "
            f"neurons ({wiring.units}). Raise units to {wiring.output_size} or lower output_size."
        )


def build_synapses(wiring: AbstractWiring, input_size: int) -> Synapses:
    """Build the synapses of a wiring and check them.

    Args:
        wiring: the wiring.
        input_size: number of input features D.

    Raises:
        WiringError: ``build`` did not return :class:`Synapses` of (N, N) and (D, N), or one's own
            returns others at the next call.
    """
    built = _call_build(wiring, input_size)
    if not _is_builtin(wiring):
        again = _call_build(wiring, input_size)
        if not (
            _are_equal(built.recurrent, again.recurrent)
            and _are_equal(built.sensory, again.sensory)
        ):
            raise WiringError(
                f"{type(wiring).__name__}.build({input_size}) returned other synapses when it was "
                "called again. Draw them with a generator that every call seeds again."
            )
    return built


def get_layers(wiring: AbstractWiring) -> Layers:
    """Return the layers of a wiring; each neuron is in one layer.

    Raises:
        WiringError: they do not, or the last one does not begin with the output neurons.
    """
    layers = wiring.layers()
    check_layers(type(wiring).__name__, layers, wiring.units, wiring.output_size)
    return layers


def check_layers(
    where: str, layers: Iterable[tuple[str, Sequence[int]]], units: int, output_size: int
) -> None:
    """Raise unless layers divide the neurons, and the last one begins with the output neurons.

    Args:
        where: name of the wiring, for messages.
        layers: names and neurons, from the input to the output.
        units: neurons N.
        output_size: output neurons M.

    Raises:
        WiringError: they do not.
    """
    named_layers = [(name, list(neurons)) for name, neurons in layers]
    members = [neuron for _, neurons in named_layers for neuron in neurons]
    if sorted(members) != list(range(units)) or len(dict(named_layers)) != len(named_layers):
        raise WiringError(
            f"{where}: layers must have different names and hold each of the neurons 0 "
            f"to {units - 1} once, got {named_layers}."
        )
    last, neurons = named_layers[-1]
    if neurons[:output_size] != list(range(output_size)):
        raise WiringError(
            f"{where}: the last layer, {last!r}, must begin with the output "
            f"neurons 0 to {output_size - 1}. Number the neurons again, or lower output_size."
        )


def _call_build(wiring: AbstractWiring, input_size: int) -> Synapses:
    call = f"{type(wiring).__name__}.build({input_size})"
    built = wiring.build(input_size)
    if not isinstance(built, Synapses):
        raise WiringError(
            f"{call} returned {type(built).__name__}, expected Synapses. Return "
            "Synapses(recurrent, sensory) of two int8 matrices, (N, N) and (D, N)."
        )
    expected = {
        "recurrent": (built.recurrent, "(units, units)", (wiring.units, wiring.units)),
        "sensory": (built.sensory, "(input_size, units)", (input_size, wiring.units)),
    }
    for name, (matrix, symbols, shape) in expected.items():
        if tuple(matrix.shape) != shape:
            raise WiringError(
                f"{call}: {name} has shape {tuple(matrix.shape)}, expected {symbols} = {shape}. "
                "Rows are sources, columns are targets."
            )
    return built


def _is_builtin(wiring: AbstractWiring) -> bool:
    """Whether the library itself draws the synapses, from a seed."""
    return type(wiring).build.__module__.partition(".")[0] == "tauflow"


def _are_equal(a: Tensor, b: Tensor) -> bool:
    return not (is_readable(a) and is_readable(b)) or torch.equal(a, b)
