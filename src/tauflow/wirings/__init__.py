"""Who may synapse onto whom: immutable descriptions of sparse and layered networks."""

from .base import AbstractWiring, Synapses
from .catalog import WIRINGS, wiring_from_dict
from .checked import layers_of, synapses_of
from .explicit import ExplicitWiring
from .full import FullyConnected, as_wiring
from .graph import to_networkx
from .ncp import NCP, AutoNCP
from .random_sparse import RandomSparse

__all__ = [
    "NCP",
    "WIRINGS",
    "AbstractWiring",
    "AutoNCP",
    "ExplicitWiring",
    "FullyConnected",
    "RandomSparse",
    "Synapses",
    "as_wiring",
    "layers_of",
    "synapses_of",
    "to_networkx",
    "wiring_from_dict",
]
