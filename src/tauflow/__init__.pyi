# Written by `python tests/repo/derived.py` from the catalog of cells.
# ruff: noqa
# fmt: off
"""Continuous-time recurrent neural networks for PyTorch."""

from tauflow.batch import SequenceBatch
from tauflow.export import from_ncps, from_torch, load, save
from tauflow.models import SequenceModel
from tauflow.predict import Predictor, load_predictor
from tauflow.sequence import (
    BidirectionalRNN, CRU, CTGRU, CTLSTM, CTRNN, CfC, CfS, CoRNN, Elman, EulerGRU, EulerLSTM,
    ExpRNN, GNODE, GRU, GRUD, GRUODE, GRUODEBayes, GRUwE, HiPPO, LEM, LMU, LRC, LRU, LSTM, LTC,
    LinODENet, LinOSS, LinearDecayRNN, LipschitzRNN, LrcSSM, MixedMemory, NeuralCDE, NeuronalLTC,
    ODELSTM, PhasedLSTM, RITS, RNN, RNNDecay, RubanovaGRU, RubanovaODERNN, S5, SLiCE, TLSTM,
    TimeLSTM, UnmaskedGRUD, WiredCfC, build,
)
from tauflow.training import Recipe, attach_constraints, train
from tauflow.wirings import AutoNCP, ExplicitWiring, FullyConnected, NCP, RandomSparse
from tauflow.zoo.models.latent_ode import LatentODE, RNNVAE

from . import (
    analysis as analysis, cells as cells, compat as compat, data as data, errors as errors,
    estimators as estimators, evaluation as evaluation, export as export, kernels as kernels,
    models as models, predict as predict, sequence as sequence, solvers as solvers,
    training as training, wirings as wirings, zoo as zoo,
)

__version__: str

__all__ = [
    "AutoNCP", "BidirectionalRNN", "CRU", "CTGRU", "CTLSTM", "CTRNN", "CfC", "CfS", "CoRNN",
    "Elman", "EulerGRU", "EulerLSTM", "ExpRNN", "ExplicitWiring", "FullyConnected", "GNODE", "GRU",
    "GRUD", "GRUODE", "GRUODEBayes", "GRUwE", "HiPPO", "LEM", "LMU", "LRC", "LRU", "LSTM", "LTC",
    "LatentODE", "LinODENet", "LinOSS", "LinearDecayRNN", "LipschitzRNN", "LrcSSM", "MixedMemory",
    "NCP", "NeuralCDE", "NeuronalLTC", "ODELSTM", "PhasedLSTM", "Predictor", "RITS", "RNN",
    "RNNDecay", "RNNVAE", "RandomSparse", "Recipe", "RubanovaGRU", "RubanovaODERNN", "S5", "SLiCE",
    "SequenceBatch", "SequenceModel", "TLSTM", "TimeLSTM", "UnmaskedGRUD", "WiredCfC",
    "attach_constraints", "build", "from_ncps", "from_torch", "load", "load_predictor", "save",
    "train",
]
