"""Models made of sequence modules, and models that are more than a cell."""

from .catalog import WHOLE_MODELS, WholeModelEntry
from .convolutional import ConvolutionalHead, ConvolutionalSequenceModel
from .driving import DRIVING_MODELS, driving_model
from .embedding import TokenEmbedding
from .ip_net import IPNet
from .latent_ode import RNNVAE, LatentODE
from .seft import SeFT
from .sequence_model import SequenceModel
from .transformer import Transformer
from .variational import LatentPaths, VariationalLoss, kl_coefficient

__all__ = [
    "DRIVING_MODELS",
    "RNNVAE",
    "WHOLE_MODELS",
    "ConvolutionalHead",
    "ConvolutionalSequenceModel",
    "IPNet",
    "LatentODE",
    "LatentPaths",
    "SeFT",
    "SequenceModel",
    "TokenEmbedding",
    "Transformer",
    "VariationalLoss",
    "WholeModelEntry",
    "driving_model",
    "kl_coefficient",
]
