"""Forecasts of any variable at any time, by one step of a cell from its last state."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tauflow._internal.checks import check_at_least, check_positive, check_within
from tauflow._internal.init_args import CaptureInitArgs
from tauflow._internal.sanitize import format_count
from tauflow.batch import SequenceBatch
from tauflow.cells.reinitialise import reset_submodules
from tauflow.errors import ArgumentError
from tauflow.sequence import SequenceModule
from tauflow.training.elementwise import PredictionLoss

from .forecast_head import AnsweredQueries, ForecastHead
from .forecast_rows import (
    ReadQueries,
    WindowRows,
    append_queries,
    find_queries,
    list_gaps,
    pad_true,
)
from .forecast_trees import ForecastTrees
from .simple_forecasts import centre, forecast_simply, look_back
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
    ``shares`` average the mixture with simple forecasts, and that of ``trees``, once more, where
    data that were not trained on say so: not in training mode.

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
        shares: of the K simple forecasts, in the order above, of the trees, if there are any, and
            of the mixture in the answer, (O, K + 1) or (O, K + 2); by default that is the mixture.
            :meth:`set_shares` changes them.
        trees: gradient boosting that forecasts too; with periods.

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
        trees: ForecastTrees | None = None,
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
        self.trees: ForecastTrees | None
        self.register_module("trees", None)
        self.set_shares(shares, trees)
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
        """What each simple forecast, the trees and the mixture count in the answer."""
        return self._shares

    def set_shares(
        self, shares: Sequence[Sequence[float]] | None, trees: ForecastTrees | None = None
    ) -> None:
        """Set what counts how much in the answer; for the arguments see above.

        Raises:
            ArgumentError: shares have another shape, or trees come without periods.
        """
        if trees is not None and self.periods is None:
            raise ArgumentError("trees forecast beside simple forecasts, which periods= asks for.")
        size = (len(self.targets), self.head.simple + (trees is not None) + 1)
        if shares is not None and np.shape(shares) != size:
            raise ArgumentError(f"shares must have the shape {size}, got {np.shape(shares)}.")
        self._shares = None if shares is None else tuple(tuple(map(float, row)) for row in shares)
        self.trees = trees
        if hasattr(self, "options"):  # what a file says
            self.options |= {"shares": self._shares, "trees": trees}

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
        rows = append_queries(x, at, dt, mask, observed, known, self.features)
        prediction, _ = self(rows.pop("x"), **rows)
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
        queries, _ = self._answer(x, *list_gaps(times_and_masks))
        quantiles = self.spread.quantiles(queries.features, queries.prediction, queries.scale)
        return queries.scatter(quantiles, x.shape[:2])

    def compute_candidates(self, x: Tensor, **times_and_masks: Any) -> Tensor:
        """Return the forecasts that ``shares`` are of, (B, T, O, K + 1); zero at samples.

        Args:
            x: as for :meth:`forward`.
            **times_and_masks: likewise.
        """
        queries, _ = self._answer(x, *list_gaps(times_and_masks))
        return queries.scatter(queries.candidates, x.shape[:2])

    def compute_tree_inputs(self, x: Tensor, **times_and_masks: Any) -> dict[str, Tensor]:
        """Return what trees are fitted to, for each of the Q queries.

        Args:
            x: as for :meth:`forward`.
            **times_and_masks: likewise.

        Returns:
            ``sequence`` and ``step`` of each, (Q,); what trees read, ``known``, (Q, W); ``simple``
            forecasts, (Q, O, K); ``level`` and ``unit`` of targets, (Q, O).
        """
        return self._read_queries(x, *list_gaps(times_and_masks), with_lags=True)[0].describe()

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
        parts = (queries.prediction, queries.scale)
        prediction, scale = (queries.scatter(values, size) for values in parts)
        loss = prediction_loss(prediction, batch)
        if self.spread is None:
            return loss
        features = queries.scatter(queries.features, size)
        return loss + self.spread.loss(features, prediction, batch, scale)

    def _answer(
        self, x: Tensor, dt: Tensor | None, mask: Tensor | None, observed: Tensor | None
    ) -> tuple[AnsweredQueries, Tensor]:
        """Return the queries with their answers, and the state after the last sample."""
        with_lags = self.trees is not None and not self.training
        asked, output, h = self._read_queries(x, dt, mask, observed, with_lags=with_lags)
        features, mixed = self.head(output, *asked.list_inputs(centred=self.periods is not None))
        guesses = [asked.simple]
        if self.trees is not None and with_lags:
            guesses.append(self.trees(asked.join_tree_inputs(), asked.simple).unsqueeze(-1))
        candidates = torch.cat([*guesses, mixed.unsqueeze(-1)], -1) * asked.unit.unsqueeze(-1)
        candidates = (candidates + asked.level.unsqueeze(-1)) * asked.scale.unsqueeze(-1)
        answer, unit = candidates[..., -1], asked.unit * asked.scale
        if self._shares is not None and not self.training:
            answer = (candidates * candidates.new_tensor(self._shares)).sum(-1)
        b, j = asked.sequence, asked.step
        return AnsweredQueries(b, j, features, answer, unit, candidates), h

    def _read_queries(
        self,
        x: Tensor,
        dt: Tensor | None,
        mask: Tensor | None,
        observed: Tensor | None,
        *,
        with_lags: bool,
    ) -> tuple[ReadQueries, Tensor, Tensor]:
        """Return what is known of the queries, the cell's output there, and its last state."""
        rows = self._scale_rows(x, dt, mask, observed)
        chosen, steps = list(self.targets), torch.arange(x.shape[1], device=x.device)
        is_sample, values, measured = rows.is_sample, rows.values, rows.measured
        latest = torch.where(measured & is_sample[..., None], steps[:, None], -1).cummax(1).values
        h = self._read(rows, latest, max(1, int((is_sample * (steps + 1)).amax())))

        b, j = rows.is_query.nonzero(as_tuple=True)
        end = (is_sample * steps).amax(1)
        since_end = (rows.clock - rows.clock.gather(1, end[:, None])).to(x.dtype)
        lead_time = since_end[b, j].unsqueeze(-1)
        place = latest[:, -1]
        last = values.gather(1, place.clamp(min=0)[:, None])[:, 0].masked_fill(place < 0, 0.0)
        newest = rows.clock.gather(1, place.clamp(min=0))
        age = (rows.clock[b, j][:, None] - newest[b]).to(x.dtype)
        known, has_last = measured[b, j], place[b] >= 0
        last = torch.where(known, values[b, j], last[b])
        age = age.masked_fill(known | ~has_last, 0.0)
        phase = rows.phases[b, j]
        if self.rnn.uses_observed:
            x, there = values[b, j], {"observed": pad_true(known, self.phases)}
        else:
            x, there = torch.cat([last, known.to(last.dtype)], -1), {}
        output, _ = self.rnn.step(torch.cat([x, phase], -1), h[b], lead_time, **there)
        simple, lags = last[:, chosen].unsqueeze(-1), None
        if self.periods is not None:
            first = torch.where(place[b][:, chosen] < 0, 0.0, last[:, chosen])
            sampled = measured[..., chosen] & is_sample.unsqueeze(-1)
            samples, gap = values[..., chosen].masked_fill(~sampled, 0.0), self.gap
            read = first, samples[b], sampled[b], since_end[b], lead_time
            simple = forecast_simply(*read, periods=self.periods, gap=gap)
            lags = look_back(samples, sampled, since_end, gap=gap)[b] if with_lags else None
            last = last.clamp(-_FARTHEST, _FARTHEST)
        inputs = (last, has_last | known, age, lead_time, phase, simple, lags)
        scales = (rows.level[b], rows.unit[b], rows.scale[chosen])
        return ReadQueries(b, j, *inputs, *scales), output, h

    def _scale_rows(
        self, x: Tensor, dt: Tensor | None, mask: Tensor | None, observed: Tensor | None
    ) -> WindowRows:
        """Return samples and queries as the cell reads them."""
        is_sample, is_query = find_queries(x, mask, self.features + self.phases)
        valid = is_sample | is_query
        measured = is_sample.unsqueeze(-1)
        if observed is not None:
            measured = observed[..., : self.features] & valid[..., None]
        values = x[..., : self.features].masked_fill(~measured, 0.0)
        measured = measured.expand_as(values)
        scale = self._update_scale(values, measured)
        values = values / scale
        gaps = torch.ones_like(x[..., 0]) if dt is None else dt.to(x)
        # Differences of long times need more digits than the times themselves.
        wide = torch.float32 if x.device.type == "mps" else torch.float64
        clock = gaps.masked_fill(~valid, 0.0).cumsum(1, dtype=wide)
        chosen = list(self.targets)
        level, unit = values.new_zeros(len(x), len(chosen)), values.new_ones(len(x), len(chosen))
        if self.periods is not None:
            values, level, unit = centre(values, measured, is_sample, chosen)
        inputs = values, measured, x[..., self.features : -1]
        return WindowRows(is_sample, is_query, *inputs, gaps, clock, level, unit, scale)

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

    def _read(self, rows: WindowRows, latest: Tensor, length: int) -> Tensor:
        """Return the state after the samples, which end before a step, (B, S)."""
        read = (rows.values, rows.measured, latest, rows.gaps, rows.is_sample, rows.phases)
        values, measured, latest, gaps, mask, phases = (part[:, :length] for part in read)
        h: Tensor
        if self.rnn.uses_observed:
            inputs, there = torch.cat([values, phases], -1), pad_true(measured, self.phases)
            _, h = self.rnn(inputs, dt=gaps, mask=mask, observed=there)
            return h
        filled = values.gather(1, latest.clamp(min=0)).masked_fill(latest < 0, 0.0)
        inputs = torch.cat([filled, measured.to(values.dtype), phases], -1)
        _, h = self.rnn(inputs, dt=gaps, mask=mask)
        return h
