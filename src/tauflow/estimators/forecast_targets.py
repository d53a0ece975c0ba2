"""What is forecast, and how long after each row of a sequence it comes."""

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.metrics import r2_score

from tauflow._internal.checks import check_one_of
from tauflow._internal.sanitize import format_count
from tauflow.data.imputation import IMPUTE_STRATEGIES
from tauflow.errors import ArgumentError, DataError, ShapeError, TimeError
from tauflow.tabular.cell_values import Floats, Indices, to_array
from tauflow.tabular.options import CATEGORY_NAME_FORMAT
from tauflow.tabular.schema import Schema
from tauflow.tabular.sequences import Sequences
from tauflow.tabular.times import to_spans

_EVEN_TOLERANCE = 1e-6  # time steps that differ less than by this part are the same


def take_future_samples(rows: Sequences, horizon: int) -> Floats:
    """Return the samples after each row, (R, H, I), NaN beyond the end of its sequence."""
    places, beyond = _future_indices(rows, horizon)
    return np.where(beyond[..., None] > 0, np.nan, rows.values[places])


def add_lead_times(rows: Sequences, after_last: Floats) -> Sequences:
    """Return rows with the times from each to the next ones, (R, H).

    After the last row of each sequence these are given, (N, H).
    """
    assert rows.dt is not None
    places, beyond = _future_indices(rows, after_last.shape[1])
    clock = np.cumsum(rows.dt)
    last = np.take_along_axis(after_last[rows.sequence_index], np.maximum(beyond - 1, 0), axis=1)
    times = clock[places] - clock[:, None] + np.where(beyond > 0, last, 0.0)
    return replace(rows, lead_times=times)


def compute_typical_dt(rows: Sequences) -> float | None:
    """Return the median time step, ``None`` without any or if they are all the same."""
    if rows.dt is None:
        return None
    gaps = np.delete(rows.dt, rows.starts)
    if not len(gaps) or np.ptp(gaps) <= _EVEN_TOLERANCE * gaps.max():
        return None
    return float(np.median(gaps[gaps > 0]))


def compute_median_gap(rows: Sequences) -> float:
    """Return the median time step above 0; 1 without times."""
    gaps = rows.inner_gaps
    gaps = np.ones(1) if gaps is None or not (gaps > 0).any() else gaps[gaps > 0]
    return float(np.median(gaps))


def compute_time_of_samples(rows: Sequences, count: int) -> float:
    """Return the time in which so many samples come nine times out of ten.

    It is at least so many median time steps.
    """
    places, beyond = _future_indices(rows, count)
    clock, there = rows.clock, beyond[:, -1] == 0
    spans = clock[places[there, -1]] - clock[there]
    usual = float(np.quantile(spans, 0.9)) if len(spans) else 0.0
    return max(count * compute_median_gap(rows), usual)


def _future_indices(rows: Sequences, horizon: int) -> tuple[Indices, Indices]:
    """Return the rows after each, (R, H), the last one beyond the end, and how far beyond."""
    after = np.arange(len(rows.values))[:, None] + np.arange(1, horizon + 1)
    ends = rows.last_rows[rows.sequence_index][:, None]
    return np.minimum(after, ends), np.maximum(after - ends, 0)


def read_lead_times(name: str, value: Any, rows: Sequences) -> Floats:
    """Return times after the last row of each sequence, (N, Q), in the unit of the times.

    Args:
        name: of the argument, for messages.
        value: (Q,), or (N, Q): numbers, durations, or texts such as ``"24h"``; or one of these.
        rows: the sequences.

    Raises:
        ShapeError, TimeError: they are no such times.
    """
    if isinstance(value, str):
        value = [text.strip() for text in value.split(",")]
    array = np.atleast_1d(to_array(value))
    if array.ndim > 2 or (array.ndim == 2 and len(array) != len(rows)):
        raise ShapeError(
            f"{name} has shape {array.shape}, expected (Q,) or (B, Q) with B = {len(rows)}."
        )
    spans = to_spans(name, array, dated=rows.dated)
    each: Floats = np.broadcast_to(spans, (len(rows), np.shape(spans)[-1]))
    return each


