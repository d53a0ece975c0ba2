"""``tauflow export``: a saved model as an ONNX file, a program of torch, or plain C."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from tauflow.export import IOSchema

FORMATS = ("onnx", "onnx-step", "program", "program-step", "c")
_FORMAT_OPTIONS: dict[str, tuple[str, ...]] = {
    "names": ("onnx", "onnx-step"),
    "mask": ("onnx", "program"),
}
_FORMAT_OPTIONS |= dict.fromkeys(("name", "dtype", "calibrate"), ("c",))
"""Options that not every form takes."""


def export(
    ctx: typer.Context,
    model: Annotated[
        Path,
        typer.Argument(help="Folder of a run, a predictor's file, or what tauflow.save wrote."),
    ],
    to: Annotated[str, typer.Option("--to", help=f"One of {', '.join(FORMATS)}.")],
    out: Annotated[Path, typer.Option("--out", help="The file, or for c the folder.")],
    names: Annotated[
        str, typer.Option(help="ONNX: tauflow (x, dt, ... y), or robot (obs ... actions).")
    ] = "tauflow",
    fixed_dt: Annotated[
        float | None, typer.Option(help="One time step for all samples, which then is no input.")
    ] = None,
    mask: Annotated[bool, typer.Option(help="Whether whole sequences come with a mask.")] = True,
    time_unit: Annotated[str, typer.Option(help="What a time step of 1 means.")] = "",
    inputs: Annotated[str, typer.Option(help="Names of the inputs, with commas between.")] = "",
    outputs: Annotated[str, typer.Option(help="Names of the outputs.")] = "",
    name: Annotated[str, typer.Option(help="C: what functions and files are called.")] = "model",
    scaled: Annotated[
        bool, typer.Option("--scaled", help="Of a run: take and give the table's own units.")
    ] = False,
    tolerance: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            help="Largest difference from the model; by default 1e-5, for c where needed more; of "
            "integers a share of the outputs' range, by default 0.02.",
        ),
    ] = None,
    dtype: Annotated[
        str, typer.Option(help="C: float32, or integers for cores without floats, int16 or int8.")
    ] = "float32",
    calibrate: Annotated[
        Path | None,
        typer.Option(help="C of integers: a table such as that of the training, for their ranges."),
    ] = None,
) -> None:
    """Export a model, and say how far what was written is from it."""
    from tauflow._internal.checks import check_one_of
    from tauflow._internal.tensor_file import read_kind
    from tauflow.export import IOSchema, load, to_c, to_onnx, to_program
    from tauflow.predict import load_predictor
    from tauflow.predict.files import KIND

    from .output import print_line

    _check_format_options(ctx, check_one_of(FORMATS, to=to))
    labels = IOSchema()
    loaded: Any = None
    trained: Any = None
    if model.is_dir() or read_kind(model) == KIND:
        trained = load_predictor(model)
        labels, loaded = IOSchema.from_data(trained), trained.model
    options = {
        "time_unit": time_unit,
        "inputs": _split_list(inputs),
        "outputs": _split_list(outputs),
    }
    labels = _update_schema(labels, options)
    loaded = (load(model) if loaded is None else loaded).eval()
    kind, _, step = to.partition("-")
    form = "step" if step else "sequence"
    common: dict[str, Any] = {"fixed_dt": fixed_dt, "schema": labels, "scaled": scaled}
    common["tolerance"] = tolerance
    if kind == "onnx":
        written = to_onnx(loaded, out, mode=form, names=names, mask=mask, **common)
    elif kind == "program":
        written = to_program(loaded, out, mode=form, mask=mask, **common)
    else:
        if dtype != "float32" or calibrate is not None:
            scales = labels if scaled else IOSchema()
            common["calibration"] = _find_calibration(trained, calibrate, scales)
        written = to_c(loaded, out, name=name, dtype=dtype, **common)
    print_line(f"{written.path} and {written.metadata_path.name}: {written.parity}")


def _find_calibration(
    trained: Any, table: Path | None, schema: "IOSchema"
) -> tuple[list[Any], list[Any]]:
    """Return x and dt, as the model reads them, of each sequence of a table.

    Args:
        trained: the predictor of a run.
        table: or none.
        schema: with scales, if numbers are wanted in the units before scaling.

    Raises:
        ArgumentError: the model does not come from a table, or there is no other table.
    """
    from tauflow.errors import ArgumentError

    if table is None or trained is None:
        raise ArgumentError(
            "integers take their ranges from a table such as that of the training: export the "
            "run's folder with --calibrate TABLE, or call tauflow.export.to_c with "
            "calibration=(x, dt)."
        )
    new, inputs, steps = trained.read_table(table), [], []
    for batch in (new.batch(*ends) for ends in new.plan_batches()):
        for row, length in enumerate(batch.lengths.tolist()):
            x = batch.x[row, :length].double()
            if batch.observed is not None and getattr(trained.model, "uses_observed", False):
                x = x.masked_fill(~batch.observed[row, :length], float("nan"))
            if schema.x_mean:
                x = x * x.new_tensor(schema.x_scale) + x.new_tensor(schema.x_mean)
            inputs.append(x)
            steps.append(
                x.new_ones(length) if batch.dt is None else batch.dt[row, :length].double()
            )
    return inputs, steps


def _check_format_options(ctx: typer.Context, to: str) -> None:
    """Raise ``ArgumentError`` if an option was given that the form does not take."""
    from tauflow.errors import ArgumentError

    for name, forms in _FORMAT_OPTIONS.items():
        source = ctx.get_parameter_source(name)
        if to not in forms and source is not None and source.name != "DEFAULT":
            flag = "--mask and --no-mask are" if name == "mask" else f"--{name} is"
            raise ArgumentError(f"{flag} for --to {' and '.join(forms)}, not {to}. Leave it out.")


def _update_schema(schema: "IOSchema", values: Mapping[str, Any]) -> "IOSchema":
    """Return labels with what was told, unless a run knows it itself: then it would be false.

    Raises:
        ArgumentError: it does.
    """
    from dataclasses import replace

    from tauflow.errors import ArgumentError

    options = {name: value for name, value in values.items() if value}
    for name in options:
        if known := getattr(schema, name):
            shown = known if isinstance(known, str) else ",".join(known)
            raise ArgumentError(
                f"--{name.replace('_', '-')}: the run knows that itself, {shown!r}. Leave it out."
            )
    return replace(schema, **options)


def _split_list(text: str) -> tuple[str, ...]:
    return tuple(text.split(",")) if text else ()
