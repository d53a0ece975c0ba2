"""Sequence modules of the cells of the zoo."""

from tauflow.sequence.catalog_rnn import CatalogRNN

from .cells.liquid_s4 import LiquidS4Cell
from .cells.min_rnn import MinGRUCell, MinLSTMCell
from .cells.neural_flow import NeuralFlowCell
from .cells.s6 import S6Cell
from .cells.slstm import SLSTMCell


class MinGRU(CatalogRNN):
    """minGRU over sequences."""

    cell_class = MinGRUCell


class MinLSTM(CatalogRNN):
    """minLSTM over sequences."""

    cell_class = MinLSTMCell


class SLSTM(CatalogRNN):
    """sLSTM over sequences."""

    cell_class = SLSTMCell


class S6(CatalogRNN):
    """S6 over sequences."""

    cell_class = S6Cell


class LiquidS4(CatalogRNN):
    """Liquid-S4 over sequences."""

    cell_class = LiquidS4Cell


class NeuralFlow(CatalogRNN):
    """A neural flow with a GRU over sequences."""

    cell_class = NeuralFlowCell


SEQUENCE_MODULES: tuple[type[CatalogRNN], ...] = (MinGRU, MinLSTM, SLSTM, S6, LiquidS4, NeuralFlow)
"""The sequence modules of all cells of the zoo."""
