"""Cells run over sequences: the one contract of the library."""

from .layers import RNN, CatalogRNN, SequenceModule
from .modules import (
    CTLSTM,
    GRU,
    GRUD,
    LSTM,
    LTC,
    SEQUENCE_MODULES,
    CfC,
    Elman,
    LinearDecayRNN,
    MixedMemory,
    NeuronalLTC,
    PhasedLSTM,
    RNNDecay,
    RubanovaGRU,
    UnmaskedGRUD,
    WiredCfC,
    build,
)
from .unroll import reference_loop, unroll

__all__ = [
    "CTLSTM",
    "GRU",
    "GRUD",
    "LSTM",
    "LTC",
    "RNN",
    "SEQUENCE_MODULES",
    "CatalogRNN",
    "CfC",
    "Elman",
    "LinearDecayRNN",
    "MixedMemory",
    "NeuronalLTC",
    "PhasedLSTM",
    "RNNDecay",
    "RubanovaGRU",
    "SequenceModule",
    "UnmaskedGRUD",
    "WiredCfC",
    "build",
    "reference_loop",
    "unroll",
]
