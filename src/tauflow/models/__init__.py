"""Models made of sequence modules, and models that are more than a cell."""

from .base import AbstractWholeModel
from .convolutional import ConvolutionalHead, ConvolutionalSequenceModel
from .driving import DRIVING_MODELS, driving_model
from .embedding import TokenEmbedding
from .facts import ModelFacts, model_facts
from .ip_net import IPNet
from .latent_ode import RNNVAE, LatentODE
from .mtan import MTAN
from .registry import WHOLE_MODELS, WholeModelEntry, model_entry
from .seft import SeFT
from .sequence_model import SequenceModel
from .transformer import Transformer
from .variational import LatentPaths, VariationalLoss, kl_coefficient

__all__ = [
    "DRIVING_MODELS",
    "MTAN",
    "RNNVAE",
    "WHOLE_MODELS",
    "AbstractWholeModel",
    "ConvolutionalHead",
    "ConvolutionalSequenceModel",
    "IPNet",
    "LatentODE",
    "LatentPaths",
    "ModelFacts",
    "SeFT",
    "SequenceModel",
    "TokenEmbedding",
    "Transformer",
    "VariationalLoss",
    "WholeModelEntry",
    "driving_model",
    "kl_coefficient",
    "model_entry",
    "model_facts",
]
