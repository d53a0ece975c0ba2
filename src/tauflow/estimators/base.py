"""What the estimators share: parameters, reading X, training and running the model."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
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
from tauflow.errors import ArgumentError
from tauflow.models.registry import get_model_info
from tauflow.models.spec import ModelSpec, set_horizon
from tauflow.models.wrappers import ImputedInputs
from tauflow.tabular.cell_values import Floats
from tauflow.tabular.inputs import list_static_inputs
from tauflow.tabular.sequence_tables import is_table
from tauflow.tabular.sequences import Sequences
from tauflow.tabular.shift import ignore_shift
from tauflow.training.eval_mode import evaluation_mode
from tauflow.training.evaluation_loop import predict

from .automatic import fit_automatic
from .collection import SequenceCollection, read_collection
from .files import SavableEstimator, upgrade_state
from .input_kwargs import InputKwargs, with_input_kwargs
from .loaded import LearnedAttributes
from .parameters import EstimatorParameters
from .preparation import DTYPES, fit_schema, get_schema_options, make_batch, warn_ignored_values
from .reading import read_rows
from .state import check_parameters, check_params_match, copy_option, restore_on_failure
from .targets import (
    align_targets,
    align_to_sequences,
    check_sample_weight,
    plan_networks,
    split_validation,
    unpack_validation,
)
from .training import (
    AUTO,
    LearningTask,
    build_network,
    fit_networks,
    list_models,
    resolve_options,
    select_device,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

_PREDICT_BATCH_SIZE = 512  # sequences of a forward pass that predicts


@dataclass(kw_only=True, eq=False, repr=False)
class AbstractSequenceEstimator(EstimatorParameters, SavableEstimator, LearnedAttributes):
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
        with restore_on_failure(self), ignore_shift():  # what was learned before stays as it was
            check_parameters(self, self._reads_ahead)
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
        rows = self._read_data(X, y, kwargs, reset=False)
        weight = self._check_weight(sample_weight, rows)
        return self._compute_score(rows.y, self._decode_outputs(self._run_network(rows)), weight)

    # What a subclass says.

    _network_params: ClassVar[tuple[str, ...]] = ("model", "hidden_size", "options", "backend")
    _network_params += ("dtype", "time_unit", "impute", "ensemble")
    """Parameters that the network and the scaling follow from."""
    _is_stratified: ClassVar[bool] = False
    _is_ensemble: ClassVar[bool] = False
    """Whether there are several networks by default."""
    _is_per_step: ClassVar[bool] = False
    _fills_gaps: ClassVar[bool] = False
    """Whether the network reads on beyond a gap, and any feature may have one."""
    _requires_y: ClassVar[bool] = True
    _reads_ahead: ClassVar[str] = ""
    """What a model that goes backwards in time would read, if it must not read it."""
    _is_series_2d: ClassVar[bool] = False
    """Whether an array of two axes is one sequence, and not one step of each of several."""

    def _encode_targets(self, y: NDArray[Any], *, reset: bool) -> NDArray[Any]:
        """Return checked targets, (N, ...), as training takes them, but for their scaling."""
        raise NotImplementedError

    def _make_task(self, rows: Sequences) -> LearningTask:
        """Return what there is to learn."""
        raise NotImplementedError

    def _fit_target_scaler(self, rows: Sequences) -> None:
        """Learn the scaling of the targets of the training split."""

    def _scale_targets(self, targets: NDArray[Any]) -> NDArray[Any]:
        """Return targets as the network is to give them."""
        return targets

    def _decode_outputs(self, outputs: NDArray[Any]) -> NDArray[Any]:
        """Return predictions of outputs of the network, (N, O)."""
        raise NotImplementedError

    def _compute_score(self, true: Any, predicted: NDArray[Any], weight: Any) -> float:
        """Return how good predictions are."""
        raise NotImplementedError

    @property
    def _spread(self) -> str | None:
        """The head of the spread, see :class:`tauflow.SequenceModel`."""
        return None

    def _list_calibrations(self) -> list[str]:
        """Return the parameters that need validation data to calibrate the answers."""
        return []

    def _calibrate(self, held: Sequences | None) -> None:
        """Learn from validation data, if parameters ask for it, how sure answers are."""

    # Reading.

    def _read_data(self, X: Any, y: Any, kwargs: InputKwargs, *, reset: bool) -> Sequences:
        """Return the sequences, with one target for each if they have any."""
        if not self._requires_y:
            return self._read_rows(X, kwargs, reset=reset)
        rows, (target,) = self._read_with_targets(X, {"y": y}, kwargs, reset=reset)
        return replace(rows, y=target)

    def _read_weighted(
        self, X: Any, y: Any, weight: Any, kwargs: InputKwargs, *, reset: bool
    ) -> Sequences:
        """Return the sequences that count, with weights and with targets as training has them."""
        rows = self._read_data(X, y, kwargs, reset=reset)
        rows = replace(rows, weight=self._check_weight(weight, rows)).drop_zero_weight()
        if rows.y is None:
            return rows
        return replace(rows, y=self._encode_targets(rows.y, reset=reset))

    def _read_with_targets(
        self, X: Any, targets: dict[Any, Any], kwargs: InputKwargs, *, reset: bool
    ) -> tuple[Sequences, list[NDArray[Any]]]:
        """Return the sequences, and for each of some targets, by name, one value per sequence."""
        if any(value is None for value in targets.values()):
            raise ArgumentError(
                f"{type(self).__name__} requires y to be passed, but the target y is None."
            )
        columns = tuple(value for value in targets.values() if isinstance(value, str))
        if columns and not is_table(X):
            raise ArgumentError(f"y={columns[0]!r} names a column, and X is no table.")
        rows = self._read_rows(X, kwargs, reset=reset, targets=columns)
        features = getattr(self, "feature_names_in_", ()) if reset else ()
        return rows, align_targets(targets, rows, features)

    def _check_weight(self, weight: Any, rows: Sequences) -> Floats | None:
        """Return the weights of sequences, (B,), ``None`` if they all count alike."""
        if rows.ids is not None and np.ndim(weight):
            weight = align_to_sequences("sample_weight", weight, rows)
        return check_sample_weight(weight, len(rows))

    def _read_new(self, X: Any, kwargs: InputKwargs) -> Sequences:
        """Return the sequences of X, as it was in ``fit``."""
        check_is_fitted(self)
        return self._read_rows(X, kwargs, reset=False)

    def _read_rows(self, X: Any, kwargs: Any, *, reset: bool, **targets: Any) -> Sequences:
        if isinstance(X, SequenceCollection):
            return read_collection(self, X, kwargs, reset=reset)
        options = {"layout": self.layout, "is_series_2d": self._is_series_2d, **kwargs}
        return read_rows(self, X, reset=reset, **targets, **options)

    # Training.

    def _fit(
        self, X: Any, y: Any, sample_weight: Any, validation: Any, kwargs: InputKwargs
    ) -> None:
        goes_on = bool(self.warm_start) and hasattr(self, "module_")
        rows = self._read_weighted(X, y, sample_weight, kwargs, reset=not goes_on)
        random = check_random_state(self.random_state)
        seed = int(random.randint(2**31))
        share = self.validation_fraction if validation is None else 0.0
        wanted = self._list_calibrations()
        is_free = share == AUTO and not (goes_on or wanted)
        plan = plan_networks(self, rows, seed, random, goes_on=goes_on, is_free=is_free)
        learned, held = (rows, None) if plan.folds else self._split_validation(rows, share, random)
        if goes_on:
            check_params_match(self, self._built)
        if validation is not None:
            held = self._read_validation(validation)
        if wanted and held is None:
            raise ArgumentError(
                f"{wanted[0]}={getattr(self, wanted[0])!r} is calibrated on validation data, "
                "which are missing. Give fit validation=, validation_fraction, or more sequences."
            )
        everything = rows if is_free and held is not None else None  # never on what calibrates
        for name in ("trials_", "notes_"):  # of a fit before
            self.__dict__.pop(name, None)
        learn = fit_automatic if self.model == AUTO else fit_networks
        self.result_ = learn(self, learned, held, everything, plan)
        if everything is not None:  # the networks may have learned from held sequences since
            learned, held = everything, None
        self._blend(learned, held, plan)
        self._calibrate(held)

    def _split_validation(
        self, rows: Sequences, share: float | str, random: np.random.RandomState
    ) -> tuple[Sequences, Sequences | None]:
        """Return what to train on, and a share to validate on, if there is to be one."""
        classes = rows.y if self._is_stratified else None
        train_indices, held = split_validation(len(rows), share, random, classes)
        return rows.select(train_indices), rows.select(held) if len(held) else None

    def _initialise(
        self, rows: Sequences, task: LearningTask, seeds: Sequence[int]
    ) -> list[nn.Module]:
        """Learn the scaling, and draw a network for each seed."""
        check_one_of(DTYPES, dtype=self.dtype)
        names = list_models(self.model)[: len(seeds)]
        observing = [name for name in names if "observed" in get_model_info(name).inputs]
        self.schema_ = fit_schema(
            self.schema_,
            rows,
            observes=bool(task.query_targets or observing),
            fills_gaps=self._fills_gaps,
            **get_schema_options(self),
        )
        self._fit_target_scaler(rows)
        # A copy, as a mapping of the caller's own may be changed afterwards.
        self._built = {name: copy_option(getattr(self, name)) for name in self._network_params}
        flagged: tuple[int, ...] = ()
        if 0 < len(observing) < len(names):
            missing = np.isnan(rows.values).any(axis=0) & ~self.schema_.input_scaler.is_empty
            flagged = tuple(np.flatnonzero(missing).tolist())

        def draw(name: str, seed: int) -> nn.Module:
            options = resolve_options(name, self._built["options"], is_causal=not self._fills_gaps)
            spec = ModelSpec(name, self.hidden_size, spread=self._spread, options=options)
            spec = set_horizon(spec, lambda: self._to_batch(rows))
            fills = bool(observing) and name not in observing
            network = build_network(
                spec,
                task,
                seed=seed,
                input_size=len(self.schema_.inputs) + fills * len(flagged),
                backend=self.backend,
                static_inputs=list_static_inputs(self.schema_),
            )
            if fills:
                network = ImputedInputs(network, flagged, fill=self.impute)
            return network.to(DTYPES[self.dtype])

        return [draw(name, seed) for name, seed in zip(cycle(names), seeds, strict=False)]

    def _read_validation(self, validation: Any) -> Sequences:
        """Return sequences of validation data."""
        parts = unpack_validation(validation, ("X", "y") if self._requires_y else ("X",))
        X, y, weight = (parts.pop(name, None) for name in ("X", "y", "sample_weight"))
        return self._read_weighted(X, y, weight, parts, reset=False)  # type: ignore[arg-type]

    def _make_batch(self, rows: Sequences) -> SequenceBatch:
        """Return a batch to learn from."""
        y = rows.y if rows.y is None else self._scale_targets(rows.y)
        return self._to_batch(replace(rows, y=y))

    def _make_step_batch(
        self, rows: Sequences, y: Floats, is_known: NDArray[np.bool_]
    ) -> SequenceBatch:
        """Return a batch with targets of rows, (R, O), of sequences for which any counts."""
        has_any = is_known if is_known.ndim == 1 else is_known.any(1)
        some = np.flatnonzero(np.bincount(rows.sequence_index, has_any, len(rows)))
        inside, rows = np.isin(rows.sequence_index, some), rows.select(some)
        batch = self._to_batch(replace(rows, y=None))
        targets = torch.from_numpy(rows.pad_rows(y[inside])).to(batch.x.dtype)
        mask = torch.from_numpy(rows.pad_rows(is_known[inside]))
        return replace(batch, y=targets, y_mask=mask)

    def _to_batch(self, rows: Sequences) -> SequenceBatch:
        """Return a batch of sequences, with zeros where there are no targets."""
        return make_batch(self.schema_, rows, DTYPES[self._built["dtype"]])

    @property
    def _feature_scaler(self) -> StandardScaler:
        """Means and scales of the columns of rows."""
        scaler, count = self.schema_.input_scaler, len(self.schema_.list_columns())
        return StandardScaler(scaler.mean[:count], scaler.scale[:count])

    # Predicting.

    def _predict_outputs(self, X: Any, kwargs: InputKwargs) -> NDArray[Any]:
        """Return what the network gives, (N, O)."""
        return self._run_network(self._read_new(X, kwargs))

    def _run_network(self, rows: Sequences) -> NDArray[Any]:
        """Return what the network gives, (N, O), or of one that answers at each step (R, O)."""
        return self._run_on_batches(rows, predict)

    def _run_on_batches(
        self, rows: Sequences, run: Callable[[nn.Module, SequenceBatch], torch.Tensor]
    ) -> NDArray[Any]:
        """Return what a function makes of the network and batches, one entry per answer."""
        device = select_device(self.device)
        warn_ignored_values(self.schema_, rows)
        rows = replace(rows, y=None, weight=None)
        self.module_.to(device)
        answers = []
        with evaluation_mode(self.module_), torch.no_grad():
            for piece in rows.iter_batches(_PREDICT_BATCH_SIZE):
                batch = self._to_batch(piece).to(device)
                outputs = run(self.module_, batch).cpu().numpy()
                answers.append(outputs[piece.valid] if self._is_per_step else outputs)
        return np.concatenate(answers)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take over a state; that of an earlier version has no schema."""
        super().__setstate__(upgrade_state(state))

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled, with the network where every machine can read it."""
        state: dict[str, Any] = dict(super().__getstate__())
        if any(p.device.type != "cpu" for p in getattr(self, "module_", nn.Module()).parameters()):
            state["module_"] = copy.deepcopy(self.module_).cpu()
        return state
