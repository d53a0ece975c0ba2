"""What estimators learn, as files hold it, and whether it agrees with the network of a file."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from tauflow._internal.checks import find_type_mismatch
from tauflow.runs.portfolio import Trial
from tauflow.tabular.schema import Schema
from tauflow.tabular.sequences import Sequences
from tauflow.training.evaluation_loop import predict


class LearnedAttributes:
    """Types of what ``fit`` learns, which are no parameters; files hold these attributes.

    Args:
        schema_: how X is read, scaled and imputed.
        module_: the network.
        n_features_in_: how many features X has.
        feature_names_in_: their names, if X has any.
        trials_: what a portfolio tried.
        notes_: what is to be said of it.
        _one_step: whether X was an array of sequences of one step.
        _built: parameters that the network was built with.
    """

    schema_: Schema
    module_: nn.Module
    n_features_in_: int
    feature_names_in_: NDArray[np.object_]
    trials_: tuple[Trial, ...]
    notes_: tuple[str, ...]
    _one_step: bool
    _built: Mapping[str, Any]

    def _blend(self, learned: Any, held: Any, plan: Any) -> None:
        """Choose how the networks are joined with other answers, if that is to be chosen."""


def make_example(schema: Schema) -> Sequences:
    """Return two samples, which hold the means of the features."""
    values = np.tile(schema.input_scaler.mean[: len(schema.list_columns())], (2, 1))
    dt = np.ones(2) if schema.is_timed else None
    return Sequences(values=values, lengths=np.array([2]), dt=dt, dated=schema.dated)


def check_example(estimator: Any, rows: Sequences) -> None:
    """Raise an error unless an estimator answers samples, and its parts agree.

    Its network answers on the CPU, as the device of the training may not be there.
    """
    features = estimator.schema_.features
    names = getattr(estimator, "feature_names_in_", features)
    if names is None or features != tuple(names) or len(names) != estimator.n_features_in_:
        raise ValueError("the features and their names are not as many")
    if wrong := find_type_mismatch(type(estimator).__init__, estimator._built):
        raise TypeError(wrong)
    outputs = predict(estimator.module_, estimator._to_batch(rows)).numpy()
    outputs = outputs[rows.valid] if estimator._is_per_step else outputs
    if outputs.ndim != 2 or outputs.shape[1] != estimator._count_outputs():
        raise ValueError(f"the network has outputs of the shape {outputs.shape[1:]}")
    check_all_finite(outputs)
    estimator._decode_outputs(outputs)


def check_all_finite(outputs: NDArray[Any]) -> None:
    """Raise :class:`ValueError` if a network answers with NaN or infinity."""
    if not np.isfinite(outputs).all():
        raise ValueError("the network answers with numbers that are not finite")
