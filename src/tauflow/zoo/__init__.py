"""The zoo: models that are asked for now and then, registered when a catalog is first searched.

Nothing of the library imports it; ``tauflow.build("min-gru", 3, 8)`` and every place that takes
the name of a model find what is here, as they find what plugins add.
"""

from tauflow.cells.registry import MODELS, ModelEntry
from tauflow.export import CLASSES
from tauflow.kernels.select import add_kernels
from tauflow.models.neural_hawkes import POINT_PROCESSES
from tauflow.models.registry import WHOLE_MODELS, WholeModelEntry

from .cells.liquid_s4 import LiquidS4Cell
from .cells.min_rnn import MinGRUCell, MinLSTMCell
from .cells.neural_flow import NeuralFlowCell
from .cells.s6 import S6Cell
from .cells.slstm import SLSTMCell
from .models.brits import BRITS, EstimatingRITSCell
from .models.grafiti import GraFITi
from .models.s2p2 import S2P2
from .modules import S6, SEQUENCE_MODULES, SLSTM, LiquidS4, MinGRU, MinLSTM, NeuralFlow

for _entry in (
    ModelEntry("min-gru", "minGRU", MinGRUCell),
    ModelEntry("min-lstm", "minLSTM", MinLSTMCell),
    ModelEntry("slstm", "sLSTM", SLSTMCell, tune={"heads": (1, 2, 4)}),
    ModelEntry("s6", "S6", S6Cell, tune={"order": (8, 16), "step_max": (0.1, 1.0)}),
    ModelEntry("liquid-s4", "Liquid-S4", LiquidS4Cell, tune={"step_max": (0.1, 0.3, 1.0)}),
    ModelEntry("neural-flow", "Neural flow", NeuralFlowCell, tune={"flow_layers": (1, 2, 4)}),
):
    MODELS.add(_entry.name, _entry)

for _module in SEQUENCE_MODULES:
    add_kernels(_module.cell_class)
    CLASSES.add(_module.cell_class.__name__, _module.cell_class)
    CLASSES.add(_module.__name__, _module)
add_kernels(EstimatingRITSCell)
CLASSES.add("EstimatingRITSCell", EstimatingRITSCell)
CLASSES.add("BRITS", BRITS)
WHOLE_MODELS.add("brits", WholeModelEntry("brits", "BRITS", BRITS))
CLASSES.add("GraFITi", GraFITi)
WHOLE_MODELS.add("grafiti", WholeModelEntry("grafiti", "GraFITi", GraFITi))
CLASSES.add("S2P2", S2P2)
POINT_PROCESSES.add("s2p2", S2P2)

__all__ = [
    "BRITS",
    "S2P2",
    "S6",
    "SEQUENCE_MODULES",
    "SLSTM",
    "EstimatingRITSCell",
    "GraFITi",
    "LiquidS4",
    "LiquidS4Cell",
    "MinGRU",
    "MinGRUCell",
    "MinLSTM",
    "MinLSTMCell",
    "NeuralFlow",
    "NeuralFlowCell",
    "S6Cell",
    "SLSTMCell",
]
