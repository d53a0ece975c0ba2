"""Gradient boosting on summary features as a model that predicts, and is saved, like a network."""

import numpy as np
import torch
from numpy.typing import NDArray

from tauflow.data.card import TaskData
from tauflow.errors import ArgumentError
from tauflow.models.boosted_trees import (
    NO_CHILD,
    AbstractTrees,
    BoostedTrees,
    Tree,
    join_trees,
)

from .summary_baselines import (
    MAX_OUTPUTS,
    FittedModel,
    TrainingRows,
    make_boosting,
    select_training_rows,
)

_ABSENT_LOGIT = -30.0  # of a class that the training split does not hold


def fit_boosted_trees(data: TaskData) -> BoostedTrees:
    """Fit histogram gradient boosting of scikit-learn, with its default options and seed 0.

    Features are :func:`~tauflow.data.summary_features.compute_summary_features` of each sequence,
    or of the steps so far where every step has a target. Of very many targets a part is drawn to
    fit on. Targets count what their sequences weigh.

    Args:
        data: sequences of features with classes, or at most 48 values, to predict.

    Returns:
        The trees as a module, whose predictions are those of scikit-learn.

    Raises:
        ArgumentError: targets are of another kind, or too many.
        MissingExtraError: scikit-learn is not installed.
    """
    card = data.card
    if card.task == "binary" or card.vocabulary or card.image_size is not None:
        raise ArgumentError(
            f"boosting reads features and predicts classes or values; {card.name!r} has others."
        )
    if card.task == "regress" and card.target_size > MAX_OUTPUTS:
        raise ArgumentError(
            f"boosting fits a model per output, of {MAX_OUTPUTS} at most; {card.name!r} has "
            f"{card.target_size}."
        )
    rows = select_training_rows(data, with_season=False)
    models = rows.fit_targets(lambda: make_boosting(card.task))
    baseline, trees = np.zeros(card.target_size), []
    if card.task == "classify":
        baseline[:] = _ABSENT_LOGIT
        trees = _convert_classifier(models[0], baseline, rows)
    else:
        for output, model in enumerate(models):
            trees += convert_regressor(model, baseline, output)
    module = join_trees(card.input_size, baseline.tolist(), trees, per_step=card.per_step)
    check_against_sklearn(module, models, rows.features)
    return module


def _convert_classifier(
    fitted: FittedModel, baseline: NDArray[np.float64], rows: TrainingRows
) -> list[Tree]:
    """Write the first logits of the classes; return the trees, each with its class."""
    model = fitted.model
    if not hasattr(model, "_predictors"):  # nothing to split by, or a single class
        known = rows.known[:, 0]
        counts = np.bincount(rows.y[known, 0], None if rows.weight is None else rows.weight[known])
        classes = np.flatnonzero(counts)
        baseline[classes] = np.log(counts[classes] / counts.sum())
        return []
    first = model._baseline_prediction.ravel()
    # Of two classes the trees give the logit of the second one.
    outputs = model.classes_[1:] if len(first) == 1 else model.classes_
    baseline[model.classes_] = 0.0
    baseline[outputs] = first
    return _list_trees(fitted, outputs)


def convert_regressor(
    fitted: FittedModel, baseline: NDArray[np.float64], output: int
) -> list[Tree]:
    """Write the first value of an output; return the trees that are added to it."""
    if fitted.model is None:
        return []
    baseline[output] = fitted.model._baseline_prediction.item()
    return _list_trees(fitted, np.array([output]))


def _list_trees(fitted: FittedModel, outputs: NDArray[np.int64]) -> list[Tree]:
    columns = np.flatnonzero(fitted.columns)
    trees = []
    for iteration in fitted.model._predictors:
        for output, tree in zip(outputs, iteration, strict=True):
            nodes, leaf = tree.nodes, tree.nodes["is_leaf"].astype(bool)
            trees.append(
                (
                    int(output),
                    {
                        "feature": np.where(leaf, 0, columns[nodes["feature_idx"] * ~leaf]),
                        "threshold": nodes["num_threshold"],
                        "missing_left": nodes["missing_go_to_left"].astype(bool),
                        "left": np.where(leaf, NO_CHILD, nodes["left"].astype(np.int64)),
                        "right": np.where(leaf, NO_CHILD, nodes["right"].astype(np.int64)),
                        "value": nodes["value"],
                    },
                )
            )
    return trees


def check_against_sklearn(
    module: AbstractTrees,
    models: list[FittedModel],
    features: NDArray[np.float64],
    tolerance: float = 1e-6,
) -> None:
    """Refuse trees that answer otherwise: scikit-learn does not promise how it stores them."""
    some = features[:256]
    ours = module.predict_features(torch.from_numpy(some)).numpy()
    for output, (model, columns) in enumerate(models):
        if not hasattr(model, "_predictors"):
            continue
        if hasattr(model, "predict_proba"):
            answers = torch.from_numpy(ours).softmax(-1).numpy()[:, model.classes_]
            expected = model.predict_proba(some[:, columns])
        else:
            answers, expected = ours[:, output], model.predict(some[:, columns])
        if not np.allclose(answers, expected, rtol=tolerance, atol=tolerance):
            import sklearn

            raise ArgumentError(
                f"the trees of scikit-learn {sklearn.__version__} could not be converted: their "
                "predictions differ. Choose networks by name instead."
            )
