"""Export one step of a model as plain C code, generated from its ONNX graph."""

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tauflow._internal.atomic_write import atomic_write_many
from tauflow._internal.optional_deps import require
from tauflow.errors import ArgumentError, ExportError
from tauflow.version import VERSION

from . import c_templates as templates
from .c_check import SAMPLE_COUNT, check_compiled_parity, find_compiler
from .export_checks import Model
from .exportable_model import ExportableModel
from .io_schema import IOSchema, resolve_names
from .metadata import check_metadata_path, make_metadata, read_metadata
from .onnx_files import OPSET, ExportResult, get_axes, make_exported
from .onnx_graph import make_onnx_runner, require_all, to_onnx_graph
from .output_paths import check_folder_place, create_folder
from .parity import TOLERANCES, check_parity, run_model, sample_inputs
from .torch_program import trace

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,39}")
_UNSAFE_CHARACTERS = re.compile(r"[^A-Za-z0-9 .,:;()\[\]=+_-]")
_RESERVED_NAME = re.compile(
    "auto|break|case|char|const|continue|default|do|double|else|enum|extern|float|for|goto|if|"
    "inline|int|long|register|restrict|return|short|signed|sizeof|static|struct|switch|typedef|"
    "union|unsigned|void|volatile|while|main|test|clean"
)
"""Words of C, and targets of the ``Makefile``."""
_ROUNDING_FACTOR, _MAX_TOLERANCE = 2.0, 1e-3


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
) -> ExportResult:
    """Write one step of a model as C99 code that needs only ``math.h`` and no allocation.

    The folder gets ``NAME.c`` and ``NAME.h`` (``NAME_start`` and ``NAME_step``, whose comments say
    what each argument is), ``main.c``, which reads samples as CSV and prints outputs, a
    ``Makefile`` (``make`` and ``make test``), ``test_vector.csv`` with what the model says to 1,000
    irregular samples, and ``NAME.json``. Cells with a wiring evaluate the synapses that exist and
    no others; the sub-steps of a solver are unrolled.

    Where a C compiler is found (``$CC``, with its options, or else cc, gcc or clang), the code is
    compiled and run on the test vector before the folder is written; else the graph it comes from
    is run by ONNX Runtime. The files are replaced together.

    Args:
        model: a model in one direction, in single precision.
        folder: where to; made if its parent exists.
        name: what functions and files are called, an identifier of C.
        observed: whether it takes which features were measured; by default if the cell models that.
        fixed_dt: a gap that is always the same, and then no argument.
        schema: units, names and scales.
        scaled: whether the code takes and gives numbers in the units before scaling, NaN where one
            is missing; ``schema`` then has the scales.
        tolerance: largest difference from the model; by default 1e-5. Roundings add up in a network
            that does not forget: where single precision takes the model itself further from
            double precision, twice as far, up to 1e-3.

    Raises:
        MissingExtraError: emx-onnx-cgen, onnx or another library of the extra ``c`` is missing.
        ExportError: the model cannot be such code, and why, or differs more, or ``NAME.json`` is
            there and describes something else, or another of the files is and tauflow wrote none of
            the folder, or ``$CC`` is no compiler that is here; nothing is written.
        ArgumentError: an argument makes no sense for this model.
        DataNotFoundError: the folder cannot be made.
    """
    require_all("c")
    compiler = find_compiler()
    folder = Path(folder)
    check_folder_place(folder)
    if not _NAME.fullmatch(name) or _RESERVED_NAME.fullmatch(name):
        raise ArgumentError(
            f"name must be an identifier of C with at most 40 letters, digits and underscores, got "
            f"{name!r}."
        )
    check_metadata_path(folder / f"{name}.json", f"{name}.c", form="c", name=name)
    _check_no_foreign_files(folder, name)
    schema = schema or IOSchema()
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
    graph = to_onnx_graph(trace(step), opset=OPSET, names={}, axes=get_axes(step), extra="c")
    parity = check_parity(
        step, make_onnx_runner(graph, {}, extra="c"), sizes=(1, 40), tolerance=tolerance
    )
    facts = {**make_metadata(step, schema, scaled=scaled), "form": "c", "name": name}
    inputs, y = _sample_outputs(step)
    rounding = _measure_rounding(step, inputs, y)
    if tolerance is None:
        tolerance = max(TOLERANCES[y.dtype], min(_ROUNDING_FACTOR * rounding, _MAX_TOLERANCE))
    files = make_c_sources(step, graph, facts, name=name, schema=schema, tolerance=tolerance)
    files["test_vector.csv"] = _format_test_vector(inputs, y)
    if compiler is not None:
        parity = check_compiled_parity(
            files, name, compiler, tolerance=tolerance, rounding=rounding
        )
    facts["parity"] = parity.max_difference
    files[f"{name}.json"] = json.dumps(facts, indent=2) + "\n"
    with create_folder(folder):
        atomic_write_many({folder / file: text.encode() for file, text in files.items()})
    return ExportResult(folder / f"{name}.c", folder / f"{name}.json", parity)


def _check_no_foreign_files(folder: Path, name: str) -> None:
    """Raise if files would be written over that are no earlier export."""
    if any((read_metadata(path) or {}).get("form") == "c" for path in folder.glob("*.json")):
        return
    for file in ("Makefile", "main.c", "test_vector.csv", f"{name}.c", f"{name}.h"):
        if (folder / file).exists():
            raise ExportError(
                f"cannot write into {folder}: there is a {file}, and no description by tauflow "
                "beside it. Choose another folder, or move that file away."
            )


