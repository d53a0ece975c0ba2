"""``tauflow export``: a saved model as an ONNX file, a program of torch, or plain C."""

from pathlib import Path
from typing import Annotated

import typer

FORMS = ("onnx", "onnx-step", "program", "program-step", "c")


def export(
    model: Annotated[Path, typer.Argument(help="A model file that tauflow.save wrote.")],
    to: Annotated[str, typer.Option("--to", help=f"One of {', '.join(FORMS)}.")],
    out: Annotated[Path, typer.Option("--out", help="The file, or for c the folder.")],
    names: Annotated[
        str, typer.Option(help="ONNX: tauflow (x, dt, ... y), or robot (obs ... actions).")
    ] = "tauflow",
    gap: Annotated[
        float | None, typer.Option(help="One gap for all samples, which then is no input.")
    ] = None,
    mask: Annotated[bool, typer.Option(help="Whether sequences come with a mask.")] = True,
    time_unit: Annotated[str, typer.Option(help="What a gap of 1 means.")] = "",
    inputs: Annotated[str, typer.Option(help="Names of the inputs, with commas between.")] = "",
    outputs: Annotated[str, typer.Option(help="Names of the outputs.")] = "",
    name: Annotated[str, typer.Option(help="C: what functions and files are called.")] = "model",
) -> None:
    """Export a model, and say how far what was written is from it."""
    from tauflow.checks import one_of
    from tauflow.export import Labels, load, to_c, to_onnx, to_program

    from .output import say

    one_of(FORMS, to=to)
    labels = Labels(time_unit=time_unit, inputs=_listed(inputs), outputs=_listed(outputs))
    loaded = load(model).eval()
    kind, _, step = to.partition("-")
    form = "step" if step else "sequence"
    if kind == "onnx":
        written = to_onnx(loaded, out, form=form, names=names, mask=mask, gap=gap, labels=labels)
    elif kind == "program":
        written = to_program(loaded, out, form=form, mask=mask, gap=gap, labels=labels)
    else:
        written = to_c(loaded, out, name=name, gap=gap, labels=labels)
    say(f"{written.path} and {written.description.name}: {written.parity}")


def _listed(text: str) -> tuple[str, ...]:
    return tuple(text.split(",")) if text else ()
