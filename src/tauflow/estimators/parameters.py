"""The parameters that all estimators have."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sklearn.base import BaseEstimator

from tauflow.data.imputation import IMPUTE_STRATEGIES
from tauflow.training import Recipe
from tauflow.training.callbacks import AnyCallback
from tauflow.training.defaults import DEFAULT_HIDDEN_SIZE, DEFAULT_RECIPE

from .training import AUTO


@dataclass(kw_only=True, eq=False, repr=False)
class EstimatorParameters(BaseEstimator):  # type: ignore[misc]
    """Parameters of every estimator.

    Args:
        model: catalog name, a cell's or a whole model's; or ``"auto"`` where a class, or numbers,
            of each sequence are predicted: an ensemble of what validation finds best among five
            networks and gradient boosting, see :func:`tauflow.runs.auto.run_auto`. ``trials_`` then
            says what was tried, ``notes_`` what was chosen and how much better it is.
        hidden_size: neurons.
        options: everything else that the model's constructor takes, ``num_layers`` too.
        epochs: passes over the training data, at most.
        lr: learning rate of Adam.
        batch_size: sequences per step.
        recipe: fields of :class:`tauflow.Recipe` beside
            :data:`tauflow.training.defaults.DEFAULT_RECIPE`, such as ``{"weight_decay": 0.01}``; or
            a whole :class:`tauflow.Recipe`, which then stands in for ``epochs``, ``lr``,
            ``batch_size`` and ``patience`` too.
        validation_fraction: share of the sequences, drawn by ``random_state``, that are kept for
            validation: the weights of the best epoch are kept. 0: all are trained on, and the last
            epoch's are kept. ``"auto"``: 0.15 of 20 sequences or more say which epoch is the best,
            and the network is then trained once more for so many epochs, on all; 0 of fewer. Not
            used if ``fit`` is given validation data.
        patience: epochs without a better score on the validation data after which training stops;
            ``None`` for all epochs. ``"auto"``: 10 with validation data.
        ensemble: networks that are trained, with as many seeds from that of ``random_state`` on,
            together where they can be; answers are the means of theirs. Several make answers
            better, and their spread says how much these depend on the seed.
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
        time_limit: seconds of training with ``model="auto"``, ``None`` for no limit. It decides how
            many epochs there are. With that model ``epochs``, ``lr``, ``batch_size`` and
            ``patience`` are its own unless they differ from the defaults here.
    """

    model: str = "cfc"
    hidden_size: int = DEFAULT_HIDDEN_SIZE
    options: Mapping[str, Any] | None = None
    epochs: int = DEFAULT_RECIPE.epochs
    lr: float = DEFAULT_RECIPE.lr
    batch_size: int = DEFAULT_RECIPE.batch_size
    recipe: Recipe | Mapping[str, Any] | None = None
    validation_fraction: float | str = AUTO
    patience: int | str | None = AUTO
    ensemble: int = 1
    warm_start: bool = False
    random_state: Any = None
    callbacks: Sequence[AnyCallback] | None = None
    device: str = "cpu"
    backend: str = "auto"
    time_unit: float | str = "auto"
    impute: str = IMPUTE_STRATEGIES[0]
    layout: str = "BTI"
    dtype: str = "float32"
    verbose: int = 0
    time_limit: float | None = None
