"""Which weights a training returns, and when it has seen enough."""

from typing import Any

from torch import Tensor, nn

from .elementwise import Score
from .recipe import Recipe


class BestWeights:
    """The weights that training will return: the best so far, or those of the last epoch.

    Args:
        monitor: of what the best is chosen.
        recipe: whether, and from which epochs.
    """

    def __init__(self, monitor: Score, recipe: Recipe) -> None:
        self.higher_is_better = monitor.higher_is_better
        self.recipe = recipe
        self.epoch: int | None = None
        self.value: float | None = None
        self.weights: dict[str, Tensor] | None = None

    def score(self, row: dict[str, Any]) -> float | None:
        """Return the score of an epoch, given its row of the history."""
        value: float | None = row["criterion" if self.recipe.select_by else "valid"]
        return value

    def update_if_better(self, row: dict[str, Any], model: nn.Module) -> bool:
        """Keep a copy of the weights after an epoch if they are the best so far; return whether."""
        if self.recipe.select == "last":
            return False
        if row["epoch"] == self.recipe.epochs and not self.recipe.score_last_epoch:
            return False
        value = self.score(row)
        if value is None:
            return False
        better = self.value is None or (
            value > self.value if self.higher_is_better else value < self.value
        )
        if better:
            self.epoch, self.value = row["epoch"], value
            self.weights = {k: v.detach().clone() for k, v in model.state_dict().items()}
        return better

    def is_patience_exhausted(self, epochs: int) -> bool:
        """Whether so many epochs are enough, as the recipe's patience has run out."""
        if self.recipe.patience is None or self.epoch is None:
            return False
        stages = len(self.recipe.curriculum or ()) * (self.recipe.curriculum_epochs or 0)
        return epochs - max(self.epoch, stages) >= self.recipe.patience

    def restore(self, model: nn.Module) -> None:
        """Put the selected weights into the model."""
        if self.weights is not None:
            model.load_state_dict(self.weights)
