"""Schemas that are fitted to rows of sequences, and batches of rows by them."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tauflow._internal.allocation_limit import count_elements
from tauflow._internal.checks import check_one_of, check_positive
from tauflow.batch import SequenceBatch
from tauflow.data.imputation import IMPUTE_STRATEGIES, impute_with_indicators
from tauflow.data.scaler import StandardScaler
from tauflow.errors import ArgumentError, TimeError
from tauflow.tabular.fitted_schema import LINEAR
from tauflow.tabular.gaps import interpolate
from tauflow.tabular.options import FUTURE_NAME_FORMAT, INDICATOR_NAME_FORMAT, LEAD_TIME_INPUT
from tauflow.tabular.schema import Schema
from tauflow.tabular.sequences import NO_TIMES, Sequences, format_names
from tauflow.tabular.shift import compute_excess, summarise, summarise_gaps, warn_shift
from tauflow.tabular.times import check_zones
from tauflow.tabular.transform import list_indicator_features

DTYPES = {"float32": torch.float32, "float64": torch.float64}


_QUARTERS = np.array([0.25, 0.5, 0.75])
_NORMAL_QUARTILES = 1.349  # by how many standard deviations quartiles of a normal variable differ


def fit_schema(
    schema: Schema,
    rows: Sequences,
    *,
    impute: str,
    observes: bool,
    fills_gaps: bool = False,
    time_unit: float | str,
    limit: float | None = None,
) -> Schema:
    """Return the schema by which rows were read, with what is learned of a training split.

    Args:
        schema: the schema.
        rows: the training split.
        impute: what stands for a missing value, of :data:`IMPUTE_STRATEGIES`.
        observes: whether the model takes a mask of what was measured.
        fills_gaps: whether any feature may have a gap, which is then interpolated.
        time_unit: ``"auto"``: the median time step within sequences is 1; or the one that is.
        limit: at which inputs level off, scaled by their median and quartiles; ``None``: never, and
            they are scaled by mean and standard deviation.
    """
    check_one_of(IMPUTE_STRATEGIES, impute=impute)
    missing = np.isnan(rows.values)
    weight = np.repeat(rows.counts, rows.lengths)
    scaler = StandardScaler.fit(rows.values.T, weight)
    if limit is not None:
        scaler = _make_robust(scaler, rows.values, weight)
    if scaler.is_empty.any():
        warnings.warn(
            "features without a value in the training split, of which nothing is learned: "
            f"{_format_features(schema, scaler.is_empty)}. Values of them are ignored.",
            UserWarning,
            stacklevel=4,
        )
    # What is never there is no news either.
    is_flagged = (missing.any(axis=0) | fills_gaps) & ~scaler.is_empty & (not observes)
    mean, scale = scaler.mean.copy(), scaler.scale.copy()
    texts = slice(len(schema.list_number_columns()), None)  # 1 and 0 stay, unless all are the same
    mean[texts] = np.where(scaler.is_constant[texts], scaler.mean[texts], 0.0)
    scale[texts] = np.where(scaler.is_constant[texts], 0.0, 1.0)
    names, owner = schema.list_number_columns(), rows.sequence_index
    schema = replace(
        schema,
        limit=0.0 if limit is None else check_positive(input_limit=limit),
        summary=summarise(names, rows.values.T, owner),
        gap_summary=summarise_gaps(rows.inner_gaps),
    )
    return Preparation(
        features=StandardScaler(mean, scale),
        impute=LINEAR if fills_gaps else impute,
        observes=observes,
        flagged=np.flatnonzero(is_flagged),
        unit=None if rows.dt is None else resolve_time_unit(rows, time_unit),
        dated=rows.dated,
        ahead=0 if rows.lead_times is None else rows.lead_times.shape[1],
    ).complete(schema)


def _make_robust(
    scaler: StandardScaler, values: NDArray[Any], weight: NDArray[Any]
) -> StandardScaler:
    """Return a scaler by median and quartiles, (F,), but of columns whose quartiles are equal."""
    mean, scale = scaler.mean.copy(), scaler.scale.copy()
    for place, column in enumerate(values.T):
        known = np.flatnonzero(~np.isnan(column) & (weight > 0))
        order = known[np.argsort(column[known], kind="stable")]
        share = np.cumsum(weight[order])
        if len(order):
            low, middle, high = column[order[np.searchsorted(share, share[-1] * _QUARTERS)]]
            if high > low:
                mean[place], scale[place] = middle, (high - low) / _NORMAL_QUARTILES
    return StandardScaler(mean, scale)


def get_schema_options(estimator: Any) -> dict[str, Any]:
    """Return the parameters of an estimator that :func:`fit_schema` takes."""
    limit = getattr(estimator, "input_limit", None)
    return {"impute": estimator.impute, "time_unit": estimator.time_unit, "limit": limit}


def make_batch(schema: Schema, rows: Sequences, dtype: torch.dtype) -> SequenceBatch:
    """Return a batch by a fitted schema, with zeros as y of sequences without targets."""
    _check_times(schema, rows)

    def to_tensor(array: NDArray[Any]) -> torch.Tensor:
        tensor = torch.from_numpy(array)
        return tensor.to(dtype) if tensor.is_floating_point() else tensor

    standard, count = schema.input_scaler, rows.values.shape[1]
    there = ~(np.isnan(rows.values) | standard.is_empty[:count])
    scaled = np.where(there, standard.transform(rows.values), 0.0)
    if schema.limit:
        numbers = scaled[:, : len(schema.list_number_columns())]
        numbers /= np.sqrt(1 + (numbers / schema.limit) ** 2)
    if schema.fill == LINEAR and not schema.observed:
        scaled = np.where(there, scaled, standard.transform(interpolate(rows)))
        scaled = np.nan_to_num(scaled)
    even = bool((rows.lengths == rows.lengths[0]).all())
    batch = SequenceBatch(
        to_tensor(rows.pad_rows(scaled)),
        torch.zeros(len(rows)) if rows.y is None else to_tensor(rows.y),
        dt=None if rows.dt is None else to_tensor(rows.pad_rows(rows.dt / schema.gap)),
        mask=None if even else torch.from_numpy(rows.valid),
        observed=None if there.all() else torch.from_numpy(rows.pad_rows(there)),
        weight=None if rows.weight is None else to_tensor(rows.weight),
    )
    if not schema.observed:
        fill = IMPUTE_STRATEGIES[1] if schema.fill == LINEAR else schema.fill
        batch = impute_with_indicators(batch, list_indicator_features(schema, count), fill=fill)
    more = [] if rows.lead_times is None else [rows.lead_times / schema.gap]
    more += [] if rows.calendar is None else [rows.calendar]
    more += [] if rows.is_query is None else [rows.is_query[:, None].astype(np.float64)]
    if not more:
        return batch
    return _append_inputs(batch, to_tensor(rows.pad_rows(np.concatenate(more, axis=1))))


def _append_inputs(batch: SequenceBatch, more: torch.Tensor) -> SequenceBatch:
    """Return a batch with further inputs, (B, T, K), which are always known."""
    observed = batch.observed
    if observed is not None:
        known = batch.valid.unsqueeze(-1).expand_as(more)
        observed = torch.cat([observed, known], dim=-1)
    return replace(batch, x=torch.cat([batch.x, more], dim=-1), observed=observed)


def _check_times(schema: Schema, rows: Sequences) -> None:
    """Refuse times where the training had none, and dates where it had numbers; or the reverse."""
    check_timed(schema.is_timed, rows)
    check_kind_of_times(schema.dated, rows)
    check_zones(rows.zoned, schema.zoned, "these sequences", "the fit")


def check_timed(is_timed: bool, rows: Sequences) -> None:
    """Refuse times where the training had none, and none where it had times."""
    if (rows.dt is None) == is_timed:
        had, has = ("times", "none") if is_timed else ("no times", "times")
        raise ArgumentError(
            f"the estimator was fitted to sequences with {had}, and these have {has}. Give dt "
            "or t (time of a table) each time, or never."
        )


def check_kind_of_times(dated: bool, rows: Sequences) -> None:
    """Refuse dates where the training had numbers, and numbers where it had dates."""
    if rows.dated is not dated:
        had, has = ("dates", "numbers") if dated else ("numbers", "dates")
        raise TimeError(
            f"the estimator was fitted to times that are {had}, and these are {has}, perhaps "
            f"in another unit. Give {had}: dates count in seconds."
        )


def warn_ignored_values(schema: Schema, rows: Sequences) -> None:
    """Warn of values that were never measured in training, or constant and are not now."""
    standard, count = schema.input_scaler, rows.values.shape[1]
    other = ~np.isnan(rows.values) & (rows.values != standard.mean[:count])
    other &= standard.is_constant[:count]
    if other.any():
        warnings.warn(
            "values are ignored of features that were constant, or never measured, in "
            f"training: {_format_features(schema, other.any(axis=0))}.",
            UserWarning,
            stacklevel=4,
        )


def compare_with_training(schema: Schema, rows: Sequences, targets: Sequence[int]) -> None:
    """Warn of rows that are unlike those of the training; see :func:`warn_shift`."""
    names = schema.list_number_columns()
    warn_shift(
        schema.summary,
        schema.gap_summary,
        dict(zip(names, rows.values.T, strict=False)),
        rows.sequence_index,
        rows.inner_gaps,
        targets=[names[place] for place in targets],
        ids=rows.ids,
        stacklevel=5,
    )


def find_outside(schema: Schema, rows: Sequences, targets: Sequence[int]) -> NDArray[np.bool_]:
    """Return after which rows inputs were outside the range of the training, (R, O) or (R, 1).

    That is where a target was, or any other feature by more than one standard deviation.

    Args:
        schema: fitted to the training.
        rows: what the network reads.
        targets: features, one for each output; none where outputs are no features.
    """
    excess = compute_excess(schema.summary, schema.list_number_columns(), rows.values)
    outside = (excess > 1).any(axis=1, keepdims=True)
    if len(targets):
        outside = outside | (excess[:, list(targets)] > 0)
    count = np.cumsum(outside, axis=0)
    before = (count - outside)[rows.starts]
    is_outside: NDArray[np.bool_] = count > before[rows.sequence_index]
    return is_outside


def _format_features(schema: Schema, which: NDArray[np.bool_]) -> str:
    """Return names, or numbers, of some columns of rows, (F,), for a message."""
    columns = schema.list_columns()
    return format_names([columns[place] for place in np.flatnonzero(which)], 12)


def resolve_time_unit(rows: Sequences, time_unit: float | str) -> float:
    """Return the time step that is 1 for the model: the median one, or as asked for."""
    if time_unit != "auto":
        if isinstance(time_unit, str):
            raise ArgumentError(f"time_unit must be 'auto' or a number, got {time_unit!r}.")
        return check_positive(time_unit=time_unit)
    assert rows.dt is not None
    inner = np.setdiff1d(np.flatnonzero(rows.dt > 0), rows.starts)
    if not len(inner):
        return 1.0
    order = inner[np.argsort(rows.dt[inner])]
    counted = np.cumsum(rows.counts[rows.sequence_index][order])
    # The mean of the two in the middle, as of so many time steps without weights.
    middle = [np.searchsorted(counted, counted[-1] / 2, side) for side in ("left", "right")]
    return float(rows.dt[order[middle]].mean())


@dataclass(frozen=True)
class Preparation:
    """What a schema learns of rows, as files of earlier versions hold it.

    Args:
        features: means and scales of the columns of rows.
        impute: what stands for a missing value.
        observes: whether the model takes a mask of what was measured.
        flagged: columns with a further input that says whether they were measured, (F,).
        unit: the time step that is 1 for the model; ``None`` of sequences without times.
        dated: whether times were dates.
        ahead: how many inputs more say when the rows are that are to be forecast.
        dtype: of the model; it is a parameter of the estimator.
    """

    features: StandardScaler
    impute: str
    observes: bool
    flagged: Any
    unit: float | None
    dated: bool
    ahead: int
    dtype: str = ""

    def complete(self, schema: Schema) -> Schema:
        """Return a schema, which names the features, with what was learned."""
        columns, unit = schema.list_columns(), NO_TIMES
        count_elements(self.ahead)  # a number of a file
        more = [INDICATOR_NAME_FORMAT.format(columns[int(place)]) for place in self.flagged]
        steps = range(1, self.ahead + 1)
        more += [FUTURE_NAME_FORMAT.format(LEAD_TIME_INPUT, step) for step in steps]
        if self.unit is not None:
            unit = "seconds" if self.dated else f"unit of {schema.time or 'the times'!r}"
        return replace(
            schema,
            inputs=(*columns, *more),
            x_mean=torch.from_numpy(np.append(self.features.mean, np.zeros(len(more)))),
            x_scale=torch.from_numpy(np.append(self.features.scale, np.ones(len(more)))),
            dated=self.dated,
            unit=unit,
            gap=1.0 if self.unit is None else self.unit,
            fill=self.impute,
            observed=self.observes,
        )
