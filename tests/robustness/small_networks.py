"""Small networks on every kernel of the CPU."""

import tauflow
from tauflow.sequence import SequenceModule

TRAINED = ("ltc", "cfc", "wired-cfc", "cfc-mmrnn", "ct-rnn", "ode-lstm", "ltc-neuronal", "lstm")
FEATURES, NEURONS = 3, 8


def build(name: str) -> SequenceModule:
    """Return a network of eight neurons."""
    neurons = tauflow.AutoNCP(NEURONS, 2) if name == "wired-cfc" else NEURONS
    return tauflow.build(name, FEATURES, neurons)
