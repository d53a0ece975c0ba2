# Written by `python tests/repo/derived.py` from the catalog of cells.
# ruff: noqa
# fmt: off
"""Sequence modules: a cell applied to every step of a batch of sequences."""

from .catalog_rnn import CatalogRNN
from .explain import CallExplanation
from .modules import (
    BidirectionalRNN, CRU, CTGRU, CTLSTM, CTRNN, CfC, CfS, CoRNN, Elman, EulerGRU, EulerLSTM,
    ExpRNN, GNODE, GRU, GRUD, GRUODE, GRUODEBayes, GRUwE, HiPPO, LEM, LMU, LRC, LRU, LSTM, LTC,
    LinODENet, LinOSS, LinearDecayRNN, LipschitzRNN, LrcSSM, MixedMemory, NeuralCDE, NeuronalLTC,
    ODELSTM, PhasedLSTM, RITS, RNNDecay, RubanovaGRU, RubanovaODERNN, S5, SEQUENCE_MODULES, SLiCE,
    TLSTM, TimeLSTM, UnmaskedGRUD, WiredCfC, build,
)
from .parallel.chunks import Chunks, ParallelReport
from .parallel.multiple_shooting import run_in_parallel
from .rnn import RNN
from .sequence_module import SequenceModule
from .streaming.stream import Stream
from .unroll import reference_loop, unroll

__all__ = [
    "BidirectionalRNN", "CRU", "CTGRU", "CTLSTM", "CTRNN", "CallExplanation", "CatalogRNN", "CfC",
    "CfS", "Chunks", "CoRNN", "Elman", "EulerGRU", "EulerLSTM", "ExpRNN", "GNODE", "GRU", "GRUD",
    "GRUODE", "GRUODEBayes", "GRUwE", "HiPPO", "LEM", "LMU", "LRC", "LRU", "LSTM", "LTC",
    "LinODENet", "LinOSS", "LinearDecayRNN", "LipschitzRNN", "LrcSSM", "MixedMemory", "NeuralCDE",
    "NeuronalLTC", "ODELSTM", "ParallelReport", "PhasedLSTM", "RITS", "RNN", "RNNDecay",
    "RubanovaGRU", "RubanovaODERNN", "S5", "SEQUENCE_MODULES", "SLiCE", "SequenceModule", "Stream",
    "TLSTM", "TimeLSTM", "UnmaskedGRUD", "WiredCfC", "build", "reference_loop", "run_in_parallel",
    "unroll",
]
