"""Models: a sequence module with a head, and architectures that are not a cell."""

from .actor_model import ActorModel
from .base import AbstractWholeModel
from .boosted_trees import BoostedTrees
from .convolutional import ConvolutionalHead, ConvolutionalSequenceModel
from .embedding import TokenEmbedding
from .forecast import ForecastModel
from .forecast_head import ForecastHead
from .forecast_trees import ForecastTrees
from .ip_net import IPNet
from .latent_ode import RNNVAE, LatentODE
from .mtan import MTAN
from .mtan_full import MTANFull
from .neural_hawkes import NeuralHawkes, NextEvent
from .registry import WHOLE_MODELS, WholeModelEntry, get_model_entry
from .seft import SeFT
from .sequence_model import SequenceModel
from .static_inputs import StaticInputs
from .summary import ModelSummary, summarise_models
from .t_patch_gnn import TPatchGNN
from .transformer import Transformer
from .variational import LatentPaths, VariationalLoss, kl_coefficient
from .wrappers import Calibrated, Ensemble, ImputedInputs

__all__ = [
    "MTAN",
    "RNNVAE",
    "WHOLE_MODELS",
    "AbstractWholeModel",
    "ActorModel",
    "BoostedTrees",
    "Calibrated",
    "ConvolutionalHead",
    "ConvolutionalSequenceModel",
    "Ensemble",
    "ForecastHead",
    "ForecastModel",
    "ForecastTrees",
    "IPNet",
    "ImputedInputs",
    "LatentODE",
    "LatentPaths",
    "MTANFull",
    "ModelSummary",
    "NeuralHawkes",
    "NextEvent",
    "SeFT",
    "SequenceModel",
    "StaticInputs",
    "TPatchGNN",
    "TokenEmbedding",
    "Transformer",
    "VariationalLoss",
    "WholeModelEntry",
    "get_model_entry",
    "kl_coefficient",
    "summarise_models",
]
