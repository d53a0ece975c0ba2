"""Summaries of all registered models: parameters and capabilities."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from tauflow.cells.registry import MODELS, ModelEntry

from .registry import WHOLE_MODELS, WholeModelEntry, get_model_info

_IMAGE_SIZE = (3, 72, 128)  # channels, height and width of the example of a model of images


@dataclass(frozen=True)
class ModelSummary:
    """One row of the list of models.

    Args:
        name: catalog name.
        title: name in the papers.
        paper: where it was published.
        parameters: trainable numbers at the size asked for.
        capabilities: what it takes beyond features, later samples included, and what it cannot
            give, in words.
    """

    name: str
    title: str
    paper: str
    parameters: int
    capabilities: tuple[str, ...]


def summarise_models(
    input_size: int = 18, hidden_size: int = 64
) -> tuple[tuple[ModelSummary, ...], tuple[ModelSummary, ...]]:
    """Return the facts of all cells, and those of all whole models.

    Every model is built once, with the options of its entry, to count its parameters; the global
    random generator is left as it was. Models of images get images of 3 x 72 x 128 instead of the
    input size.

    Args:
        input_size: features I.
        hidden_size: neurons N.
    """
    with torch.random.fork_rng(devices=[]):
        cells, whole_models = (
            tuple(_summarise(entry, input_size, hidden_size) for entry in catalog.values())
            for catalog in (MODELS, WHOLE_MODELS)
        )
    return cells, whole_models


def _summarise(
    entry: ModelEntry | WholeModelEntry, input_size: int, hidden_size: int
) -> ModelSummary:
    info = get_model_info(entry.name)
    takes_images = "images" in info.inputs
    size: Any = _IMAGE_SIZE if takes_images else input_size
    model = entry.build(size, hidden_size)
    abilities = {
        "images of " + " × ".join(map(str, _IMAGE_SIZE)): takes_images,
        "time steps": model.uses_dt,
        "missing features": model.uses_observed,
        "wiring": getattr(model, "takes_wiring", False),
        "one output per sequence": "every step" not in info.outputs,
        "queries only": "queries" in info.outputs,
        "non-causal": "noncausal" in info.outputs,
    }
    takes = tuple(word for word, holds in abilities.items() if holds)
    return ModelSummary(entry.name, entry.title, entry.paper, count_parameters(model), takes)


def count_parameters(model: nn.Module) -> int:
    """Return how many trainable numbers a model has."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
