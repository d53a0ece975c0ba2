"""The cells: the mathematics of each model, once."""

from .activations import ACTIVATIONS
from .base import AbstractCell, AbstractHoistedCell, Hoisted
from .bidirectional_rnn import BidirectionalRNNCell
from .catalog import MODELS, ModelEntry
from .cfc import CfCCell
from .ct_gru import CTGRUCell
from .ct_rnn import CTRNNCell
from .euler_gated import EulerGRUCell, EulerLSTMCell
from .gated import ElmanCell, GRUCell, LSTMCell
from .gnode import GNODECell
from .gru_ode import GRUODECell
from .lem import LEMCell
from .ltc import LTC_VARIANTS, LTCCell
from .ltc_neuronal import NeuronalLTCCell
from .mixed_memory import MixedMemoryCell
from .ode_lstm import ODELSTMCell
from .wired_cfc import WiredCfCCell

__all__ = [
    "ACTIVATIONS",
    "LTC_VARIANTS",
    "MODELS",
    "AbstractCell",
    "AbstractHoistedCell",
    "BidirectionalRNNCell",
    "CTGRUCell",
    "CTRNNCell",
    "CfCCell",
    "ElmanCell",
    "EulerGRUCell",
    "EulerLSTMCell",
    "GNODECell",
    "GRUCell",
    "GRUODECell",
    "Hoisted",
    "LEMCell",
    "LSTMCell",
    "LTCCell",
    "MixedMemoryCell",
    "ModelEntry",
    "NeuronalLTCCell",
    "ODELSTMCell",
    "WiredCfCCell",
]
