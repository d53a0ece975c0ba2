"""Models: a sequence module with a head, and architectures that are not a cell."""

from typing import Any

from tauflow._internal.plugins import find_published

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

__all__ = [
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
    "ImputedInputs",
    "ModelSummary",
    "NeuralHawkes",
    "NextEvent",
    "SequenceModel",
    "StaticInputs",
    "TokenEmbedding",
    "WholeModelEntry",
    "get_model_entry",
    "summarise_models",
]


def __getattr__(name: str) -> Any:
    return find_published(__name__, name)
