"""Neural networks whose state flows in continuous time, for PyTorch."""

from . import import_path as _import_path  # noqa: F401  # before what could be shadowed

# isort: split
from importlib.metadata import version as _version

from tauflow.batch import SequenceBatch
from tauflow.export import from_ncps, load, save
from tauflow.models import RNNVAE, LatentODE, SequenceModel
from tauflow.sequence import (
    CTGRU,
    CTLSTM,
    CTRNN,
    GNODE,
    GRU,
    GRUD,
    GRUODE,
    LEM,
    LMU,
    LSTM,
    LTC,
    ODELSTM,
    RNN,
    BidirectionalRNN,
    CfC,
    CoRNN,
    Elman,
    EulerGRU,
    EulerLSTM,
    ExpRNN,
    HiPPO,
    LinearDecayRNN,
    LipschitzRNN,
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
    "LMU",
    "LSTM",
    "LTC",
    "NCP",
    "ODELSTM",
    "RNN",
    "RNNVAE",
    "AutoNCP",
    "BidirectionalRNN",
    "CfC",
    "CoRNN",
    "Elman",
    "EulerGRU",
    "EulerLSTM",
    "ExpRNN",
    "ExplicitWiring",
    "FullyConnected",
    "HiPPO",
    "LatentODE",
    "LinearDecayRNN",
    "LipschitzRNN",
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
