"""Models made of sequence modules, and models that are more than a cell."""

from .convolutional import ConvolutionalHead, ConvolutionalSequenceModel
from .driving import DRIVING_MODELS, driving_model
from .ip_net import IPNet
from .seft import SeFT
from .sequence_model import SequenceModel
from .transformer import Transformer

__all__ = [
    "DRIVING_MODELS",
    "ConvolutionalHead",
    "ConvolutionalSequenceModel",
    "IPNet",
    "SeFT",
    "SequenceModel",
    "Transformer",
    "driving_model",
]
