"""The file of a predictor: weights, how to build the model, and what is known of the data.

It is a tensor file, see :mod:`tauflow._internal.tensor_file`: nothing in it is pickled.
"""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tauflow._internal.regular_file import check_file_path
from tauflow._internal.tensor_file import read_tensor_file, write_tensor_file
from tauflow.data.card import card_from_dict, card_to_dict
from tauflow.errors import DataNotFoundError, ModelFileError
from tauflow.evaluation.certainty import Certainty
from tauflow.export.files import (
    PREDICTOR,
    build_module,
    collect_tensors,
    convert_damage,
    get_file_config,
)
from tauflow.tabular.options import DEFAULT_SPLIT
from tauflow.tabular.schema import Schema
from tauflow.tabular.sequences import format_names

if TYPE_CHECKING:
    from .predictor import Predictor

KIND = "predictor"
ESTIMATOR_FILE = "estimator.safetensors"
"""Name of the file in the folder of a run that leaves an estimator."""
VERSION, PLAIN_VERSION = 3, 2
"""Of what the facts of the file mean; a newer one is refused. Version 3 has a threshold or
intervals, which an older tauflow would leave out of its answers."""
_ADVICE = "Copy it again from its source, or train again."


def save_predictor(predictor: "Predictor", path: Path) -> None:
    """Write a predictor; see :meth:`Predictor.save`."""
    has_certainty = predictor.certainty != Certainty()
    content = {
        "version": VERSION if has_certainty else PLAIN_VERSION,
        "model": get_file_config(predictor.model),
        "card": card_to_dict(predictor.card),
        "table": None if predictor.schema is None else _to_dict(predictor.schema),
        "observed": predictor.observed,
    }
    if has_certainty:
        content["certainty"] = predictor.certainty.to_dict()
    write_tensor_file(path, KIND, collect_tensors(predictor.model), content)


def _to_dict(schema: Schema) -> dict[str, Any]:
    """Return a schema as JSON can hold it; of the ids none, as they are people."""
    if isinstance(schema.split, Mapping):
        schema = replace(schema, split=DEFAULT_SPLIT)
    return replace(schema, guesses={}).to_dict()  # whose reasons may name cells


def load_predictor(path: str | Path) -> "Predictor":
    """Load the predictor of a finished run: its model with scales, units and names.

    Args:
        path: folder of a run, or a file that :meth:`Predictor.save` wrote.

    Returns:
        The predictor, on the CPU; ``.model`` is the model, ``.card`` says what it was trained on.

    Raises:
        DataNotFoundError: there is no such file, or the run has not finished.
        ModelFileError: the file holds no predictor, is damaged, or from a newer version, or its
            model does not fit what it says of the data.
    """
    from .predictor import Predictor

    if isinstance(path, str | os.PathLike) and path and os.path.isdir(path):
        path = Path(path)
        if (path / ESTIMATOR_FILE).is_file():
            raise DataNotFoundError(
                f"{path} holds a forecaster for any time. Predict with 'tauflow predict --at', or "
                "load it by tauflow.estimators.SequenceForecaster.load."
            )
        if not (path / PREDICTOR).is_file():
            if within := sorted(folder.parent for folder in path.glob(f"*/{PREDICTOR}")):
                raise DataNotFoundError(
                    f"{path} is a folder of runs. Name one of them: "
                    f"{format_names([str(folder) for folder in within], 12)}."
                )
            raise DataNotFoundError(
                f"{path} holds no {PREDICTOR}, which a finished 'tauflow run' leaves. Give the "
                "folder of a run, and continue one that was stopped with --resume. A model that no "
                "file can describe leaves none; the run said so."
            )
        path = path / PREDICTOR
    advice = "Give the folder of a run, or its file."
    path = check_file_path(path, "a predictor", advice=advice)
    tensors, content = read_tensor_file(path, KIND, error=ModelFileError, advice=_ADVICE)
    version = content.get("version")
    if isinstance(version, int) and version > VERSION:
        raise ModelFileError(
            f"{path} is a predictor of version {version}, and this tauflow reads up to {VERSION}. "
            "Upgrade tauflow: pip install --upgrade tauflow"
        )
    with convert_damage(path, advice=_ADVICE):
        card, table = card_from_dict(content["card"]), content["table"]
        schema = None if table is None else Schema.from_dict(table)
        model, observed = content["model"], bool(content["observed"])
        certainty = None
        if "certainty" in content:
            certainty = Certainty.from_dict(content["certainty"])
    network = build_module(path, tensors, model).eval()
    return Predictor(network, card, schema, observed=observed, certainty=certainty)
