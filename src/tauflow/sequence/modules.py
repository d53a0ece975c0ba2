"""The sequence module of each catalogued cell, and ``build`` by catalog name."""

from typing import Any

from tauflow.cells.bidirectional_rnn import BidirectionalRNNCell
from tauflow.cells.catalog import MODELS
from tauflow.cells.cfc import CfCCell
from tauflow.cells.cornn import CoRNNCell
from tauflow.cells.ct_gru import CTGRUCell
from tauflow.cells.ct_lstm import CTLSTMCell
from tauflow.cells.ct_rnn import CTRNNCell
from tauflow.cells.euler_gated import EulerGRUCell, EulerLSTMCell
from tauflow.cells.exprnn import ExpRNNCell
from tauflow.cells.gated import ElmanCell, GRUCell, LSTMCell
from tauflow.cells.gnode import GNODECell
from tauflow.cells.gru_d import GRUDCell, UnmaskedGRUDCell
from tauflow.cells.gru_ode import GRUODECell
from tauflow.cells.hippo import HiPPOCell
from tauflow.cells.lem import LEMCell
from tauflow.cells.lipschitz import LipschitzRNNCell
from tauflow.cells.lmu import LMUCell
from tauflow.cells.ltc import LTCCell
from tauflow.cells.ltc_neuronal import NeuronalLTCCell
from tauflow.cells.mixed_memory import MixedMemoryCell
from tauflow.cells.ode_lstm import ODELSTMCell
from tauflow.cells.phased_lstm import PhasedLSTMCell
from tauflow.cells.rnn_decay import LinearDecayRNNCell, RNNDecayCell
from tauflow.cells.rubanova import RubanovaGRUCell
from tauflow.cells.rubanova_ode import RubanovaODERNNCell
from tauflow.cells.wired_cfc import WiredCfCCell

from .layers import RNN, CatalogRNN, SequenceModule, layer_options


class LTC(CatalogRNN):
    """Liquid time-constant network over sequences."""

    cell_class = LTCCell


class NeuronalLTC(CatalogRNN):
    """Liquid time-constant network in its neuronal form over sequences."""

    cell_class = NeuronalLTCCell


class CfC(CatalogRNN):
    """Closed-form continuous-time network over sequences."""

    cell_class = CfCCell


class WiredCfC(CatalogRNN):
    """Closed-form continuous-time network on a wiring, over sequences."""

    cell_class = WiredCfCCell


class MixedMemory(CatalogRNN):
    """Continuous-time network with an LSTM memory over sequences; by default CfC-mmRNN."""

    cell_class = MixedMemoryCell


class LSTM(CatalogRNN):
    """Long short-term memory over sequences, optionally told the gaps."""

    cell_class = LSTMCell


class GRU(CatalogRNN):
    """Gated recurrent units over sequences, optionally told the gaps."""

    cell_class = GRUCell


class Elman(CatalogRNN):
    """Elman's simple recurrent network over sequences, optionally told the gaps."""

    cell_class = ElmanCell


class GNODE(CatalogRNN):
    """Gated neural ODE over sequences; with other layers the neural ODE or minimal gated unit."""

    cell_class = GNODECell


class EulerGRU(CatalogRNN):
    """Gated recurrent units as a flow, over sequences."""

    cell_class = EulerGRUCell


class EulerLSTM(CatalogRNN):
    """Long short-term memory as a flow, over sequences."""

    cell_class = EulerLSTMCell


class LEM(CatalogRNN):
    """Long expressive memory over sequences."""

    cell_class = LEMCell


class CTRNN(CatalogRNN):
    """Continuous-time recurrent network over sequences; without damping, ODE-RNN or neural ODE."""

    cell_class = CTRNNCell


class ODELSTM(CatalogRNN):
    """ODE-LSTM over sequences: a gated memory whose output state flows."""

    cell_class = ODELSTMCell


