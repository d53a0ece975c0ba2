"""Programs of ``torch.export`` as files, held against the model before they are written."""

import io
import json
from os import PathLike
from typing import Any

import torch

from tauflow.checks import one_of

from .facts import facts_of
from .labels import Labels
from .onnx_files import FORMS, Written, made, writable, write_with_facts
from .parity import check_parity
from .program import ExportedSequence, ExportedStep, Model, export_sequence, export_step


def to_program(
    model: Model,
    path: str | PathLike[str],
    *,
    form: str = "sequence",
    mask: bool = True,
    observed: bool | None = None,
    gap: float | None = None,
    labels: Labels | None = None,
    scaled: bool = False,
    tolerance: float | None = None,
) -> Written:
    """Write a model to a file that ``torch.export.load`` reads, and its description beside it.

    Args:
        model: a sequence module or a :class:`~tauflow.models.SequenceModel` around one.
        path: the file, by convention ending in ``.pt2``; its folder must exist.
        form: ``"sequence"``, or ``"step"`` for one step with the state in and out.
        mask: whether a sequence's program takes a mask.
        observed: whether it takes which features were measured; by default if the cell models that.
        gap: a gap that is always the same, and then no input.
        labels: units, names and scales.
        scaled: whether the program takes and gives numbers in the units before scaling, NaN where
            one is missing; ``labels`` then has the scales.
        tolerance: largest difference from the model; by default 1e-5 in single precision, 1e-10 in
            double.

    Raises:
        ExportError: the model cannot be a program, and why, or differs more, or the JSON file's
            name is taken by something other than a description of this file; no file is left.
        ArgumentError: an argument makes no sense for this model.
        DataNotFoundError: the folder does not exist.
    """
    path = writable(path)
    kind = ExportedSequence if one_of(FORMS, form=form) == "sequence" else ExportedStep
    options: dict[str, Any] = {"observed": observed, "gap": gap}
    exported = made(kind, model, labels=labels, scaled=scaled, **options)
    if isinstance(exported, ExportedStep):
        traced, uses_mask = export_step(exported), False
    else:
        assert isinstance(exported, ExportedSequence)
        traced, uses_mask = export_sequence(exported, mask=mask), mask
    facts = {**facts_of(exported, labels or Labels(), scaled=scaled), "form": form}
    buffer = io.BytesIO()
    torch.export.save(traced, buffer, extra_files={"tauflow.json": json.dumps(facts)})
    buffer.seek(0)
    run = torch.export.load(buffer).module()
    parity = check_parity(
        exported, lambda given: run(**given), sizes=(4, 17), mask=uses_mask, tolerance=tolerance
    )
    return write_with_facts(path, buffer.getvalue(), {**facts, "parity": parity.worst}, parity)
