"""What users' data are trained with by default: by estimators, ``tauflow run`` and ``tune``.

:class:`~tauflow.Recipe` has other defaults, with which published protocols begin. How these
here were chosen, and what else was measured, is on the page *Models compared*.
"""

from collections.abc import Mapping
from typing import Any

from .recipe import Recipe

DEFAULT_RECIPE = Recipe(
    lr=2e-3,
    batch_size=32,
    epochs=100,
    patience=10,
    clip="norm",
    clip_norm=1.0,
    ema=0.95,
)
"""Training ends ``patience`` epochs after the best score on the validation split."""
FORECAST_RECIPE = Recipe(
    optimizer="adamw",
    weight_decay=1e-3,
    schedule="one_cycle",
    lr=5e-3,
    batch_size=64,
    epochs=10,
    clip="norm",
    clip_norm=1.0,
    ema=0.95,
)
"""Of forecasts at any time, with so many epochs that :data:`FORECAST_STEPS` are taken."""
FORECAST_STEPS = 600
DEFAULT_MODELS = ("gru-d", "cfc-mmrnn")
"""Where one class, or numbers, are predicted per sequence: networks of both are averaged."""
DEFAULT_MODEL = "cfc"
"""Of runs that predict anything else."""
DEFAULT_HIDDEN_SIZE = 32
"""Neurons."""
DEFAULT_VALIDATION_FRACTION = 0.15
"""Share of the sequences that estimators keep for validation."""
MIN_SEQUENCES_FOR_VALIDATION = 20
"""Sequences below which estimators keep none for validation."""
DEFAULT_ENSEMBLE, MIN_SEQUENCES_FOR_ENSEMBLE = 5, 40
"""Networks that predict one target, or several, per sequence; and sequences for that."""


def adapt_recipe(recipe: Recipe, changes: Mapping[str, Any]) -> Recipe:
    """Return the recipe with other values of some fields, and without what contradicts them.

    Clipping that is switched off has no norm, and the last weights are not chosen by a score.

    Raises:
        SpecificationError: a key is not a field of the recipe.
    """
    implied: dict[str, Any] = {}
    if changes.get("clip") == "none":
        implied["clip_norm"] = None
    if changes.get("select") == "last":
        implied |= {"select_by": None, "patience": None}
    return recipe.with_changes({**implied, **changes})


def disable_validation(recipe: Recipe) -> Recipe:
    """Return the recipe for data without a validation split: the last weights are taken."""
    return adapt_recipe(recipe, {"select": "last"})


def select_epoch_by_loss(recipe: Recipe, loss: str) -> Recipe:
    """Return the recipe for a loss: of classes, the loss says which epoch is the best.

    Accuracy and the area under a ROC curve of a small validation split jump from epoch to epoch.
    """
    if (
        recipe.select == "last"
        or recipe.select_by is not None
        or loss not in _CLASSIFICATION_LOSSES
    ):
        return recipe
    return recipe.with_changes({"select_by": loss})


_CLASSIFICATION_LOSSES = ("cross_entropy", "bce")
