"""Trace models as programs of ``torch.export``."""

from typing import Any

import torch
from torch.export import Dim, ExportedProgram

from tauflow.errors import ExportError

from .export_checks import Model
from .exportable_model import ExportableModel, ExportedSequence, ExportedStep


def trace(exported: ExportableModel, *, mask: bool = False) -> ExportedProgram:
    """Trace whole sequences or one step; see :func:`program` and :func:`program_step`.

    Args:
        exported: the model.
        mask: whether sequences take a mask; a step does not.
    """
    inputs = exported.make_example_inputs(*exported.trace_sizes, mask=mask)
    axes = enumerate(exported.axes)
    free = {axis: Dim(size, min=1) for axis, size in axes if size in exported.dynamic}
    rows = {axis: size for axis, size in free.items() if axis == 0}
    shapes: dict[str, Any] = {name: rows if name == "h_in" else free for name in inputs}
    from torch._dynamo.exc import UserError  # which torch.export raises; slow to import

    with torch.no_grad():
        try:
            return torch.export.export(exported, (), inputs, dynamic_shapes=shapes)
        except UserError as error:
            raise ExportError(
                f"torch cannot leave the sizes {sorted(_size_names(shapes))} free in this model: "
                f"{str(error).strip().splitlines()[0]} Export it with dynamic='B', or 'T', or ''."
            ) from error


def _size_names(shapes: dict[str, Any]) -> set[str]:
    """Return the names of the free sizes."""
    return {size.__name__ for axes in shapes.values() for size in axes.values()}


def program(
    model: Model,
    *,
    dynamic: str = "BT",
    mask: bool = True,
    observed: bool | None = None,
) -> ExportedProgram:
    """Return a model as a program of ``torch.export``.

    The loop over time is one operator, whatever the length. Call the program by names, and save it
    with ``torch.export.save``::

        run = program(model).module()
        y, h = run(x=x, dt=dt, mask=mask, h_in=h)

    ======== ============ ==========================================================
    x        (B, T, I)    inputs; token ids, integers, for a model with a vocabulary
    dt       (B, T)       time steps, in the unit of the cell's time constants
    mask     (B, T)       bool; false keeps state and output (with ``mask=True``)
    observed (B, T, I)    bool, which features were measured (with ``observed=True``)
    h_in     (B, S)       state to start from, such as ``model.cell.initial_state``
    y        (B, T, O)    outputs, or (B, O) where the model returns the last one's
    h_out    (B, S)       state after the last sample
    ======== ============ ==========================================================

    The program has the parameters as they are now, and what its cells make of them alone as
    constants. It checks nothing, such as time steps that run backwards.

    Args:
        model: a sequence module or a :class:`~tauflow.models.SequenceModel` around one, in
            evaluation mode if it has dropout.
        dynamic: which sizes are free, of ``"B"`` and ``"T"``; the others are 1.
        mask: whether the program takes a mask.
        observed: whether it takes which features were measured; by default if the cell models that.

    Raises:
        ExportError: the model cannot be a program, and why.
        ArgumentError: an argument makes no sense for this model.
    """
    return trace(ExportedSequence(model, observed=observed, dynamic=dynamic), mask=mask)


def program_step(
    model: Model, *, dynamic: str = "B", observed: bool | None = None
) -> ExportedProgram:
    """Return one step of a model as a ``torch.export`` program, with the state in and out.

    As :func:`program`, without the axis of time and without a mask: ``x`` (B, I), ``dt`` (B,),
    ``h_in`` (B, S), and ``observed`` (B, I) give ``y`` (B, O) and ``h_out`` (B, S).

    Args:
        model: a model in one direction.
        dynamic: ``"B"`` for a free batch size, ``""`` for one sequence.
        observed: whether it takes which features were measured; by default if the cell models that.

    Raises:
        ExportError: the model cannot be a program of one step, and why.
        ArgumentError: an argument makes no sense for this model.
    """
    return trace(ExportedStep(model, observed=observed, dynamic=dynamic))
