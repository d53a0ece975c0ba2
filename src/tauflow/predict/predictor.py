"""Predictions in the units and names of the data that a model was trained on."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from tauflow._internal.optional_deps import require
from tauflow._internal.sanitize import format_count
from tauflow.batch import SequenceBatch
from tauflow.cells.base import first_parameter
from tauflow.data.card import DatasetCard, TaskData
from tauflow.errors import ArgumentError, TauflowError
from tauflow.evaluation.certainty import Certainty, check_certainty_options, fit_certainty
from tauflow.evaluation.thresholds import Rule
from tauflow.tabular.schema import Schema
from tauflow.tabular.transform import BATCH_SIZE, NewTable, read_new_table
from tauflow.training.eval_mode import evaluation_mode
from tauflow.training.evaluation_loop import predict as predict_batch
from tauflow.training.objectives import AnyScore

from .files import save_predictor
from .predictions import (
    SPREAD,
    Answer,
    AnswerForm,
    compute_extras,
    make_class_answer,
    make_prediction_frame,
)

if TYPE_CHECKING:
    from pandas import DataFrame

    from .explanation import Explanation

_NUMPY_DTYPES: dict[torch.dtype, type[np.floating[Any]]] = {
    torch.float16: np.float16,
    torch.float64: np.float64,
}
"""In which a table is read; for others, such as bfloat16, in single precision."""


class Predictor:
    """A trained model that predicts in the units of its training data.

    ``tauflow run`` leaves one in the folder of every run, see :func:`tauflow.load_predictor`. Of a
    model trained in Python it is made by :meth:`from_data`.

    Args:
        model: the trained model; answers are computed on its device, in evaluation mode,
            and from a table in its dtype.
        card: of the data.
        schema: of a user's own table, which columns are what, and their scaling.
        observed: whether the batches that the model was trained on said which features were
            missing, rather than inputs or nothing. A model that says ``uses_observed = True``, as
            tauflow's do where they take that mask, is told in any case.
        certainty: what was learned from the validation split, see :meth:`from_data`.
    """

    def __init__(
        self,
        model: nn.Module,
        card: DatasetCard,
        schema: Schema | None = None,
        *,
        observed: bool = False,
        certainty: Certainty | None = None,
    ) -> None:
        self.model, self.card, self.schema, self.observed = model, card, schema, observed
        self.certainty = Certainty() if certainty is None else certainty

    @classmethod
    def from_data(
        cls,
        model: nn.Module,
        data: TaskData,
        *,
        calibrate: str | None = None,
        threshold: Rule | None = None,
        intervals: bool = False,
        positive: int = 1,
    ) -> "Predictor":
        """Return the predictor of a model that was trained on ``data``.

        Args:
            model: the model.
            data: what it was trained on; from the validation split is learned what follows.
            calibrate: ``"temperature"`` or ``"isotonic"``: how probabilities are corrected, see
                :func:`tauflow.evaluation.calibrate`.
            threshold: a probability, or how it is chosen, see
                :func:`tauflow.evaluation.choose_threshold`: the class ``positive`` is predicted
                from that probability on. By default the most likely class is.
            intervals: whether intervals of values are made, see
                :class:`tauflow.evaluation.Conformal`.
            positive: number of the class that the threshold is of, 0 or 1.

        Raises:
            ArgumentError: there is no validation split, or targets are of another kind.
        """
        check_certainty_options(data, calibrate, threshold, intervals)
        model, certainty = fit_certainty(
            *(model, data),
            calibrate=calibrate,
            threshold=threshold,
            intervals=intervals,
            positive=positive,
        )
        observed = data.train.observed is not None
        return cls(model, data.card, data.schema, observed=observed, certainty=certainty)

    def __repr__(self) -> str:
        return f"Predictor({type(self.model).__name__} on {self.card.name!r}, {self.card.task})"

    def predict(
        self,
        data: Any,
        *,
        interval: float | None = None,
        spread: bool = False,
        tidy: bool = False,
        lead_time: float | None = None,
        delimiter: str | None = None,
        decimal: str | None = None,
    ) -> "Tensor | DataFrame":
        """Predict classes, or values in the units of the data.

        Of a table no column of targets is needed. The answer has a row for each id, or for each of
        its rows where there is a target per row, ordered by id as they first occur and by time:
        first the id, then the time, then the class, text or number as in the table, or the values.
        A forecast says in one more column what time it is for, and over a horizon in one for each
        of its rows, so many median time steps of the training data after the last row.

        Args:
            data: a table as :func:`tauflow.data.from_table` takes it, or the path of a CSV file,
                with the columns of the one that the model was trained on; or batches of sequences.
            interval: share of values, such as 0.9, that intervals are to hold: their ends are two
                columns more after each value, ``"x low"`` and ``"x high"``.
            spread: whether a column more, ``"x std"``, holds the standard deviation over the
                members of an ensemble.
            tidy: one row for each id, time and target, and of intervals for each ``quantile``, of
                which that of the prediction itself is empty; of classes one row for each class,
                with its probability and whether it is the predicted one. Times are those that
                answers are for, and dates are of pandas.
            lead_time: see :meth:`read_table`.
            delimiter: of the cells of a CSV file; by default that of the training.
            decimal: ``"."`` or ``","``, before the decimals of numbers that are text; by default
                as in the training.

        Returns:
            Of a table a data frame of pandas; of a batch a tensor, classes, or 0 and 1 of a binary
            task, (B,) or (B, T); else values, or several labels, (B, O) or (B, T, O). Entries at
            padding mean nothing. With ``interval`` or ``spread`` one more axis has the value, the
            ends, and the deviation.

        Raises:
            ArgumentError: the model was trained on no table, and ``data`` is no batch;
                ``lead_time`` is missing or not needed; or a feature has missing values, and the
                model neither takes ``observed`` nor has an input that says so.
            UnknownNameError: there is no such column.
            DataError: a cell, named by row and column, does not hold what it should.
            TimeError: times run backwards, or are dates here and numbers there.
        """
        form = AnswerForm(interval=interval, spread=spread, tidy=tidy)
        return self._predict(data, form, lead_time, delimiter, decimal)

    def predict_proba(
        self,
        data: Any,
        *,
        spread: bool = False,
        lead_time: float | None = None,
        delimiter: str | None = None,
        decimal: str | None = None,
    ) -> "Tensor | DataFrame":
        """Predict how likely each class is; see :meth:`predict`.

        Returns:
            Of a table a data frame, with one column for each class, named by it as text, in place
            of one, of several labels ``"label class"``; of a batch (B, C) or (B, T, C).

        Raises:
            ArgumentError: the task has no classes; else as of :meth:`predict`.
        """
        form = AnswerForm(proba=True, spread=spread)
        return self._predict(data, form, lead_time, delimiter, decimal)

    def read_table(
        self,
        data: Any,
        *,
        lead_time: float | None = None,
        delimiter: str | None = None,
        decimal: str | None = None,
    ) -> NewTable:
        """Read a table as that of the training was; see :meth:`predict`."""
        if self.schema is None:
            raise ArgumentError(
                f"{self.card.name!r} is no table of your own, so that nothing says which columns "
                f"its inputs are. Give a SequenceBatch, not {type(data).__name__}."
            )
        return read_new_table(
            self.schema,
            data,
            observed=self.observed or getattr(self.model, "uses_observed", False) is True,
            dtype=_NUMPY_DTYPES.get(self.dtype, np.float32),
            lead_time=lead_time,
            delimiter=delimiter,
            decimal=decimal,
        )

    def iter_predictions(
        self, new_table: NewTable, *, proba: bool = False, **form: Any
    ) -> Iterator["DataFrame"]:
        """Yield the answers for each of ``new_table.plan_batches()``, to save memory.

        Args:
            new_table: what :meth:`read_table` returned.
            proba: whether to answer as :meth:`predict_proba` does, and not as :meth:`predict`.
            **form: ``interval``, ``spread`` and ``tidy``, as for :meth:`predict`.
        """
        asked = AnswerForm(proba=proba, **form)
        asked.check(self.card, self.certainty)
        assert self.schema is not None
        for first, last in new_table.plan_batches():
            batch = new_table.batch(first, last)
            batch = replace(batch, x=batch.x.to(self.dtype))
            try:
                prediction = self._predict_batch(batch, asked)
                yield make_prediction_frame(prediction, new_table, self.schema, first, last, asked)
            except TauflowError:
                raise
            except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
                raise ArgumentError(
                    f"what is known of {self.card.name!r} does not fit this table or this model "
                    f"({error!r}). Load the predictor again from its source."
                ) from error

    def explain(
        self,
        data: Any,
        *,
        method: str = "integrated_gradients",
        output: str | None = None,
        ids: Sequence[Any] | None = None,
        max_steps: int = 1024,
        lead_time: float | None = None,
        delimiter: str | None = None,
        decimal: str | None = None,
    ) -> "Explanation":
        """Say which value of which feature at which time moved each answer.

        Of a model that answers at every row, the answer at the last row of each id is explained.
        Times are held fixed.

        Args:
            data: a table, as for :meth:`predict`.
            method: ``"integrated_gradients"``, contributions that add up to the difference between
                the answer and the one for a mean value everywhere; or ``"occlusion"``, what the
                answer loses without one value, or without its being measured.
            output: name of the value or class to explain; by default the only value, or of each id
                the class that is predicted.
            ids: those to explain, as in the table or their texts; by default all.
            max_steps: gradients that integrated gradients take at most; more are taken until the
                contributions add up to one per cent.
            lead_time: see :meth:`predict`.
            delimiter: see :meth:`predict`.
            decimal: see :meth:`predict`.

        Raises:
            ArgumentError: there are several values to predict, and ``output`` names none; ``ids``
                are empty; or as for :meth:`predict`.
            UnknownNameError: there is no such method, output or id.
        """
        from .explanation import Explainer

        read = self.read_table(data, lead_time=lead_time, delimiter=delimiter, decimal=decimal)
        read.compare_with_training()
        return Explainer(self, read, method, output, max_steps).select_ids(ids).explain()

    def score_anomalies(
        self,
        data: Any,
        *,
        calibrate_on: Any = None,
        delimiter: str | None = None,
        decimal: str | None = None,
    ) -> "DataFrame":
        """Return how surprising each value of a table is, given all rows of its id before it.

        Args:
            data: a table, as for :meth:`predict`.
            calibrate_on: another one, that is as it should be and that the model was not trained
                on; by default ``data``, so that a probability is the share of its values that are
                as surprising.
            delimiter: see :meth:`predict`.
            decimal: see :meth:`predict`.

        Returns:
            A frame with one row per measured value that was forecast. Its columns are id, time,
            ``feature``, ``value``, ``forecast`` from the row before, ``score``, their difference
            divided by its standard deviation at such a time step, and ``probability``, that of an
            absolute score as large, by its rank among those of ``calibrate_on``.

        Raises:
            ArgumentError: the model does not predict the next row, or knows columns ahead.
            DataError: a feature has fewer than 20 values to calibrate by.
        """
        from .anomalies import score_anomalies

        read = {"delimiter": delimiter, "decimal": decimal}
        return score_anomalies(self, data, calibrate_on, read)

    def permutation_importance(
        self,
        batch: SequenceBatch,
        *,
        metric: AnyScore | None = None,
        repeats: int = 5,
        seed: int = 0,
    ) -> "DataFrame":
        """Return how much worse a score becomes if a feature is permuted, one row per feature.

        See :func:`tauflow.analysis.permutation_importance`; a static feature is permuted between
        ids, and others between all rows. Scores of values are in the units of the table.

        Args:
            batch: with targets, read as that of the training was, such as the ``test`` part of
                :func:`tauflow.data.read_csv`.
            metric: name of a metric, a :class:`tauflow.training.Score` or a function; by default
                that of the data.
            repeats: permutations of each feature.
            seed: of the permutations.

        Returns:
            ``feature``, ``importance``, the mean over permutations, and ``std``; the largest first.

        Raises:
            ArgumentError: the model was trained on no table, or the batch has other inputs.
        """
        from .explanation import compute_permutation_importance

        return compute_permutation_importance(self, batch, metric, repeats, seed)

    def save(self, path: str | Path) -> None:
        """Write the predictor to a file that :func:`tauflow.load_predictor` reads.

        It holds no row of the data and no id. The file is replaced in one step.

        Args:
            path: by convention ending in ``.safetensors``.

        Raises:
            ArgumentError: a part of the model is not tauflow's, see :func:`tauflow.save`.
        """
        save_predictor(self, Path(path))

    def _predict(
        self,
        data: Any,
        form: AnswerForm,
        lead_time: float | None,
        delimiter: str | None,
        decimal: str | None,
    ) -> "Tensor | DataFrame":
        form.check(self.card, self.certainty)
        if isinstance(data, SequenceBatch):
            pieces = range(0, max(1, len(data)), BATCH_SIZE)  # of no sequences an empty answer
            answers = [self._predict_batch(data[s : s + BATCH_SIZE], form) for s in pieces]
            return torch.cat([answer.stack() for answer in answers])
        pandas = require("pandas", extra="tables")
        read = self.read_table(data, lead_time=lead_time, delimiter=delimiter, decimal=decimal)
        read.compare_with_training()
        return pandas.concat(self.iter_predictions(read, **vars(form)), ignore_index=True)

    @property
    def dtype(self) -> torch.dtype:
        """What the model computes in, so that its inputs have to be in it, too."""
        parameter = first_parameter(self.model)
        is_number = parameter is not None and parameter.is_floating_point()
        return parameter.dtype if parameter is not None and is_number else torch.float32

    @torch.no_grad()
    def _predict_batch(self, batch: SequenceBatch, form: AnswerForm) -> Answer:
        """Return classes, how likely they are, or values, on the CPU."""
        batch = batch.to(next(self.model.parameters(), torch.empty(0)).device)
        task = self.card.task
        with evaluation_mode(self.model):
            outputs = predict_batch(self.model, batch).cpu()
            if self.schema is not None:
                self._check_shape(outputs, batch)
            how = (form, task, self.certainty, self.schema)
            extras = compute_extras(self.model, batch, outputs, *how)
        if task != "regress":
            threshold = self.certainty.threshold
            return make_class_answer(outputs, extras, form, task, threshold)
        if self.schema is None:
            return Answer(outputs, extras)
        unscale, scale = self.schema.unscale, self.schema.y_scale
        assert scale is not None
        scaled = [(n, value * scale if n == SPREAD else unscale(value)) for n, value in extras]
        return Answer(unscale(outputs), scaled)

    def _check_shape(self, outputs: Tensor, batch: SequenceBatch) -> None:
        """Raise :class:`ArgumentError` unless predictions are those that the data ask for."""
        axes = batch.x.shape[: 2 if self.card.per_step else 1]
        if outputs.shape != (*axes, self.card.target_size):
            each = "row" if self.card.per_step else "sequence"
            raise ArgumentError(
                f"{type(self.model).__name__} gives predictions of shape {tuple(outputs.shape)}, "
                f"expected {(*axes, self.card.target_size)}, as {self.card.name!r} has "
                f"{format_count(self.card.target_size, 'value')} or classes to predict for each "
                f"{each}. Build the model with return_sequences={self.card.per_step} and that many "
                "outputs."
            )
