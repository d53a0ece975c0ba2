"""Export one step of a model as plain C code."""

import re
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tauflow._internal.checks import check_one_of
from tauflow.errors import ArgumentError, ExportError, NonFiniteError
from tauflow.version import VERSION

from . import c_templates as templates
from .c_check import SAMPLE_COUNT, check_compiled_parity, find_compiler
from .c_code.c_text import StepCode
from .c_code.evaluate import evaluate
from .c_code.float_code import write_float_step
from .c_code.graph_passes import Item, simplify
from .c_code.lane_builder import build_step_graph
from .c_code.step_graph import StepGraph
from .export_checks import Model
from .exportable_model import ExportableModel
from .integer_calibration import Calibration
from .integer_files import DTYPES, write_integer_c
from .io_schema import IOSchema, resolve_names, sanitize_comment
from .metadata import check_metadata_path, make_metadata, read_metadata
from .onnx_files import ExportResult, make_exported, write_c_folder
from .output_paths import check_folder_place
from .parity import (
    TOLERANCES,
    RunExported,
    check_parity,
    max_relative_difference,
    run_model,
    run_step_by_step,
    sample_inputs,
)
from .torch_program import trace

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,39}")
_RESERVED_NAME = re.compile(
    "auto|break|case|char|const|continue|default|do|double|else|enum|extern|float|for|goto|if|"
    "inline|int|long|register|restrict|return|short|signed|sizeof|static|struct|switch|typedef|"
    "union|unsigned|void|volatile|while|main|test|clean"
)
"""Words of C, and targets of the ``Makefile``."""
_ROUNDING_FACTOR, _MAX_TOLERANCE = 2.0, 1e-3
_LARGE_INPUTS = 10.0
_CALLS_STACK = 96
"""Bytes of stack that a step takes beside its arrays, with the functions of ``math.h``."""


