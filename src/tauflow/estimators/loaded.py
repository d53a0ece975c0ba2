"""What estimators learn, as files hold it."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from tauflow.runs.portfolio import Trial
from tauflow.tabular.schema import Schema


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
