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
        model: name of a cell or a whole model in the catalog. To predict one class or numbers per
            sequence also several names, of which the networks of an ensemble are in turn; or
            ``"auto"``: an ensemble, selected on five folds or the validation data, of networks and
            gradient boosting, see :func:`tauflow.runs.auto.run_auto`. ``trials_`` has the scores of
            all of them, ``notes_`` what was selected and how much better it is.
        hidden_size: number of neurons.
        options: further arguments of the model's constructor, such as ``num_layers``; of several
            models those that all of them take.
        epochs: largest number of passes over the training data.
        lr: learning rate of Adam.
        batch_size: sequences per step.
        recipe: fields of :class:`tauflow.Recipe` that differ from
            :data:`tauflow.training.defaults.DEFAULT_RECIPE`, such as ``{"weight_decay": 0.01}``; or
            a whole :class:`tauflow.Recipe`, which replaces ``epochs``, ``lr``, ``batch_size`` and
            ``patience`` too.
        validation_fraction: share of the sequences, chosen by ``random_state``, that is held out
            for validation; the weights of the best epoch are kept. 0: all sequences are used for
            training, and the weights of the last epoch are kept. ``"auto"``: with fewer than 20
            sequences, 0; with more, 0.15 of them select the best epoch, and the network is then
            trained once more on all sequences for that number of epochs, but see ``ensemble``.
            Ignored if validation data are passed to ``fit``.
        patience: epochs without a better validation score after which training stops; ``None`` to
            train all epochs. ``"auto"``: 10 with validation data.
        ensemble: number of networks, trained with different seeds that follow from
            ``random_state``. Predictions are their means, which are usually better; their standard
            deviation shows how much a prediction depends on seed and data. With a
            ``validation_fraction`` of ``"auto"`` three or more are cross-validated: each is trained
            without another part of the sequences, which selects its epoch, so that all are used and
            nothing is trained twice; unless validation data calibrate the answers. ``"auto"``: 5
            with 40 or more sequences, if each has one target or several; else 1.
        warm_start: whether ``fit`` continues from the network and the scaling of the previous
            ``fit``, with a new optimizer.
        random_state: seed of the initial weights, the order of batches, dropout and the validation
            split: an integer for reproducible results, ``None``, or a ``RandomState``.
        callbacks: objects of :class:`tauflow.training.Callback`, or functions that are called with
            the history row of each epoch.
        device: where to train and predict; ``"auto"`` is the accelerator if there is one.
        backend: backend of the cell: ``"auto"``, ``"reference"`` or the name of a kernel backend.
        time_unit: the time step that becomes 1; ``"auto"`` is the median time step of the training
            data. Time constants are initialised around 1, so other units train badly.
        impute: what replaces missing values for models without a mask of observed values:
            ``"last"``, the last value of the sequence, and before the first the mean; or
            ``"mean"``, the training mean. Each feature with missing values has an additional input,
            1 where it was measured. Forecasts at any time, and those of several samples by a cell,
            read which values were measured, and take no ``"mean"``.
        layout: axes of 3-D arrays: ``"BTI"`` (sequences, time, features) or ``"BIT"``.
        dtype: precision of the network, ``"float32"`` or ``"float64"``.
        verbose: 1 for a progress bar.
        time_limit: seconds of training with ``model="auto"``, which set the number of epochs;
            ``None`` for no limit. That model has its own ``epochs``, ``lr``, ``batch_size`` and
            ``patience`` unless they differ from the defaults here.
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
    ensemble: int | str = 1
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