class GRUODE(CatalogRNN):
    """GRU-ODE over sequences: the gated recurrent unit as a flow."""

    cell_class = GRUODECell


class CTGRU(CatalogRNN):
    """CT-GRU over sequences: gated memories that decay on several time scales."""

    cell_class = CTGRUCell


class BidirectionalRNN(CatalogRNN):
    """LSTM and CT-RNN, each reading the other's last state, over sequences."""

    cell_class = BidirectionalRNNCell


class RNNDecay(CatalogRNN):
    """Elman network with exponential decay between samples, over sequences."""

    cell_class = RNNDecayCell


class LinearDecayRNN(CatalogRNN):
    """The released code's RNN-Decay, with a linear drift, over sequences."""

    cell_class = LinearDecayRNNCell


class GRUD(CatalogRNN):
    """GRU-D, which decays states and missing inputs, over sequences."""

    cell_class = GRUDCell


class UnmaskedGRUD(CatalogRNN):
    """GRU-D without masks, which decays its state, over sequences."""

    cell_class = UnmaskedGRUDCell


class CTLSTM(CatalogRNN):
    """Continuous-time LSTM, whose memory decays between events, over sequences."""

    cell_class = CTLSTMCell


class PhasedLSTM(CatalogRNN):
    """LSTM with a time gate for each neuron, over sequences."""

    cell_class = PhasedLSTMCell


class RubanovaGRU(CatalogRNN):
    """GRU baselines of the Latent ODE paper over sequences; by default RNN-Delta-t."""

    cell_class = RubanovaGRUCell


class RubanovaODERNN(CatalogRNN):
    """ODE-RNN of the Latent ODE paper, a flow with jumps, over sequences."""

    cell_class = RubanovaODERNNCell


class CoRNN(CatalogRNN):
    """Coupled oscillatory recurrent network over sequences."""

    cell_class = CoRNNCell


class LipschitzRNN(CatalogRNN):
    """Lipschitz recurrent network over sequences."""

    cell_class = LipschitzRNNCell


class LMU(CatalogRNN):
    """Legendre memory unit over sequences."""

    cell_class = LMUCell


class HiPPO(CatalogRNN):
    """Recurrent network around a HiPPO memory, over sequences."""

    cell_class = HiPPOCell


class ExpRNN(CatalogRNN):
    """Recurrent network with an orthogonal matrix, over sequences."""

    cell_class = ExpRNNCell


SEQUENCE_MODULES: tuple[type[CatalogRNN], ...] = (
    LTC,
    NeuronalLTC,
    CfC,
    WiredCfC,
    MixedMemory,
    LSTM,
    GRU,
    Elman,
    GNODE,
    EulerGRU,
    EulerLSTM,
    LEM,
    CTRNN,
    ODELSTM,
    GRUODE,
    CTGRU,
    BidirectionalRNN,
    RNNDecay,
    LinearDecayRNN,
    GRUD,
    UnmaskedGRUD,
    CTLSTM,
    PhasedLSTM,
    RubanovaGRU,
    RubanovaODERNN,
    CoRNN,
    LipschitzRNN,
    LMU,
    HiPPO,
    ExpRNN,
)


def build(name: str, input_size: int, hidden_size: Any, **options: Any) -> SequenceModule:
    """Build a sequence module by catalog name.

    Args:
        name: a name of ``tauflow models``, e.g. ``"cfc-mmrnn"``.
        input_size: features per time point.
        hidden_size: neurons, or a wiring for cells that take one.
        **options: options of the cell and of the sequence module.

    Raises:
        UnknownNameError: no model has that name; the nearest is suggested.
        OptionError: the model has no such option.
    """
    entry = MODELS[name]
    merged = {**entry.options, **options}
    for module in SEQUENCE_MODULES:
        if module.cell_class is entry.cell:
            return module(input_size, hidden_size, **merged)
    layer = {key: merged.pop(key) for key in layer_options() if key in merged}
    return RNN(entry.build(input_size, hidden_size, **merged), **layer)
