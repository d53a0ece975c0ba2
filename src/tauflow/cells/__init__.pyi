# Written by `python tests/repo/derived.py` from the catalog of cells.
# ruff: noqa
# fmt: off
"""Cells: one time step of each model, with its equations and source."""

from .activations import ACTIVATIONS
from .base import AbstractCell, Precomputed
from .bidirectional_rnn import BidirectionalRNNCell
from .cf_s import CfSCell
from .cfc import CfCCell
from .cornn import CoRNNCell
from .cru import CRUCell
from .ct_gru import CTGRUCell
from .ct_lstm import CTLSTMCell
from .ct_rnn import CTRNNCell
from .euler_gated import EulerGRUCell, EulerLSTMCell
from .exprnn import ExpRNNCell
from .gated import ElmanCell, GRUCell, LSTMCell
from .gnode import GNODECell
from .gru_d import GRUDCell, UnmaskedGRUDCell
from .gru_ode import GRUODECell
from .gru_ode_bayes import GRUODEBayesCell
from .gruwe import GRUwECell
from .hippo import HiPPOCell
from .lem import LEMCell
from .linodenet import LinODENetCell
from .linoss import LinOSSCell
from .lipschitz_rnn import LipschitzRNNCell
from .lmu import LMUCell
from .lrc import LRCCell
from .lrc_ssm import LrcSSMCell
from .lru import LRUCell
from .ltc import LTCCell, LTC_VARIANTS
from .ltc_neuronal import NeuronalLTCCell
from .mixed_memory import MixedMemoryCell
from .neural_cde import NeuralCDECell
from .ode_lstm import ODELSTMCell
from .phased_lstm import PhasedLSTMCell
from .registry import CELLS, MODELS, ModelEntry
from .rits import RITSCell
from .rnn_decay import LinearDecayRNNCell, RNNDecayCell
from .rubanova_gru import RubanovaGRUCell
from .rubanova_ode import RubanovaODERNNCell
from .s5 import S5Cell
from .slice import SLiCECell
from .time_lstm import TLSTMCell, TimeLSTMCell
from .wired_cfc import WiredCfCCell

__all__ = [
    "ACTIVATIONS", "AbstractCell", "BidirectionalRNNCell", "CRUCell", "CTGRUCell", "CTLSTMCell",
    "CTRNNCell", "CfCCell", "CfSCell", "CoRNNCell", "ElmanCell", "EulerGRUCell", "EulerLSTMCell",
    "ExpRNNCell", "GNODECell", "GRUCell", "GRUDCell", "GRUODEBayesCell", "GRUODECell", "GRUwECell",
    "HiPPOCell", "LEMCell", "LMUCell", "LRCCell", "LRUCell", "LSTMCell", "LTCCell", "LTC_VARIANTS",
    "LinODENetCell", "LinOSSCell", "LinearDecayRNNCell", "LipschitzRNNCell", "LrcSSMCell", "MODELS",
    "MixedMemoryCell", "ModelEntry", "NeuralCDECell", "NeuronalLTCCell", "ODELSTMCell",
    "PhasedLSTMCell", "Precomputed", "RITSCell", "RNNDecayCell", "RubanovaGRUCell",
    "RubanovaODERNNCell", "S5Cell", "SLiCECell", "TLSTMCell", "TimeLSTMCell", "UnmaskedGRUDCell",
    "WiredCfCCell",
]
