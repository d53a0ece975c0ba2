"""Models made of sequence modules, and models that are more than a cell."""

from .catalog import WHOLE_MODELS, WholeModelEntry
from .convolutional import ConvolutionalHead, ConvolutionalSequenceModel
from .driving import DRIVING_MODELS, driving_model
from .ip_net import IPNet
from .seft import SeFT
from .sequence_model import SequenceModel
from .transformer import Transformer

__all__ = [
    "DRIVING_MODELS",
    "WHOLE_MODELS",
    "ConvolutionalHead",
    "ConvolutionalSequenceModel",
    "IPNet",
    "SeFT",
    "SequenceModel",
    "Transformer",
    "WholeModelEntry",
    "driving_model",
]
