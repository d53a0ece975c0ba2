"""What the estimators share: parameters, reading X, training and running the model."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import nn

from tauflow._internal.checks import check_one_of
from tauflow.batch import SequenceBatch
from tauflow.data.scaler import StandardScaler
from tauflow.data.table.from_frame import table_from_frame
from tauflow.data.table.schema import Schema
from tauflow.errors import ArgumentError, DataError
from tauflow.models.registry import get_model_info
from tauflow.models.spec import ModelSpec, set_horizon
from tauflow.training.eval_mode import evaluation_mode
from tauflow.training.evaluation_loop import predict

from .collection import SequenceCollection, read_collection
from .files import read_estimator, upgrade_state, write_estimator
from .input_kwargs import with_input_kwargs
from .members import fit_members
from .network import build_network, resolve_options, select_device
from .parameters import EstimatorParameters
from .preparation import DTYPES, fit_schema, list_columns, make_batch, warn_ignored_values
from .ragged import Floats, RaggedSequences
from .reading import is_table, read_rows
from .state import check_option_types, check_params_match, copy_option, restore_on_failure
from .targets import (
    AUTO,
    LearningTask,
    WeightedSequences,
    align_to_sequences,
    check_sample_weight,
    split_validation,
    unpack_validation,
)

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from .input_kwargs import InputKwargs

_PREDICT_BATCH_SIZE = 512  # sequences of a forward pass that predicts


class _Learned:
    """Types of what ``fit`` learns, which are no parameters.

    Args:
        schema_: how X is read, scaled and imputed.
        _built: parameters that the network was built with.
    """

    schema_: Schema
    _built: dict[str, Any]


@dataclass(kw_only=True, eq=False, repr=False)
class AbstractSequenceEstimator(EstimatorParameters, _Learned):
    """Base of the estimators: reading data, training and running the network."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Show the shared parameters in the docstring of each estimator."""
        super().__init_subclass__(**options)
        shared = (EstimatorParameters.__doc__ or "").partition("Args:\n")[2]
        if cls.__doc__ and "{shared}" in cls.__doc__:
            cls.__doc__ = cls.__doc__.replace("{shared}", shared.strip())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.three_d_array = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "module_")

    @with_input_kwargs
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        validation: Any = None,
        **kwargs: "Unpack[InputKwargs]",
    ) -> Any:
        """Learn scaling, unit of time and network.

        A fit that fails, or is interrupted, leaves the estimator as it was: fitted as before, or
        not fitted. Callbacks can end a training and keep what it has learned.

        Args:
            X: (B, I), one step per sequence; (B, T, I); a list of (T_i, I), arrays or data frames;
                a data frame with one row per sample, with ``id``; or a
                :class:`SequenceCollection` of any of these. Data frames are of pandas,
                Polars or Arrow, and their columns are found by name; text is a category, with
                an input for each. NaN is a missing value.
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
            first, and of an ensemble for its first network; ``module_`` is the network.
        """
        with restore_on_failure(self):
            self._fit(X, y, sample_weight, validation, kwargs)
        return self

    @with_input_kwargs
    def predict(self, X: Any, **kwargs: "Unpack[InputKwargs]") -> NDArray[Any]:
        """Return one answer per sequence; of a data frame in the order of their first rows.

        Args:
            X: as for :meth:`fit`.
            {given}
        """
        return self._decode_outputs(self._predict_outputs(X, kwargs))

    @with_input_kwargs
    def score(
        self, X: Any, y: Any, sample_weight: Any = None, **kwargs: "Unpack[InputKwargs]"
    ) -> float:
        """Return the share of classes that are right, or of variance that is predicted (R²).

        Args:
            X: as for :meth:`fit`.
            y: true targets.
            sample_weight: how much each sequence counts, as for :meth:`fit`.
            {given}
        """
        check_is_fitted(self)
        rows, true = self._read_data(X, y, kwargs, reset=False)
        weight = self._check_weight(sample_weight, rows)
        return self._compute_score(true, self._decode_outputs(self._run_network(rows)), weight)

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
        return read_estimator(cls, path)

    # What a subclass says.

    _network_params: ClassVar[tuple[str, ...]] = (
        "model",
        "hidden_size",
        "options",
        "backend",
        "dtype",
    )
    _network_params += ("time_unit", "impute", "ensemble")
    """Parameters that the network and the scaling follow from."""
    _is_stratified: ClassVar[bool] = False
    _is_per_step: ClassVar[bool] = False
    _fills_gaps: ClassVar[bool] = False
    """Whether the network reads on beyond a gap, and any feature may have one."""
    _requires_y: ClassVar[bool] = True
    _is_series_2d: ClassVar[bool] = False
    """Whether an array of two axes is one sequence, and not one step of each of several."""

    def _encode_targets(self, y: NDArray[Any], *, reset: bool) -> NDArray[Any]:
        """Return checked targets, (N, ...), as training takes them, but for their scaling."""
        raise NotImplementedError

    def _make_task(self, targets: NDArray[Any], weight: Floats | None) -> LearningTask:
        """Return what there is to learn."""
        raise NotImplementedError

    def _fit_target_scaler(self, targets: NDArray[Any], weight: Floats) -> None:
        """Learn the scaling of the targets of the training part."""

    def _scale_targets(self, targets: NDArray[Any]) -> NDArray[Any]:
        """Return targets as the network is to give them."""
        return targets

    def _decode_outputs(self, outputs: NDArray[Any]) -> NDArray[Any]:
        """Return predictions of outputs of the network, (N, O)."""
        raise NotImplementedError

    def _compute_score(self, true: NDArray[Any], predicted: NDArray[Any], weight: Any) -> float:
        """Return how good predictions are."""
        raise NotImplementedError

    @property
    def _spread(self) -> str | None:
        """The head of the spread, see :class:`tauflow.SequenceModel`."""
        return None

    def _list_calibrations(self) -> list[str]:
        """Return the parameters that need validation data to calibrate the answers."""
        return []

    def _calibrate(self, held: WeightedSequences | None) -> None:
        """Learn from validation data, if parameters ask for it, how sure answers are."""

    # Reading.

    def _read_data(
        self, X: Any, y: Any, kwargs: "InputKwargs", *, reset: bool
    ) -> tuple[RaggedSequences, NDArray[Any]]:
        """Return the sequences and one target for each."""
        if y is None:
            raise ArgumentError(
                f"{type(self).__name__} requires y to be passed, but the target y is None."
            )
        if not isinstance(y, str):
            rows = self._read_rows(X, kwargs, reset=reset)
            name = getattr(y, "name", None)
            if reset and name is not None and name in getattr(self, "feature_names_in_", ()):
                raise DataError(
                    f"y is called {name!r}, and so is a column of X, which would be a feature. "
                    f"Drop it from X, or give y={name!r}."
                )
            return rows, align_to_sequences("y", y, rows)
        if not is_table(X):
            raise ArgumentError(f"y={y!r} names a column, and X is no table.")
        rows = self._read_rows(X, kwargs, reset=reset, target=y)
        if rows.target is not None:
            return rows, rows.target
        column = np.asarray(table_from_frame(X).columns[y])
        return rows, align_to_sequences("y", column, rows)

    def _check_weight(self, weight: Any, rows: RaggedSequences) -> Floats | None:
        """Return the weights of sequences, (B,), ``None`` if they all count alike."""
        if rows.ids is not None and np.ndim(weight):
            weight = align_to_sequences("sample_weight", weight, rows)
        return check_sample_weight(weight, len(rows))

    def _read_rows(
        self, X: Any, kwargs: "InputKwargs", *, reset: bool, target: str | None = None
    ) -> RaggedSequences:
        if isinstance(X, SequenceCollection):
            return read_collection(self, X, kwargs, reset=reset)
        return read_rows(
            self,
            X,
            layout=self.layout,
            is_series_2d=self._is_series_2d,
            reset=reset,
            target=target,
            **kwargs,
        )

    # Training.

    def _fit(
        self, X: Any, y: Any, sample_weight: Any, validation: Any, kwargs: "InputKwargs"
    ) -> None:
        """Learn, changing nothing in place that a fit before has learned."""
        check_option_types(self)
        goes_on = bool(self.warm_start) and hasattr(self, "module_")
        rows, y = self._read_data(X, y, kwargs, reset=not goes_on)
        weight = self._check_weight(sample_weight, rows)
        rows, y, weight = WeightedSequences(rows, y, weight).drop_zero_weight()
        targets = self._encode_targets(y, reset=not goes_on)
        random = check_random_state(self.random_state)
        seed = int(random.randint(2**31))
        share = self.validation_fraction if validation is None else 0.0
        whole = WeightedSequences(rows, targets, weight)
        learned, held = self._split_validation(whole, share, random)
        if goes_on:
            check_params_match(self, self._built)
        if validation is not None:
            held = self._read_validation(validation)
        calibrates = bool(wanted := self._list_calibrations())
        if wanted and held is None:
            raise ArgumentError(
                f"{wanted[0]}={getattr(self, wanted[0])!r} is calibrated on validation data, and "
                "there are none. Give fit validation=, validation_fraction, or more sequences."
            )
        # What calibrates must not be trained on, so that nothing is then trained on all.
        refits = share == AUTO and held is not None and not goes_on and not calibrates
        again = whole if refits else None
        self.result_ = fit_members(self, learned, held, again, seed, goes_on=goes_on)
        self._calibrate(held)

    def _split_validation(
        self, sequences: WeightedSequences, share: float | str, random: np.random.RandomState
    ) -> tuple[WeightedSequences, WeightedSequences | None]:
        """Return what to train on, and a share to validate on, if there is to be one."""
        classes = sequences.targets if self._is_stratified else None
        kept, held = split_validation(len(sequences.rows), share, random, classes)
        return sequences.select(kept), sequences.select(held) if len(held) else None

    def _initialise(
        self,
        rows: RaggedSequences,
        targets: NDArray[Any],
        weight: Floats | None,
        task: LearningTask,
        seed: int,
    ) -> None:
        """Learn the scaling, and draw a network."""
        check_one_of(DTYPES, dtype=self.dtype)
        entry = get_model_info(self.model)
        counts = np.ones(len(rows)) if weight is None else weight
        self.schema_ = fit_schema(
            self.schema_,
            rows,
            counts,
            impute=self.impute,
            observes=bool(task.query_targets) or "observed" in entry.inputs,
            fills_gaps=self._fills_gaps,
            time_unit=self.time_unit,
        )
        self._fit_target_scaler(targets, counts)
        # A copy, as a mapping of the caller's own may be changed afterwards.
        self._built = {name: copy_option(getattr(self, name)) for name in self._network_params}
        options = resolve_options(
            self.model, self._built["options"], is_causal=not self._fills_gaps
        )
        spec = ModelSpec(self.model, self.hidden_size, spread=self._spread, options=options)
        module = build_network(
            set_horizon(spec, lambda: self._to_batch(rows)),
            task,
            input_size=len(self.schema_.inputs),
            backend=self.backend,
            seed=seed,
        )
        self.module_: nn.Module = module.to(DTYPES[self.dtype])

    def _read_validation(self, validation: Any) -> WeightedSequences:
        """Return sequences of validation data."""
        X, y, weight, said = unpack_validation(validation, needs_y=self._requires_y)
        rows, y = self._read_data(X, y, said, reset=False)
        rows, y, weight = WeightedSequences(
            rows, y, self._check_weight(weight, rows)
        ).drop_zero_weight()
        return WeightedSequences(rows, self._encode_targets(y, reset=False), weight)

    def _make_batch(
        self, rows: RaggedSequences, targets: NDArray[Any], weight: Floats | None = None
    ) -> Any:
        return self._to_batch(rows, self._scale_targets(targets), weight)

    def _to_batch(
        self, rows: RaggedSequences, y: NDArray[Any] | None = None, weight: Floats | None = None
    ) -> SequenceBatch:
        """Return a batch of sequences, by default with zeros as targets, to predict."""
        return make_batch(self.schema_, rows, y, weight, DTYPES[self._built["dtype"]])

    @property
    def _feature_scaler(self) -> StandardScaler:
        """Means and scales of the columns of rows."""
        scaler, count = self.schema_.input_scaler, len(list_columns(self.schema_))
        return StandardScaler(scaler.mean[:count], scaler.scale[:count])

    # Predicting.

    def _predict_outputs(self, X: Any, kwargs: "InputKwargs") -> NDArray[Any]:
        """Return what the network gives, (N, O)."""
        check_is_fitted(self)
        return self._run_network(self._read_rows(X, kwargs, reset=False))

    def _run_network(self, rows: RaggedSequences) -> NDArray[Any]:
        """Return what the network gives, (N, O), or of one that answers at each step (R, O)."""
        return self._run_on_batches(rows, predict)

    def _run_on_batches(
        self, rows: RaggedSequences, run: Callable[[nn.Module, SequenceBatch], torch.Tensor]
    ) -> NDArray[Any]:
        """Return what a function makes of the network and batches, one entry per answer."""
        device = select_device(self.device)
        warn_ignored_values(self.schema_, rows)
        self.module_.to(device)
        found = []
        with evaluation_mode(self.module_), torch.no_grad():
            for piece in rows.iter_batches(_PREDICT_BATCH_SIZE):
                batch = self._to_batch(piece).to(device)
                outputs = run(self.module_, batch).cpu().numpy()
                found.append(outputs[piece.valid] if self._is_per_step else outputs)
        return np.concatenate(found)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take over a state; that of an earlier version has no schema."""
        super().__setstate__(upgrade_state(state))

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled, with the network where every machine can read it."""
        state: dict[str, Any] = dict(super().__getstate__())
        if self.__sklearn_is_fitted__() and next(self.module_.parameters()).device.type != "cpu":
            state["module_"] = copy.deepcopy(self.module_).cpu()
        return state
