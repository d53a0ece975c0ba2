"""The cells: the mathematics of each model, once."""

from .activations import ACTIVATIONS
from .base import AbstractCell, AbstractHoistedCell, Hoisted
from .catalog import MODELS, ModelEntry
from .cfc import CfCCell
from .cornn import CoRNNCell
from .euler_gated import EulerGRUCell, EulerLSTMCell
from .exprnn import ExpRNNCell
from .gated import ElmanCell, GRUCell, LSTMCell
from .gnode import GNODECell
from .hippo import HiPPOCell
from .lem import LEMCell
from .lipschitz import LipschitzRNNCell
from .lmu import LMUCell
from .ltc import LTC_VARIANTS, LTCCell
from .ltc_neuronal import NeuronalLTCCell
from .mixed_memory import MixedMemoryCell
from .wired_cfc import WiredCfCCell

__all__ = [
    "ACTIVATIONS",
    "LTC_VARIANTS",
    "MODELS",
    "AbstractCell",
    "AbstractHoistedCell",
    "CfCCell",
    "CoRNNCell",
    "ElmanCell",
    "EulerGRUCell",
    "EulerLSTMCell",
    "ExpRNNCell",
    "GNODECell",
    "GRUCell",
    "HiPPOCell",
    "Hoisted",
    "LEMCell",
    "LMUCell",
    "LSTMCell",
    "LTCCell",
    "LipschitzRNNCell",
    "MixedMemoryCell",
    "ModelEntry",
    "NeuronalLTCCell",
    "WiredCfCCell",
]