def to_c(
    model: Model,
    folder: str | PathLike[str],
    *,
    name: str = "model",
    observed: bool | None = None,
    fixed_dt: float | None = None,
    schema: IOSchema | None = None,
    scaled: bool = False,
    tolerance: float | None = None,
    dtype: str = "float32",
    calibration: Calibration | None = None,
) -> ExportResult:
    """Write one step of a model as C99 code that needs only ``math.h`` and no allocation.

    The folder gets ``NAME.c`` and ``NAME.h`` (``NAME_start`` and ``NAME_step``, whose comments say
    what each argument is), ``main.c``, which reads samples as CSV and prints outputs, a
    ``Makefile`` (``make`` and ``make test``), ``test_vector.csv`` with what the model says to 1,000
    irregular samples, and ``NAME.json``. Cells with a wiring evaluate the synapses that exist and
    no others; the sub-steps of a solver are a loop. ``NAME.h`` and ``NAME.json`` say how many bytes
    of flash the constants take, and of stack a step.

    Where a C compiler is found (``$CC``, with its options, or else cc, gcc or clang), the code is
    compiled and run on the test vector before the folder is written; else only the graph it comes
    from is run, by NumPy. The files are replaced together.

    Args:
        model: a model in one direction, in single precision.
        folder: where to; made if its parent exists.
        name: what functions and files are called, an identifier of C.
        observed: whether it takes which features were measured; by default if the cell models that.
        fixed_dt: a time step that is always the same, and then no argument.
        schema: units, names and scales.
        scaled: whether the code takes and gives numbers in the units before scaling, NaN where one
            is missing; ``schema`` then has the scales.
        dtype: ``"float32"``, or integers for microcontrollers without a float unit: ``"int16"``, or
            ``"int8"``, which are weights of 8 bits with a scale a row, and numbers of 16 bits.
        calibration: for integers, samples that say how large numbers become: inputs (B, T, I) and
            time steps (B, T), or lists of (T, I) and (T,); a third entry, targets, adds the metric
            before and after. In the units before scaling if ``scaled``, NaN where one is missing.
        tolerance: largest difference from the model; of integers as a share of the range of the
            outputs on the calibration data, by default 0.02; else by default 1e-5. Roundings add
            up in a network that does not forget: where single precision takes the model itself
            further from double precision, twice as far, up to 1e-3.

    Raises:
        ExportError: the model cannot be such code, and why, or differs more, or ``NAME.json`` is
            there and describes something else, or another of the files is and tauflow wrote none of
            the folder, or ``$CC`` is no compiler that is here; nothing is written.
        ArgumentError: an argument makes no sense for this model.
        DataNotFoundError: the folder cannot be made.
    """
    compiler = find_compiler()
    folder = Path(folder)
    check_folder_place(folder)
    _check_target(folder, name, dtype)
    schema = schema or IOSchema()
    if check_one_of(DTYPES, dtype=dtype) != "float32":
        if fixed_dt is not None:
            raise ArgumentError("integers take the time step of each sample: leave fixed_dt out.")
        return write_integer_c(
            model,
            folder,
            name=name,
            dtype=dtype,
            calibration=calibration,
            observed=observed,
            schema=schema,
            scaled=scaled,
            tolerance=tolerance,
        )
    if calibration is not None:
        raise ArgumentError("calibration is for dtype='int16' and 'int8'. Leave it out.")
    options: dict[str, Any] = {
        "observed": observed,
        "fixed_dt": fixed_dt,
        "is_sparse": True,
        "dynamic": "",
    }
    step = make_exported("step", model, schema=schema, scaled=scaled, **options)
    if step.like.dtype is not torch.float32:
        raise ExportError(
            f"C code is in single precision, the model in {step.like.dtype}. Convert "
            "it with .float()."
        )
    graph = build_step_graph(trace(step))
    items = simplify(graph, fold_offsets=False)
    run = make_runner(graph, items)
    parity = check_parity(step, run, sizes=(1, 40), tolerance=tolerance)
    _check_large_inputs(step, run, max(tolerance or 0.0, _MAX_TOLERANCE))
    metadata = {**make_metadata(step, schema, scaled=scaled), "form": "c", "name": name}
    inputs, y = _sample_outputs(step)
    rounding = _measure_rounding(step, inputs, y)
    if tolerance is None:
        tolerance = max(TOLERANCES[y.dtype], min(_ROUNDING_FACTOR * rounding, _MAX_TOLERANCE))
    code = write_float_step(graph, items, name, has_gap=fixed_dt is None)
    metadata["bytes"] = {"constants": code.flash, "stack": code.work + _CALLS_STACK}
    files = make_c_sources(step, code, metadata, name=name, schema=schema, tolerance=tolerance)
    files["test_vector.csv"] = _format_test_vector(inputs, y)
    if compiler is not None:
        parity = check_compiled_parity(
            files, name, compiler, tolerance=tolerance, rounding=rounding
        )
    metadata["parity"] = parity.max_difference
    return write_c_folder(folder, name, files, metadata, parity)


