"""The sequence module of each catalogued cell, and ``build`` by catalog name."""

from typing import Any

from tauflow.cells.catalog import MODELS
from tauflow.cells.cfc import CfCCell
from tauflow.cells.cornn import CoRNNCell
from tauflow.cells.euler_gated import EulerGRUCell, EulerLSTMCell
from tauflow.cells.exprnn import ExpRNNCell
from tauflow.cells.gated import ElmanCell, GRUCell, LSTMCell
from tauflow.cells.gnode import GNODECell
from tauflow.cells.hippo import HiPPOCell
from tauflow.cells.lem import LEMCell
from tauflow.cells.lipschitz import LipschitzRNNCell
from tauflow.cells.lmu import LMUCell
from tauflow.cells.ltc import LTCCell
from tauflow.cells.ltc_neuronal import NeuronalLTCCell
from tauflow.cells.mixed_memory import MixedMemoryCell
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
