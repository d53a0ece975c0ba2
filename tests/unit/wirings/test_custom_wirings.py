"""Wirings that a user writes: what their author may leave out, and what is refused."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch

import tauflow
from tauflow.cells import LTCCell, WiredCfCCell
from tauflow.errors import OptionError, WiringError
from tauflow.wirings import AbstractWiring, RandomSparse, Synapses, to_networkx


@dataclass(frozen=True)
class Ring(AbstractWiring):
    """Every neuron hears the one before it, as the class's docstring says how to write one."""

    kind: ClassVar[str] = "ring"
    units: int
    output_size: int = 2

    def build(self, input_size: int) -> Synapses:
        ring = torch.eye(self.units).roll(1, 1)
        return Synapses(ring.char(), torch.ones(input_size, self.units).char())


@dataclass(frozen=True)
class Told(AbstractWiring):
    """Builds matrices of the sizes that it was told, and the layers."""

    kind: ClassVar[str] = "told"
    units: int = 6
    output_size: int = 2
    recurrent: tuple[int, ...] = (6, 6)
    sensory: tuple[int, ...] = (3, 6)
    groups: tuple[tuple[str, tuple[int, ...]], ...] = ()

    def build(self, input_size: int) -> Synapses:
        return Synapses(*(torch.ones(shape).char() for shape in (self.recurrent, self.sensory)))

    def layers(self):
        return [(name, list(n)) for name, n in self.groups] or super().layers()


@pytest.mark.parametrize("kind", [LTCCell, WiredCfCCell])
def test_a_plain_frozen_dataclass_is_a_wiring(kind):
    torch.manual_seed(0)
    wiring = Ring(5)
    assert (wiring, hash(wiring)) == (Ring(5, 2), hash(Ring(5, 2)))
    cell = kind(3, wiring)
    assert cell.step(torch.randn(2, 3), torch.zeros(2, 5), torch.ones(2, 1)).shape == (2, 5)


def test_a_wiring_that_is_no_dataclass_runs_and_cannot_be_described():
    class Bare(AbstractWiring):
        kind = "bare"
        units, output_size = 4, 2

        def build(self, input_size: int) -> Synapses:
            return Ring(4).build(input_size)

    cell = LTCCell(3, Bare())
    assert cell.step(torch.zeros(2, 3), torch.zeros(2, 4), torch.ones(2, 1)).shape == (2, 4)
    with pytest.raises(WiringError, match=r"Bare is no dataclass, .* @dataclass\(frozen=True\)"):
        Bare().to_dict()


def test_a_subclass_keeps_the_constructor_that_it_inherits():
    @dataclass(frozen=True)
    class Excitatory(RandomSparse):
        def build(self, input_size: int) -> Synapses:
            drawn = super().build(input_size)
            return Synapses(drawn.recurrent.abs(), drawn.sensory.abs())

    wiring = Excitatory(6, sparsity=0.5)
    assert (wiring.output_size, wiring.seed) == (6, 1111)  # defaults of RandomSparse
    assert wiring.build(3).recurrent.min() == 0
    with pytest.raises(OptionError, match="write output_size="):
        Excitatory(6, output_dim=2)


def test_a_dataclass_that_adds_a_field_takes_it():
    @dataclass(frozen=True)
    class Wide(Ring):
        width: int = 1

        def build(self, input_size: int) -> Synapses:
            ring = super().build(input_size)
            turns = [torch.eye(self.units).roll(k, 1) for k in range(1, self.width + 1)]
            return Synapses(sum(turns).char(), ring.sensory)

    assert Wide(5, width=3).build(2).synapse_count == 15

    @dataclass(frozen=True)
    class Strong(RandomSparse):
        only: str = "all"

        def __init__(self, units: int, only: str = "all", **options) -> None:
            super().__init__(units, **options)
            self._set_fields(only=only)

    strong = Strong(6, "motor", sparsity=0.25)
    assert strong == Strong(6, "motor", sparsity=0.25) != Strong(6, "all", sparsity=0.25)
    assert strong.build(2).synapse_count == 27


@pytest.mark.parametrize("kind", [LTCCell, WiredCfCCell])
@pytest.mark.parametrize(
    ("wiring", "message"),
    [
        (Told(sensory=(1, 6)), r"Told.build\(3\): sensory has shape \(1, 6\).*units\) = \(3, 6\)"),
        (Told(sensory=(5, 6)), r"sensory has shape \(5, 6\).*\(3, 6\)"),
        (Told(recurrent=(8, 8), sensory=(3, 8)), r"recurrent has shape \(8, 8\).*= \(6, 6\)"),
        (Told(recurrent=(1, 1), sensory=(3, 1)), r"recurrent has shape \(1, 1\)"),
        (Told(recurrent=(6, 5)), r"Synapses: recurrent has shape \(6, 5\)"),
        (Told(output_size=9), r"Told: output_size=9 asks for more outputs .* neurons \(6\)"),
        (Told(output_size=0), r"Told: output_size must be a positive integer, got 0"),
        (Told(units=6.0), r"Told: units must be a positive integer, got 6.0"),
    ],
)
def test_a_wiring_that_does_not_fit_is_refused_when_the_cell_is_built(kind, wiring, message):
    with pytest.raises(WiringError, match=message):
        kind(3, wiring)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([("a", (2, 3)), ("b", (0, 1))], "hold each of the neurons 0 to 5 once"),
        ([("a", (2, 3, 4, 5)), ("b", (0, 1, 2))], "hold each of the neurons 0 to 5 once"),
        ([("a", (2, 3, 4)), ("a", (0, 1, 5))], "have different names"),
        ([("a", (0, 1, 2)), ("b", (3, 4, 5))], "last layer, 'b', must begin with the output"),
    ],
)
def test_layers_that_do_not_divide_the_neurons_are_refused(groups, message):
    wiring = Told(groups=tuple(groups))
    with pytest.raises(WiringError, match=f"Told: .*{message}"):
        WiredCfCCell(3, wiring)
    pytest.importorskip("networkx")
    with pytest.raises(WiringError, match=message):
        to_networkx(wiring, 3)


def test_what_build_returns_is_looked_at():
    class Pair(Ring):
        def build(self, input_size: int):
            return torch.zeros(5, 5), torch.zeros(input_size, 5)

    class Dice(Ring):
        def build(self, input_size: int) -> Synapses:
            drawn = torch.randint(-1, 2, (self.units, self.units))
            return Synapses(drawn.char(), torch.ones(input_size, self.units).char())

    with pytest.raises(WiringError, match=r"Pair.build\(3\) returned tuple, expected Synapses"):
        LTCCell(3, Pair(5))
    with pytest.raises(WiringError, match=r"Dice.build\(3\) returned other synapses"):
        LTCCell(3, Dice(5))
    with pytest.raises(WiringError, match=r"recurrent has type ndarray, expected torch.int8"):
        Synapses(np.zeros((2, 2), np.int8), np.zeros((2, 2), np.int8))
    with pytest.raises(WiringError, match=r"recurrent has shape \(\) beside 0 neurons"):
        Synapses(torch.zeros((), dtype=torch.int8), torch.zeros(0, 0, dtype=torch.int8))


def test_the_layers_above_build_the_wiring_for_their_own_inputs():
    with pytest.raises(WiringError, match=r"Told.build\(2\): sensory has shape \(3, 6\)"):
        tauflow.LTC(3, Told(), num_layers=2)
    assert tauflow.LTC(3, Ring(5), num_layers=2)(torch.randn(2, 4, 3))[0].shape == (2, 4, 2)