def make_runner(graph: StepGraph, items: Sequence[Item]) -> RunExported:
    """Return what computes one step of a graph as the model's own step does."""

    def run(inputs: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        arrays = {name: v.double().numpy().reshape(len(v), -1) for name, v in inputs.items()}
        results = evaluate(items, graph.outputs, arrays)
        dtype = inputs["h_in"].dtype
        y, h = (torch.from_numpy(results[name]).to(dtype) for name in ("y", "h_out"))
        return y, h

    return run


@torch.no_grad()
def _check_large_inputs(step: ExportableModel, run: RunExported, tolerance: float) -> None:
    """Compare with the model on inputs that reach where activations saturate.

    Raises:
        ExportError: the difference is larger.
    """
    inputs = sample_inputs(step, (40, 4), seed=2, spread=_LARGE_INPUTS)
    try:
        expected = run_model(step, inputs, every_step=True)
    except NonFiniteError:  # of a cell with exponentials, on inputs that it need not take
        return
    exact, made = (
        torch.cat([part.flatten(1) for part in parts], dim=1)
        for parts in (expected, run_step_by_step(run, inputs))
    )
    rows = exact.isfinite().all(dim=1)
    worst = max_relative_difference(made[rows], exact[rows]) if rows.any() else 0.0
    if not worst <= tolerance:
        raise ExportError(
            f"what was exported differs from the model by {worst:.1e} on large inputs, more than "
            f"{tolerance:g}. Please report it with the model's options."
        )


def _check_target(folder: Path, name: str, dtype: str) -> None:
    """Raise if a name is not valid in C, or if files that are no export would be overwritten."""
    if not _NAME.fullmatch(name) or _RESERVED_NAME.fullmatch(name):
        raise ArgumentError(
            f"name must be an identifier of C with at most 40 letters, digits and underscores, got "
            f"{name!r}."
        )
    check_metadata_path(folder / f"{name}.json", f"{name}.c", form="c", name=name)
    if any((read_metadata(path) or {}).get("form") == "c" for path in folder.glob("*.json")):
        return
    files = ["Makefile", "main.c", "test_vector.csv", f"{name}.c", f"{name}.h"]
    for file in [*files, *(["README.md"] if dtype != "float32" else [])]:
        if (folder / file).exists():
            raise ExportError(
                f"cannot write into {folder}: there is a {file}, and no description by tauflow "
                "beside it. Choose another folder, or move that file away."
            )


def make_c_sources(
    step: ExportableModel,
    code: StepCode,
    metadata: Mapping[str, Any],
    *,
    name: str,
    schema: IOSchema,
    tolerance: float,
) -> dict[str, str]:
    """Return the files of a step, by name."""
    inputs, outputs, size = step.input_size, step.output_size, step.sequence_module.state_size
    x_type = "float" if step.embedding is None else "int64_t"
    arguments = [f"const {x_type} x[1][{inputs}]"]
    columns, call, reading = resolve_names("x", schema.inputs, inputs), ["x"], ""
    if step.fixed_dt is None:
        arguments.append("const float dt[1]")
        columns, call, reading = [*columns, "dt"], [*call, "dt"], templates.READ_GAP
    if step.observed:
        arguments.append(f"const bool observed[1][{inputs}]")
        columns += [f"{column} observed" for column in columns[:inputs]]
        call, reading = [*call, "observed"], reading + templates.READ_OBSERVED
    arguments += [
        f"const float h_in[1][{size}]",
        f"float y[1][{outputs}]",
        f"float h_out[1][{size}]",
    ]
    casts = {"x": f"(const {x_type}(*)[INPUTS])x", "observed": "(const bool(*)[INPUTS])observed"}
    state = f"(const float(*)[{size}])h[now]"
    fields = {
        "name": name,
        "NAME": name.upper(),
        "NAME_FILE": name,
        "version": VERSION,
        "cell": sanitize_comment(str(metadata["cell"])),
        "inputs": inputs,
        "outputs": outputs,
        "state": size,
        "x_type": x_type,
        "x_may": "finite or NaN" if step.is_scaled else "finite",
        "check": "",
        "arguments": (",\n" + " " * (len(name) + 11)).join(arguments),
        "notes": "\n".join(f" * {line}" for line in _describe_arguments(step, schema)),
        "columns": ", ".join(map(sanitize_comment, columns)),
        "column_count": len(columns),
        "call": ", ".join([*(casts.get(c, c) for c in call), state, "y", "h[1 - now]"]),
        "reading": reading,
        "reader": templates.READER,
        "tolerance": repr(float(tolerance)),
        "flash": metadata["bytes"]["constants"],
        "stack": metadata["bytes"]["stack"],
        "constants": code.constants,
        "body": code.body,
    }
    if step.embedding is not None:
        ids: Any = step.embedding.vocabulary
        fields["x_may"] = f"an id below {ids}"
        fields["check"] = templates.CHECK_TOKEN.substitute(count=ids, last=ids - 1)
    start = _generate_start(metadata["state"], fields)
    return {
        f"{name}.c": templates.SOURCE.substitute(fields) + start,
        f"{name}.h": templates.HEADER.substitute(fields),
        "main.c": templates.MAIN.substitute(fields),
        "Makefile": templates.MAKEFILE.substitute(fields),
    }


def _sample_outputs(step: ExportableModel) -> tuple[dict[str, Tensor], Tensor]:
    """Return irregular samples by name, and what the model says to them, (1, T, O)."""
    inputs = sample_inputs(step, (1, SAMPLE_COUNT), seed=1)
    return inputs, run_model(step, inputs, every_step=True)[0]


def _measure_rounding(step: ExportableModel, inputs: dict[str, Tensor], y: Tensor) -> float:
    """Return how far a model that says y is from itself in double precision."""
    exact, _ = run_model(step, inputs, double=True, every_step=True)
    return float(((y - exact).abs() / exact.abs().clamp(min=1.0)).max())  # as main.c has it


def _format_test_vector(inputs: dict[str, Tensor], y: Tensor) -> str:
    """Return samples and what the model says to them as CSV."""
    columns = [inputs["x"][0]]
    columns += [inputs["dt"][0].unsqueeze(1)] if "dt" in inputs else []
    columns += [inputs["observed"][0]] if "observed" in inputs else []
    rows = torch.cat([*(c.double() for c in columns), y[0].double()], dim=1)
    return "".join(",".join(f"{v:.9g}" for v in row) + "\n" for row in rows.tolist())


def _generate_start(state: Sequence[Mapping[str, Any]], fields: Mapping[str, Any]) -> str:
    """Return the C of the state before the first sample."""
    value: list[float] = []
    affine = ""
    for cell in state:
        initial = cell["initial"]
        if initial is None:
            raise ExportError(
                f"the state of layer {cell['layer']} starts as a function of what it reads that is "
                "no affine one of the raw inputs, for which there is no C. A constant first state "
                "is written, and an affine one of the first layer if the scaling is left outside."
            )
        value += initial["value"]
        if "per_input" in initial:  # of the first layer, whose state comes first
            rows = [[*row, *[0.0] * (fields["state"] - len(row))] for row in initial["per_input"]]
            text = ", ".join("{" + _format_floats(row) + "}" for row in rows)
            affine = templates.AFFINE.substitute(fields, rows=text, count=len(rows))
    return templates.START.substitute(fields, value=_format_floats(value), affine=affine)


def _format_floats(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.9e}f" for value in values)


def _describe_arguments(step: ExportableModel, schema: IOSchema) -> list[str]:
    """Return what a header says of the arguments; of foreign names, what is harmless there."""
    unit = sanitize_comment(schema.time_unit) or "that of the cell's time constants"
    scaled = (
        "in the units before scaling, NaN where missing"
        if step.is_scaled
        else "as the model reads them"
    )
    lines = [f"x: {scaled}:"]
    lines += [
        f"  x[0][{i}] {sanitize_comment(n)}"
        for i, n in enumerate(resolve_names("x", schema.inputs, step.input_size))
    ]
    if step.fixed_dt is None:
        lines.append(f"dt: time since the sample before; unit: {unit}")
    else:
        lines.append(f"every time step is {step.fixed_dt:g}; unit: {unit}")
    if step.observed:
        lines.append("observed: which features were measured")
    lines.append(f"y, {sanitize_comment(schema.y)}:" if schema.y else "y:")
    lines += [
        f"  y[0][{i}] {sanitize_comment(n)}"
        for i, n in enumerate(resolve_names("y", schema.outputs, step.output_size))
    ]
    lines.append("h_in, h_out: the state, whose parts are")
    start = 0
    for index, cell in enumerate(step.cells):
        for part, width in cell.state_parts.items():
            lines.append(
                f"  [{start}..{start + width - 1}] {sanitize_comment(part)} of layer {index}"
            )
            start += width
    return lines
