"""What comes after each row of a sequence, and when."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import r2_score

from tauflow._internal.checks import check_one_of
from tauflow._internal.sanitize import format_count
from tauflow.data.table.inputs import CATEGORY_NAME_FORMAT
from tauflow.data.table.schema import Schema
from tauflow.errors import ArgumentError, DataError, TimeError

from .arrays import to_array
from .preparation import list_columns, list_number_columns
from .ragged import Floats, Indices, RaggedSequences
from .times import to_seconds

_EVEN_TOLERANCE = 1e-6  # gaps that differ less than by this part are the same


def take_future_samples(rows: RaggedSequences, horizon: int) -> Floats:
    """Return the samples after each row, (R, H, I), NaN beyond the end of its sequence."""
    places, beyond = _future_indices(rows, horizon)
    return np.where(beyond[..., None] > 0, np.nan, rows.values[places])


def add_lead_times(rows: RaggedSequences, horizon: int, lead_time: Any) -> RaggedSequences:
    """Return rows with the times to what is forecast after each.

    Args:
        rows: with gaps.
        horizon: H.
        lead_time: times after the last row of each sequence, (H,) or (N, H).

    Raises:
        TimeError: these are no times, or do not increase from above 0 on.
    """
    lead_time = _check_lead_time(lead_time)
    if lead_time.dtype.kind == "m" and not rows.dated:
        raise TimeError(
            "ahead holds durations, and the times that the network learned from were numbers, "
            "in a unit that nobody said. Give numbers in that unit."
        )
    further = to_seconds(lead_time)
    try:
        further = np.broadcast_to(further, (len(rows), horizon))
    except ValueError as error:
        raise TimeError(
            f"lead_time has shape {further.shape}, expected (H,) or (B, H) = "
            f"{(len(rows), horizon)}."
        ) from error
    if not (np.isfinite(further).all() and (np.diff(further, prepend=0.0) > 0).all()):
        raise TimeError("lead_time must be above 0 and increase from forecast to forecast.")
    return replace(rows, lead_times=compute_lead_times(rows, further))


def _check_lead_time(lead_time: Any) -> NDArray[Any]:
    """Return times ahead as an array; lists of durations, of which NumPy makes objects, too."""
    array = to_array(lead_time)
    if array.dtype.kind == "O" and all(isinstance(one, timedelta) for one in array.ravel()):
        array = array.astype("timedelta64[us]")
    if array.dtype.kind not in "iufm":
        raise TimeError(
            f"ahead holds {array.dtype}, expected numbers in the unit of the times, or durations "
            "such as numpy.timedelta64 or pandas.Timedelta."
        )
    return array


def compute_lead_times(rows: RaggedSequences, after_last: Floats) -> Floats:
    """Return the times from each row to the next ones, (R, H).

    Args:
        rows: with gaps.
        after_last: times from the last row of each sequence to what follows it, (N, H).
    """
    assert rows.dt is not None
    places, beyond = _future_indices(rows, after_last.shape[1])
    clock = np.cumsum(rows.dt)
    last = np.take_along_axis(after_last[rows.sequence_index], np.maximum(beyond - 1, 0), axis=1)
    times: Floats = clock[places] - clock[:, None] + np.where(beyond > 0, last, 0.0)
    return times


def compute_typical_dt(rows: RaggedSequences) -> float | None:
    """Return the median gap, ``None`` without gaps or if they are all the same."""
    if rows.dt is None:
        return None
    gaps = np.delete(rows.dt, rows.starts)
    if not len(gaps) or np.ptp(gaps) <= _EVEN_TOLERANCE * gaps.max():
        return None
    return float(np.median(gaps[gaps > 0]))


def _future_indices(rows: RaggedSequences, horizon: int) -> tuple[Indices, Indices]:
    """Return the rows after each, (R, H), the last one beyond the end, and how far beyond."""
    after = np.arange(len(rows.values))[:, None] + np.arange(1, horizon + 1)
    ends = rows.ends[rows.sequence_index][:, None]
    return np.minimum(after, ends), np.maximum(after - ends, 0)


def resolve_columns(role: str, given: Any, schema: Schema) -> Indices:
    """Return which columns of rows features are.

    Args:
        role: of the argument, for messages.
        given: names or numbers of features, one or several, or a mask of all.
        schema: names the features. Those of text are categories, which cannot be targets.

    Raises:
        ArgumentError, UnknownNameError: there is no such feature, or the mask is of another length.
    """
    names, columns = list(schema.features or ()), list_columns(schema)
    given = [given] if isinstance(given, str | int) else list(given)
    if any(isinstance(one, bool | np.bool_) for one in given):
        if len(given) != len(names) or np.asarray(given).dtype != np.bool_:
            raise ArgumentError(
                f"{role}={given} is no mask of the {format_count(len(names), 'feature')} of X. "
                "Give one boolean for each of them, or names, or numbers."
            )
        given = np.flatnonzero(given).tolist()
    wrong = next((n for n in given if not (isinstance(n, str) or 0 <= n < len(names))), None)
    if wrong is not None:
        raise ArgumentError(f"{role} holds {wrong}, and X has the features 0 to {len(names) - 1}.")
    texts, label = dict(schema.categories), "feature" if role == "known" else role
    found: list[int] = []
    for name in (one if isinstance(one, str) else names[one] for one in given):
        if name in texts and role != "targets":
            of_it = [CATEGORY_NAME_FORMAT.format(name, text) for text in texts[name]]
            found += [columns.index(one) for one in of_it]
        else:
            numbers = list_number_columns(schema)
            found.append(columns.index(check_one_of(numbers, **{label: name})))
    return np.array(found, np.int64)


def score_known(true: Floats, found: Floats) -> float:
    """Return the mean R² of outputs, (N, O), over values that are known, NaN where not.

    Raises:
        DataError: no output has two.
    """
    scores = []
    for values, answers in zip(true.T, found.T, strict=True):
        known = ~np.isnan(values)
        if known.sum() > 1:
            scores.append(r2_score(values[known], answers[known]))
    if not scores:
        raise DataError("nothing to score: no sample of X follows another.")
    return float(np.mean(scores))
