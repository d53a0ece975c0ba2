"""Which weights a training returns."""

from typing import Any

from torch import Tensor, nn

from .metrics import METRICS
from .recipe import Recipe


class Selection:
    """The weights that training will return: the best so far, or those of the last epoch."""

    def __init__(self, metric: str, recipe: Recipe) -> None:
        self.higher_is_better = METRICS[recipe.select_by or metric].higher_is_better
        self.metric, self.recipe = metric, recipe
        self.epoch: int | None = None
        self.value: float | None = None
        self.weights: dict[str, Tensor] | None = None

    def consider(self, row: dict[str, Any], model: nn.Module) -> None:
        """Keep a copy of the weights after an epoch if they are the best so far."""
        if self.recipe.select == "last":
            return
        if row["epoch"] == self.recipe.epochs and not self.recipe.score_last_epoch:
            return
        value: float | None = row["criterion" if self.recipe.select_by else "valid"]
        if value is None:
            return
        if self.value is None or (
            value > self.value if self.higher_is_better else value < self.value
        ):
            self.epoch, self.value = row["epoch"], value
            self.weights = {k: v.detach().clone() for k, v in model.state_dict().items()}

    def restore(self, model: nn.Module) -> None:
        """Put the selected weights into the model."""
        if self.weights is not None:
            model.load_state_dict(self.weights)
