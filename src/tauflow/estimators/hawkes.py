"""Which event comes next in a stream, and when: neural point processes."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from tauflow._internal.optional_deps import require
from tauflow.batch import SequenceBatch
from tauflow.errors import ArgumentError, DataError, OptionError, TimeError
from tauflow.models.neural_hawkes import POINT_PROCESSES, NeuralHawkes
from tauflow.tabular.cell_values import Floats, to_durations
from tauflow.tabular.sequence_tables import is_table
from tauflow.tabular.sequences import Sequences, format_names
from tauflow.tabular.times import check_zones
from tauflow.training import Recipe, Score, train
from tauflow.training.callbacks import AnyCallback
from tauflow.training.defaults import DEFAULT_HIDDEN_SIZE, DEFAULT_RECIPE

from .event_streams import read_event_streams
from .files import SavableEstimator
from .state import restore_on_failure
from .targets import split_validation
from .training import AUTO, LearningTask, build_recipe, select_device

if TYPE_CHECKING:
    from pandas import DataFrame
    from typing_extensions import Self

_BATCH_SIZE = 512  # streams of a pass that predicts


class _Likelihood(nn.Module):
    """Gives the log-likelihood of streams, whose last row is the end of the observation."""

    def __init__(self, process: NeuralHawkes) -> None:
        super().__init__()
        self.process = process

    def forward(
        self, x: Tensor, *, dt: Tensor | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, None]:
        assert dt is not None
        assert mask is not None
        t, lengths = dt.cumsum(1, dtype=_find_time_dtype(dt.device)), mask.sum(1) - 1
        types, end = x[:, :, 0].long(), t.gather(1, lengths[:, None])[:, 0]
        # What is after the end is padding, and what rounding puts after it is at the end.
        t = torch.minimum(t, end[:, None])
        likelihood = self.process.log_likelihood(
            types, t, end, lengths=lengths, integral=self.process.training_integral
        )
        return likelihood[:, None], None


_LOSS = Score(
    "negative log-likelihood per event",
    "values",
    lambda prediction, y: -prediction,
    counts=lambda prediction, y: y.flatten(),
)
"""Targets are the mean number of events: that of a batch would weigh streams by their batch."""


class _LearnedProcess:
    """Types of what ``fit`` learns, which are no parameters; files hold these attributes."""

    classes_: NDArray[Any]
    module_: NeuralHawkes
    time_unit_: float
    _columns: Mapping[str, str]
    _dated: bool
    _zoned: bool | None


@dataclass(kw_only=True, eq=False, repr=False)
class SequenceHawkes(SavableEstimator, BaseEstimator, _LearnedProcess):  # type: ignore[misc]
    """Predict the next event of a stream of events of several types: its type and its time.

    The model is a :class:`tauflow.models.NeuralHawkes` or a :class:`tauflow.zoo.S2P2`, fitted by
    maximum likelihood. X is a data frame of pandas, Polars or Arrow, or a mapping of columns, with
    one row per event: the id of its stream, its time (numbers, or dates, which count in seconds)
    and its type.

    Source: Mei & Eisner 2017, "The neural Hawkes process: a neurally self-modulating multivariate
    point process".

    Args:
        model: ``"neural-hawkes"``, whose state is that of a continuous-time LSTM, or ``"s2p2"``:
            layers of linear state spaces.
        hidden_size: neurons of the continuous-time LSTM, or width of the layers.
        options: further arguments of the model's constructor, such as ``layers``.
        epochs: passes over the training data, at most.
        lr: learning rate of Adam.
        batch_size: streams per step.
        recipe: further fields of :class:`tauflow.Recipe`, or a whole one, as of
            :class:`tauflow.estimators.SequenceClassifier`.
        validation_fraction: share of the streams that chooses the best epoch; ``"auto"``: 0.15 of
            20 streams or more, and none of fewer, where the last epoch is kept.
        patience: epochs without a better likelihood of the validation data after which training
            stops; ``"auto"``: 10 with validation data.
        random_state: of the first weights, the order of the batches and the validation split.
        callbacks: as of :class:`tauflow.estimators.SequenceClassifier`.
        device: where to train and predict; ``"auto"`` is the accelerator if there is one.
        time_unit: ``"auto"``: the mean time between events of the training data is 1 for the
            network; or how long that is.
        verbose: 1 for a progress bar.

    Attributes:
        classes_: the types of events, sorted, (K,).
        module_: the process.
        time_unit_: how long a time of 1 of the process is.
        result_: what :func:`tauflow.train` returned.
    """

    model: str = "neural-hawkes"
    hidden_size: int = DEFAULT_HIDDEN_SIZE
    options: Mapping[str, Any] | None = None
    epochs: int = DEFAULT_RECIPE.epochs
    lr: float = DEFAULT_RECIPE.lr
    batch_size: int = DEFAULT_RECIPE.batch_size
    recipe: Recipe | Mapping[str, Any] | None = None
    validation_fraction: float | str = AUTO
    patience: int | str | None = AUTO
    random_state: Any = None
    callbacks: Sequence[AnyCallback] | None = None
    device: str = "cpu"
    time_unit: float | str = AUTO
    verbose: int = 0

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False  # X is a table of events
        tags.input_tags.string = True
        return tags

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        id: str,
        time: str,
        type: str,
        start: Any = None,
        end: Any = None,
        ids: Any = None,
        validation: Any = None,
    ) -> "Self":
        """Learn the types, the unit of time and the process.

        Args:
            X: the events, one per row; those of a stream in the order of their times. Events at one
                time are taken in the order of the rows. A row with neither time nor type says that
                nothing happened in its stream; it takes ``start`` and ``end``.
            y: not used.
            id: column that says which stream an event belongs to.
            time: column of its time.
            type: column of its type: text, numbers or booleans.
            start: when the observation of each stream began, in the unit of the times: a number, or
                a date, for all; or the name of a column with one value per stream. That nothing
                happened until the first event is information, too. By default it is the time of the
                first event.
            end: when it ended, likewise; by default at the last event.
            ids: streams that were observed, (N,): in those without a row in X nothing happened, and
                every stream with a row counts whether it is named or not. It takes ``start`` and
                ``end`` for all.
            validation: events of other streams to choose the best epoch by, or a mapping of ``X``,
                ``start``, ``end`` and ``ids``.

        Returns:
            Itself.

        Raises:
            ArgumentError: X is no table.
            UnknownNameError: there is no such column.
            DataError: a row lacks its id or type, no stream has an event, or validation data have
                other types.
            TimeError: times are missing, decrease, or lie before the start or after the end.
        """
        with restore_on_failure(self):
            self._columns = {"id": id, "time": time, "type": type}
            streams = self._read(X, start, end, ids, reset=True)
            random = check_random_state(self.random_state)
            seed, held = int(random.randint(2**31)), None
            share = self.validation_fraction if validation is None else 0.0
            train_indices, out = split_validation(len(streams), share, random, None)
            if validation is not None:
                parts = validation if isinstance(validation, Mapping) else {}
                held_parts = parts if is_table(parts.get("X")) else {"X": validation}
                bounds = (held_parts.get(name) for name in ("start", "end", "ids"))
                held = self._read(held_parts["X"], *bounds, reset=False)
            elif len(out):
                held = streams.select(out)
            self._train(streams.select(train_indices), held, seed)
        return self

    def predict(
        self, X: Any, *, start: Any = None, now: Any = None, ids: Any = None
    ) -> NDArray[Any]:
        """Return the most probable type of the next event of each stream, (N,).

        Args:
            X: events as for :meth:`fit`; streams are in the order in which they first occur.
            start: as for :meth:`fit`.
            now: a time at or after the last event of each stream until which no other came, as
                ``end`` of :meth:`fit`; by default that of the last event.
            ids: as for :meth:`fit`; those without an event come last.
        """
        chosen = self.predict_proba(X, start=start, now=now, ids=ids).argmax(1)
        predicted: NDArray[Any] = self.classes_[chosen]
        return predicted

    def predict_proba(
        self, X: Any, *, start: Any = None, now: Any = None, ids: Any = None
    ) -> NDArray[Any]:
        """Return the probability of each type of the next event, (N, K); see :meth:`predict`."""
        return self._predict_next(self._read_new(X, start, now, ids))[1]

    def predict_time(
        self, X: Any, *, start: Any = None, now: Any = None, ids: Any = None
    ) -> NDArray[Any]:
        """Return the expected time from ``now`` to the next event, (N,); see :meth:`predict`.

        It is in the unit of the times, and ``timedelta64`` where these are dates.
        """
        streams = self._read_new(X, start, now, ids)
        return to_durations(self._predict_next(streams)[0] - streams.y, dated=streams.dated)

    def predict_next(
        self, X: Any, *, start: Any = None, now: Any = None, ids: Any = None
    ) -> "DataFrame":
        """Return a frame of the next event of each stream; see :meth:`predict`.

        Its columns are the id; ``"in"``, the expected time from ``now``, as of
        :meth:`predict_time`; the type; and one for each
        type with its probability, ``"P(type)"``.
        """
        pandas, streams = require("pandas", extra="tables"), self._read_new(X, start, now, ids)
        time, probability = self._predict_next(streams)
        waiting_times = to_durations(time - streams.y, dated=streams.dated)
        columns = {self._columns["id"]: streams.ids, "in": waiting_times}
        columns[self._columns["type"]] = self.classes_[probability.argmax(1)]
        shares = {
            f"P({name})": share for name, share in zip(self.classes_, probability.T, strict=True)
        }
        return pandas.DataFrame(columns | shares)

    def score(
        self, X: Any, y: Any = None, *, start: Any = None, end: Any = None, ids: Any = None
    ) -> float:
        """Return the log-likelihood per event, in the unit of the times of X.

        Args:
            X: events as for :meth:`fit`.
            y: not used.
            start: as for :meth:`fit`.
            end: as for :meth:`fit`.
            ids: as for :meth:`fit`.
        """
        streams, total = self._read_new(X, start, end, ids), 0.0
        for piece in streams.iter_batches(_BATCH_SIZE):
            with torch.no_grad():
                types, t, end_of = self._to_tensors(piece)
                lengths = torch.from_numpy(piece.lengths).to(t.device)
                likelihood = self.module_.log_likelihood(types, t, end_of, lengths=lengths)
            total += float(likelihood.double().sum())
        return total / len(streams.values) - float(np.log(self.time_unit_))

    # Reading.

    def _read_new(self, X: Any, start: Any, end: Any, ids: Any) -> Sequences:
        check_is_fitted(self)
        return self._read(X, start, end, ids, reset=False)

    def _read(self, X: Any, start: Any, end: Any, ids: Any, *, reset: bool) -> Sequences:
        streams = read_event_streams(X, self._columns, start, end, ids, is_new=not reset)
        if reset:
            self._dated, self.classes_ = streams.dated, np.unique(streams.values)
            self._zoned = streams.zoned
        if streams.dated is not self._dated:
            had, has = ("dates", "numbers") if self._dated else ("numbers", "dates")
            raise TimeError(f"the estimator was fitted to times that are {had}; these are {has}.")
        zoned: bool | None = getattr(self, "_zoned", None)  # none in old files
        check_zones(streams.zoned, zoned, "these events", "the fit")
        unknown = ~np.isin(streams.values, self.classes_)
        if unknown.any():
            raise DataError(
                f"column {self._columns['type']!r} holds {streams.values[unknown][0]!r}, and the "
                "estimator was fitted to the types "
                f"{format_names(list(map(str, self.classes_)), 12)}."
            )
        return replace(streams, values=np.searchsorted(self.classes_, streams.values))

    # Training and predicting.

    def _train(self, learned: Sequences, held: Sequences | None, seed: int) -> None:
        self.time_unit_ = self._resolve_unit(learned)
        model = _Likelihood(self._build_process(seed))
        settings = {n: getattr(self, n) for n in ("epochs", "lr", "batch_size", "patience")}
        task = LearningTask("regress", 1, _LOSS, _LOSS)
        recipe = build_recipe(self.recipe, settings, task, has_validation=held is not None)
        self.result_ = train(
            model,
            train=self._make_batch(learned),
            valid=None if held is None else self._make_batch(held),
            loss=_LOSS,
            metric=_LOSS,
            recipe=recipe,
            seed=seed,
            callbacks=self.callbacks or (),
            device=select_device(self.device),
            progress=bool(self.verbose),
        )
        self.module_ = model.process.eval()

    def _build_process(self, seed: int) -> NeuralHawkes:
        kind, options = POINT_PROCESSES[self.model], dict(self.options or {})
        arguments = inspect.signature(kind).parameters.values()
        known = [each.name for each in arguments if each.kind is each.KEYWORD_ONLY]
        if unknown := [name for name in options if name not in known]:
            takes = f"It takes: {', '.join(known)}." if known else "It takes none."
            raise OptionError(f"{self.model} has no option {unknown[0]!r}. {takes}")
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            return kind(len(self.classes_), self.hidden_size, **options)

    def _resolve_unit(self, streams: Sequences) -> float:
        if self.time_unit != AUTO:
            unit = float(self.time_unit)
            if not unit > 0:
                raise ArgumentError(f"time_unit must be 'auto' or above 0, got {self.time_unit!r}.")
            return unit
        total = float(streams.y.sum())
        if not total > 0:
            raise TimeError("the observations of all streams are of no length. Give start or end.")
        return total / len(streams.values)

    def _make_batch(self, streams: Sequences) -> SequenceBatch:
        """Return a batch of streams with one row more, for the end of the observation."""
        types, t, end = self._to_tensors(streams, "cpu")
        lengths = torch.from_numpy(streams.lengths)
        rows = torch.arange(t.shape[1] + 1)
        t = torch.cat([t, end[:, None]], 1).where(rows < lengths[:, None], end[:, None])
        dt = torch.diff(t, prepend=torch.zeros_like(end)[:, None], dim=1).float()
        x = nn.functional.pad(types, (0, 1)).unsqueeze(-1).float()
        y = torch.full((len(t), 1), len(streams.values) / len(t))
        return SequenceBatch(x, y, dt, rows <= lengths[:, None])

    def _to_tensors(self, streams: Sequences, device: Any = None) -> tuple[Tensor, Tensor, Tensor]:
        """Return types, (N, T), times, (N, T), and ends, (N,), in the unit of the process."""
        device = next(self.module_.parameters()).device if device is None else device

        def pad(values: NDArray[Any]) -> Tensor:
            padded = torch.from_numpy(streams.pad_rows(values))
            return padded if padded.shape[1] else padded.new_zeros(len(streams), 1)

        dtype = _find_time_dtype(torch.device(device))
        t = pad(streams.times / self.time_unit_).to(dtype)
        end = torch.from_numpy(streams.y / self.time_unit_).to(dtype)
        end = torch.maximum(end, t.amax(1))  # which rounding may have put after it
        return pad(streams.values).to(device), t.to(device), end.to(device)

    def _predict_next(self, streams: Sequences) -> tuple[Floats, Floats]:
        """Return the expected time of the next event, (N,), and the probability of each type."""
        times, probabilities = [], []
        self.module_.to(select_device(self.device))
        for piece in streams.iter_batches(_BATCH_SIZE):
            types, t, end = self._to_tensors(piece)
            lengths = torch.from_numpy(piece.lengths).to(t.device)
            forecast = self.module_.predict_next(types, t, lengths=lengths, now=end)
            times.append(forecast.time.double().cpu().numpy() * self.time_unit_)
            probabilities.append(forecast.probabilities.cpu().numpy())
        return np.concatenate(times), np.concatenate(probabilities)


def _find_time_dtype(device: torch.device) -> torch.dtype:
    """Return double precision, as times may be long after the start, where a device has it."""
    return torch.float32 if device.type == "mps" else torch.float64
