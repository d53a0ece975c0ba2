"""The learning rate from step to step: a formula of ours, or a scheduler of PyTorch."""

import math
import warnings
from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any

import torch

from tauflow._internal.sanitize import format_count
from tauflow.errors import ArgumentError

from .optim import set_learning_rate
from .recipe import LENGTH_DEPENDENT_SCHEDULES, Recipe
from .torch_registry import scheduler_class

_STEP_ORDER_WARNING = "Detected call of `lr_scheduler.step"


class LRSchedule:
    """What sets the learning rate of every step.

    All of its state follows from the numbers of finished steps and epochs and from the scores of
    the epochs, so that :meth:`replay` brings it to where a checkpoint stands.

    Args:
        recipe: the protocol.
        optimizer: whose rate it sets.
        sequences: number of training sequences.
        higher_is_better: of the scores.

    Raises:
        ArgumentError: PyTorch refuses the options, or the warm-up takes the whole training.
    """

    def __init__(
        self,
        recipe: Recipe,
        optimizer: torch.optim.Optimizer,
        *,
        sequences: int,
        higher_is_better: bool,
    ) -> None:
        self.recipe, self.optimizer, self.sequences = recipe, optimizer, sequences
        steps = recipe.epochs * recipe.steps_per_epoch(sequences) - recipe.warmup_steps
        if recipe.warmup_steps and steps < 1:
            raise ArgumentError(
                f"warmup_steps={recipe.warmup_steps} takes all "
                f"{format_count(steps + recipe.warmup_steps, 'step')} "
                "of the training. Warm up for fewer, or train for more epochs."
            )
        self.scheduler: Any = None
        if recipe.schedule not in ("constant", "exponential"):
            self.scheduler = self._build_scheduler(steps, higher_is_better)
        self._advances_every_step = self.scheduler is not None and (
            recipe.schedule in LENGTH_DEPENDENT_SCHEDULES or recipe.schedule_interval == "step"
        )
        self.rate = float(optimizer.param_groups[0]["lr"])
        self._is_new = True

    def _build_scheduler(self, steps: int, higher_is_better: bool) -> Any:
        recipe = self.recipe
        defaults: dict[str, dict[str, Any]] = {
            "cosine": {"T_max": steps, "eta_min": recipe.min_lr or 0.0},
            "one_cycle": {"max_lr": recipe.lr, "total_steps": steps},
            "plateau": {
                "mode": "max" if higher_is_better else "min",
                "min_lr": recipe.min_lr or 0.0,
            },
        }
        fixed, options = defaults.get(recipe.schedule, {}), dict(recipe.schedule_options or {})
        try:
            return scheduler_class(recipe.schedule)(self.optimizer, **fixed, **options)
        except (ArithmeticError, RuntimeError, TypeError, ValueError) as error:
            raise ArgumentError(
                f"schedule={recipe.schedule!r} does not take {fixed | options}: {error}. Give "
                "other schedule_options, or another schedule."
            ) from error

    def set_next_rate(self, *, epoch: int, step: int) -> float:
        """Set the learning rate of the next step, and return it.

        Args:
            epoch: finished epochs.
            step: finished steps.
        """
        rate, warmup = self.rate, self.recipe.warmup_steps
        if self.scheduler is None:
            after = max(0, step - warmup)
            rate = compute_learning_rate(
                self.recipe, epoch=epoch, step=after, sequences=self.sequences
            )
        if step < warmup:
            rate *= (step + 1) / (warmup + 1)
        set_learning_rate(self.optimizer, rate)
        return rate

    def after_step(self, step: int) -> None:
        """Take note of a step; so many are finished now."""
        if self._advances_every_step and step > self.recipe.warmup_steps:
            self._advance()

    def after_epoch(self, score: float | None) -> None:
        """Take note of an epoch and its score, if it has one."""
        if self.scheduler is None or self._advances_every_step:
            return
        if self.recipe.schedule != "plateau":
            self._advance()
        elif score is not None:
            self._advance(score)

    def replay(self, epochs: Iterable[tuple[int, float | None]]) -> None:
        """Take note of finished epochs: the number of steps after each, and its score."""
        if self.scheduler is None:
            return
        done = 0
        for steps, score in epochs:
            for step in range(done + 1, steps + 1):
                self.after_step(step)
            self.after_epoch(score)
            done = steps

    def _advance(self, *score: float) -> None:
        set_learning_rate(self.optimizer, self.rate)  # without the warm-up: most go on from there
        with warnings.catch_warnings() if self._is_new else nullcontext():
            if self._is_new:
                # It is for who forgets the optimizer's step; another may take it, or took it.
                warnings.filterwarnings("ignore", _STEP_ORDER_WARNING)
            self.scheduler.step(*score)
        self._is_new = False
        self.rate = float(self.optimizer.param_groups[0]["lr"])


def compute_learning_rate(recipe: Recipe, *, epoch: int, step: int, sequences: int) -> float:
    """Return the learning rate of one step.

    Args:
        recipe: the protocol.
        epoch: number of finished epochs.
        step: number of finished steps, over all epochs, but for those of a warm-up.
        sequences: number of training sequences.
    """
    if recipe.decay is None:
        return recipe.lr
    if recipe.schedule_interval == "epoch":
        epochs: float = epoch
    else:
        # Keras counts full batches here even where the last, partial batch is trained on too.
        epochs = step / max(1, sequences // recipe.effective_batch_size)
    return max(recipe.min_lr or 0.0, recipe.lr * math.pow(recipe.decay, epochs))
