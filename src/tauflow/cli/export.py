"""``tauflow export``: a saved model as an ONNX file, a program of torch, or plain C."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from tauflow.export import Labels

FORMS = ("onnx", "onnx-step", "program", "program-step", "c")
_ONLY = {"names": ("onnx", "onnx-step"), "mask": ("onnx", "program"), "name": ("c",)}
"""Options that not every form takes."""


def export(
    ctx: typer.Context,
    model: Annotated[
        Path,
        typer.Argument(help="Folder of a run, a predictor's file, or what tauflow.save wrote."),
    ],
    to: Annotated[str, typer.Option("--to", help=f"One of {', '.join(FORMS)}.")],
    out: Annotated[Path, typer.Option("--out", help="The file, or for c the folder.")],
    names: Annotated[
        str, typer.Option(help="ONNX: tauflow (x, dt, ... y), or robot (obs ... actions).")
    ] = "tauflow",
    gap: Annotated[
        float | None, typer.Option(help="One gap for all samples, which then is no input.")
    ] = None,
    mask: Annotated[bool, typer.Option(help="Whether whole sequences come with a mask.")] = True,
    time_unit: Annotated[str, typer.Option(help="What a gap of 1 means.")] = "",
    inputs: Annotated[str, typer.Option(help="Names of the inputs, with commas between.")] = "",
    outputs: Annotated[str, typer.Option(help="Names of the outputs.")] = "",
    name: Annotated[str, typer.Option(help="C: what functions and files are called.")] = "model",
    scaled: Annotated[
        bool, typer.Option("--scaled", help="Of a run: take and give the table's own units.")
    ] = False,
) -> None:
    """Export a model, and say how far what was written is from it."""
    from tauflow.checks import one_of
    from tauflow.export import Labels, load, to_c, to_onnx, to_program
    from tauflow.predict import load_predictor
    from tauflow.predict.files import KIND
    from tauflow.tensorfile import kind_of

    from .output import say

    _refuse_other_forms(ctx, one_of(FORMS, to=to))
    labels = Labels()
    loaded: Any = None
    if model.is_dir() or kind_of(model) == KIND:
        trained = load_predictor(model)
        labels, loaded = Labels.of(trained), trained.model
    told = {"time_unit": time_unit, "inputs": _listed(inputs), "outputs": _listed(outputs)}
    labels = _with(labels, told)
    loaded = (load(model) if loaded is None else loaded).eval()
    kind, _, step = to.partition("-")
    form = "step" if step else "sequence"
    common: dict[str, Any] = {"gap": gap, "labels": labels, "scaled": scaled}
    if kind == "onnx":
        written = to_onnx(loaded, out, form=form, names=names, mask=mask, **common)
    elif kind == "program":
        written = to_program(loaded, out, form=form, mask=mask, **common)
    else:
        written = to_c(loaded, out, name=name, **common)
    say(f"{written.path} and {written.description.name}: {written.parity}")


def _refuse_other_forms(ctx: typer.Context, to: str) -> None:
    """Raise :class:`ArgumentError` if an option was given that the form does not take."""
    from tauflow.errors import ArgumentError

    for name, forms in _ONLY.items():
        source = ctx.get_parameter_source(name)
        if to not in forms and source is not None and source.name != "DEFAULT":
            flag = "--mask and --no-mask are" if name == "mask" else f"--{name} is"
            raise ArgumentError(f"{flag} for --to {' and '.join(forms)}, not {to}. Leave it out.")


def _with(labels: "Labels", told: Mapping[str, Any]) -> "Labels":
    """Return labels with what was told, unless a run knows it itself: then it would be false.

    Raises:
        ArgumentError: it does.
    """
    from dataclasses import replace

    from tauflow.errors import ArgumentError

    given = {name: value for name, value in told.items() if value}
    for name in given:
        if known := getattr(labels, name):
            shown = known if isinstance(known, str) else ",".join(known)
            raise ArgumentError(
                f"--{name.replace('_', '-')}: the run knows that itself, {shown!r}. Leave it out."
            )
    return replace(labels, **given)


def _listed(text: str) -> tuple[str, ...]:
    return tuple(text.split(",")) if text else ()
