"""Fully connected wirings."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tauflow._internal.checks import check_at_least, check_bool

from .base import (
    AbstractWiring,
    Synapses,
    check_output_size,
    make_synapses,
    make_zero_matrices,
    sample_polarities,
)
from .validation import check_sizes


@dataclass(frozen=True, init=False)
class FullyConnected(AbstractWiring):
    """Connect all inputs and all neurons to all neurons; two synapses in three are excitatory.

    Source: Lechner et al. 2020, "Neural circuit policies enabling auditable autonomy" (the
    fully-connected baseline); draws as in the authors' ``ncps`` 1.0.

    Args:
        units: neurons.
        output_size: output neurons; all by default.
        seed: seed of the polarities.
        self_connections: whether a neuron may synapse onto itself.

    Raises:
        ArgumentError: a size is not a positive integer, or the seed is negative.
        WiringError: ``output_size`` is above ``units``.
    """

    kind: ClassVar[str] = "fully-connected"

    units: int
    output_size: int
    seed: int
    self_connections: bool

    def __init__(
        self,
        units: int,
        output_size: int | None = None,
        *,
        seed: int = 1111,
        self_connections: bool = True,
    ) -> None:
        self._set_fields(
            units=check_at_least(1, units=units),
            output_size=check_output_size(units, output_size),
            seed=check_at_least(0, seed=seed),
            self_connections=check_bool(self_connections=self_connections),
        )

    def build(self, input_size: int) -> Synapses:
        """Return the synapses for ``input_size`` features; the same ones at every call."""
        recurrent, _ = make_zero_matrices(input_size, self.units)
        rng = np.random.default_rng(self.seed)
        # No polarity is drawn for a missing self-connection: the others would change with it.
        allowed = np.full_like(recurrent, True, bool)
        if not self.self_connections:
            np.fill_diagonal(allowed, False)
        recurrent[allowed] = sample_polarities(rng, int(allowed.sum()))
        return make_synapses(recurrent, sample_polarities(rng, (input_size, self.units)))


def as_wiring(hidden_size: int | AbstractWiring) -> AbstractWiring:
    """Return a wiring as it is, and a number of neurons as a full one.

    Raises:
        ArgumentError: it is neither a wiring nor a positive integer.
        WiringError: the wiring has no neurons, no outputs, or more outputs than neurons.
    """
    if isinstance(hidden_size, AbstractWiring):
        check_sizes(hidden_size)
        return hidden_size
    return FullyConnected(check_at_least(1, hidden_size=hidden_size))
