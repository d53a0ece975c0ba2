"""Cells run over sequences: the one contract of the library."""

from .layers import RNN, CatalogRNN, SequenceModule
from .modules import (
    GNODE,
    GRU,
    LEM,
    LMU,
    LSTM,
    LTC,
    SEQUENCE_MODULES,
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
from .stream import Stream
from .unroll import reference_loop, unroll

__all__ = [
    "GNODE",
    "GRU",
    "LEM",
    "LMU",
    "LSTM",
    "LTC",
    "RNN",
    "SEQUENCE_MODULES",
    "CatalogRNN",
    "CfC",
    "CoRNN",
    "Elman",
    "EulerGRU",
    "EulerLSTM",
    "ExpRNN",
    "HiPPO",
    "LipschitzRNN",
    "MixedMemory",
    "NeuronalLTC",
    "SequenceModule",
    "Stream",
    "WiredCfC",
    "build",
    "reference_loop",
    "unroll",
]
