"""Cells run over sequences: the one contract of the library."""

from .layers import RNN, CatalogRNN, SequenceModule
from .modules import (
    GRU,
    LMU,
    LSTM,
    LTC,
    SEQUENCE_MODULES,
    CfC,
    CoRNN,
    Elman,
    ExpRNN,
    HiPPO,
    LipschitzRNN,
    MixedMemory,
    NeuronalLTC,
    WiredCfC,
    build,
)
from .unroll import reference_loop, unroll

__all__ = [
    "GRU",
    "LMU",
    "LSTM",
    "LTC",
    "RNN",
    "SEQUENCE_MODULES",
    "CatalogRNN",
    "CfC",
    "CoRNN",
    "Elman",
    "ExpRNN",
    "HiPPO",
    "LipschitzRNN",
    "MixedMemory",
    "NeuronalLTC",
    "SequenceModule",
    "WiredCfC",
    "build",
    "reference_loop",
    "unroll",
]
