"""Models made of sequence modules, and models that are more than a cell."""

from .latent_ode import RNNVAE, LatentODE
from .sequence_model import SequenceModel
from .variational import LatentPaths, VariationalLoss, kl_coefficient

__all__ = [
    "RNNVAE",
    "LatentODE",
    "LatentPaths",
    "SequenceModel",
    "VariationalLoss",
    "kl_coefficient",
]
