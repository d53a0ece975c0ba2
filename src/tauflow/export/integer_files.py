"""Export one step of a model as C in integers."""

import copy
import warnings
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from tauflow.errors import ExportError
from tauflow.version import VERSION

from . import c_templates, integer_templates
from .c_check import check_compiled_parity, find_compiler
from .c_code.fixed_code import write_fixed_step
from .c_code.fixed_step import CalibrationSequences, IntegerStep, compile_fixed_step, pack_gap
from .c_code.graph_passes import drop_unused
from .c_code.lane_builder import build_step_graph
from .c_code.step_graph import Array
from .export_checks import Model
from .exportable_model import ExportableModel
from .integer_calibration import (
    Calibration,
    IntegerChecks,
    check_integers,
    read_calibration,
    run_exact,
)
from .io_schema import IOSchema, resolve_names, sanitize_comment
from .metadata import make_metadata
from .onnx_files import ExportResult, make_exported, write_c_folder
from .parity import Parity
from .torch_program import trace

DTYPES = ("float32", "int16", "int8")
TOLERANCE = 0.02
"""Largest share of the outputs' range that integers may be from the model."""
_REGISTERS = 112
_VECTOR = 250


def write_integer_c(
    model: Model,
    folder: Path,
    *,
    name: str,
    dtype: str,
    calibration: Calibration | None,
    observed: bool | None,
    schema: IOSchema,
    scaled: bool,
    tolerance: float | None,
) -> ExportResult:
    """Write a step in integers; see :func:`tauflow.export.to_c`, which checks the names first."""
    double = copy.deepcopy(model).double()
    step = make_exported(
        "step", double, schema=schema, scaled=False, observed=observed, is_sparse=True, dynamic=""
    )
    if step.embedding is not None:
        raise ExportError("a model with a vocabulary has no integer C. Export it as float32.")
    metadata = {**make_metadata(step, schema, scaled=scaled), "form": "c", "name": name}
    start = _read_start(metadata["state"])
    if scaled and not len(schema.x_mean):
        make_exported("step", double, schema=schema, scaled=True)  # which says what is missing
    scales = [v.numpy() for v in schema.scaling()] if scaled else []
    sequences, targets = read_calibration(calibration, step, start, schema.y, scales)
    _warn_of_constants(sequences, schema)
    exact, h = run_exact(step, sequences, scales)
    outputs = np.concatenate(exact)
    if not (np.isfinite(outputs).all() and np.isfinite(h).all()):
        raise ExportError("the model's outputs or states on the calibration data are not finite.")
    integers = compile_integers(step, sequences, outputs, scales, is_int8=dtype == "int8")
    checks = check_integers(
        integers,
        step,
        sequences,
        targets,
        exact=exact,
        scales=scales,
        kind=schema.y,
        longest=min(0.5 * cell.max_stable_dt() for cell in step.cells),
    )
    limit = TOLERANCE if tolerance is None else tolerance
    _judge(checks, limit, dtype)
    files = _make_files(step, integers, checks, metadata, schema, sequences, start, name, dtype)
    compiler = find_compiler()
    if compiler is not None:
        check_compiled_parity(files, name, compiler, tolerance=0.0, rounding=0.0)
    metadata["dtype"], metadata["integers"] = dtype, _describe(integers, checks)
    parity = Parity(checks.error, limit, len(sequences.x), max(map(len, sequences.x)))
    return write_c_folder(folder, name, files, metadata, parity)


def compile_integers(
    step: ExportableModel,
    sequences: CalibrationSequences,
    outputs: Array,
    scales: list[Array],
    *,
    is_int8: bool,
) -> IntegerStep:
    """Return a step in double precision as integers; ``outputs`` (N, O) are the model's."""
    for cell in step.cells:
        if "t" in cell.state_parts:
            raise ExportError(
                f"{type(cell).__name__} has a clock since the first sample, which outgrows any "
                "integer. Export it as float32."
            )
    graph = build_step_graph(trace(step))
    drop_unused(graph)
    parts, wide, place = [], [], 0
    for cell in step.cells:
        for width in cell.state_parts.values():
            parts.append(place)
            place += width
        wide += [cell.is_flow] * cell.state_size
    integers = compile_fixed_step(
        graph,
        sequences,
        outputs=outputs,
        scales=scales,
        wide_lanes=np.array(wide),
        parts=parts,
        is_int8=is_int8,
    )
    if is_int8 and integers.has_relaxation:
        raise ExportError(
            "the synapses of an LTC have no rows that could share a scale, so that 8 bits do not "
            "hold them. Export it with dtype='int16'."
        )
    return integers


def _read_start(state: list[Mapping[str, Any]]) -> Array:
    value: list[float] = []
    for cell in state:
        initial = cell["initial"]
        if initial is None or "per_input" in initial:
            raise ExportError(
                f"the state of layer {cell['layer']} starts as a function of the first sample, for "
                "which there is no integer C. Export it as float32, or build it with a constant "
                "first state."
            )
        value += initial["value"]
    return np.array(value)


