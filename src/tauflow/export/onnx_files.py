"""Models as ONNX files, held against the model before they are written."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from tauflow.checks import at_least, one_of
from tauflow.errors import ArgumentError, DataNotFoundError
from tauflow.tensorfile import write_together

from .facts import facts_of, refuse_other_description
from .labels import Labels
from .onnx_graph import onnx_graph, onnx_runner, require_all
from .parity import Parity, check_parity
from .program import (
    Exported,
    ExportedSequence,
    ExportedStep,
    Model,
    export_sequence,
    export_step,
)

FORMS = ("sequence", "step")
PRESETS: dict[str, dict[str, str]] = {"tauflow": {}, "robot": {"x": "obs", "y": "actions"}}
"""Other names of inputs and outputs, by whose convention they are."""
OPSET = 20
_SIZES = {"sequence": (3, 17), "step": (2, 40)}


@dataclass(frozen=True)
class Written:
    """Files that hold an exported model.

    Args:
        path: the model.
        description: the JSON file beside it, or inside a folder.
        parity: how far it is from the model in Python.
    """

    path: Path
    description: Path
    parity: Parity


def to_onnx(
    model: Model,
    path: str | PathLike[str],
    *,
    form: str = "sequence",
    names: str = "tauflow",
    mask: bool = True,
    observed: bool | None = None,
    gap: float | None = None,
    labels: Labels | None = None,
    scaled: bool = False,
    opset: int = OPSET,
    tolerance: float | None = None,
) -> Written:
    """Write a model to an ONNX file, and beside it what one must know to run it.

    Inputs and outputs have the names, shapes and meaning that :func:`tauflow.export.program` and
    :func:`~tauflow.export.program_step` say; ``batch`` and ``time`` are free. ``NAME.json`` beside
    ``NAME.onnx`` says which cell it is, its sizes, the units and scales, the parts of the state and
    where they start, and the file's SHA-256; the same is in the file's metadata under ``tauflow``.

    Before it is written, the graph is run by ONNX Runtime on random irregular sequences of other
    sizes than those it was made with, and held against the model.

    Args:
        model: a sequence module or a :class:`~tauflow.models.SequenceModel` around one.
        path: the file, by convention ending in ``.onnx``; its folder must exist.
        form: ``"sequence"``, or ``"step"`` for one step with the state in and out.
        names: ``"tauflow"`` (x, dt, h_in, y, h_out), or ``"robot"``, the convention of robots'
            software (obs, h_in, actions, h_out), whose samples come at one fixed gap.
        mask: whether a sequence's graph takes a mask.
        observed: whether it takes which features were measured; by default if the cell models that.
        gap: a gap that is always the same, and then no input; for ``"robot"`` 1 by default.
        labels: units, names and scales.
        scaled: whether the graph takes and gives numbers in the units before scaling, NaN where one
            is missing; ``labels`` then has the scales.
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
    require_all("onnx")
    path = writable(path)
    one_of(FORMS, form=form)
    renamed = PRESETS[one_of(PRESETS, names=names)]
    at_least(18, opset=opset)
    if gap is None and names == "robot":
        gap = 1.0
    exported = made(
        ExportedSequence if form == "sequence" else ExportedStep,
        model,
        labels=labels,
        scaled=scaled,
        observed=observed,
        gap=gap,
        folded=True,
    )
    if isinstance(exported, ExportedSequence):
        traced = export_sequence(exported, mask=mask)
    else:
        assert isinstance(exported, ExportedStep)
        traced = export_step(exported)
    shapes = axes_of(exported)
    graph = onnx_graph(traced, opset=opset, names=renamed, axes=shapes)
    uses_mask = mask and form == "sequence"
    parity = check_parity(
        exported,
        onnx_runner(graph, renamed),
        sizes=_SIZES[form],
        mask=uses_mask,
        tolerance=tolerance,
    )
    facts = {
        **facts_of(exported, labels or Labels(), scaled=scaled),
        "form": form,
        "opset": opset,
        "parity": parity.worst,
        "inputs": _values(graph.graph.input, shapes, renamed),
        "outputs": _values(graph.graph.output, shapes, renamed),
    }
    entry = graph.metadata_props.add()
    entry.key, entry.value = "tauflow", json.dumps(facts)
    data = graph.SerializeToString()
    return write_with_facts(path, data, facts, parity)


def made(
    kind: type[Exported],
    model: Model,
    *,
    labels: Labels | None,
    scaled: bool,
    **options: Any,
) -> Exported:
    """Return the model in the form in which it is traced, with its scales inside if asked for."""
    scaling = () if labels is None or not scaled else labels.scaling()
    if scaled and not scaling:
        raise ArgumentError(
            "scaled: no scales are known. Pass labels with x_mean and x_scale, such as "
            "tauflow.export.Labels.of(data)."
        )
    exported = kind(model, scaling=scaling, **options).cpu()  # a copy, where files are tried
    if labels is not None:
        labels.check(exported.input_size, exported.output_size)
        if scaled:
            labels.warn_of_rounding(exported.like.dtype)
    return exported


def axes_of(exported: Exported) -> dict[str, tuple[str | int, ...]]:
    """Return the axes of every input and output."""
    free: tuple[str, ...] = ("batch", "time")
    if isinstance(exported, ExportedStep):
        free = ("batch",)
    steps = free if exported.body.return_sequences else ("batch",)
    state = ("batch", exported.body.state_size)
    return {
        "x": (*free, exported.input_size),
        "dt": free,
        "mask": free,
        "observed": (*free, exported.input_size),
        "h_in": state,
        "y": (*steps, exported.output_size),
        "h_out": state,
    }


def writable(path: str | PathLike[str]) -> Path:
    """Return a path that a file can be written to, and its description beside it.

    Raises:
        DataNotFoundError: there is no place for the file.
        ArgumentError: it has the name of its description.
        ExportError: something else stands where its description would.
    """
    path = Path(path)
    if path.is_dir():
        raise DataNotFoundError(f"cannot write {path}: it is a folder. Add a file name.")
    if not path.parent.is_dir():
        raise DataNotFoundError(
            f"cannot write {path.name}: there is no folder {path.parent}. Create it first."
        )
    beside = path.with_suffix(".json")
    if beside == path:
        raise ArgumentError(f"{path.name} is the name of its description. Choose another ending.")
    refuse_other_description(beside, path.name, file=path.name)
    return path


def write_with_facts(path: Path, data: bytes, facts: Mapping[str, Any], parity: Parity) -> Written:
    """Write a file and the description beside it; where that fails, both stay what they were."""
    beside = path.with_suffix(".json")
    whole = {**facts, "file": path.name, "sha256": hashlib.sha256(data).hexdigest()}
    write_together({path: data, beside: (json.dumps(whole, indent=2) + "\n").encode()})
    return Written(path, beside, parity)


def _values(values: Any, shapes: Mapping[str, Any], renamed: Mapping[str, str]) -> dict[str, Any]:
    ours = {theirs: name for name, theirs in renamed.items()}
    return {value.name: list(shapes[ours.get(value.name, value.name)]) for value in values}
