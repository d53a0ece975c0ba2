"""Rows of samples and queries, and what is known where a forecast is asked for."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from tauflow._internal.checks import shape_error
from tauflow.errors import DataError


class WindowRows(NamedTuple):
    """Samples and queries of a batch, scaled.

    Args:
        is_sample: which rows are samples, (B, T).
        is_query: which are queries, (B, T).
        values: of the features, 0 where none was measured, (B, T, F).
        measured: where one was, (B, T, F).
        phases: further inputs, (B, T, C).
        gaps: time since the row before, (B, T).
        clock: time of each row, (B, T).
        level: mean of each target in its window, (B, O); 0 if targets are not centred.
        unit: their deviation, (B, O); 1 if they are not.
        scale: what features were divided by before, (F,).
    """

    is_sample: Tensor
    is_query: Tensor
    values: Tensor
    measured: Tensor
    phases: Tensor
    gaps: Tensor
    clock: Tensor
    level: Tensor
    unit: Tensor
    scale: Tensor


class ReadQueries(NamedTuple):
    """What is known of the Q queries of a batch.

    Args:
        sequence: which sequence each belongs to, (Q,).
        step: which of its steps it is, (Q,).
        last: last value of every feature, 0 if it has none, (Q, F).
        has_last: whether it has one, (Q, F).
        age: time since then, (Q, F).
        lead_time: time since the last sample, (Q, 1).
        phase: further inputs, (Q, C).
        simple: simple forecasts, (Q, O, K).
        lags: values at the last sample and before, (Q, O, L), for trees alone.
        level: of the targets in their window, (Q, O).
        unit: of the targets in their window, (Q, O).
        scale: of the targets, (O,).
    """

    sequence: Tensor
    step: Tensor
    last: Tensor
    has_last: Tensor
    age: Tensor
    lead_time: Tensor
    phase: Tensor
    simple: Tensor
    lags: Tensor | None
    level: Tensor
    unit: Tensor
    scale: Tensor

    def list_inputs(self, *, centred: bool) -> tuple[Tensor | None, ...]:
        """Return what the head reads beside the cell's output, of targets that may be centred."""
        known = (self.last, self.has_last, self.age, self.lead_time)
        return (*known, self.simple, self._extra) if centred else (*known, None, self.phase)

    def join_tree_inputs(self) -> Tensor:
        """Return what trees read, (Q, W): NaN where a feature has no value."""
        assert self.lags is not None
        last = self.last.masked_fill(~self.has_last, torch.nan)
        read = [self.lead_time, self._extra, last, self.age]
        return torch.cat([*read, self.simple.flatten(1), self.lags.flatten(1)], -1)

    def describe(self) -> dict[str, Tensor]:
        """Return what trees are fitted to.

        See :meth:`tauflow.models.ForecastModel.compute_tree_inputs`.
        """
        return {
            "sequence": self.sequence,
            "step": self.step,
            "known": self.join_tree_inputs(),
            "simple": self.simple,
            "level": self.level * self.scale,
            "unit": self.unit * self.scale,
        }

    @property
    def _extra(self) -> Tensor:
        return torch.cat([self.phase, F.softsign(self.level), self.unit.log()], -1)


def find_queries(x: Tensor, mask: Tensor | None, width: int) -> tuple[Tensor, Tensor]:
    """Return which rows are samples and which are queries, (B, T) each.

    Args:
        x: rows, (B, T, width + 1), with a last input that says which is which.
        mask: which rows are there, (B, T).
        width: of the other inputs.

    Raises:
        ShapeError: x has another width.
        DataError: a sample follows a query.
    """
    if x.ndim != 3 or x.shape[-1] != width + 1:
        raise shape_error(
            "ForecastModel",
            "x",
            x,
            f"(B, T, {width + 1})",
            "The last input says which rows are queries.",
        )
    valid = x.new_ones(x.shape[:2], dtype=torch.bool) if mask is None else mask
    is_query = (x[..., -1] > 0) & valid
    is_sample = valid & ~is_query
    if bool((is_sample[:, 1:] & is_query.cumsum(1)[:, :-1].bool()).any()):
        raise DataError("ForecastModel: a sample follows a query. Put queries at the end.")
    return is_sample, is_query


def append_queries(
    x: Tensor,
    at: Tensor,
    dt: Tensor | None,
    mask: Tensor | None,
    observed: Tensor | None,
    known: Tensor | None,
    count: int,
) -> dict[str, Tensor]:
    """Return samples and then queries as inputs of the model.

    Args:
        x: samples, (B, T, I), with ``dt``, ``mask`` and ``observed``, if given.
        at: times of the queries since the last sample, (B, Q).
        known: inputs known in advance, (B, Q, I), if there are any, NaN where they are not.
        count: of the features, which are the first inputs.
    """
    measured = torch.ones_like(x[..., :count], dtype=torch.bool) if observed is None else observed
    if known is None:
        known = x.new_full((*at.shape, x.shape[-1]), torch.nan)
    valid = measured.new_ones(x.shape[:2]) if mask is None else mask
    gaps = x.new_ones(x.shape[:2]) if dt is None else dt.to(x)
    is_query = torch.cat([torch.zeros_like(gaps), torch.ones_like(at)], 1)
    there = torch.cat([measured[..., :count], ~known[..., :count].isnan()], 1)
    return {
        "x": torch.cat([torch.cat([x, known.nan_to_num()], 1), is_query.unsqueeze(-1)], -1),
        "dt": torch.cat([gaps, at.diff(prepend=at.new_zeros(len(at), 1))], 1),
        "mask": torch.cat([valid, valid.new_ones(at.shape)], 1),
        "observed": pad_true(there, x.shape[-1] - count + 1),
    }


def list_gaps(times_and_masks: Mapping[str, Any]) -> list[Tensor | None]:
    """Return what is given of ``dt``, ``mask`` and ``observed``."""
    return [times_and_masks.get(name) for name in ("dt", "mask", "observed")]


def pad_true(observed: Tensor, count: int) -> Tensor:
    """Return a mask with so many inputs more, which are there."""
    return F.pad(observed, (0, count), value=True) if count else observed