def _warn_of_constants(sequences: CalibrationSequences, schema: IOSchema) -> None:
    x = np.concatenate(list(sequences.x))
    names = resolve_names("x", schema.inputs, x.shape[1])
    constant = [name for name, span in zip(names, np.ptp(x, axis=0), strict=True) if span == 0]
    if constant:
        warnings.warn(
            f"calibration: constant inputs, {', '.join(constant)}: other numbers may saturate. "
            "Calibrate with samples in which every input varies.",
            UserWarning,
            stacklevel=4,
        )


def _judge(checks: IntegerChecks, limit: float, dtype: str) -> None:
    """Raise if integers are too far from the model, and warn of time steps where they would be.

    Raises:
        ExportError: the error on the calibration data is larger than the limit.
    """
    if not checks.error <= limit:
        advice = "int16" if dtype == "int8" else "float32"
        raise ExportError(
            f"{dtype} is up to {100 * checks.error:.2g} % of the outputs' range from the model on "
            f"the calibration data, more than {100 * limit:.2g} %. Export it as {advice}, scale "
            "inputs of very different sizes, or allow more with tolerance (--tolerance)."
        )
    far = {
        gap: error
        for gap, error in checks.error_by_gap.items()
        if not checks.shortest_gap <= float(gap) <= checks.longest_gap and error > limit
    }
    if far:
        # the nearest, for errors grow from there on
        gap, error = min(far.items(), key=lambda item: _distance(float(item[0]), checks))
        warnings.warn(
            f"time steps beyond those of the calibration data, {checks.shortest_gap:.3g} to "
            f"{checks.longest_gap:.3g}, are less exact: {100 * error:.2g} % of the outputs' range "
            f"at time steps of about {gap}. Calibrate with such time steps, or limit them before "
            "the step.",
            UserWarning,
            stacklevel=4,
        )


def _distance(gap: float, checks: IntegerChecks) -> float:
    """Return how many times a time step is longer, or shorter, than those of the calibration."""
    return max(gap / checks.longest_gap, checks.shortest_gap / gap)


def _describe(integers: IntegerStep, checks: IntegerChecks) -> dict[str, Any]:
    return {
        "x_q": integers.io.x_q.tolist(),
        "x_zero": integers.io.x_zero.tolist(),
        "x_missing": integers.io.pack(integers.io.x_mean).tolist(),
        "y_q": integers.io.y_q.tolist(),
        "y_zero": integers.io.y_zero.tolist(),
        "state_q": integers.state_q.tolist(),
        "state_bits": integers.state_bits,
        "checks": asdict(checks),
    }


def _make_files(
    step: ExportableModel,
    integers: IntegerStep,
    checks: IntegerChecks,
    metadata: dict[str, Any],
    schema: IOSchema,
    sequences: CalibrationSequences,
    start: Array,
    name: str,
    dtype: str,
) -> dict[str, str]:
    bits = 8 if dtype == "int8" else 16
    code = write_fixed_step(integers.body, integers.sizes, name, bits, integers.state_limit)
    stack = code.work + _REGISTERS
    metadata["bytes"] = {"constants": code.flash, "stack": stack}
    inputs, outputs = step.input_size, step.output_size
    arguments = [f"const int16_t x[{inputs}]", f"{name}_gap_t dt"]
    arguments += [f"const uint8_t observed[{inputs}]"] if step.observed else []
    arguments += [f"{name}_state_t h[{len(start)}]", f"int16_t y[{outputs}]"]
    fields = {
        "name": name,
        "NAME": name.upper(),
        "NAME_FILE": name,
        "dtype": dtype,
        "version": VERSION,
        "cell": metadata["cell"],
        "inputs": inputs,
        "outputs": outputs,
        "state": len(start),
        "state_type": f"int{integers.state_bits}_t",
        "flash": code.flash,
        "stack": stack,
        "reader": c_templates.READER,
        "helpers": code.helpers,
        "constants": code.constants,
        "body": code.body,
        "arguments": (",\n" + " " * (len(name) + 11)).join(arguments),
        "start": ", ".join(str(int(v)) for v in np.rint(start * 2.0**integers.state_q)),
        **_describe_samples(step, integers, schema, scaled=metadata["scaling_inside"]),
        **_describe_checks(checks, sequences),
    }
    vector = _make_vector(integers, sequences, start, observed=step.observed)
    return {
        f"{name}.c": integer_templates.SOURCE.substitute(fields),
        f"{name}.h": integer_templates.HEADER.substitute(fields),
        "main.c": integer_templates.MAIN.substitute(fields),
        "Makefile": c_templates.MAKEFILE.substitute(fields),
        "README.md": integer_templates.README.substitute(fields),
        "test_vector.csv": vector,
    }


