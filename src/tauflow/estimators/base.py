"""What the estimators share: parameters, reading X, training and running the model."""

import copy
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import nn

from tauflow.data.missing import FILLS
from tauflow.data.table.from_frame import sheet_of
from tauflow.errors import ArgumentError, DataError
from tauflow.models.registry import entry_of
from tauflow.models.specified import ModelSpec, spanning
from tauflow.training import Recipe, TrainingResult, train
from tauflow.training.callbacks import AnyCallback
from tauflow.training.defaults import HIDDEN_SIZE, RECIPE
from tauflow.training.metrics import predict
from tauflow.training.modes import evaluating

from .collection import SequenceCollection, rows_of_collection
from .files import read_estimator, write_estimator
from .given import taking_times
from .network import OWN, device_of, network_of, recipe_of, recipe_of_refit
from .preparation import DTYPES, Preparation
from .reading import is_table, read_rows
from .rows import Floats, Rows
from .state import as_before_if_it_fails, check_kinds, copied, copied_network, refuse_changes
from .targets import (
    AUTO,
    Task,
    Weighed,
    checked_weight,
    parts_of,
    per_sequence,
    validation_of,
)

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from .given import Given

_PIECE = 512  # sequences of a forward pass that predicts


@dataclass(kw_only=True, eq=False, repr=False)
class AbstractSequenceEstimator(BaseEstimator):  # type: ignore[misc]
    """Base of the estimators.

    Args:
        model: catalog name, a cell's or a whole model's.
        hidden_size: neurons.
        options: everything else that the model's constructor takes, ``num_layers`` too.
        epochs: passes over the training data, at most.
        lr: learning rate of Adam.
        batch_size: sequences per step.
        recipe: fields of :class:`tauflow.Recipe` beside :data:`tauflow.training.defaults.RECIPE`,
            such as ``{"weight_decay": 0.01}``; or a whole :class:`tauflow.Recipe`, which then
            stands in for ``epochs``, ``lr``, ``batch_size`` and ``patience`` too.
        validation_fraction: share of the sequences, drawn by ``random_state``, that are kept for
            validation: the weights of the best epoch are kept. 0: all are trained on, and the last
            epoch's are kept. ``"auto"``: 0.15 of 20 sequences or more say which epoch is the best,
            and the network is then trained once more for so many epochs, on all; 0 of fewer. Not
            used if ``fit`` is given validation data.
        patience: epochs without a better score on the validation data after which training stops;
            ``None`` for all epochs. ``"auto"``: 10 with validation data.
        warm_start: whether ``fit`` goes on from the network and the scaling of the ``fit`` before,
            with a new optimizer.
        random_state: of the first weights, the order of the batches, dropout and the draw of the
            validation part: an integer for the same numbers each time, ``None``, or a
            ``RandomState``.
        callbacks: of :class:`tauflow.training.Callback`, or functions that are called with the row
            of the history of each epoch.
        device: where to train and predict; ``"auto"`` is the accelerator if there is one.
        backend: of a cell: ``"auto"``, ``"reference"`` or the name of a fused one.
        time_unit: ``"auto"``: the median gap of the training data is 1 for the model; or how long
            the gap is that is 1. Time constants begin around 1, so that other units train badly.
        impute: what stands for a missing value where the model takes no mask of what was observed:
            the ``"last"`` value of the sequence, before the first the mean, or the ``"mean"`` of
            the training part. Each feature with missing values has one more input, 1 where it was
            measured.
        layout: of 3-D arrays: ``"BTI"`` (sequences, time, features) or ``"BIT"``.
        dtype: of the network, ``"float32"`` or ``"float64"``.
        verbose: 1 for a progress bar.
    """

    model: str = "cfc"
    hidden_size: int = HIDDEN_SIZE
    options: Mapping[str, Any] | None = None
    epochs: int = RECIPE.epochs
    lr: float = RECIPE.lr
    batch_size: int = RECIPE.batch_size
    recipe: Recipe | Mapping[str, Any] | None = None
    validation_fraction: float | str = AUTO
    patience: int | str | None = AUTO
    warm_start: bool = False
    random_state: Any = None
    callbacks: Sequence[AnyCallback] | None = None
    device: str = "cpu"
    backend: str = "auto"
    time_unit: float | str = "auto"
    impute: str = FILLS[0]
    layout: str = "BTI"
    dtype: str = "float32"
    verbose: int = 0

    def __init_subclass__(cls, **options: Any) -> None:
        """Show the shared parameters in the docstring of each estimator."""
        super().__init_subclass__(**options)
        shared = (AbstractSequenceEstimator.__doc__ or "").partition("Args:\n")[2]
        if cls.__doc__ and "{shared}" in cls.__doc__:
            cls.__doc__ = cls.__doc__.replace("{shared}", shared.strip())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.three_d_array = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "module_")

    @taking_times
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        validation: Any = None,
        **given: "Unpack[Given]",
    ) -> Any:
        """Learn scaling, unit of time and network.

        A fit that fails, or is interrupted, leaves the estimator as it was: fitted as before, or
        not fitted. Callbacks can end a training and keep what it has learned.

        Args:
            X: (B, I), one step per sequence; (B, T, I); a list of (T_i, I), arrays or data frames;
                a data frame with one row per sample, with ``id``; or a
                :class:`SequenceCollection` of any of these. Data frames are of pandas,
                Polars or Arrow, and their columns are told by their names. NaN is a missing value.
            y: one target per sequence; of a data frame also one per row, all alike in a sequence,
                or the name of their column. One per id is a Series of pandas whose index holds the
                ids, in any order, or else in the order in which ids first occur.
            sample_weight: (B,), how much a sequence counts; with 0 it is left out. Of a data frame
                also one per row, as for y.
            validation: ``(X, y)`` to choose the best epoch by, or a mapping of these, of
                ``sample_weight`` and of what follows.
            {given}

        Returns:
            Itself. ``result_`` is what :func:`tauflow.train` returned, of two trainings for the
            first, ``module_`` the network.
        """
        with as_before_if_it_fails(self):
            self._fit(X, y, sample_weight, validation, given)
        return self

    @taking_times
    def predict(self, X: Any, **given: "Unpack[Given]") -> NDArray[Any]:
        """Return one answer per sequence; of a data frame in the order of their first rows.

        Args:
            X: as for :meth:`fit`.
            {given}
        """
        return self._answers(self._outputs(X, given))

    @taking_times
    def score(self, X: Any, y: Any, sample_weight: Any = None, **given: "Unpack[Given]") -> float:
        """Return the share of classes that are right, or of variance that is predicted (R²).

        Args:
            X: as for :meth:`fit`.
            y: true targets.
            sample_weight: how much each sequence counts, as for :meth:`fit`.
            {given}
        """
        check_is_fitted(self)
        rows, true = self._read(X, y, given, reset=False)
        weight = self._weight(sample_weight, rows)
        return self._score(true, self._answers(self._network(rows)), weight)

    def save(self, path: str | Path) -> None:
        """Write the fitted estimator to a file that :meth:`load` reads, without pickle.

        It holds no row of the data. Callbacks, a ``RandomState`` and ``result_`` are left out.

        Args:
            path: by convention ending in ``.safetensors``.

        Raises:
            ArgumentError: a parameter is no plain value.
        """
        check_is_fitted(self)
        write_estimator(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> "Self":
        """Read an estimator of this class that :meth:`save` wrote; its network is on the CPU.

        Raises:
            DataNotFoundError: there is no such file.
            ModelFileError: it is none of this class, is damaged, or from a newer version.
        """
        return read_estimator(cls, Path(path))

    # What a subclass says.

    _fixed: ClassVar[tuple[str, ...]] = ("model", "hidden_size", "options", "backend", "dtype")
    _fixed += ("time_unit", "impute")
    """Parameters that the network and the scaling follow from."""
    _stratified: ClassVar[bool] = False
    _needs_y: ClassVar[bool] = True
    _series: ClassVar[bool] = False
    """Whether an array of two axes is one sequence, and not one step of each of several."""

    def _encoded(self, y: NDArray[Any], *, reset: bool) -> NDArray[Any]:
        """Return checked targets, (N, ...), as training takes them, but for their scaling."""
        raise NotImplementedError

    def _task(self, targets: NDArray[Any], weight: Floats | None) -> Task:
        """Return what there is to learn."""
        raise NotImplementedError

    def _learn_scale(self, targets: NDArray[Any], weight: Floats) -> None:
        """Learn the scaling of the targets of the training part."""

    def _scaled(self, targets: NDArray[Any]) -> NDArray[Any]:
        """Return targets as the network is to give them."""
        return targets

    def _answers(self, outputs: NDArray[Any]) -> NDArray[Any]:
        """Return predictions of outputs of the network, (N, O)."""
        raise NotImplementedError

    def _score(self, true: NDArray[Any], found: NDArray[Any], weight: Any) -> float:
        """Return how good predictions are."""
        raise NotImplementedError

    # Reading.

    def _read(self, X: Any, y: Any, given: "Given", *, reset: bool) -> tuple[Rows, NDArray[Any]]:
        """Return the sequences and one target for each."""
        if y is None:
            raise ArgumentError(
                f"{type(self).__name__} requires y to be passed, but the target y is None."
            )
        if not isinstance(y, str):
            rows = self._rows(X, given, reset=reset)
            name = getattr(y, "name", None)
            if reset and name is not None and name in getattr(self, "feature_names_in_", ()):
                raise DataError(
                    f"y is called {name!r}, and so is a column of X, which would be a feature. "
                    f"Drop it from X, or give y={name!r}."
                )
            return rows, per_sequence("y", y, rows)
        if not is_table(X):
            raise ArgumentError(f"y={y!r} names a column, and X is no table.")
        rows = self._rows(X, given, reset=reset, target=y)
        if rows.target is not None:
            return rows, rows.target
        column = np.asarray(sheet_of(X).columns[y])
        return rows, per_sequence("y", column, rows)

    def _weight(self, weight: Any, rows: Rows) -> Floats | None:
        """Return the weights of sequences, (B,), ``None`` if they all count alike."""
        if rows.ids is not None and np.ndim(weight):
            weight = per_sequence("sample_weight", weight, rows)
        return checked_weight(weight, len(rows))

    def _rows(self, X: Any, given: "Given", *, reset: bool, target: str | None = None) -> Rows:
        if isinstance(X, SequenceCollection):
            return rows_of_collection(self, X, given, reset=reset)
        return read_rows(
            self,
            X,
            layout=self.layout,
            series=self._series,
            reset=reset,
            target=target,
            **given,
        )

    # Training.

    def _fit(self, X: Any, y: Any, sample_weight: Any, validation: Any, given: "Given") -> None:
        """Learn, changing nothing in place that a fit before has learned."""
        check_kinds(self)
        goes_on = bool(self.warm_start) and hasattr(self, "module_")
        rows, y = self._read(X, y, given, reset=not goes_on)
        weight = self._weight(sample_weight, rows)
        rows, y, weight = Weighed(rows, y, weight).counted()
        targets = self._encoded(y, reset=not goes_on)
        random = check_random_state(self.random_state)
        seed = int(random.randint(2**31))
        share = self.validation_fraction if validation is None else 0.0
        whole = Weighed(rows, targets, weight)
        learned, held = self._parts(whole, share, random)
        task = self._task(learned.targets, learned.weight)
        if goes_on:
            refuse_changes(self, self._built)
            self.module_: nn.Module = copied_network(self.module_)
        else:
            self._start(*learned, task, seed)
        if validation is not None:
            held = self._validation(validation)
        self.result_, recipe = self._train(learned, held, task, seed)
        again = recipe_of_refit(recipe, self.result_.best_epoch)
        if share == AUTO and held is not None and again is not None and not goes_on:
            with warnings.catch_warnings():  # which have been given
                warnings.simplefilter("ignore", UserWarning)
                task = self._task(targets, weight)
                self._start(*whole, task, seed)
                self._train(whole, None, task, seed, again)

    def _train(
        self, learned: Weighed, held: Weighed | None, task: Task, seed: int, again: Any = None
    ) -> tuple[TrainingResult, Recipe]:
        """Train, by the recipe of the parameters or once more by another one, which is returned."""
        valid = None if held is None else self._batch(*held)
        own = {name: getattr(self, name) for name in OWN}
        recipe = again or recipe_of(self.recipe, own, task, validated=valid is not None)
        result = train(
            self.module_,
            train=self._batch(*learned),
            valid=valid,
            loss=task.loss,
            metric=task.metric,
            recipe=recipe,
            seed=seed,
            device=device_of(self.device),
            progress=bool(self.verbose),
            callbacks=() if again else self.callbacks or (),
        )
        return result, recipe

    def _parts(
        self, given: Weighed, share: float | str, random: np.random.RandomState
    ) -> tuple[Weighed, Weighed | None]:
        """Return what to train on, and a share to validate on, if there is to be one."""
        classes = given.targets if self._stratified else None
        kept, held = parts_of(len(given.rows), share, random, classes)
        return given.chosen(kept), given.chosen(held) if len(held) else None

    def _start(
        self, rows: Rows, targets: NDArray[Any], weight: Floats | None, task: Task, seed: int
    ) -> None:
        """Learn the scaling, and draw a network."""
        entry = entry_of(self.model)
        counts = np.ones(len(rows)) if weight is None else weight
        self.preparation_ = Preparation.learned(
            rows,
            counts,
            impute=self.impute,
            observes="observed" in entry.reads,
            time_unit=self.time_unit,
            dtype=self.dtype,
        )
        self._learn_scale(targets, counts)
        # A copy, as a mapping of the caller's own may be changed afterwards.
        self._built = {name: copied(getattr(self, name)) for name in self._fixed}
        preparation = self.preparation_
        spec = ModelSpec(self.model, self.hidden_size, options=self._built["options"] or {})
        module = network_of(
            spanning(spec, lambda: preparation.batch(rows)),
            task,
            input_size=self.preparation_.input_size,
            backend=self.backend,
            seed=seed,
        )
        self.module_ = module.to(DTYPES[self.dtype])

    def _validation(self, given: Any) -> Weighed:
        """Return sequences of validation data."""
        X, y, weight, said = validation_of(given, needs_y=self._needs_y)
        rows, y = self._read(X, y, said, reset=False)
        rows, y, weight = Weighed(rows, y, self._weight(weight, rows)).counted()
        return Weighed(rows, self._encoded(y, reset=False), weight)

    def _batch(self, rows: Rows, targets: NDArray[Any], weight: Floats | None = None) -> Any:
        return self.preparation_.batch(rows, self._scaled(targets), weight)

    # Predicting.

    def _outputs(self, X: Any, given: "Given") -> NDArray[Any]:
        """Return what the network gives, (N, O)."""
        check_is_fitted(self)
        return self._network(self._rows(X, given, reset=False))

    def _network(self, rows: Rows) -> NDArray[Any]:
        """Return what the network gives, (N, O), or of one that answers at each step (R, O)."""
        device = device_of(self.device)
        self.preparation_.warn_of_ignored(rows)
        self.module_.to(device)
        found = []
        with evaluating(self.module_), torch.no_grad():
            for piece in rows.pieces(_PIECE):
                batch = self.preparation_.batch(piece).to(device)
                outputs = predict(self.module_, batch).cpu().numpy()
                found.append(outputs[piece.valid] if outputs.ndim == 3 else outputs)
        return np.concatenate(found)

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled, with the network where every machine can read it."""
        state: dict[str, Any] = dict(super().__getstate__())
        if self.__sklearn_is_fitted__() and next(self.module_.parameters()).device.type != "cpu":
            state["module_"] = copy.deepcopy(self.module_).cpu()
        return state
