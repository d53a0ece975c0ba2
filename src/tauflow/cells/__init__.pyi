# Written by `python tests/repo/derived.py` from the catalog of cells.
# ruff: noqa
# fmt: off
"""Cells: one time step of each model, with its equations and source."""

from .activations import ACTIVATIONS
from .base import AbstractCell, Precomputed
from .cfc import CfCCell
from .ct_gru import CTGRUCell
from .ct_lstm import CTLSTMCell
from .ct_rnn import CTRNNCell
from .euler_gated import EulerGRUCell, EulerLSTMCell
from .gated import ElmanCell, GRUCell, LSTMCell
from .gnode import GNODECell
from .gru_d import GRUDCell, UnmaskedGRUDCell
from .gru_ode import GRUODECell
from .lem import LEMCell
from .lrc import LRCCell
from .lru import LRUCell
from .ltc import LTCCell, LTC_VARIANTS
from .ltc_neuronal import NeuronalLTCCell
from .mixed_memory import MixedMemoryCell
from .neural_cde import NeuralCDECell
from .ode_lstm import ODELSTMCell
from .phased_lstm import PhasedLSTMCell
from .registry import CELLS, MODELS, ModelEntry
from .s5 import S5Cell
from .time_lstm import TLSTMCell, TimeLSTMCell
from .wired_cfc import WiredCfCCell
from tauflow.zoo.cells.bidirectional_rnn import BidirectionalRNNCell
from tauflow.zoo.cells.cf_s import CfSCell
from tauflow.zoo.cells.cornn import CoRNNCell
from tauflow.zoo.cells.cru import CRUCell
from tauflow.zoo.cells.exprnn import ExpRNNCell
from tauflow.zoo.cells.gru_ode_bayes import GRUODEBayesCell
from tauflow.zoo.cells.gruwe import GRUwECell
from tauflow.zoo.cells.hippo import HiPPOCell
from tauflow.zoo.cells.linodenet import LinODENetCell
from tauflow.zoo.cells.linoss import LinOSSCell
from tauflow.zoo.cells.lipschitz_rnn import LipschitzRNNCell
from tauflow.zoo.cells.lmu import LMUCell
from tauflow.zoo.cells.lrc_ssm import LrcSSMCell
from tauflow.zoo.cells.rits import RITSCell
from tauflow.zoo.cells.rnn_decay import LinearDecayRNNCell, RNNDecayCell
from tauflow.zoo.cells.rubanova_gru import RubanovaGRUCell
from tauflow.zoo.cells.rubanova_ode import RubanovaODERNNCell
from tauflow.zoo.cells.slice import SLiCECell

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
