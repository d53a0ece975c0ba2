"""Neural circuit policies: sensory, inter, command and motor neurons, sparsely connected."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tauflow._internal.allocation_limit import count_elements
from tauflow._internal.checks import check_at_least, check_seed, check_within
from tauflow._internal.sanitize import format_count
from tauflow.errors import WiringError

from .base import AbstractWiring, Layers, Synapses, make_synapses, make_zero_matrices


@dataclass(frozen=True, init=False)
class NCP(AbstractWiring):
    """Four layers as in C. elegans: inputs, inter, command and motor neurons.

    Each input synapses onto some inter neurons, each inter neuron onto some command neurons,
    command neurons onto each other, and each motor neuron hears some command neurons. About half of
    the synapses are excitatory. Neurons are numbered motor first, then command, then inter, so that
    the output is the first ``motor`` neurons.

    Source: Lechner et al. 2020, "Neural circuit policies enabling auditable autonomy", Methods;
    draws as in the authors' ``ncps`` 1.0.
    Differs from the code: a command neuron that no inter neuron chose gets as many inputs as the
    others have on average, as inter and motor neurons do; the code allows it at most ``command``.

    Args:
        inter: inter neurons.
        command: command neurons.
        motor: motor neurons; they are the output.
        sensory_fanout: inter neurons that each input synapses onto.
        inter_fanout: command neurons that each inter neuron synapses onto.
        recurrent_command_synapses: draws of a synapse among command neurons; repeated pairs count
            once.
        motor_fanin: command neurons that each motor neuron hears.
        seed: seed of targets and polarities, from 0 to 2**32 - 1.

    Raises:
        ArgumentError: a number is not an integer, or is too small or too large.
        WiringError: a layer has too few neurons.
    """

    kind: ClassVar[str] = "ncp"

    inter: int
    command: int
    motor: int
    sensory_fanout: int
    inter_fanout: int
    recurrent_command_synapses: int
    motor_fanin: int
    seed: int
    units: int = field(repr=False, compare=False)
    output_size: int = field(repr=False, compare=False)

    def __init__(
        self,
        inter: int,
        command: int,
        motor: int,
        *,
        sensory_fanout: int,
        inter_fanout: int,
        recurrent_command_synapses: int,
        motor_fanin: int,
        seed: int = 22222,
    ) -> None:
        self._set_fields(
            inter=check_at_least(1, inter=inter),
            command=check_at_least(1, command=command),
            motor=check_at_least(1, motor=motor),
            sensory_fanout=check_at_least(1, sensory_fanout=sensory_fanout),
            inter_fanout=check_at_least(1, inter_fanout=inter_fanout),
            recurrent_command_synapses=check_at_least(
                0, recurrent_command_synapses=recurrent_command_synapses
            ),
            motor_fanin=check_at_least(1, motor_fanin=motor_fanin),
            seed=check_seed(32, seed=seed),
            units=inter + command + motor,
            output_size=motor,
        )
        _check_layer_size("inter", inter, "sensory_fanout", sensory_fanout)
        _check_layer_size("command", command, "inter_fanout", inter_fanout)
        _check_layer_size("command", command, "motor_fanin", motor_fanin)

    def layers(self) -> Layers:
        """Return inter, command and motor neurons."""
        first_inter = self.motor + self.command
        return [
            ("inter", list(range(first_inter, self.units))),
            ("command", list(range(self.motor, first_inter))),
            ("motor", list(range(self.motor))),
        ]

    def build(self, input_size: int) -> Synapses:
        """Return the synapses for ``input_size`` features; the same ones at every call."""
        recurrent, sensory = make_zero_matrices(input_size, self.units)
        count_elements(self.recurrent_command_synapses)
        inter, command, motor = (neurons for _, neurons in self.layers())

        rng = np.random.RandomState(self.seed)  # the legacy generator, as ncps uses
        _connect(rng, sensory, range(input_size), inter, self.sensory_fanout)
        _connect(rng, recurrent, inter, command, self.inter_fanout)
        for _ in range(self.recurrent_command_synapses):
            source, target = rng.choice(command), rng.choice(command)
            recurrent[source, target] = _sample_polarity(rng)
        # Motor neurons choose their sources, so the matrix is seen from the target's side.
        _connect(rng, recurrent.T, motor, command, self.motor_fanin)
        return make_synapses(recurrent, sensory)


@dataclass(frozen=True, init=False)
class AutoNCP(AbstractWiring):
    """An :class:`NCP` whose layers and fan-outs follow from three numbers.

    Of the neurons that are not motor neurons, 40 % are command neurons and the rest inter neurons;
    each fan-out is ``1 - sparsity`` of the layer it reaches, and at least one.

    Source: ``AutoNCP`` of the authors' ``ncps`` 1.0; no paper states the rule.

    Args:
        units: neurons; at least ``output_size + 3``.
        output_size: motor neurons.
        sparsity: share of the synapses left out, from 0.1 to 1.
        seed: seed of targets and polarities, from 0 to 2**32 - 1.

    Raises:
        ArgumentError: a size is not a positive integer, or the sparsity or seed is out of range.
        WiringError: too few neurons are left for the inter and command layers.
    """

    kind: ClassVar[str] = "auto-ncp"

    units: int
    output_size: int
    sparsity: float
    seed: int

    def __init__(
        self, units: int, output_size: int, sparsity: float = 0.5, *, seed: int = 22222
    ) -> None:
        self._set_fields(
            units=check_at_least(1, units=units),
            output_size=check_at_least(1, output_size=output_size),
            sparsity=check_within(0.1, 1.0, sparsity=sparsity),
            seed=check_seed(32, seed=seed),
        )
        if units < output_size + 3:
            raise WiringError(
                f"AutoNCP: {format_count(units, 'unit')} with "
                f"{format_count(output_size, 'motor neuron')} leave "
                f"{units - output_size} for the inter and command layers, which need at least 3. "
                f"Raise units to {output_size + 3} or more, or lower output_size."
            )

    @property
    def ncp(self) -> NCP:
        """The same wiring with every number spelt out."""
        density = 1.0 - self.sparsity
        others = self.units - self.output_size
        command = max(int(0.4 * others), 1)
        inter = others - command
        return NCP(
            inter,
            command,
            self.output_size,
            sensory_fanout=max(int(inter * density), 1),
            inter_fanout=max(int(command * density), 1),
            recurrent_command_synapses=max(int(command * density * 2), 1),
            motor_fanin=max(int(command * density), 1),
            seed=self.seed,
        )

    def layers(self) -> Layers:
        """Return inter, command and motor neurons."""
        return self.ncp.layers()

    def build(self, input_size: int) -> Synapses:
        """Return the synapses for ``input_size`` features; the same ones at every call."""
        return self.ncp.build(input_size)


def _sample_polarity(rng: np.random.RandomState) -> int:
    return int(rng.choice([-1, 1]))


def _connect(
    rng: np.random.RandomState,
    matrix: NDArray[np.int8],
    choosers: Sequence[int],
    choices: Sequence[int],
    count: int,
) -> None:
    """Let every chooser (row) take ``count`` distinct choices (columns), forgetting no choice.

    A choice that no chooser took then takes as many choosers as the others have on average.
    """
    taken: set[int] = set()
    for chooser in choosers:
        for choice in rng.choice(choices, size=count, replace=False):
            matrix[chooser, choice] = _sample_polarity(rng)
            taken.add(int(choice))
    average = max(int(len(choosers) * count / len(choices)), 1)
    for choice in (choice for choice in choices if choice not in taken):
        for chooser in rng.choice(choosers, size=average, replace=False):
            matrix[chooser, choice] = _sample_polarity(rng)


def _check_layer_size(layer: str, size: int, option: str, count: int) -> None:
    if count > size:
        raise WiringError(
            f"NCP: the {layer} layer has too few neurons: "
            f"{option}={count} distinct are asked "
            f"for, but {layer}={size}. Raise {layer} to {count} or lower {option}."
        )
