"""Why a predictor answers as it does: contributions of the values of a table to its answers."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tauflow._internal.checks import check_one_of
from tauflow._internal.optional_deps import require
from tauflow._internal.sanitize import format_count
from tauflow.analysis.attribution import REMOVALS, Answer, integrated_gradients, occlusion
from tauflow.analysis.permutation import permutation_importance
from tauflow.analysis.plots_attribution import plot_attributions
from tauflow.batch import SequenceBatch
from tauflow.data.imputation import impute_with_indicators
from tauflow.errors import ArgumentError
from tauflow.evaluation.outputs import compute_probabilities
from tauflow.plotting.palette import report_style
from tauflow.tabular.options import (
    CATEGORY_NAME_FORMAT,
    FUTURE_NAME_FORMAT,
    INDICATOR_NAME_FORMAT,
    LEAD_TIME_INPUT,
)
from tauflow.tabular.prediction_columns import check_distinct_columns
from tauflow.tabular.schema import Schema
from tauflow.tabular.transform import NewTable
from tauflow.training.eval_mode import evaluation_mode
from tauflow.training.evaluation_loop import predict
from tauflow.training.objectives import AnyScore

from .predictions import get_keys

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

    from .predictor import Predictor

METHODS = ("integrated_gradients", "occlusion")
_ATTRIBUTIONS = ("attribution", "attribution_measured")
_ANSWERS = ("output", "answer", "baseline", "residual")
_POSITION = "_position"


@dataclass(frozen=True, eq=False)
class Explanation:
    """Contributions of the values of a table to the answers for its ids.

    Args:
        answers: one row per id: the id, the ``output`` that is explained, the ``answer`` in the
            unit of the table or as a probability; by integrated gradients also ``baseline``, the
            answer if every value was the mean of the training split, and ``residual``, the part of
            their difference that the contributions miss by numerical error.
        values: one row per measured value: id, time, ``feature``, ``value`` and ``attribution``, in
            the unit of the answer. Of a static feature the time is missing. By occlusion,
            ``attribution`` is what the answer loses if the last value before takes the place of
            the value, and ``attribution_measured`` what it loses if the value is missing.
    """

    answers: "DataFrame"
    values: "DataFrame"
    _id: str | None = field(repr=False)
    _times: NDArray[np.float64] = field(repr=False)
    _time_label: str = field(repr=False)
    _answer_format: str = field(repr=False)

    def summarize(self) -> "DataFrame":
        """Return one row per feature: its mean absolute contribution to an answer.

        The absolute values of an id are added up over its times, and averaged over ids; ``share``
        is the part of the sum over features. The largest come first.
        """
        pandas = require("pandas", extra="tables")
        columns = [name for name in self.values if str(name).startswith("attribution")]
        total = self.values[columns].abs().groupby(self.values["feature"], sort=False).sum()
        total /= len(self.answers)
        total["share"] = total["attribution"] / (total["attribution"].sum() or 1.0)
        total = total.sort_values("attribution", ascending=False, kind="stable").reset_index()
        assert isinstance(total, pandas.DataFrame)
        return total

    def plot(self, id: Any = None, *, features: int = 6) -> "Figure":
        """Draw the series of one id, each with its contributions as a strip of colours above it.

        Args:
            id: as in the table, or its text; needed unless there is a single one.
            features: how many features to draw, those with the largest contributions.

        Raises:
            ArgumentError: there are several ids, and none is given.
            UnknownNameError: there is no such id.
        """
        here = np.ones(len(self.values), np.bool_)
        answer = self.answers.iloc[0]
        if id is None and len(self.answers) > 1:
            raise ArgumentError(
                f"there are {format_count(len(self.answers), 'id')}: say which to draw, id=..."
            )
        if id is not None and self._id is not None:
            names = self.answers[self._id].astype(str)
            check_one_of(names.tolist(), id=str(id))
            here = (self.values[self._id].astype(str) == str(id)).to_numpy()
            answer = self.answers[(names == str(id)).to_numpy()].iloc[0]
        series = {}
        for name, rows in self.values[here].groupby("feature", sort=False).indices.items():
            part = self.values[here].iloc[rows]
            series[str(name)] = (
                self._times[here][rows],
                part["value"].tolist(),
                part["attribution"].to_numpy(),
            )
        title = f"{self._answer_format.format(answer['output'])} = {answer['answer']:.4g}"
        title = title if self._id is None else f"{self._id} {answer[self._id]}: {title}"
        with report_style():
            return plot_attributions(
                series, title=title, time_label=self._time_label, count=features
            )


@dataclass(frozen=True, eq=False)
class Explainer:
    """A predictor and the table whose answers it explains.

    Args:
        predictor: trained on a table.
        new_table: what it read.
        method: of :data:`METHODS`.
        output: name of the value or class; by default the only value, or the class predicted.
        max_steps: of integrated gradients.

    Raises:
        ArgumentError: there are several values, and ``output`` names none.
        UnknownNameError: there is no such method, value or class.
    """

    predictor: "Predictor"
    new_table: NewTable
    method: str
    output: str | None
    max_steps: int

    def __post_init__(self) -> None:
        check_one_of(METHODS, method=self.method)
        schema, outputs = self.schema, self.schema.outputs
        if schema.labels:
            raise ArgumentError(
                "explanations are of one value, or of the classes of one target, and "
                f"{self.predictor.card.name!r} has several targets. Train on the one to explain."
            )
        if self.output is not None:
            check_one_of(outputs, output=self.output)
        elif self.predictor.card.task == "regress" and len(outputs) > 1:
            raise ArgumentError(
                f"{self.predictor.card.name!r} has several values to predict, "
                f"{', '.join(outputs)}. Name the one to explain: output={outputs[0]!r} (--output)."
            )
        before = [name for name in (schema.id, self._time_name) if name is not None]
        check_distinct_columns(before, ("feature", "value", *_ATTRIBUTIONS, *_ANSWERS))

    @property
    def schema(self) -> Schema:
        """What is known of the table of the training."""
        assert self.predictor.schema is not None  # as it has read another one
        return self.predictor.schema

    @property
    def _time_name(self) -> str:
        return self.schema.time or "row"

    def select_ids(self, ids: Sequence[Any] | None) -> "Explainer":
        """Return the same for some of the ids, by default all.

        Raises:
            ArgumentError: ids are an empty list.
            UnknownNameError: there is no such id.
        """
        if ids is None:
            return self
        if len(ids) == 0:
            raise ArgumentError(
                "ids are empty. Name one at least, or leave them out to explain all."
            )
        sequences = self.new_table.sequences
        wanted = {check_one_of(sequences.ids, id=str(id_)) for id_ in ids}
        chosen = sequences.select(np.array([id_ in wanted for id_ in sequences.ids]))
        return replace(self, new_table=replace(self.new_table, sequences=chosen))

    def explain(self) -> Explanation:
        """Return the contributions of the values to the answers."""
        pandas = require("pandas", extra="tables")
        answers, values = [], []
        with evaluation_mode(self.predictor.model):
            for first, last in self.new_table.plan_batches():
                columns, parts = self._attribute(first, last)
                answers.append(columns)
                values.append(self._list_values(first, last, parts))
        schema = self.schema
        frame = pandas.concat(values, ignore_index=True)
        times = frame.pop(_POSITION).to_numpy(np.float64)
        label = self._time_name
        if schema.dated:
            label = f"{schema.unit} since the first row"
        elif schema.time not in (None, schema.unit):
            label = f"{label} ({schema.unit})"
        shown = f"P({schema.targets[0]} = {{}})" if schema.is_class else "{}"
        answer = pandas.concat(answers, ignore_index=True)
        return Explanation(answer, frame, schema.id, times, label, shown)

    def _attribute(self, first: int, last: int) -> tuple["DataFrame", list[Tensor]]:
        """Return the answers of some ids, and contributions of their features, (B, T, F) each."""
        batch = replace(self.new_table, flagged=None).batch(first, last)
        batch = replace(batch, x=batch.x.to(self.predictor.dtype))
        with torch.no_grad():
            outputs = self._compute_answers(batch)
        if self.output is not None:
            chosen = torch.full((len(batch),), self.schema.outputs.index(self.output))
        else:  # the class that is predicted, or the only value
            chosen = outputs.argmax(-1)
        groups = list(self._groups.values())
        columns: dict[str, Any] = {"output": [self.schema.outputs[k] for k in chosen.tolist()]}
        columns["answer"] = outputs.gather(1, chosen[:, None])[:, 0].numpy()
        if self.method == METHODS[0]:
            moved = torch.zeros(batch.x.shape[2], dtype=torch.bool)
            moved[[place for group in groups for place in group]] = True
            attribution = integrated_gradients(
                self._make_answer(chosen), batch, inputs=moved, max_steps=self.max_steps
            )
            parts = [torch.stack([attribution.values[..., group].sum(-1) for group in groups], -1)]
            columns["baseline"] = attribution.baseline_outputs.numpy()
            columns["residual"] = attribution.residuals.numpy()
        else:
            texts, static = dict(self.schema.categories), self.schema.static or ()
            which: dict[str, Any] = {
                "groups": groups,
                "static": [k for k, name in enumerate(self._groups) if name in static],
                "unmasked": [k for k, name in enumerate(self._groups) if name in texts],
            }
            alone = [(self._make_answer(chosen[k : k + 1]), batch[k]) for k in range(len(batch))]
            parts = [
                torch.cat([occlusion(*each, remove=removal, **which) for each in alone])
                for removal in REMOVALS
            ]
        pandas = require("pandas", extra="tables")
        frame = pandas.DataFrame(columns)
        if self.schema.id is not None:
            rows = self.new_table.sequences.select_range(first, last)
            ids = self.new_table.table.get_original(self.schema.id, rows.rows[rows.starts])
            frame.insert(0, self.schema.id, ids)
        return frame, parts

    @cached_property
    def _groups(self) -> dict[str, list[int]]:
        """The inputs of each feature."""
        return group_inputs(self.schema)

    def _make_answer(self, chosen: Tensor) -> Answer:
        """Return the function that gives one output of each sequence; (B,), or (1,) of copies."""

        def answer(batch: SequenceBatch) -> Tensor:
            outputs = self._compute_answers(batch)
            return outputs.gather(1, chosen.expand(len(batch))[:, None])[:, 0]

        return answer

    def _compute_answers(self, batch: SequenceBatch) -> Tensor:
        """Return probabilities, or values in the units of the table, at the last step, (B, O)."""
        if self.new_table.flagged is not None:
            batch = impute_with_indicators(batch, self.new_table.flagged, fill=self.new_table.fill)
        model = self.predictor.model
        device = next(model.parameters(), torch.empty(0)).device
        outputs = predict(model, batch.to(device)).cpu()
        if outputs.ndim == 3:
            outputs = outputs[torch.arange(len(batch)), batch.lengths.cpu() - 1]
        task = self.predictor.card.task
        if task == "regress":
            return self.schema.unscale(outputs)
        return compute_probabilities(outputs.double(), task)

    def _list_values(self, first: int, last: int, parts: Sequence[Tensor]) -> "DataFrame":
        """Return one row per measured value of some ids, with its contributions."""
        pandas = require("pandas", extra="tables")
        sequences, schema = self.new_table.sequences.select_range(first, last), self.schema
        rows, valid = sequences.rows, sequences.valid
        keys = get_keys(self.new_table, rows, sequences.times)
        positions = sequences.times
        if schema.dated:  # dates count from years ago
            first_times = sequences.times[sequences.starts]
            positions = sequences.times - np.repeat(first_times, sequences.lengths)
        effects = [np.asarray(part.double().cpu())[valid] for part in parts]
        frames = []
        for place, (name, group) in enumerate(self._groups.items()):
            values, there = self._read_values(name, group, rows)
            is_static = name in (schema.static or ())
            if is_static:  # contributions of all its rows are one
                known = there[sequences.starts]
                at = sequences.starts[known]
                values_of_effects = [
                    np.add.reduceat(effect[:, place], sequences.starts)[known] for effect in effects
                ]
            else:
                at = np.flatnonzero(there)
                values_of_effects = [effect[at, place] for effect in effects]
            frame = {column: cells[at] for column, cells in keys.items()}
            times = pandas.Series(frame[self._time_name])
            frame[self._time_name] = times.mask(np.full(len(at), is_static))
            frame |= {"feature": name, "value": pandas.Series(values[at], dtype=object)}
            frame |= dict(zip(_ATTRIBUTIONS, values_of_effects, strict=False))
            frame[_POSITION] = np.full(len(at), np.nan) if is_static else positions[at]
            frame["_order"] = at
            frames.append(pandas.DataFrame(frame))
        table = pandas.concat(frames, ignore_index=True)
        owner = sequences.sequence_index[table.pop("_order").to_numpy()]
        return table.iloc[np.argsort(owner, kind="stable")]

    def _read_values(
        self, name: str, group: Sequence[int], rows: NDArray[np.int64]
    ) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Return the values of a feature in some rows, as the table has them, and where one is."""
        texts = dict(self.schema.categories)
        columns = np.stack([self.new_table.columns[place][rows] for place in group], axis=-1)
        if name in texts:
            there: NDArray[np.bool_] = np.any(columns, axis=-1)
            return np.array(texts[name], object)[columns.argmax(-1)], there
        values = columns[:, 0].astype(np.float64)
        return values, ~np.isnan(values)