def _describe_samples(
    step: ExportableModel, integers: IntegerStep, schema: IOSchema, *, scaled: bool
) -> dict[str, Any]:
    io, observed = integers.io, step.observed
    x_names = [sanitize_comment(v) for v in resolve_names("x", schema.inputs, step.input_size)]
    y_names = [sanitize_comment(v) for v in resolve_names("y", schema.outputs, step.output_size)]
    unit = sanitize_comment(schema.time_unit) or "that of the cell's time constants"
    zeros = [f" - {int(z)}" if z > 0 else f" + {-int(z)}" if z else "" for z in io.x_zero]
    missing = io.pack(io.x_mean)
    absences = [f"; {v} where missing" if scaled else "" for v in missing]
    x_lines = [
        f"x[{i}] = {name} * 2^{q}{zero}, rounded and saturated{absent}"
        for i, (name, q, zero, absent) in enumerate(
            zip(x_names, io.x_q, zeros, absences, strict=True)
        )
    ]
    y_lines = [
        f"{name} = (y[{i}] {'-' if zero < 0 else '+'} {int(abs(zero))}) / 2^{q}"
        if zero
        else f"{name} = y[{i}] / 2^{q}"
        for i, (name, q, zero) in enumerate(zip(y_names, io.y_q, io.y_zero, strict=True))
    ]
    notes = [*x_lines, *y_lines, f"dt: time since the sample before; unit: {unit}"]
    columns = [*x_names, "dt", *(f"{v} observed" for v in x_names if observed)]

    def floats(values: Array) -> str:
        return ", ".join(f"{v:.9e}f" for v in values)

    reading = (
        f"        for (i = 0; i < {step.input_size}; i++)\n"
        "            observed[i] = columns[observed_at + i] != 0.0;\n"
    )
    return {
        "notes": "\n".join(f" * {line}" for line in notes),
        "columns": ", ".join(columns),
        "ticks": round(np.clip(1e6 * schema.time_scale, 1, 2**32 - 1)),
        "x_scale": floats(2.0**io.x_q),
        "x_zero": floats(io.x_zero),
        "x_missing": ", ".join(map(str, missing)),
        "y_scale": floats(2.0**-io.y_q),
        "y_zero": floats(io.y_zero),
        "x_words": "<br>".join(f"`{line}`" for line in x_lines),
        "y_words": "<br>".join(f"`{line}`" for line in y_lines),
        "observed_count": step.input_size if observed else 0,
        "observed_words": " which were observed," if observed else "",
        "observed_array": f"        uint8_t observed[{step.input_size}];\n" if observed else "",
        "observed_reading": reading if observed else "",
        "observed_call": " observed," if observed else "",
    }


def _describe_checks(checks: IntegerChecks, sequences: CalibrationSequences) -> dict[str, Any]:
    metric = ""
    if checks.metric:
        metric = f" {checks.metric}: {checks.metric_float:.6g} of the model, "
        metric += f"{checks.metric_integer:.6g} of the integers."
    rows = [
        f"| time steps of about {dt} | {100 * error:.3g} % |"
        for dt, error in checks.error_by_gap.items()
    ]
    return {
        "samples": f"{sum(map(len, sequences.x)):,}",
        "longest": f"{checks.longest_gap:.3g}",
        "error": f"{100 * checks.error:.3g}",
        "rms": f"{100 * checks.error_rms:.3g}",
        "by_gap": "\n".join(rows),
        "saturated_x": f"{100 * checks.saturated_x:.2g}",
        "saturated_h": f"{100 * checks.saturated_h:.2g}",
        "metric": metric,
    }


def _make_vector(
    integers: IntegerStep, sequences: CalibrationSequences, start: Array, *, observed: bool
) -> str:
    """Return integers as CSV: samples of the calibration data, any integers, and what follows."""
    rng = np.random.default_rng(0)
    count = min(_VECTOR, len(sequences.x[0]))
    inputs = sequences.x[0].shape[1]
    x = np.concatenate(
        [
            integers.io.pack(sequences.x[0][:count]),
            rng.choice([-32768, 32767, 0], (50, inputs)),
            rng.integers(-32768, 32768, (_VECTOR, inputs)),
        ]
    )
    m, e = pack_gap(sequences.dt[0][:count])
    rest = len(x) - count
    mantissas = np.concatenate([m, rng.choice([0, 1, 16384, 20000, 32767], rest)])
    exponents = np.concatenate([e, rng.integers(-40, 20, rest)])
    seen = np.ones((len(x), inputs), np.int64)
    if observed:
        seen[count:] = rng.integers(0, 2, (rest, inputs))
    model = integers.model()
    h = np.rint(start[None] * 2.0**integers.state_q).astype(np.int64)
    lines = []
    for k in range(len(x)):
        y = model.step(x[k : k + 1], mantissas[k : k + 1], exponents[k : k + 1], h, seen[k : k + 1])
        numbers = [*x[k], mantissas[k], exponents[k], *(seen[k] if observed else ()), *y[0]]
        lines.append(",".join(str(int(v)) for v in numbers) + "\n")
    return "".join(lines)
