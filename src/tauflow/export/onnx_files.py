"""Export models to ONNX files, compared with the model before they are written."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from tauflow._internal.atomic_write import atomic_write_many
from tauflow._internal.checks import check_at_least, check_one_of
from tauflow.errors import ArgumentError

from .export_checks import Model
from .exportable_model import EXPORTED_MODELS, ExportableModel
from .io_schema import IOSchema
from .metadata import check_metadata_path, make_metadata
from .onnx_graph import make_onnx_runner, require_all, to_onnx_graph
from .output_paths import check_file_place, create_folder
from .parity import Parity, check_parity
from .torch_program import trace

PRESETS: dict[str, dict[str, str]] = {"tauflow": {}, "robot": {"x": "obs", "y": "actions"}}
"""Other names of inputs and outputs, by whose convention they are."""
OPSET = 20
_SIZES = {"sequence": (3, 17), "step": (2, 40)}


@dataclass(frozen=True)
class ExportResult:
    """Files that hold an exported model.

    Args:
        path: the model.
        metadata_path: the JSON file beside it, or inside a folder.
        parity: how far it is from the model in Python.
    """

    path: Path
    metadata_path: Path
    parity: Parity


def to_onnx(
    model: Model,
    path: str | PathLike[str],
    *,
    mode: str = "sequence",
    names: str = "tauflow",
    mask: bool = True,
    observed: bool | None = None,
    fixed_dt: float | None = None,
    schema: IOSchema | None = None,
    scaled: bool = False,
    opset: int = OPSET,
    tolerance: float | None = None,
) -> ExportResult:
    """Write a model to an ONNX file, with a JSON file that describes it.

    Inputs and outputs have the names, shapes and meaning that :func:`tauflow.export.program` and
    :func:`~tauflow.export.program_step` say; ``batch`` and ``time`` are free. ``NAME.json`` beside
    ``NAME.onnx`` says which cell it is, its sizes, the units and scales, the parts of the state and
    where they start, and the file's SHA-256; the same is in the file's metadata under ``tauflow``.

    Before it is written, the graph is run by ONNX Runtime on random irregular sequences of other
    sizes than those it was made with, and held against the model.

    Args:
        model: a sequence module or a :class:`~tauflow.models.SequenceModel` around one.
        path: the file, by convention ending in ``.onnx``; its folder must exist.
        mode: ``"sequence"``, or ``"step"`` for one step with the state in and out.
        names: ``"tauflow"`` (x, dt, h_in, y, h_out), or ``"robot"``, the convention of robots'
            software (obs, h_in, actions, h_out), whose samples come at one fixed time step.
        mask: whether a sequence's graph takes a mask.
        observed: whether it takes which features were measured; by default if the cell models that.
        fixed_dt: a time step that is always the same, and then no input; for ``"robot"`` 1 by
            default.
        schema: units, names and scales.
        scaled: whether the graph takes and gives numbers in the units before scaling, NaN where one
            is missing; ``schema`` then has the scales.
        opset: version of ONNX's operators, 18 or newer.
        tolerance: largest difference from the model; by default 1e-5 in single precision, 1e-10 in
            double.

    Raises:
        MissingExtraError: onnx, onnxscript or onnxruntime is not installed (extra ``onnx``).
        ExportError: the model cannot be such a graph, and why, or differs more, or the JSON file's
            name is taken by something other than a description of this file; no file is left.
        ArgumentError: an argument makes no sense for this model.
        DataNotFoundError: the folder does not exist.
    """
    require_all()
    path = check_output_path(path)
    renamed = PRESETS[check_one_of(PRESETS, names=names)]
    check_at_least(18, opset=opset)
    if fixed_dt is None and names == "robot":
        fixed_dt = 1.0
    exported = make_exported(
        mode, model, schema=schema, scaled=scaled, observed=observed, fixed_dt=fixed_dt
    )
    mask = mask and mode == "sequence"
    shapes = get_axes(exported)
    graph = to_onnx_graph(trace(exported, mask=mask), opset=opset, names=renamed, axes=shapes)
    parity = check_parity(
        exported,
        make_onnx_runner(graph, renamed),
        sizes=_SIZES[mode],
        mask=mask,
        tolerance=tolerance,
    )
    metadata = {
        **make_metadata(exported, schema or IOSchema(), scaled=scaled),
        "form": mode,
        "opset": opset,
        "parity": parity.max_difference,
        "inputs": _describe_values(graph.graph.input, shapes, renamed),
        "outputs": _describe_values(graph.graph.output, shapes, renamed),
    }
    entry = graph.metadata_props.add()
    entry.key, entry.value = "tauflow", json.dumps(metadata)
    data = graph.SerializeToString()
    return write_with_metadata(path, data, metadata, parity)


def make_exported(
    mode: str,
    model: Model,
    *,
    schema: IOSchema | None,
    scaled: bool,
    **options: Any,
) -> ExportableModel:
    """Return the model in the form in which it is traced, with its scales inside if asked for."""
    scaling = () if schema is None or not scaled else schema.scaling()
    if scaled and not scaling:
        raise ArgumentError(
            "scaled: no scales are known. Pass a schema with x_mean and x_scale, such as "
            "tauflow.export.IOSchema.from_data(data)."
        )
    form = EXPORTED_MODELS[check_one_of(EXPORTED_MODELS, mode=mode)]
    exported = form(model, scaling=scaling, device="cpu", **options)  # where files are tried
    if schema is not None:
        schema.check(exported.input_size, exported.output_size)
        if scaled:
            schema.warn_precision_loss(exported.like.dtype)
    return exported


def get_axes(exported: ExportableModel) -> dict[str, tuple[str | int, ...]]:
    """Return the axes of every input and output."""
    free = tuple({"B": "batch", "T": "time"}[axis] for axis in exported.axes)
    steps = free if exported.sequence_module.return_sequences else ("batch",)
    state = ("batch", exported.sequence_module.state_size)
    return {
        "x": (*free, exported.input_size),
        "dt": free,
        "mask": free,
        "observed": (*free, exported.input_size),
        "h_in": state,
        "y": (*steps, exported.output_size),
        "h_out": state,
    }


def check_output_path(path: str | PathLike[str]) -> Path:
    """Return a path that a file can be written to, and its description beside it.

    Raises:
        DataNotFoundError: there is no place for the file.
        ArgumentError: it has the name of its description.
        ExportError: something else stands where its description would.
    """
    path = check_file_place(path)
    metadata_path = path.with_suffix(".json")
    if metadata_path == path:
        raise ArgumentError(f"{path.name} is the name of its description. Choose another ending.")
    check_metadata_path(metadata_path, path.name, file=path.name)
    return path


def write_with_metadata(
    path: Path, data: bytes, metadata: Mapping[str, Any], parity: Parity
) -> ExportResult:
    """Write a file and the description beside it; where that fails, both stay what they were."""
    metadata_path = path.with_suffix(".json")
    contents = {**metadata, "file": path.name, "sha256": hashlib.sha256(data).hexdigest()}
    atomic_write_many({path: data, metadata_path: (json.dumps(contents, indent=2) + "\n").encode()})
    return ExportResult(path, metadata_path, parity)


def write_c_folder(
    folder: Path,
    name: str,
    files: Mapping[str, str],
    metadata: Mapping[str, Any],
    parity: Parity,
) -> ExportResult:
    """Write files of C and their description; where that fails, all stay what they were."""
    texts = {**files, f"{name}.json": json.dumps(metadata, indent=2) + "\n"}
    with create_folder(folder):
        atomic_write_many({folder / file: text.encode() for file, text in texts.items()})
    return ExportResult(folder / f"{name}.c", folder / f"{name}.json", parity)


def _describe_values(
    values: Any, shapes: Mapping[str, Any], renamed: Mapping[str, str]
) -> dict[str, Any]:
    names = {new_name: name for name, new_name in renamed.items()}
    return {value.name: list(shapes[names.get(value.name, value.name)]) for value in values}
