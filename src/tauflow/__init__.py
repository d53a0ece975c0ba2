"""Neural networks whose state flows in continuous time, for PyTorch."""

from importlib.metadata import version as _version

from tauflow.batch import SequenceBatch
from tauflow.models import SequenceModel
from tauflow.sequence import (
    GRU,
    LSTM,
    LTC,
    RNN,
    CfC,
    Elman,
    MixedMemory,
    NeuronalLTC,
    WiredCfC,
    build,
)
from tauflow.wirings import NCP, AutoNCP, FullyConnected, RandomSparse

__version__ = _version("tauflow")

__all__ = [
    "GRU",
    "LSTM",
    "LTC",
    "NCP",
    "RNN",
    "AutoNCP",
    "CfC",
    "Elman",
    "FullyConnected",
    "MixedMemory",
    "NeuronalLTC",
    "RandomSparse",
    "SequenceBatch",
    "SequenceModel",
    "WiredCfC",
    "build",
]