def group_inputs(schema: Schema, *, with_indicators: bool = False) -> dict[str, list[int]]:
    """Return the inputs of each feature.

    What is known ahead of a later row is a feature by itself. Inputs that say how far ahead the
    rows to predict are belong to none.

    Args:
        schema: fitted.
        with_indicators: whether those that say where a feature was measured belong to it.
    """
    owners = {
        CATEGORY_NAME_FORMAT.format(name, text): name
        for name, texts in schema.categories
        for text in texts
    }
    steps = range(1, (schema.horizon or 1) + 1)
    lead_times = {LEAD_TIME_INPUT, *(FUTURE_NAME_FORMAT.format(LEAD_TIME_INPUT, n) for n in steps)}
    columns, groups = schema.list_columns(), dict[str, list[int]]()
    for place, name in enumerate(schema.inputs):
        # A column keeps its name, even if that is like the names of further inputs.
        measured = name if name in columns else name.removesuffix(INDICATOR_NAME_FORMAT.format(""))
        if measured != name:
            if with_indicators:
                groups[measured].append(place)
        elif name in columns or name not in lead_times:
            groups.setdefault(owners.get(name, name), []).append(place)
    return groups


def compute_permutation_importance(
    predictor: "Predictor",
    batch: SequenceBatch,
    metric: AnyScore | None,
    repeats: int,
    seed: int,
) -> "DataFrame":
    """Return a frame of importances; see :meth:`Predictor.permutation_importance`."""
    pandas, schema = require("pandas", extra="tables"), predictor.schema
    if schema is None or not isinstance(batch, SequenceBatch):
        raise ArgumentError(
            "permutation_importance is for a predictor of a table and a SequenceBatch with "
            f"targets, such as the test split that tauflow.data.read_csv returns, got "
            f"{type(batch).__name__} for {predictor.card.name!r}."
        )
    if batch.x.shape[2] != len(schema.inputs):
        raise ArgumentError(
            f"the batch has {format_count(batch.x.shape[2], 'input')}, and "
            f"{predictor.card.name!r} has "
            f"{len(schema.inputs)}: {', '.join(schema.inputs)}. Read it with the same options."
        )
    groups = group_inputs(schema, with_indicators=True)
    model, score = predictor.model, predictor.card.metric if metric is None else metric
    if schema.y_scale is not None and not schema.labels:
        model = _Unscaled(predictor.model, schema)
        batch = replace(batch, y=schema.unscale(batch.y))
    drops = permutation_importance(
        model,
        batch,
        metric=score,
        groups=list(groups.values()),
        static=[place for place, name in enumerate(groups) if name in (schema.static or ())],
        repeats=repeats,
        seed=seed,
    ).numpy()
    frame = pandas.DataFrame(
        {"feature": list(groups), "importance": drops.mean(1), "std": drops.std(1)}
    )
    return frame.sort_values("importance", ascending=False, kind="stable", ignore_index=True)


class _Unscaled(nn.Module):
    """A model whose predictions are in the units of the table."""

    def __init__(self, model: nn.Module, schema: Schema) -> None:
        super().__init__()
        self.model, self.schema = model, schema

    def forward(self, *args: Any, **kwargs: Any) -> tuple[Tensor, Any]:
        prediction, state = self.model(*args, **kwargs)
        return self.schema.unscale(prediction), state
