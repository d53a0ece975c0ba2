"""Boosting and linear models on summary features: what models without memory reach on the data."""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tauflow._internal.optional_deps import require
from tauflow._internal.sanitize import format_count
from tauflow.batch import SequenceBatch
from tauflow.data.card import DatasetCard, TaskData
from tauflow.data.summary_features import compute_summary_features

from .baselines import make_seasonal_naive

MAX_OUTPUTS = 48
"""Outputs of a forecast for which as many regressors of a kind are fitted at most."""
_MAX_ROWS, _MAX_VALUES, _MIN_ROWS = 20_000, 100_000, 2_000
_MIN_PROBABILITY = 1e-12  # a probability of 0 has no logarithm

Floats = NDArray[np.float64]


def fit_summary_baselines(data: TaskData) -> list[tuple[str, Tensor]]:
    """Fit models of scikit-learn on the training split, and predict the test split.

    They are histogram gradient boosting with its default options and seed 0, and a linear model
    with its default options: logistic regression of classes, ridge regression of values, on
    features that are standardised and, where missing, their mean. All are given
    :func:`~tauflow.data.summary_features.compute_summary_features` of each sequence, or of each up
    to every row that has a target; of a forecast with a season, also the values of a season ago. Of
    many rows a part is drawn to fit on, which the names say. Rows count what their sequences weigh.

    Args:
        data: a table's task, with at most :data:`MAX_OUTPUTS` values to predict.

    Returns:
        Names, and predictions as a network makes them: logits, or values that are scaled as the
        targets are, (B, T, O) or (B, O). They are 0 at steps without a target.

    Raises:
        MissingExtraError: scikit-learn is not installed.
    """
    rows, families = select_training_rows(data), _make_families(data.card.task)
    models = {f"{name}{rows.drawn}": rows.fit_targets(make) for name, make in families.items()}
    return list(_predict(data, models).items())


class FittedModel(NamedTuple):
    """A fitted model, ``None`` where there was nothing to fit, and the columns that it is given."""

    model: Any
    columns: NDArray[np.bool_]


class TrainingRows(NamedTuple):
    """What models of the training split's rows are fitted on.

    Args:
        features: (N, K).
        y: targets (N, O), or (N, 1) of classes.
        known: which of these are.
        weight: how much each row counts, (N,), if sequences have weights.
        drawn: says of how many rows a part was drawn, if it was.
    """

    features: Floats
    y: NDArray[Any]
    known: NDArray[np.bool_]
    weight: Floats | None
    drawn: str

    def fit_targets(self, make: Callable[[], Any]) -> list[FittedModel]:
        """Fit a model for each target, where it is known."""
        return [
            _fit_target(
                make(),
                self.features[there],
                values[there],
                None if self.weight is None else self.weight[there],
            )
            for values, there in zip(self.y.T, self.known.T, strict=False)
        ]


