"""Model folders in the layout of Hugging Face: config.json, model.safetensors, a model card."""

import json
import re
from os import PathLike
from pathlib import Path
from typing import Any

from torch import nn

from tauflow._internal.atomic_write import atomic_write_many
from tauflow._internal.json_io import parse_json
from tauflow._internal.optional_deps import require
from tauflow._internal.sanitize import format_count
from tauflow.data.card import DatasetCard
from tauflow.errors import DataNotFoundError, ModelFileError

from .config import get_config
from .files import encode_model, load
from .output_paths import check_folder_place, create_folder

CONFIG, WEIGHTS, CARD = "config.json", "model.safetensors", "README.md"
FORMAT_VERSION = 1
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


def save_pretrained(
    module: nn.Module, folder: str | PathLike[str], *, data: DatasetCard | None = None
) -> Path:
    """Write a model to a folder in the layout of Hugging Face, and return its path.

    ``config.json`` says how the model is built, ``model.safetensors`` is a model file, which
    :func:`tauflow.load` reads too, and ``README.md`` a model card. To publish it, upload the
    folder: ``huggingface_hub.upload_folder(folder_path=..., repo_id=...)``.

    Args:
        module: a cell, a sequence module or a model of :mod:`tauflow.models`.
        folder: made if its parent exists; the three files in it are replaced, all or none.
        data: card of what the model was trained on, for the model card.

    Raises:
        ArgumentError: as :func:`tauflow.save` says.
        DataNotFoundError: the folder cannot be made.
    """
    folder = Path(folder)
    check_folder_place(folder)
    config = {"model_type": "tauflow", "format_version": FORMAT_VERSION, **get_config(module)}
    contents = {
        folder / WEIGHTS: encode_model(module),
        folder / CONFIG: (json.dumps(config, indent=2) + "\n").encode(),
        folder / CARD: make_model_card(module, data).encode(),
    }
    with create_folder(folder):
        atomic_write_many(contents)
    return folder


def from_pretrained(source: str | PathLike[str], *, revision: str | None = None) -> Any:
    """Read a model from a folder that :func:`save_pretrained` wrote, or from the Hugging Face Hub.

    Args:
        source: a folder, or the name of a repository on the hub, ``"owner/name"``, for which
            ``huggingface_hub`` must be installed.
        revision: branch, tag or commit on the hub.

    Returns:
        The module, in training mode as :func:`tauflow.load` returns it.

    Raises:
        DataNotFoundError: there is no such folder, or a file is missing in it.
        MissingExtraError: the name is of a repository, and ``huggingface_hub`` is not installed.
        ModelFileError: a file is damaged, from a newer version, or the two are of two models.
    """
    folder = Path(source)
    if not folder.is_dir():
        if not _HUB_NAME.fullmatch(str(source)):
            raise DataNotFoundError(f"{source} is no folder, nor an owner/name on the hub.")
        hub = require("huggingface_hub", extra="hub")
        files = [CONFIG, WEIGHTS]
        folder = Path(hub.snapshot_download(str(source), revision=revision, allow_patterns=files))
    config = _read_config(folder)
    module = load(folder / WEIGHTS)
    description = {name: config.get(name) for name in ("class", "options")}
    if get_config(module) != description:
        raise ModelFileError(
            f"{folder}: {CONFIG} describes another model than {WEIGHTS} holds. Copy both files "
            "again from their source, or save the model again."
        )
    return module


def make_model_card(module: nn.Module, data: DatasetCard | None) -> str:
    """Return a model card in Markdown, with the entries that the hub reads in front."""
    name = type(module).__name__
    count = sum(parameter.numel() for parameter in module.parameters())
    head = {"library_name": "tauflow", "tags": ["time-series", "continuous-time", name.lower()]}
    lines = ["---", *(f"{key}: {json.dumps(value)}" for key, value in head.items()), "---", ""]
    lines += [f"# {name}", "", f"A model of tauflow with {format_count(count, 'parameter')}.", ""]
    lines += ["```python", "import tauflow.export", ""]
    lines += ['model = tauflow.export.from_pretrained("...").eval()', "```", ""]
    if data is not None:
        facts = {
            "data": data.title,
            "task": data.task,
            "a time step of 1": data.time_unit,
            "sequences": "{} to train, {} to validate, {} to test".format(*data.sizes),
            "split": data.split,
            "source": data.source,
            "licence of the data": data.licence,
        }
        lines += ["## Trained on", "", *(f"- {k}: {_to_single_line(v)}" for k, v in facts.items())]
        lines += [f"- note: {_to_single_line(note)}" for note in data.notes]
        lines.append("")
    return "\n".join(lines)


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG
    if not path.is_file():
        raise DataNotFoundError(f"{folder} has no {CONFIG}. Check the path.")
    try:
        config = parse_json(path.read_bytes())
        fits = config["model_type"] == "tauflow"
        newer = config["format_version"] > FORMAT_VERSION
    except (ValueError, KeyError, TypeError) as error:
        raise ModelFileError(f"{path} is no description of a model of tauflow.") from error
    if not fits or newer:
        reason = "from a newer tauflow; upgrade it" if fits else "of another library's model"
        raise ModelFileError(f"{path} is {reason}.")
    return dict(config)


def _to_single_line(text: str) -> str:
    return " ".join(text.split())
