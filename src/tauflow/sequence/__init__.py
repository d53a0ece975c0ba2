"""Cells run over sequences: the one contract of the library."""

from .layers import RNN, CatalogRNN, SequenceModule
from .modules import (
    CTGRU,
    CTRNN,
    GNODE,
    GRU,
    GRUODE,
    LEM,
    LSTM,
    LTC,
    ODELSTM,
    SEQUENCE_MODULES,
    BidirectionalRNN,
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
    "CTGRU",
    "CTRNN",
    "GNODE",
    "GRU",
    "GRUODE",
    "LEM",
    "LSTM",
    "LTC",
    "ODELSTM",
    "RNN",
    "SEQUENCE_MODULES",
    "BidirectionalRNN",
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
