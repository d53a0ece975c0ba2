"""The file of a predictor: weights, how to build the model, and what is known of the data.

It is a tensor file, see :mod:`tauflow._internal.tensor_file`: nothing in it is pickled.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tauflow._internal.tensor_file import write_tensor_file
from tauflow.data.card import card_to_dict
from tauflow.data.table.options import DEFAULT_SPLIT
from tauflow.data.table.schema import Schema
from tauflow.evaluation.certainty import Certainty
from tauflow.export.files import collect_tensors, get_file_config

if TYPE_CHECKING:
    from .predictor import Predictor

KIND = "predictor"
VERSION, PLAIN_VERSION = 3, 2
"""Of what the facts of the file mean; a newer one is refused. Version 3 has a threshold or
intervals, which an older tauflow would leave out of its answers."""


def save_predictor(predictor: "Predictor", path: Path) -> None:
    """Write a predictor; see :meth:`Predictor.save`."""
    has_certainty = predictor.certainty != Certainty()
    facts = {
        "version": VERSION if has_certainty else PLAIN_VERSION,
        "model": get_file_config(predictor.model),
        "card": card_to_dict(predictor.card),
        "table": None if predictor.schema is None else _to_dict(predictor.schema),
        "observed": predictor.observed,
    }
    if has_certainty:
        facts["certainty"] = predictor.certainty.to_dict()
    write_tensor_file(path, KIND, collect_tensors(predictor.model), facts)


def _to_dict(schema: Schema) -> dict[str, Any]:
    """Return a schema as JSON can hold it; of the ids none, as they are people."""
    if isinstance(schema.split, Mapping):
        schema = replace(schema, split=DEFAULT_SPLIT)
    return replace(schema, guesses={}).to_dict()  # whose reasons may name cells
