"""The cells: the mathematics of each model, once."""

from .activations import ACTIVATIONS
from .base import AbstractCell, AbstractHoistedCell, Hoisted
from .catalog import MODELS, ModelEntry
from .cfc import CfCCell
from .ct_lstm import CTLSTMCell
from .gated import ElmanCell, GRUCell, LSTMCell
from .gru_d import GRUDCell, UnmaskedGRUDCell
from .ltc import LTC_VARIANTS, LTCCell
from .ltc_neuronal import NeuronalLTCCell
from .mixed_memory import MixedMemoryCell
from .phased_lstm import PhasedLSTMCell
from .rnn_decay import LinearDecayRNNCell, RNNDecayCell
from .rubanova import RubanovaGRUCell
from .rubanova_ode import RubanovaODERNNCell
from .wired_cfc import WiredCfCCell

__all__ = [
    "ACTIVATIONS",
    "LTC_VARIANTS",
    "MODELS",
    "AbstractCell",
    "AbstractHoistedCell",
    "CTLSTMCell",
    "CfCCell",
    "ElmanCell",
    "GRUCell",
    "GRUDCell",
    "Hoisted",
    "LSTMCell",
    "LTCCell",
    "LinearDecayRNNCell",
    "MixedMemoryCell",
    "ModelEntry",
    "NeuronalLTCCell",
    "PhasedLSTMCell",
    "RNNDecayCell",
    "RubanovaGRUCell",
    "RubanovaODERNNCell",
    "UnmaskedGRUDCell",
    "WiredCfCCell",
]
