"""A model of what a training step costs in time and memory, to plan with; see docs/cost.md."""

from typing import NamedTuple

from .roofline import Rates

CALL = 1.5e-3
"""Seconds of a training step that no length makes shorter."""
STEP = {"LTC": 6e-6, "CfC": 3.5e-6}
"""Seconds per step of the sequence that no width makes shorter."""
SIGMOID_WORK = 4.2
"""Sigmoids that a synapse is worth per sub-step of a training step: there, back, and sums."""
WEIGHT_BYTES = 4e10
"""Bytes of weights per second that one thread streams from its caches to few rows."""
UNITS = 128
"""Backbone units of a CfC, by default."""


class Cost(NamedTuple):
    """Seconds and bytes of a training step."""

    seconds: float
    bytes: float


def ltc_cost(
    rates: Rates, batch: int, steps: int, inputs: int, neurons: int, substeps: int = 6
) -> Cost:
    """Predict an LTC: sigmoids of all synapses; kept are three numbers per neuron and sub-step."""
    synapses = batch * neurons * (inputs + substeps * neurons)
    seconds = CALL + steps * (STEP["LTC"] + SIGMOID_WORK * synapses / rates.sigmoids)
    return Cost(seconds, 4.0 * batch * steps * (3 * substeps * neurons + 2 * inputs))


def cfc_cost(
    rates: Rates, batch: int, steps: int, inputs: int, neurons: int, threads: int = 2
) -> Cost:
    """Predict a CfC: products, or the streaming of its weights where there are few rows.

    Kept are the backbone's units, four heads and the state, there and back.
    """
    weights = (inputs + neurons) * UNITS + 4 * neurons * UNITS
    products = 6 * batch * weights / rates.flops
    streamed = 3 * 4 * weights / WEIGHT_BYTES * min(1.0, batch / threads)
    seconds = CALL + steps * (STEP["CfC"] + max(products, streamed))
    return Cost(seconds, 4.0 * batch * steps * (2 * UNITS + 8 * neurons + 2 * inputs))


def cost(
    name: str, rates: Rates, *, batch: int, steps: int, inputs: int, neurons: int, threads: int
) -> Cost:
    """Predict a training step of a model by name."""
    if name == "LTC":
        return ltc_cost(rates, batch, steps, inputs, neurons)
    return cfc_cost(rates, batch, steps, inputs, neurons, threads)
