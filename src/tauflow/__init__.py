"""Neural networks whose state flows in continuous time, for PyTorch."""

from importlib.metadata import version as _version

from tauflow.batch import SequenceBatch
from tauflow.export import from_ncps, load, save
from tauflow.models import SequenceModel
from tauflow.sequence import (
    CTGRU,
    CTLSTM,
    CTRNN,
    GNODE,
    GRU,
    GRUD,
    GRUODE,
    LEM,
    LSTM,
    LTC,
    ODELSTM,
    RNN,
    BidirectionalRNN,
    CfC,
    Elman,
    EulerGRU,
    EulerLSTM,
    LinearDecayRNN,
    MixedMemory,
    NeuronalLTC,
    PhasedLSTM,
    RNNDecay,
    RubanovaGRU,
    RubanovaODERNN,
    UnmaskedGRUD,
    WiredCfC,
    build,
)
from tauflow.training import Recipe, attach_constraints, train
from tauflow.wirings import NCP, AutoNCP, ExplicitWiring, FullyConnected, RandomSparse

__version__ = _version("tauflow")

__all__ = [
    "CTGRU",
    "CTLSTM",
    "CTRNN",
    "GNODE",
    "GRU",
    "GRUD",
    "GRUODE",
    "LEM",
    "LSTM",
    "LTC",
    "NCP",
    "ODELSTM",
    "RNN",
    "AutoNCP",
    "BidirectionalRNN",
    "CfC",
    "Elman",
    "EulerGRU",
    "EulerLSTM",
    "ExplicitWiring",
    "FullyConnected",
    "LinearDecayRNN",
    "MixedMemory",
    "NeuronalLTC",
    "PhasedLSTM",
    "RNNDecay",
    "RandomSparse",
    "Recipe",
    "RubanovaGRU",
    "RubanovaODERNN",
    "SequenceBatch",
    "SequenceModel",
    "UnmaskedGRUD",
    "WiredCfC",
    "attach_constraints",
    "build",
    "from_ncps",
    "load",
    "save",
    "train",
]
