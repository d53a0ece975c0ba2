"""Base class of wirings, and the synapses that they build."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from inspect import get_annotations
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tauflow._internal.allocation_limit import count_elements
from tauflow._internal.checks import check_at_least, is_readable
from tauflow._internal.init_args import check_argument_aliases, to_python_number
from tauflow._internal.sanitize import format_count
from tauflow.errors import WiringError

Layers = list[tuple[str, list[int]]]


@dataclass(frozen=True, eq=False)
class Synapses:
    """The synapses of one network: +1 excitatory, -1 inhibitory, 0 none.

    Args:
        recurrent: int8, (N, N), from neuron (row) to neuron (column).
        sensory: int8, (D, N), from input feature (row) to neuron (column).

    Raises:
        WiringError: a matrix is no tensor, or has the wrong dtype, shape or values.
    """

    recurrent: Tensor
    sensory: Tensor

    def __post_init__(self) -> None:
        for name, matrix in (("recurrent", self.recurrent), ("sensory", self.sensory)):
            dtype = matrix.dtype if isinstance(matrix, Tensor) else None
            if dtype != torch.int8:
                kind = f"dtype {dtype}" if dtype else f"type {type(matrix).__name__}"
                convert = f"{name}.to(torch.int8)" if dtype else f"torch.as_tensor({name}).char()"
                raise WiringError(
                    f"Synapses: {name} has {kind}, expected torch.int8. Convert it with {convert}."
                )
            neurons = len(self.recurrent) if self.recurrent.ndim else 0
            if matrix.ndim != 2 or matrix.shape[1] != neurons:
                raise WiringError(
                    f"Synapses: {name} has shape {tuple(matrix.shape)} beside "
                    f"{format_count(neurons, 'neuron')}, "
                    "expected recurrent (N, N) and sensory (D, N). Rows are sources, columns are "
                    "targets."
                )
            if not matrix.numel() or not is_readable(matrix.cpu()):
                continue
            if not -1 <= int(matrix.min()) <= int(matrix.max()) <= 1:
                raise WiringError(
                    f"Synapses: {name} has entries from {int(matrix.min())} to "
                    f"{int(matrix.max())}, expected -1, 0 and 1. Keep the signs only."
                )

    @property
    def synapse_count(self) -> int:
        """Number of synapses between neurons."""
        return int(self.recurrent.count_nonzero())

    @property
    def sensory_synapse_count(self) -> int:
        """Number of synapses from input features to neurons."""
        return int(self.sensory.count_nonzero())


class AbstractWiring(ABC):
    """An immutable description of a network's synapses, compared and hashed by value.

    For example, neurons in a ring, each of which hears the one before it and all inputs::

        @dataclass(frozen=True)
        class Ring(AbstractWiring):
            kind: ClassVar[str] = "ring"
            units: int
            output_size: int = 1

            def build(self, input_size: int) -> Synapses:
                recurrent = torch.eye(self.units).roll(1, dims=1).to(torch.int8)
                return Synapses(recurrent, torch.ones(input_size, self.units).to(torch.int8))

    A subclass is a frozen dataclass whose compared fields are its constructor's arguments; it draws
    its synapses in :meth:`build`. The output of the network is read from the first ``output_size``
    neurons. Where fields are checked or computed, it writes an ``__init__`` that calls
    :meth:`_set_fields` once. A dataclass that adds fields to another wiring writes one too: what
    ``dataclass`` makes takes every field, without the defaults and checks of the wiring below.
    """

    kind: ClassVar[str]
    """Name of the wiring in :data:`tauflow.wirings.WIRINGS`."""

    units: int
    """Number of neurons N."""
    output_size: int
    """Number of output neurons, neurons 0 to ``output_size - 1``."""

    def __init_subclass__(cls) -> None:
        """Let the constructor say what is meant by names that other libraries use.

        One that is inherited is made the class's own, which ``dataclass`` then keeps. Where the
        class adds fields, or has no constructor to inherit, ``dataclass`` writes one.
        """
        adds_fields = any("ClassVar" not in str(kind) for kind in get_annotations(cls).values())
        inherited = "__init__" not in vars(cls)
        if inherited and (adds_fields or cls.__init__ is object.__init__):
            return
        init = cls.__init__

        @wraps(init)
        def build(self: AbstractWiring, *args: Any, **options: Any) -> None:
            try:
                init(self, *args, **options)
            except TypeError:
                check_argument_aliases(cls.__name__, options, init)
                raise

        setattr(cls, "__init__", build)  # noqa: B010  # or mypy asks for one signature

    @abstractmethod
    def build(self, input_size: int) -> Synapses:
        """Return the synapses for ``input_size`` features; the same ones at every call."""

    def layers(self) -> Layers:
        """Return names and neurons of the layers, from the input to the output.

        A wiring without layers has one, called ``"neurons"``.
        """
        return [("neurons", list(range(self.units)))]

    def to_dict(self) -> dict[str, Any]:
        """Return the kind and the arguments, for JSON.

        :func:`~tauflow.wirings.wiring_from_dict` builds the wiring again.

        Raises:
            WiringError: the wiring is no dataclass, and does not write this method itself.
        """
        if not is_dataclass(self):
            name = type(self).__name__
            raise WiringError(
                f"{name} is no dataclass, so that nothing tells the arguments it was built with. "
                f"Put @dataclass(frozen=True) above class {name}, with its arguments as fields."
            )
        arguments = {f.name: getattr(self, f.name) for f in fields(self) if f.compare}
        return {"kind": self.kind} | {name: to_python_number(v) for name, v in arguments.items()}

    def _set_fields(self, **values: int | float) -> None:
        """Set the fields of a frozen dataclass that writes its own ``__init__``."""
        for name, value in values.items():
            object.__setattr__(self, name, value)


def check_output_size(units: int, output_size: int | None) -> int:
    """Return the number of output neurons, all of them by default.

    Raises:
        WiringError: there are fewer neurons than outputs.
    """
    if output_size is None:
        return units
    if check_at_least(1, output_size=output_size) > units:
        raise WiringError(
            f"output_size={output_size} asks for more outputs than there are neurons ({units}). "
            f"Raise units to {output_size} or lower output_size."
        )
    return output_size


def make_zero_matrices(input_size: int, units: int) -> tuple[NDArray[np.int8], NDArray[np.int8]]:
    """Return the (N, N) and (D, N) synapses of a network that has none yet."""
    count_elements((check_at_least(1, input_size=input_size) + units) * units)
    return np.zeros((units, units), np.int8), np.zeros((input_size, units), np.int8)


def sample_polarities(rng: np.random.Generator, shape: int | tuple[int, ...]) -> NDArray[np.int8]:
    """Draw signs of which two in three are excitatory, as layer-less wirings have them."""
    return rng.choice([-1, 1, 1], shape).astype(np.int8)


def make_synapses(recurrent: NDArray[np.int8], sensory: NDArray[np.int8]) -> Synapses:
    """Hand two NumPy matrices over as synapses."""
    return Synapses(torch.from_numpy(recurrent), torch.from_numpy(sensory))
