"""Cells run over sequences: the one contract of the library."""

from .layers import RNN, CatalogRNN, SequenceModule
from .modules import (
    GNODE,
    GRU,
    LEM,
    LSTM,
    LTC,
    SEQUENCE_MODULES,
    CfC,
    Elman,
    EulerGRU,
    EulerLSTM,
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
    "LSTM",
    "LTC",
    "RNN",
    "SEQUENCE_MODULES",
    "CatalogRNN",
    "CfC",
    "Elman",
    "EulerGRU",
    "EulerLSTM",
    "MixedMemory",
    "NeuronalLTC",
    "SequenceModule",
    "Stream",
    "WiredCfC",
    "build",
    "reference_loop",
    "unroll",
]