def select_training_rows(data: TaskData, *, with_season: bool = True) -> TrainingRows:
    """Return what models of the training split's rows are fitted on.

    Args:
        data: a table's task.
        with_season: whether values of a season ago are features, if there is a season.
    """
    rows = _select_rows(data.train, per_step=data.card.per_step)
    limit = _MAX_ROWS
    if data.card.task == "regress":
        limit = min(limit, max(_MIN_ROWS, _MAX_VALUES // data.card.target_size))
    total, drawn = int(rows.sum()), ""
    if total > limit:
        drawn = f" (fitted on {limit:,} of {format_count(total, 'target')})"
        places = torch.from_numpy(np.random.default_rng(0).choice(total, limit, replace=False))
        few = torch.zeros(total, dtype=torch.bool)
        few[places] = True
        rows = rows.masked_scatter(rows, few)
    features = _compute_features(data, data.train, rows, with_season=with_season)
    y, known = _select_targets(data.train, rows, per_step=data.card.per_step)
    if data.card.task == "classify":
        y = y[:, :1].astype(np.int64)
    weight = data.train.weight
    if weight is not None:
        weight = weight[:, None].expand(rows.shape)[rows]
    return TrainingRows(
        features, y, known, None if weight is None else weight.double().numpy(), drawn
    )


def get_summary_baseline_names(task: str) -> tuple[str, str]:
    """Return the names of the models that are fitted for a task of a table."""
    return ("gradient boosting", f"{'ridge' if task == 'regress' else 'logistic'} regression")


def _make_families(task: str) -> dict[str, Callable[[], Any]]:
    """Return how to make each model, by name."""
    linear = require("sklearn.linear_model", extra="sklearn")
    is_classes = task != "regress"

    def make_linear_model() -> Any:
        from sklearn.impute import SimpleImputer
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        model = linear.LogisticRegression(max_iter=1000) if is_classes else linear.Ridge()
        return make_pipeline(SimpleImputer(), StandardScaler(), model)

    makers = (lambda: make_boosting(task), make_linear_model)
    return dict(zip(get_summary_baseline_names(task), makers, strict=True))


def make_boosting(task: str) -> Any:
    """Return gradient boosting as it is fitted for a task, with seed 0.

    Raises:
        MissingExtraError: scikit-learn is not installed.
    """
    ensemble = require("sklearn.ensemble", extra="sklearn")
    if task == "regress":
        return ensemble.HistGradientBoostingRegressor(random_state=0)
    return ensemble.HistGradientBoostingClassifier(random_state=0)


def _fit_target(
    model: Any, features: Floats, y: NDArray[Any], weight: Floats | None
) -> FittedModel:
    """Fit a model of one target on the features that vary where the target is known."""
    from sklearn.base import is_classifier

    columns = _find_varying_columns(features)
    if not columns.any():
        return FittedModel(None, columns)
    if is_classifier(model):
        y = y.astype(np.int64)
    if is_classifier(model) and len(np.unique(y)) < 2:  # a rare class, none of which was drawn
        from sklearn.dummy import DummyClassifier

        model = DummyClassifier()
    with warnings.catch_warnings():  # logistic regression that has not converged is near enough
        warnings.filterwarnings("ignore", category=UserWarning, module="sklearn")
        step = f"{model.steps[-1][0]}__" if hasattr(model, "steps") else ""  # of a pipeline
        options = {} if weight is None else {f"{step}sample_weight": weight}
        return FittedModel(model.fit(features[:, columns], y, **options), columns)


def _predict(data: TaskData, models: dict[str, list[FittedModel]]) -> dict[str, Tensor]:
    """Return what fitted models predict of the test split."""
    lead = data.test.x.shape[: 2 if data.card.per_step else 1]
    shape = (*lead, data.card.target_size)
    predictions = {name: torch.zeros(shape, dtype=torch.float32) for name in models}
    for first, piece in data.test.iter_slices():
        rows = _select_rows(piece, per_step=data.card.per_step)
        if not rows.any():
            continue
        features = _compute_features(data, piece, rows)
        where = rows if data.card.per_step else rows.any(1)
        for name, of_targets in models.items():
            answer = _predict_rows(of_targets, features, data.card)
            predictions[name][first : first + len(piece)][where] = torch.from_numpy(answer).float()
    return predictions


def _predict_rows(models: list[FittedModel], features: Floats, card: DatasetCard) -> Floats:
    """Return what fitted models predict of features, (N, O)."""
    answer = np.zeros((len(features), card.target_size))
    for place, (model, columns) in enumerate(models):
        if model is None:
            continue
        if card.task == "binary":
            answer[:, place] = _predict_logit(model, features[:, columns])
            continue
        if card.task == "classify":
            answer[:, model.classes_] = model.predict_proba(features[:, columns])
            np.log(answer.clip(min=_MIN_PROBABILITY), out=answer)
            return answer
        answer[:, place] = model.predict(features[:, columns])
    return answer


def _predict_logit(model: Any, features: Floats) -> Floats:
    """Return the logit of class 1 of two, (N,), one of which may be missing in the training."""
    probabilities = np.zeros((len(features), 2))
    probabilities[:, model.classes_] = model.predict_proba(features)
    no, yes = np.log(probabilities.clip(min=_MIN_PROBABILITY)).T
    logits: Floats = yes - no
    return logits


def _select_rows(batch: SequenceBatch, *, per_step: bool) -> Tensor:
    """Return after which steps there is something to predict, (B, T)."""
    if not per_step:
        return torch.arange(batch.x.shape[1]) == batch.lengths[:, None].clamp(min=1) - 1
    known = batch.valid if batch.y_mask is None else batch.y_mask
    return known if known.ndim == 2 else known.any(-1)


def _select_targets(
    batch: SequenceBatch, rows: Tensor, *, per_step: bool
) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the targets of chosen steps, (N, O), and which of them are known."""
    where = rows if per_step else rows.any(1)
    y = batch.y[where].double()
    y = y.reshape(len(y), -1)
    known = torch.ones_like(y, dtype=torch.bool)
    if batch.y_mask is not None and batch.y_mask.ndim == 3:
        known = batch.y_mask[where].reshape(y.shape)
    return y.numpy(), known.numpy()


def _compute_features(
    data: TaskData, batch: SequenceBatch, rows: Tensor, *, with_season: bool = True
) -> Floats:
    """Return the features of chosen steps, (N, K)."""
    features = compute_summary_features(batch, where=rows).values
    if not (with_season and data.card.forecast and data.card.season):
        return features
    again, _ = make_seasonal_naive(data, data.card.season)(
        batch.x, mask=batch.mask, observed=batch.observed
    )
    again = again[rows if data.card.per_step else rows.any(1)]
    return np.concatenate([features, again.double().numpy()], axis=1)


def _find_varying_columns(features: Floats) -> NDArray[np.bool_]:
    """Return which columns hold more than one value; trees cannot split others."""
    first = features[:1]
    same = (features == first) | (np.isnan(features) & np.isnan(first))
    varies: NDArray[np.bool_] = ~same.all(0)
    return varies