def read_next_lead_times(
    lead_time: Any, horizon: int, rows: Sequences, typical: float | None
) -> Floats:
    """Return when the next ``horizon`` samples come; see :func:`read_lead_times`.

    Without ``lead_time`` they come one typical time step after the other.

    Raises:
        TimeError: there are not so many, or they do not increase from above 0 on.
    """
    if lead_time is None:
        assert typical is not None
        return np.tile(typical * np.arange(1.0, horizon + 1), (len(rows), 1))
    lead_times = read_lead_times("lead_time", lead_time, rows)
    if lead_times.shape[1] != horizon:
        raise TimeError(
            f"lead_time has shape {np.shape(lead_time)}, expected (H,) or (B, H) = "
            f"{(len(rows), horizon)}."
        )
    if not (np.isfinite(lead_times).all() and (np.diff(lead_times, prepend=0.0) > 0).all()):
        raise TimeError("lead_time must be above 0 and increase from forecast to forecast.")
    return lead_times


def resolve_lead_time(name: str, value: Any, *, dated: bool) -> float:
    """Return a number, a duration, or a text such as ``"24h"`` in the unit of the times.

    Raises:
        TimeError: it is no such span, or not above 0; or a duration, and times are numbers; or a
            number, and times are dates.
    """
    (span,) = to_spans(name, [value], dated=dated)
    if not span > 0 or not np.isfinite(span):
        raise TimeError(f"{name} must be above 0, got {value!r}.")
    return float(span)


def resolve_columns(role: str, wanted: Any, schema: Schema) -> Indices:
    """Return which columns of rows features are.

    Args:
        role: of the argument, for messages.
        given: names or numbers of features, one or several, or a mask of all. Those of text have
            a column for each category, and cannot be targets.
        schema: names the features.

    Raises:
        ArgumentError, UnknownNameError: there is no such feature, or the mask is of another length.
    """
    names, columns = list(schema.features or ()), schema.list_columns()
    wanted = [wanted] if isinstance(wanted, str | int) else list(wanted)
    if any(isinstance(value, bool | np.bool_) for value in wanted):
        if len(wanted) != len(names) or np.asarray(wanted).dtype != np.bool_:
            raise ArgumentError(
                f"{role}={wanted} is no mask of the {format_count(len(names), 'feature')} of X. "
                "Give one boolean for each of them, or names, or numbers."
            )
        wanted = np.flatnonzero(wanted).tolist()
    wrong = next((n for n in wanted if not (isinstance(n, str) or 0 <= n < len(names))), None)
    if wrong is not None:
        raise ArgumentError(f"{role} holds {wrong}, and X has the features 0 to {len(names) - 1}.")
    texts, label = dict(schema.categories), "feature" if role == "known" else role
    indices: list[int] = []
    for name in (value if isinstance(value, str) else names[value] for value in wanted):
        if name in texts and role != "targets":
            of_it = [CATEGORY_NAME_FORMAT.format(name, text) for text in texts[name]]
            indices += [columns.index(number) for number in of_it]
        else:
            numbers = schema.list_number_columns()
            indices.append(columns.index(check_one_of(numbers, **{label: name})))
    return np.array(indices, np.int64)


def check_nothing_imputed(impute: str) -> None:
    """Raise :class:`ArgumentError` for another strategy than the default one."""
    if impute != IMPUTE_STRATEGIES[0]:
        raise ArgumentError(
            f"impute={impute!r} is not used by forecasts at any time, nor by those of several "
            "samples by a cell: their network reads which values were measured. Leave it out."
        )


def check_known(known: Indices, targets: Indices, static: Indices, names: list[str]) -> None:
    """Raise :class:`ArgumentError` if a feature known in advance is a target, or static."""
    for what, others in {"a target": targets, "static": static}.items():
        both = np.intersect1d(known, others)
        if len(both):
            raise ArgumentError(
                f"feature {names[both[0]]!r} is known in advance and {what}. Name it as one of "
                "them."
            )


def score_known(true: Floats, predicted: Floats) -> float:
    """Return the mean R² of columns, (N, O), over values that are known, NaN where not.

    Raises:
        DataError: no column has two.
    """
    known = ~np.isnan(true)
    scores = [
        r2_score(values[there], answers[there])
        for values, answers, there in zip(true.T, predicted.T, known.T, strict=True)
        if there.sum() > 1
    ]
    if not scores:
        raise DataError("nothing to score: X has too few values to compare with estimates of them.")
    return float(np.mean(scores))


def measure_errors(true: Floats, guesses: dict[str, Floats]) -> dict[str, Floats]:
    """Return errors (RMSE) of columns, (O,), of guesses, (N, O) each, NaN without a known value."""
    known = ~np.isnan(true)
    counts = known.sum(0)
    errors = {}
    for name, guess in guesses.items():
        total = (np.where(known, guess - true, 0.0) ** 2).sum(0)
        errors[name] = np.sqrt(np.where(counts > 0, total / np.maximum(counts, 1), np.nan))
    return errors
