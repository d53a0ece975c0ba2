"""Forecasts of any variable at any time, by one step of a cell from its last state."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tauflow._internal.checks import check_at_least, check_positive, check_within, shape_error
from tauflow._internal.init_args import CaptureInitArgs
from tauflow._internal.sanitize import format_count
from tauflow.batch import SequenceBatch
from tauflow.cells.reinitialise import reset_submodules
from tauflow.errors import ArgumentError, DataError
from tauflow.sequence import SequenceModule
from tauflow.training.elementwise import PredictionLoss

from .forecast_head import AnsweredQueries, ForecastHead
from .simple_forecasts import forecast_simply, measure_window
from .spread import QUANTILE_LEVELS, build_spread_head

_FARTHEST = 8.0
"""Values further from 0 look the same to the hidden layer, which never saw such in training."""


class ForecastModel(nn.Module, metaclass=CaptureInitArgs):
    """Forecast any feature at any time after the last sample, with any cell.

    The state after the last sample takes one step over the time to each query, in which nothing is
    observed but features that are known in advance; a :class:`ForecastHead` reads the result. All
    queries are answered side by side, and none changes another one.

    A sequence (B, T, F + 1) holds its samples and then its queries, in any order; the last input is
    1 at a query and 0 at a sample, and ``dt`` counts on from row to row. So it is trained and
    evaluated as models with a target at every step are; :meth:`forecast` takes queries apart from
    samples. Values should have a mean of 0 each, which stands for a value that never was measured.
    Inside, each feature is divided by its root mean square over the samples seen in training.

    With ``periods``, targets are also centred and scaled by their samples in the window, and the
    head mixes several simple forecasts: the last value, the mean of the window, and for each period
    P the value P earlier (2 P, ... where that is later than the last sample) and the mean of all
    values at that phase, both interpolated between samples by a Gaussian of half a ``gap``.
    ``shares`` average the mixture with simple forecasts once more, where data that were not trained
    on say so: not in training mode.

    Args:
        rnn: with ``return_sequences=False``, unidirectional. One that takes ``observed`` has F
            inputs; others have 2 F, the last value of each feature and whether it was measured.
        targets: features to forecast, O of them, by number.
        horizon: longest lead time to be trained on, in the unit of ``dt``.
        width: of the hidden layer of the head.
        dropout: on that layer.
        spread: ``"quantile"`` or ``"gaussian"``, see :class:`SequenceModel`.
        periods: after which values come again, in the unit of ``dt``, perhaps none, ``()``;
            ``None``: the last value is the only simple forecast.
        gap: usual time between samples, in the unit of ``dt``; with ``periods``.
        phases: C, number of inputs behind the F features that are known at any time, such as sines
            and cosines of the time of day. A sequence is then (B, T, F + C + 1).
        shares: of the K simple forecasts, in the order above, and of the mixture in the answer,
            (O, K + 1); by default that is the mixture. :attr:`shares` may be set later.

    Raises:
        ArgumentError: the module returns sequences or is bidirectional, or there is no such target.
    """

    options: dict[str, Any]

    def __init__(
        self,
        rnn: SequenceModule,
        targets: Sequence[int],
        *,
        horizon: float = 1.0,
        width: int = 128,
        dropout: float = 0.1,
        spread: str | None = None,
        periods: Sequence[float] | None = None,
        gap: float = 1.0,
        phases: int = 0,
        shares: Sequence[Sequence[float]] | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(rnn, SequenceModule):
            raise ArgumentError(
                f"rnn must be a sequence module such as tauflow.CfC, got {type(rnn).__name__}: a "
                "forecast at any time needs a state that can take a step."
            )
        if rnn.return_sequences or rnn.bidirectional:
            raise ArgumentError(
                "a forecast follows from the last state of a sequence. Build the module with "
                "return_sequences=False and bidirectional=False."
            )
        self.rnn = rnn
        self.phases = check_at_least(0, phases=phases)
        self.periods = None if periods is None else tuple(periods)
        self.gap = check_positive(gap=gap)
        if not all(number > 0 for number in self.periods or ()):
            raise ArgumentError(f"periods={list(periods or ())}: expected numbers above 0.")
        size = rnn.input_size - phases
        if not rnn.uses_observed and size % 2:
            raise ArgumentError(
                f"{type(rnn).__name__} has {format_count(size, 'input')}, expected 2 for each "
                "feature: the last value, and whether it was measured."
            )
        self.features = size if rnn.uses_observed else size // 2
        self.targets = tuple(targets)
        if not self.targets or not all(0 <= number < self.features for number in self.targets):
            raise ArgumentError(
                f"targets={list(targets)}: expected numbers of the "
                f"{format_count(self.features, 'feature')}, from 0 on."
            )
        self.head = ForecastHead(
            rnn.output_size,
            self.features,
            self.targets,
            horizon=check_positive(horizon=horizon),
            width=check_at_least(1, width=width),
            dropout=check_within(0.0, 1.0, dropout=dropout),
            simple=1 if self.periods is None else 2 + 2 * len(self.periods),
            extra=phases + (0 if self.periods is None else 2 * len(self.targets)),
        )
        self._shares: tuple[tuple[float, ...], ...] | None = None
        self.shares = shares
        self.spread = None
        if spread is not None:
            self.spread = build_spread_head(spread, width, len(self.targets))
        self.mean_square: Tensor
        self.value_count: Tensor
        for name in ("mean_square", "value_count"):
            self.register_buffer(name, torch.zeros(self.features))

    @property
    def uses_observed(self) -> bool:
        """Whether the model takes a mask of measured features, (B, T, F + 1), which it does."""
        return True

    @property
    def shares(self) -> tuple[tuple[float, ...], ...] | None:
        """What each simple forecast and the mixture count in the answer, (O, K + 1)."""
        return self._shares

    @shares.setter
    def shares(self, shares: Sequence[Sequence[float]] | None) -> None:
        size = (len(self.targets), self.head.simple + 1)
        if shares is not None and np.shape(shares) != size:
            raise ArgumentError(f"shares must have the shape {size}, got {np.shape(shares)}.")
        self._shares = None if shares is None else tuple(tuple(map(float, row)) for row in shares)
        if hasattr(self, "options"):  # what a file says
            self.options["shares"] = self._shares

    @property
    def ignores_padding(self) -> bool:
        """Whether masked steps at the ends of sequences change nothing, as the body says."""
        return self.rnn.ignores_padding

    @property
    def quantile_levels(self) -> tuple[float, ...]:
        """The levels of :meth:`quantiles`; ``()`` without a head of the spread."""
        return () if self.spread is None else QUANTILE_LEVELS

    def reset_parameters(self) -> None:
        """Draw all parameters again, from the global generator."""
        reset_submodules(self)

    def forward(
        self,
        x: Tensor,
        *,
        dt: Tensor | None = None,
        mask: Tensor | None = None,
        observed: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Answer the queries of sequences.

        Args:
            x: samples and then queries, (B, T, F + 1), with a last input that says which is which.
            dt: time since the row before, (B, T); by default 1.
            mask: which rows are there, (B, T).
            observed: which inputs were measured, (B, T, F + 1). At a query only what is known in
                advance is. By default all is at samples, and nothing at queries.

        Returns:
            Forecasts, (B, T, O), zero at samples; and the state after the last sample.

        Raises:
            ShapeError: x has another width.
            DataError: a sample follows a query.
        """
        queries, h = self._answer(x, dt, mask, observed)
        return queries.scatter(queries.prediction, x.shape[:2]), h

    def forecast(
        self,
        x: Tensor,
        at: Tensor,
        *,
        dt: Tensor | None = None,
        mask: Tensor | None = None,
        observed: Tensor | None = None,
        known: Tensor | None = None,
    ) -> Tensor:
        """Return forecasts, (B, Q, O), at times after the last samples.

        Args:
            x: samples, (B, T, F + C).
            at: times since the last sample, (Q,) or (B, Q), in any order.
            dt: time since the sample before, (B, T); by default 1.
            mask: which samples are there, (B, T).
            observed: which features were measured, (B, T, F); by default all.
            known: features known in advance at these times, (B, Q, F + C), NaN for the others; with
                phases it has to be given.

        Raises:
            ArgumentError: a time is negative or not finite.
        """
        at = at.to(x).expand(len(x), -1) if at.ndim < 2 else at.to(x)
        if not bool((at.isfinite() & (at >= 0)).all()):
            raise ArgumentError("forecast: times must be finite and 0 or more.")
        count, wide = self.features, x[..., : self.features]
        measured = torch.ones_like(wide, dtype=torch.bool) if observed is None else observed
        if known is None:
            known = x.new_full((*at.shape, x.shape[-1]), torch.nan)
        valid = measured.new_ones(x.shape[:2]) if mask is None else mask
        gaps = x.new_ones(x.shape[:2]) if dt is None else dt.to(x)
        rows = torch.cat([x, known.nan_to_num()], 1)
        is_query = torch.cat([torch.zeros_like(gaps), torch.ones_like(at)], 1)
        prediction, _ = self(
            torch.cat([rows, is_query.unsqueeze(-1)], -1),
            dt=torch.cat([gaps, at.diff(prepend=at.new_zeros(len(at), 1))], 1),
            mask=torch.cat([valid, valid.new_ones(at.shape)], 1),
            observed=_pad_true(
                torch.cat([measured[..., :count], ~known[..., :count].isnan()], 1), self.phases + 1
            ),
        )
        answers: Tensor = prediction[:, x.shape[1] :]
        return answers

    def quantiles(self, x: Tensor, **times_and_masks: Any) -> Tensor:
        """Return the quantiles of the targets, (B, T, O, Q), increasing; zero at samples.

        Args:
            x: as for :meth:`forward`.
            **times_and_masks: likewise.

        Raises:
            ArgumentError: the model was built without ``spread``.
        """
        if self.spread is None:
            raise ArgumentError(
                "this ForecastModel learned no quantiles. Build it with spread='quantile' or "
                "'gaussian', and train it."
            )
        inputs = [times_and_masks.get(name) for name in ("dt", "mask", "observed")]
        queries, _ = self._answer(x, *inputs)
        quantiles = self.spread.quantiles(queries.features, queries.prediction, queries.scale)
        return queries.scatter(quantiles, x.shape[:2])

    def compute_candidates(self, x: Tensor, **times_and_masks: Any) -> Tensor:
        """Return simple forecasts and the mixture, (B, T, O, K + 1); zero at samples.

        Args:
            x: as for :meth:`forward`.
            **times_and_masks: likewise.
        """
        inputs = [times_and_masks.get(name) for name in ("dt", "mask", "observed")]
        queries, _ = self._answer(x, *inputs)
        return queries.scatter(queries.candidates, x.shape[:2])

    def training_loss(
        self, batch: SequenceBatch, prediction_loss: PredictionLoss, *, epoch: int
    ) -> Tensor:
        """Return the loss of the forecasts, and of their spread.

        Args:
            batch: inputs and targets.
            prediction_loss: of predictions.
            epoch: finished epochs.
        """
        queries, _ = self._answer(batch.x, batch.dt, batch.mask, batch.observed)
        size = batch.x.shape[:2]
        prediction, scale = (
            queries.scatter(values, size) for values in (queries.prediction, queries.scale)
        )
        loss = prediction_loss(prediction, batch)
        if self.spread is None:
            return loss
        features = queries.scatter(queries.features, size)
        return loss + self.spread.loss(features, prediction, batch, scale)

    def _answer(
        self, x: Tensor, dt: Tensor | None, mask: Tensor | None, observed: Tensor | None
    ) -> tuple[AnsweredQueries, Tensor]:
        """Return the queries with their answers, and the state after the last sample."""
        is_sample, is_query = self._find_queries(x, mask)
        valid = is_sample | is_query
        count, phases = self.features, x[..., self.features : -1]
        measured = (
            is_sample.unsqueeze(-1)
            if observed is None
            else observed[..., :count] & valid[..., None]
        )
        values = x[..., :count].masked_fill(~measured, 0.0)
        measured = measured.expand_as(values)
        scale = self._update_scale(values, measured)
        values = values / scale
        gaps = torch.ones_like(x[..., 0]) if dt is None else dt.to(x)
        # Differences of long times need more digits than the times themselves.
        wide = torch.float32 if x.device.type == "mps" else torch.float64
        clock = gaps.masked_fill(~valid, 0.0).cumsum(1, dtype=wide)

        chosen = list(self.targets)
        sampled = measured[..., chosen] & is_sample.unsqueeze(-1)
        level, unit = values.new_zeros(len(x), len(chosen)), values.new_ones(len(x), len(chosen))
        if self.periods is not None:
            level, unit = measure_window(values[..., chosen], sampled)
            values = values.clone()
            centred = (values[..., chosen] - level[:, None]) / unit[:, None]
            values[..., chosen] = centred.masked_fill(~measured[..., chosen], 0.0)
        steps = torch.arange(x.shape[1], device=x.device)
        latest = torch.where(measured & is_sample[..., None], steps[:, None], -1).cummax(1).values
        length = max(1, int((is_sample * (steps + 1)).amax()))
        h = self._read(values, measured, latest, gaps, is_sample, phases, length)

        b, j = is_query.nonzero(as_tuple=True)
        end = (is_sample * steps).amax(1)
        lead_time = (clock[b, j] - clock[b, end[b]]).to(x.dtype).unsqueeze(-1)
        place = latest[:, -1]
        last = values.gather(1, place.clamp(min=0)[:, None])[:, 0].masked_fill(place < 0, 0.0)
        age = (clock[b, j][:, None] - clock.gather(1, place.clamp(min=0))[b]).to(x.dtype)
        known, has_last = measured[b, j], place[b] >= 0
        last = torch.where(known, values[b, j], last[b])
        age = age.masked_fill(known | ~has_last, 0.0)
        phase = phases[b, j]
        if self.rnn.uses_observed:
            read, there = values[b, j], {"observed": _pad_true(known, self.phases)}
        else:
            read, there = torch.cat([last, known.to(last.dtype)], -1), {}
        output, _ = self.rnn.step(torch.cat([read, phase], -1), h[b], lead_time, **there)
        simple, extra = None, phase
        if self.periods is not None:
            first = torch.where(place[b][:, chosen] < 0, 0.0, last[:, chosen])
            samples = values[..., chosen].masked_fill(~sampled, 0.0)[b], sampled[b]
            since = (clock[b] - clock[b, end[b]][:, None]).to(x.dtype)
            times: dict[str, Any] = {"periods": self.periods, "gap": self.gap}
            simple = forecast_simply(first, *samples, since, lead_time, **times)
            extra = torch.cat([phase, F.softsign(level[b]), unit[b].log()], -1)
            last = last.clamp(-_FARTHEST, _FARTHEST)
        features, mixed = self.head(output, last, has_last | known, age, lead_time, simple, extra)
        guesses = last[:, chosen].unsqueeze(-1) if simple is None else simple
        candidates = torch.cat([guesses, mixed.unsqueeze(-1)], -1) * unit[b].unsqueeze(-1)
        candidates = (candidates + level[b].unsqueeze(-1)) * scale[chosen].unsqueeze(-1)
        answer = self._average(candidates)
        return AnsweredQueries(b, j, features, answer, unit[b] * scale[chosen], candidates), h

    def _average(self, candidates: Tensor) -> Tensor:
        """Return the answers, (Q, O), of simple forecasts and the mixture."""
        if self._shares is None or self.training:
            return candidates[..., -1]
        return (candidates * candidates.new_tensor(self._shares)).sum(-1)

    def _find_queries(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return which rows are samples and which are queries, (B, T) each."""
        width = self.features + self.phases
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

    def _update_scale(self, values: Tensor, measured: Tensor) -> Tensor:
        """Return the root mean square of each feature in training, (F,); 1 of none and of zeros."""
        if self.training:
            with torch.no_grad():
                count = measured.sum((0, 1)).to(self.value_count)
                self.value_count += count
                error = values.square().sum((0, 1)).to(self.mean_square) - count * self.mean_square
                self.mean_square += error / self.value_count.clamp(min=1)
        scale = torch.where(self.mean_square > 0, self.mean_square.sqrt(), 1.0)
        return scale.to(values.dtype)

    def _read(
        self,
        values: Tensor,
        measured: Tensor,
        latest: Tensor,
        gaps: Tensor,
        is_sample: Tensor,
        phases: Tensor,
        length: int,
    ) -> Tensor:
        """Return the state after the samples, which end before a step, (B, S)."""
        values, measured, latest = values[:, :length], measured[:, :length], latest[:, :length]
        gaps, mask, phases = gaps[:, :length], is_sample[:, :length], phases[:, :length]
        h: Tensor
        if self.rnn.uses_observed:
            inputs, there = torch.cat([values, phases], -1), _pad_true(measured, self.phases)
            _, h = self.rnn(inputs, dt=gaps, mask=mask, observed=there)
            return h
        filled = values.gather(1, latest.clamp(min=0)).masked_fill(latest < 0, 0.0)
        inputs = torch.cat([filled, measured.to(values.dtype), phases], -1)
        _, h = self.rnn(inputs, dt=gaps, mask=mask)
        return h


def _pad_true(observed: Tensor, count: int) -> Tensor:
    """Return a mask with so many inputs more, which are there."""
    return F.pad(observed, (0, count), value=True) if count else observed