def make_c_sources(
    step: ExportableModel,
    graph: Any,
    facts: Mapping[str, Any],
    *,
    name: str,
    schema: IOSchema,
    tolerance: float,
) -> dict[str, str]:
    """Return the files of a step's graph, by name."""
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
        "cell": sanitize_comment(str(facts["cell"])),
        "inputs": inputs,
        "outputs": outputs,
        "state": size,
        "x_type": x_type,
        "x_may": "finite or NaN" if step.is_scaled else "finite",
        "arguments": (",\n" + " " * (len(name) + 11)).join(arguments),
        "notes": "\n".join(f" * {line}" for line in _describe_arguments(step, schema)),
        "columns": ", ".join(map(sanitize_comment, columns)),
        "column_count": len(columns),
        "call": ", ".join([*(casts.get(c, c) for c in call), state, "y", "h[1 - now]"]),
        "reading": reading,
        "tolerance": repr(float(tolerance)),
    }
    return {
        f"{name}.c": generate_c(graph, name) + _generate_start(facts["state"], fields),
        f"{name}.h": templates.HEADER.substitute(fields),
        "main.c": templates.MAIN.substitute(fields),
        "Makefile": templates.MAKEFILE.substitute(fields),
    }


def generate_c(graph: Any, name: str) -> str:
    """Return the C of a graph of one step, as ``NAME_step``.

    Raises:
        ExportError: the compiler has no C for one of its operators.
    """
    errors = require("emx_onnx_cgen.errors", extra="c")
    _rename_nodes(graph)
    _narrow_indices(graph)
    try:
        source: str = _make_compiler(f"{name}_step").compile(graph)
    except (errors.CompilerError, ValueError) as error:
        raise ExportError(f"the model's graph cannot be C: {error}") from error
    # Not every cell reads the gaps, which compilers warn of.
    source = re.sub(rf"(void {name}_step\([^)]*\bdt\[1\])", r"\1 EMX_UNUSED", source)
    # Weights are global there; with the name before theirs two models can be in one program.
    return re.sub(rf"\b(?!{name}_step\b)weight(\d+)_", rf"{name}_weight\1_", source)


@lru_cache(maxsize=2)
def _make_compiler(function: str) -> Any:
    """Return what writes a function of C; a second one would parse all its templates again."""
    compiling = require("emx_onnx_cgen.compiler", extra="c")
    options = compiling.CompilerOptions(
        model_name=function,
        large_temp_threshold_bytes=0,  # nothing is allocated
        large_weight_threshold=0,  # nor read from a file
        restrict_arrays=False,
    )
    return compiling.Compiler(options)


def _sample_outputs(step: ExportableModel) -> tuple[dict[str, Tensor], Tensor]:
    """Return irregular samples by name, and what the model says to them, (1, T, O)."""
    inputs = sample_inputs(step, (1, SAMPLE_COUNT), seed=1)
    return inputs, _run_model(step, inputs)


def _run_model(step: ExportableModel, inputs: dict[str, Tensor], *, double: bool = False) -> Tensor:
    body = step.sequence_module
    return_sequences, body.return_sequences = body.return_sequences, True
    try:
        y, _ = run_model(step, inputs, double=double)
    finally:
        body.return_sequences = return_sequences
    return y


def _measure_rounding(step: ExportableModel, inputs: dict[str, Tensor], y: Tensor) -> float:
    """Return how far a model that says y is from itself in double precision."""
    exact = _run_model(step, inputs, double=True)
    return float(((y - exact).abs() / exact.abs().clamp(min=1.0)).max())  # as main.c has it


def _format_test_vector(inputs: dict[str, Tensor], y: Tensor) -> str:
    """Return samples and what the model says to them as CSV."""
    columns = [inputs["x"][0]]
    columns += [inputs["dt"][0].unsqueeze(1)] if "dt" in inputs else []
    columns += [inputs["observed"][0]] if "observed" in inputs else []
    rows = torch.cat([*(c.double() for c in columns), y[0].double()], dim=1)
    return "".join(",".join(f"{v:.9g}" for v in row) + "\n" for row in rows.tolist())


def sanitize_comment(text: str) -> str:
    """Return a text as it may stand in a comment of C: signs that could end one are left out."""
    return _UNSAFE_CHARACTERS.sub("?", text)[:80]


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
                "is written (initial_state='learned', where a cell has that option), and an affine "
                "one of the first layer if the scaling is left outside."
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
        lines.append(f"every gap is {step.fixed_dt:g}; unit: {unit}")
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


def _rename_nodes(graph: Any) -> None:
    """Give values and nodes names of our own: a module's could be anything."""
    fixed_names = {value.name for value in (*graph.graph.input, *graph.graph.output)} | {""}
    short: dict[str, str] = {}

    def name(old: str) -> str:
        return old if old in fixed_names else short.setdefault(old, f"v{len(short)}")

    for tensor in graph.graph.initializer:
        tensor.name = name(tensor.name)
    for index, node in enumerate(graph.graph.node):
        node.name = f"n{index}"
        node.input[:] = [name(old) for old in node.input]
        node.output[:] = [name(old) for old in node.output]
    for value in graph.graph.value_info:
        value.name = name(value.name)


def _narrow_indices(graph: Any) -> None:
    """Store lists of synapses as 32-bit numbers, in half the room."""
    onnx = require("onnx", extra="c")
    found = {tensor.name: tensor for tensor in graph.graph.initializer}
    users = [n for n in graph.graph.node if n.op_type in ("Gather", "ScatterElements")]
    for name in {node.input[1] for node in users} & found.keys():
        values: Any = onnx.numpy_helper.to_array(found[name])
        found[name].CopyFrom(onnx.numpy_helper.from_array(values.astype("int32"), name))
