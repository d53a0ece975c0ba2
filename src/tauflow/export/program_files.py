"""Save programs of ``torch.export``, compared with the model before they are written."""

import io
import json
from os import PathLike

import torch

from .export_checks import Model
from .io_schema import IOSchema
from .metadata import make_metadata
from .onnx_files import ExportResult, check_output_path, make_exported, write_with_metadata
from .parity import check_parity
from .torch_program import trace


def to_program(
    model: Model,
    path: str | PathLike[str],
    *,
    mode: str = "sequence",
    mask: bool = True,
    observed: bool | None = None,
    fixed_dt: float | None = None,
    schema: IOSchema | None = None,
    scaled: bool = False,
    tolerance: float | None = None,
) -> ExportResult:
    """Write a model to a file for ``torch.export.load``, with a JSON file that describes it.

    Args:
        model: a sequence module or a :class:`~tauflow.models.SequenceModel` around one.
        path: the file, by convention ending in ``.pt2``; its folder must exist.
        mode: ``"sequence"``, or ``"step"`` for one step with the state in and out.
        mask: whether a sequence's program takes a mask.
        observed: whether it takes which features were measured; by default if the cell models that.
        fixed_dt: a time step that is always the same, and then no input.
        schema: units, names and scales.
        scaled: whether the program takes and gives numbers in the units before scaling, NaN where
            one is missing; ``schema`` then has the scales.
        tolerance: largest difference from the model; by default 1e-5 in single precision, 1e-10 in
            double.

    Raises:
        ExportError: the model cannot be a program, and why, or differs more, or the JSON file's
            name is taken by something other than a description of this file; no file is left.
        ArgumentError: an argument makes no sense for this model.
        DataNotFoundError: the folder does not exist.
    """
    path = check_output_path(path)
    exported = make_exported(
        mode, model, schema=schema, scaled=scaled, observed=observed, fixed_dt=fixed_dt
    )
    mask = mask and mode == "sequence"
    traced = trace(exported, mask=mask)
    metadata = {**make_metadata(exported, schema or IOSchema(), scaled=scaled), "form": mode}
    buffer = io.BytesIO()
    torch.export.save(traced, buffer, extra_files={"tauflow.json": json.dumps(metadata)})
    buffer.seek(0)
    run = torch.export.load(buffer).module()
    parity = check_parity(
        exported, lambda inputs: run(**inputs), sizes=(4, 17), mask=mask, tolerance=tolerance
    )
    return write_with_metadata(
        path, buffer.getvalue(), {**metadata, "parity": parity.max_difference}, parity
    )
