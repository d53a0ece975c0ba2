"""Calibration data of integer C, and how far the integers are from the model on it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from tauflow._internal.sanitize import format_count
from tauflow.errors import ArgumentError, ShapeError

from .c_code.fixed_step import CalibrationSequences, IntegerStep, pack_gap
from .c_code.step_graph import Array
from .exportable_model import ExportableModel
from .parity import run_model

Calibration = tuple[Any, ...]
"""x and dt, and y if the metric before and after is wanted: (B, T, ...), or lists of (T, ...)."""
GAPS = (1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1000.0)
_BEYOND = (1.5, 2.0, 4.0, 8.0)
_GAP_STEPS, _GAP_SEQUENCES = 40, 8


@dataclass(frozen=True)
class IntegerChecks:
    """What was found before integer C is written.

    Args:
        error: largest difference from the model on the calibration data, as a share of the range
            of the outputs there.
        error_rms: its root mean square.
        error_by_gap: the largest one where every time step is about so long, by time step.
        shortest_gap: of the calibration data.
        longest_gap: of it.
        saturated_x: share of the calibration samples' numbers that their integers do not hold.
        saturated_h: share of the state's numbers that are the largest or smallest integer.
        largest_sum: how much of 32 bits a sum of products may take, whatever the inputs.
        metric: name of the metric, or nothing.
        metric_float: of the model.
        metric_integer: of the integers.
    """

    error: float
    error_rms: float
    error_by_gap: dict[str, float]
    shortest_gap: float
    longest_gap: float
    saturated_x: float
    saturated_h: float
    largest_sum: float
    metric: str = ""
    metric_float: float | None = None
    metric_integer: float | None = None


def read_calibration(
    calibration: Calibration | None,
    step: ExportableModel,
    h: Array,
    kind: str = "",
    scales: Sequence[Array] = (),
) -> tuple[CalibrationSequences, list[Array]]:
    """Return calibration data as sequences, and the targets of each if there are any.

    Args:
        calibration: what a user gave.
        step: the model.
        h: its state before the first sample.
        kind: what the outputs are, ``"logits"`` or something else.
        scales: mean and scale of inputs, then of outputs, or nothing. With them NaN is missing and
            becomes the mean.

    Raises:
        ArgumentError: no sequence is given, or they hold NaN, or every time step is 0.
        ShapeError: they have another shape.
    """
    if calibration is None or len(calibration) not in (2, 3):
        raise ArgumentError(
            "integers need samples whose range they can hold. Pass calibration=(x, dt), inputs "
            "(B, T, I) and time steps (B, T) such as those of training; on the command line "
            "--calibrate."
        )
    x, dt = (_to_list(v, name) for v, name in zip(calibration, ("x", "dt"), strict=False))
    if x and x[0].ndim == 1:  # one sequence
        x, dt = [np.stack(x)], [np.stack([np.asarray(v) for v in dt])]
    dt = [v[:, 0] if v.ndim == 2 and v.shape[1] == 1 else v for v in dt]
    count = step.input_size
    if not x or len(x) != len(dt) or any(len(v) == 0 for v in x):
        raise ArgumentError(
            f"the lengths of inputs and time steps of the calibration are {len(x)} and "
            f"{len(dt)}. Give as many sequences of each, and at least one sample."
        )
    for inputs, gaps in zip(x, dt, strict=True):
        if inputs.ndim != 2 or inputs.shape[1] != count or gaps.shape != inputs.shape[:1]:
            raise ShapeError(
                f"calibration has x of shape {inputs.shape} and dt of shape {gaps.shape} of a "
                f"sequence, expected (T, {count}) and (T,)."
            )
    every, gaps = np.concatenate(x), np.concatenate(dt)
    is_missing_known = step.observed or len(scales) > 0
    if np.isinf(every).any() or (np.isnan(every).any() and not is_missing_known):
        raise ArgumentError(
            "calibration holds inputs that are NaN or infinite. Leave those samples out, or put 0 "
            "(the mean) where one is missing, as in training."
        )
    if not (np.isfinite(gaps).all() and (gaps >= 0).all()):
        raise ArgumentError("time steps of calibration must be finite and not negative.")
    if not gaps.any():
        raise ArgumentError(
            "every time step of calibration is 0, so that nothing says how long they are. Pass "
            "those of training."
        )
    observed = [np.isfinite(v) for v in x] if step.observed else []
    x = [np.where(np.isnan(v), scales[0] if len(scales) else 0.0, v) for v in x]
    starts = np.repeat(h[None], len(x), axis=0)
    targets = _to_list(calibration[2], "y") if len(calibration) == 3 else []
    _check_targets(targets, x, 1 if kind == "logits" else step.output_size)
    return CalibrationSequences(x, dt, observed, starts), targets


def _check_targets(targets: list[Array], x: list[Array], width: int) -> None:
    """Refuse targets that are not one for each sequence or one for each of its samples."""
    if targets and len(targets) != len(x):
        raise ArgumentError(
            f"calibration has targets for {len(targets)} and inputs of "
            f"{format_count(len(x), 'sequence')}. Give as many of each, or leave the targets out."
        )
    for inputs, target in zip(x, targets, strict=False):
        if target.size not in (width, len(inputs) * width):
            raise ShapeError(
                f"calibration has targets of shape {target.shape} for a sequence of "
                f"{format_count(len(inputs), 'sample')}, expected (T, {width}), or one row for "
                "the whole sequence."
            )
        if not np.isfinite(target).all():
            raise ArgumentError(
                "calibration holds targets that are NaN or infinite. Leave them out."
            )


def _to_list(values: Any, name: str) -> list[Array]:
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu().numpy()
    try:
        return [
            np.asarray(v.detach().cpu() if isinstance(v, torch.Tensor) else v, np.float64)
            for v in values
        ]
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"calibration: {name} must hold numbers, one array for each sequence: {error}"
        ) from error


def run_exact(
    step: ExportableModel, sequences: CalibrationSequences, scales: Sequence[Array]
) -> tuple[list[Array], Array]:
    """Return the outputs of each step of the model itself, in double precision, and its last state.

    Args:
        step: the model.
        sequences: what it reads, in the units before scaling.
        scales: mean and scale of inputs, then of outputs, or nothing.
    """
    count, length = len(sequences.x), max(map(len, sequences.x))
    inputs = {
        "x": torch.zeros(count, length, step.input_size, dtype=torch.float64),
        "dt": torch.zeros(count, length, dtype=torch.float64),
        "h_in": torch.from_numpy(sequences.h),
    }
    if step.observed:
        inputs["observed"] = torch.zeros(inputs["x"].shape, dtype=torch.bool)
    mean, scale = scales[:2] if scales else (0.0, 1.0)
    for row, x in enumerate(sequences.x):
        inputs["x"][row, : len(x)] = torch.from_numpy((x - mean) / scale)
        inputs["dt"][row, : len(x)] = torch.from_numpy(sequences.dt[row])
        if step.observed:
            inputs["observed"][row, : len(x)] = torch.from_numpy(sequences.observed[row])
    y, h = run_model(step, inputs, double=True, every_step=True)
    y_mean, y_scale = scales[2:] if len(scales) > 2 else (0.0, 1.0)
    outputs = y.numpy() * y_scale + y_mean
    return [outputs[rows, time] for time, (rows, _) in enumerate(sequences.steps())], h.numpy()


def run_integer(step: IntegerStep, sequences: CalibrationSequences) -> tuple[list[Array], float]:
    """Return the outputs of each step as numbers, and how much of the state is saturated."""
    model, saturated, total = step.model(), 0, 0
    h = np.rint(sequences.h * 2.0**step.state_q).astype(np.int64)
    results = []
    for rows, inputs in sequences.steps():
        state = h[rows]
        observed = inputs.get("observed", np.zeros((len(rows), 1))).astype(np.int64)
        x = step.io.pack(inputs["x"])
        y = model.step(x, *pack_gap(inputs["dt"][:, 0]), state, observed)
        h[rows] = state
        saturated += int((np.abs(state) >= step.state_limit - 1).sum())
        total += state.size
        results.append(step.io.unpack(y))
    return results, saturated / max(total, 1)


def check_integers(
    step: IntegerStep,
    exported: ExportableModel,
    sequences: CalibrationSequences,
    targets: Sequence[Array],
    *,
    exact: Sequence[Array],
    scales: Sequence[Array],
    kind: str,
    longest: float = math.inf,
) -> IntegerChecks:
    """Compare integers with the model itself in double precision.

    Args:
        step: the integers.
        exported: the model.
        sequences: the calibration data.
        targets: of each sequence, or none.
        exact: what the model says to each step of them.
        scales: mean and scale of inputs, then of outputs, or nothing.
        kind: what the outputs are, ``"logits"`` or something else.
        longest: time step that the cells' solvers can follow; longer ones are not tried.
    """
    results, saturated_h = run_integer(step, sequences)
    y, integers = np.concatenate(exact), np.concatenate(results)
    span = float(np.ptp(y, axis=0).max()) or 1.0
    differences = (integers - y) / span
    by_gap = {}
    shortest_gap = float(min(v.min() for v in sequences.dt))
    longest_gap = float(max(v.max() for v in sequences.dt))
    x = [v[:_GAP_STEPS] for v in sequences.x[:_GAP_SEQUENCES]]
    observed = [v[:_GAP_STEPS] for v in sequences.observed[:_GAP_SEQUENCES]]
    rng = np.random.default_rng(0)
    tried = {
        gap: [gap * np.exp(rng.uniform(-0.3, 0.3, len(v))) for v in x]
        for gap in GAPS
        if gap <= longest
    }
    # rounded as they are named, for eight times 0.0125 in single precision is not quite 0.1
    beyond = {float(f"{longest_gap * factor:.4g}") for factor in _BEYOND}
    for gap in beyond - tried.keys():
        # a single one among those of the calibration data, which the solver of a model may follow
        # though it is beyond its limit
        tried[gap] = [v[:_GAP_STEPS].copy() for v in sequences.dt[: len(x)]]
        for steps in tried[gap]:
            steps[len(steps) // 2] = gap
    for gap, dt in sorted(tried.items()):
        other = replace(sequences, x=x, dt=dt, observed=observed, h=sequences.h[: len(x)])
        y_gap = np.concatenate(run_exact(exported, other, scales)[0])
        i_gap = np.concatenate(run_integer(step, other)[0])
        if np.isfinite(y_gap).all():
            by_gap[f"{gap:.4g}"] = float(np.abs(i_gap - y_gap).max() / span)
    integers_x = step.io.pack(np.concatenate(list(sequences.x)))
    metric = _compute_metrics(exact, results, sequences, targets, kind) if targets else {}
    return IntegerChecks(
        error=float(np.abs(differences).max()),
        error_rms=float(np.sqrt((differences**2).mean())),
        error_by_gap=by_gap,
        shortest_gap=shortest_gap,
        longest_gap=longest_gap,
        saturated_x=float(((integers_x <= -32768) | (integers_x >= 32767)).mean()),
        saturated_h=saturated_h,
        largest_sum=step.largest_sum(),
        **metric,
    )


def _compute_metrics(
    exact: Sequence[Array],
    integers: Sequence[Array],
    sequences: CalibrationSequences,
    targets: Sequence[Array],
    kind: str,
) -> dict[str, Any]:
    """Return the metric of the model and of its integers: accuracy, or the mean squared error."""
    rows = [rows for rows, _ in sequences.steps()]
    name = "accuracy" if kind == "logits" else "mse"
    values = []
    for outputs in (exact, integers):
        scores = []
        for index, target in enumerate(targets):
            y = np.stack(
                [
                    o[np.flatnonzero(r == index)[0]]
                    for o, r in zip(outputs, rows, strict=True)
                    if index in r
                ]
            )
            y = y if target.ndim and len(target) == len(y) and target.ndim == y.ndim else y[-1]
            if name == "accuracy":
                label = y.argmax(-1) if y.shape[-1] > 1 else (y[..., 0] > 0) * 1
                scores.append(np.ravel(label == np.reshape(target, np.shape(label))))
            else:
                scores.append(np.ravel((y - np.reshape(target, np.shape(y))) ** 2))
        values.append(float(np.concatenate(scores).mean()))
    return {"metric": name, "metric_float": values[0], "metric_integer": values[1]}
