"""What each catalogued model is and takes, as its class and a built example say."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

from tauflow.cells.catalog import MODELS

from .catalog import WHOLE_MODELS, WholeModelEntry
from .driving import DRIVING_IMAGE


@dataclass(frozen=True)
class ModelFacts:
    """A line of the list of models.

    Args:
        name: catalog name.
        title: name in the papers.
        paper: where it was published.
        parameters: trainable numbers at the size asked for.
        takes: what it takes beyond features, and what it cannot give, in words.
    """

    name: str
    title: str
    paper: str
    parameters: int
    takes: tuple[str, ...]


def model_facts(
    input_size: int = 18, hidden_size: int = 64
) -> tuple[tuple[ModelFacts, ...], tuple[ModelFacts, ...]]:
    """Return the facts of all cells, and those of all whole models.

    Every model is built once, with the options of its entry, to count its parameters; the global
    random generator is left as it was. Models of images get :data:`DRIVING_IMAGE` instead of the
    input size.

    Args:
        input_size: features I.
        hidden_size: neurons N.
    """
    with torch.random.fork_rng(devices=[]):
        cells = []
        for entry in MODELS.values():
            cell = entry.build(input_size, hidden_size)
            takes = _words(
                {
                    "gaps": cell.uses_dt,
                    "missing features": cell.uses_observed,
                    "wiring": cell.takes_wiring,
                }
            )
            cells.append(ModelFacts(entry.name, entry.title, entry.paper, _count(cell), takes))
        return tuple(cells), tuple(
            _whole(entry, input_size, hidden_size) for entry in WHOLE_MODELS.values()
        )


def _whole(entry: WholeModelEntry, input_size: int, hidden_size: int) -> ModelFacts:
    kind = entry.model
    model = entry.build(DRIVING_IMAGE if kind.takes_images else input_size, hidden_size)
    takes = _words(
        {
            "images of " + " × ".join(map(str, DRIVING_IMAGE)): kind.takes_images,
            "gaps": kind.uses_dt,
            "missing features": kind.uses_observed,
            "one output per sequence": not kind.every_step,
        }
    )
    return ModelFacts(entry.name, entry.title, entry.paper, _count(model), takes)


def _words(facts: Mapping[str, bool]) -> tuple[str, ...]:
    return tuple(word for word, holds in facts.items() if holds)


def _count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
