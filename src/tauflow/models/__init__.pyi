# Written by `python tests/repo/derived.py` from the catalog of cells.
# ruff: noqa
# fmt: off
"""Models: a sequence module with a head, and architectures that are not a cell."""

from .actor_model import ActorModel
from .base import AbstractWholeModel
from .boosted_trees import BoostedTrees
from .convolutional import ConvolutionalHead, ConvolutionalSequenceModel
from .embedding import TokenEmbedding
from .forecast import ForecastModel
from .forecast_head import ForecastHead
from .forecast_trees import ForecastTrees
from .neural_hawkes import NeuralHawkes, NextEvent
from .registry import WHOLE_MODELS, WholeModelEntry, get_model_entry
from .sequence_model import SequenceModel
from .static_inputs import StaticInputs
from .summary import ModelSummary, summarise_models
from .wrappers import Calibrated, Ensemble, ImputedInputs
from tauflow.zoo.models.ip_net import IPNet
from tauflow.zoo.models.latent_ode import LatentODE, RNNVAE
from tauflow.zoo.models.mtan import MTAN
from tauflow.zoo.models.mtan_full import MTANFull
from tauflow.zoo.models.seft import SeFT
from tauflow.zoo.models.t_patch_gnn import TPatchGNN
from tauflow.zoo.models.transformer import Transformer
from tauflow.zoo.models.variational import LatentPaths, VariationalLoss, kl_coefficient

__all__ = [
    "AbstractWholeModel", "ActorModel", "BoostedTrees", "Calibrated", "ConvolutionalHead",
    "ConvolutionalSequenceModel", "Ensemble", "ForecastHead", "ForecastModel", "ForecastTrees",
    "IPNet", "ImputedInputs", "LatentODE", "LatentPaths", "MTAN", "MTANFull", "ModelSummary",
    "NeuralHawkes", "NextEvent", "RNNVAE", "SeFT", "SequenceModel", "StaticInputs", "TPatchGNN",
    "TokenEmbedding", "Transformer", "VariationalLoss", "WHOLE_MODELS", "WholeModelEntry",
    "get_model_entry", "kl_coefficient", "summarise_models",
]
