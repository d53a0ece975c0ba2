"""Neural networks whose state flows in continuous time, for PyTorch."""

from importlib.metadata import version as _version

from tauflow.batch import SequenceBatch
from tauflow.export import from_ncps, load, save
from tauflow.models import RNNVAE, LatentODE, SequenceModel
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
from tauflow.training import Recipe, attach_constraints, train
from tauflow.wirings import NCP, AutoNCP, ExplicitWiring, FullyConnected, RandomSparse

__version__ = _version("tauflow")

__all__ = [
    "GRU",
    "LSTM",
    "LTC",
    "NCP",
    "RNN",
    "RNNVAE",
    "AutoNCP",
    "CfC",
    "Elman",
    "ExplicitWiring",
    "FullyConnected",
    "LatentODE",
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
