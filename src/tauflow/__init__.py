"""Neural networks whose state flows in continuous time, for PyTorch."""

from importlib.metadata import version as _version

from tauflow.batch import SequenceBatch
from tauflow.export import from_ncps, load, save
from tauflow.models import SequenceModel
from tauflow.sequence import (
    GNODE,
    GRU,
    LEM,
    LMU,
    LSTM,
    LTC,
    RNN,
    CfC,
    CoRNN,
    Elman,
    EulerGRU,
    EulerLSTM,
    ExpRNN,
    HiPPO,
    LipschitzRNN,
    MixedMemory,
    NeuronalLTC,
    WiredCfC,
    build,
)
from tauflow.training import Recipe, attach_constraints, train
from tauflow.wirings import NCP, AutoNCP, ExplicitWiring, FullyConnected, RandomSparse

__version__ = _version("tauflow")

__all__ = [
    "GNODE",
    "GRU",
    "LEM",
    "LMU",
    "LSTM",
    "LTC",
    "NCP",
    "RNN",
    "AutoNCP",
    "CfC",
    "CoRNN",
    "Elman",
    "EulerGRU",
    "EulerLSTM",
    "ExpRNN",
    "ExplicitWiring",
    "FullyConnected",
    "HiPPO",
    "LipschitzRNN",
    "MixedMemory",
    "NeuronalLTC",
    "RandomSparse",
    "Recipe",
    "SequenceBatch",
    "SequenceModel",
    "WiredCfC",
    "attach_constraints",
    "build",
    "from_ncps",
    "load",
    "save",
    "train",
]
