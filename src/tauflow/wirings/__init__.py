"""Wirings: which neurons have synapses onto which, in sparse and layered networks."""

from .base import AbstractWiring, Synapses
from .explicit import ExplicitWiring
from .full import FullyConnected, as_wiring
from .graph import to_networkx
from .ncp import NCP, AutoNCP
from .random import RandomSparse
from .registry import WIRINGS, wiring_from_dict
from .validation import build_synapses, get_layers

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
    "build_synapses",
    "get_layers",
    "to_networkx",
    "wiring_from_dict",
]
