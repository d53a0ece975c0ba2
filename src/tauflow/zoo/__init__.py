"""The zoo: models that are asked for now and then, registered when a catalog is first searched.

Nothing of the library imports it; ``tauflow.build("min-gru", 3, 8)`` and every place that takes
the name of a model find what is here, as they find what plugins add.
"""

from tauflow._internal.plugins import publish
from tauflow.cells.registry import MODELS
from tauflow.export import CLASSES
from tauflow.kernels.select import add_kernels
from tauflow.models.neural_hawkes import POINT_PROCESSES
from tauflow.models.registry import WHOLE_MODELS
from tauflow.sequence.modules import make_module

from .catalog import OTHER_ENTRIES, PUBLISHED_ENTRIES, WHOLE_ENTRIES
from .cells.cru import CRUCell
from .cells.exprnn import ExpRNNCell
from .cells.liquid_s4 import LiquidS4Cell
from .cells.min_rnn import MinGRUCell, MinLSTMCell
from .cells.neural_flow import NeuralFlowCell
from .cells.s6 import S6Cell
from .cells.slstm import SLSTMCell
from .models.brits import BRITS, EstimatingRITSCell
from .models.grafiti import GraFITi
from .models.ip_net import IPNet
from .models.latent_ode import RNNVAE, LatentODE
from .models.mtan import MTAN
from .models.mtan_full import MTANFull
from .models.s2p2 import S2P2
from .models.seft import SeFT
from .models.t_patch_gnn import TPatchGNN
from .models.transformer import Transformer
from .models.variational import LatentPaths, VariationalLoss, kl_coefficient
from .modules import S6, SEQUENCE_MODULES, SLSTM, LiquidS4, MinGRU, MinLSTM, NeuralFlow

_PUBLISHED_CELLS = tuple(dict.fromkeys(entry.cell for entry in PUBLISHED_ENTRIES))
_PUBLISHED_MODULES = tuple(map(make_module, _PUBLISHED_CELLS))

for _entry in (*PUBLISHED_ENTRIES, *OTHER_ENTRIES):
    MODELS.add(_entry.name, _entry)

for _module in (*_PUBLISHED_MODULES, *SEQUENCE_MODULES):
    _cell = _module.cell_class
    add_kernels(
        _cell,
        is_short_traced=_cell not in (CRUCell, ExpRNNCell),  # whose matrices take long
        is_generated=_cell is not CRUCell,  # whose step is too long for the generator
    )
    CLASSES.add(_cell.__name__, _cell)
    CLASSES.add(_module.__name__, _module)

publish(_PUBLISHED_CELLS, "tauflow.cells")
publish(_PUBLISHED_MODULES, "tauflow.sequence", "tauflow")
publish((LatentODE, RNNVAE), "tauflow", "tauflow.models")
publish((IPNet, MTAN, MTANFull, SeFT, TPatchGNN, Transformer), "tauflow.models")
publish((LatentPaths, VariationalLoss, kl_coefficient), "tauflow.models")

add_kernels(EstimatingRITSCell)
CLASSES.add("EstimatingRITSCell", EstimatingRITSCell)
for _whole in WHOLE_ENTRIES:
    WHOLE_MODELS.add(_whole.name, _whole)
for _model in dict.fromkeys(entry.model for entry in WHOLE_ENTRIES):
    CLASSES.add(_model.__name__, _model)
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
