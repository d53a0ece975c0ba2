"""Random sparse wirings."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tauflow._internal.checks import check_at_least, check_within
from tauflow._internal.sanitize import format_count
from tauflow.errors import WiringError

from .base import (
    AbstractWiring,
    Synapses,
    check_output_size,
    make_synapses,
    make_zero_matrices,
    sample_polarities,
)


@dataclass(frozen=True, init=False)
class RandomSparse(AbstractWiring):
    """Keep a random ``1 - sparsity`` of all synapses; two in three are excitatory.

    Source: Lechner et al. 2020, "Neural circuit policies enabling auditable autonomy" (the sparse
    baseline); draws as in ``Random`` of the authors' ``ncps`` 1.0.

    Args:
        units: neurons.
        output_size: output neurons; all by default.
        sparsity: share of the synapses left out, from 0 to below 1.
        seed: seed of pairs and polarities.

    Raises:
        ArgumentError: a size is not a positive integer, the seed is negative, or the sparsity is
            not a number from 0 to 1.
        WiringError: ``output_size`` is above ``units``, or nothing would be connected.
    """

    kind: ClassVar[str] = "random-sparse"

    units: int
    output_size: int
    sparsity: float
    seed: int

    def __init__(
        self,
        units: int,
        output_size: int | None = None,
        *,
        sparsity: float = 0.5,
        seed: int = 1111,
    ) -> None:
        if check_within(0, 1, sparsity=sparsity) == 1:
            raise WiringError(
                "RandomSparse: sparsity=1 leaves no synapse. Choose a sparsity below 1."
            )
        self._set_fields(
            units=check_at_least(1, units=units),
            output_size=check_output_size(units, output_size),
            sparsity=sparsity,
            seed=check_at_least(0, seed=seed),
        )

    def build(self, input_size: int) -> Synapses:
        """Return the synapses for ``input_size`` features; the same ones at every call."""
        recurrent, sensory = make_zero_matrices(input_size, self.units)
        rng = np.random.default_rng(self.seed)
        self._sample_synapses(rng, recurrent, sample_count=1)
        # ncps draws each sensory polarity twice and keeps the second; following it costs nothing
        # and lets the wiring of a published network be rebuilt from its seed.
        self._sample_synapses(rng, sensory, sample_count=2)
        return make_synapses(recurrent, sensory)

    def _sample_synapses(
        self, rng: np.random.Generator, matrix: NDArray[np.int8], *, sample_count: int
    ) -> None:
        """Draw (sources, N) synapses, each polarity ``sample_count`` times; the last one counts."""
        sources, number = len(matrix), round(matrix.size * (1 - self.sparsity))
        if number == 0:
            raise WiringError(
                f"RandomSparse: sparsity={self.sparsity} keeps none of the "
                f"{format_count(matrix.size, 'synapse')} "
                f"from {format_count(sources, 'source')} to {format_count(self.units, 'neuron')}. "
                "Lower sparsity or raise units."
            )
        chosen = rng.choice(matrix.size, size=number, replace=False)
        matrix.reshape(-1)[chosen] = sample_polarities(rng, (number, sample_count))[:, -1]
