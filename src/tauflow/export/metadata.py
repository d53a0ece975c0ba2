"""Metadata of exported models: what is needed to run them, as JSON."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tauflow.cells import AbstractCell
from tauflow.errors import ArgumentError, ExportError, ShapeError
from tauflow.version import VERSION

from .exportable_model import ExportableModel
from .files import get_file_config
from .io_schema import IOSchema

FORMAT = "tauflow-export"
FORMAT_VERSION = 1


def make_metadata(exported: ExportableModel, schema: IOSchema, *, scaled: bool) -> dict[str, Any]:
    """Return an exported model's cell, sizes, units, scales and parts of the state.

    ``model`` is what :func:`tauflow.export.config` returns, or null where that does not say it
    all: for a cell of the user's own, or where a part was replaced or pruned after it was built.
    """
    body = exported.sequence_module
    try:
        description: Any = get_file_config(exported.model)
    except ArgumentError:
        description = None
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "tauflow_version": VERSION,
        "cell": type(body.cell).__name__,
        "model": description,
        "dtype": str(exported.like.dtype).removeprefix("torch."),
        "input_size": exported.input_size,
        "output_size": exported.output_size,
        "state_size": body.state_size,
        "gap": exported.fixed_dt,
        "labels": schema.to_dict(),
        "scaling_inside": scaled,
        "state": [
            {
                "layer": index // body.num_directions,
                "backward": bool(index % body.num_directions),
                "parts": cell.state_parts,
                "initial": describe_initial_state(
                    cell, is_first_layer=index == 0, is_unscaled=not exported.is_scaled
                ),
            }
            for index, cell in enumerate(exported.cells)
        ],
    }


def check_metadata_path(path: Path, what: str, **expected: str) -> None:
    """Raise unless the place of a description is free, or holds an earlier one of the same file.

    Args:
        path: where the description would stand.
        what: the file that it would describe.
        **expected: what an earlier one says of that file.

    Raises:
        ExportError: something else stands there, such as the description of another file.
    """
    if not path.exists():
        return
    metadata, problem = read_metadata(path), "is no description by tauflow"
    if metadata is not None:
        if all(metadata.get(key) == value for key, value in expected.items()):
            return
        other = metadata.get("file") or f"{metadata.get('name')}.c"  # of C there are several
        problem = f"describes {other}"
    raise ExportError(
        f"cannot write {what}: {path.name}, the name of its description, is taken by a file that "
        f"{problem}. Choose another name before the ending, or move that file away."
    )


def read_metadata(path: Path) -> dict[str, Any] | None:
    """Return the description of an export that a file holds, or ``None``."""
    try:
        metadata = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return metadata if isinstance(metadata, dict) and metadata.get("format") == FORMAT else None


@torch.no_grad()
def describe_initial_state(
    cell: AbstractCell, *, is_first_layer: bool, is_unscaled: bool
) -> dict[str, Any] | None:
    """Return where a cell's state starts, ``value + first_input @ per_input``.

    ``per_input`` is left out where the first input does not matter. ``None`` where that is no
    formula of the model's own inputs: where an ``initial_state`` of a user's own is something else
    for samples of both signs, up to some hundreds, or where it depends on the first sample and the
    cell reads another layer's outputs, scaled inputs or tokens.

    Args:
        cell: the cell.
        is_first_layer: whether it reads the model's inputs, forwards.
        is_unscaled: whether it reads them as they come in.
    """
    like = next((p for p in cell.parameters() if p.is_floating_point()), torch.empty(0))
    units = torch.eye(cell.input_size, dtype=like.dtype, device=like.device)
    value = cell.initial_state(units[:1] * 0)[0]
    per_input = cell.initial_state(units) - value
    if not type(cell).initial_state.__module__.startswith("tauflow."):  # which are affine
        generator = torch.Generator().manual_seed(0)
        samples = torch.randn(256, cell.input_size, generator=generator, dtype=torch.float64)
        samples *= torch.logspace(-2, 2.5, 256, dtype=torch.float64)[:, None]
        samples = samples.to(like)
        expected = value + samples @ per_input
        if not torch.allclose(cell.initial_state(samples), expected, rtol=1e-4, atol=1e-4):
            return None
    if not per_input.any():
        return {"value": value.tolist()}
    if not (is_first_layer and is_unscaled):
        return None
    return {"value": value.tolist(), "per_input": per_input.tolist()}


def exported_initial_state(metadata: Mapping[str, Any], x: Tensor) -> Tensor:
    """Return the initial state of an exported model, from its JSON description.

    It is what an exported step takes as ``h_in`` with the first sample, and whole sequences with
    all of them::

        metadata = json.loads(written.metadata_path.read_text())
        h = exported_initial_state(metadata, x[:, 0])

    Args:
        metadata: what the JSON file beside the model holds.
        x: the first sample of each sequence, (B, I), as the model reads it; of a model with a
            vocabulary ids of tokens, (B, 1).

    Returns:
        The state, (B, S), in the dtype of the model and on the device of ``x``.

    Raises:
        ArgumentError: they are no description of an export, or say of some cell that there is no
            formula.
        ShapeError: ``x`` has another shape.
    """
    if metadata.get("format") != FORMAT:
        raise ArgumentError(
            "metadata is no description of an exported model. Give what the JSON file beside it "
            "holds: json.loads(written.metadata_path.read_text())."
        )
    if x.ndim != 2 or x.shape[1] != metadata["input_size"]:
        raise ShapeError(
            f"x has shape {tuple(x.shape)}, expected the first sample of each sequence, (B, I) "
            f"with I = {metadata['input_size']}. Of sequences (B, T, I) give x[:, 0]."
        )
    dtype = getattr(torch, metadata["dtype"])
    parts = []
    for cell in metadata["state"]:
        initial = cell["initial"]
        if initial is None:
            raise ArgumentError(
                f"the state of layer {cell['layer']} starts as a function of what it reads. Take "
                "it from the model: cell.initial_state(x)."
            )
        start = torch.tensor(initial["value"], dtype=dtype, device=x.device).expand(len(x), -1)
        if "per_input" in initial:
            start = start + x.to(dtype) @ torch.tensor(
                initial["per_input"], dtype=dtype, device=x.device
            )
        parts.append(start)
    return torch.cat(parts, dim=-1)
