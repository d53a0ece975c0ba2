"""Cells run over sequences: the one contract of the library."""

from .layers import RNN, CatalogRNN, SequenceModule
from .modules import (
    CTGRU,
    CTRNN,
    GRU,
    GRUODE,
    LSTM,
    LTC,
    ODELSTM,
    SEQUENCE_MODULES,
    BidirectionalRNN,
    CfC,
    Elman,
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
    "GRU",
    "GRUODE",
    "LSTM",
    "LTC",
    "ODELSTM",
    "RNN",
    "SEQUENCE_MODULES",
    "BidirectionalRNN",
    "CatalogRNN",
    "CfC",
    "Elman",
    "MixedMemory",
    "NeuronalLTC",
    "SequenceModule",
    "Stream",
    "WiredCfC",
    "build",
    "reference_loop",
    "unroll",
]
