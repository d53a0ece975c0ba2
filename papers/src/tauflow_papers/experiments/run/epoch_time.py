"""What the epochs of a run take, told by those that it has finished."""

import statistics
from collections.abc import Sequence

from tauflow.training.recipe import Recipe

_NUM_LATEST_EPOCHS = 10
"""Epochs that tell a run's pace: the latest, since other programs come and go."""


class EpochTimeModel:
    """The seconds of every epoch of a run, those to come included.

    Without a curriculum they are all alike. With one, seconds are taken to be linear in the steps
    that an epoch trains on, as evaluation takes as long in all of them: through the latest two
    stages, or, as long as there is one only, through the origin, which expects too much.

    Args:
        recipe: of the run.
        seconds: of its finished epochs, at least one.
    """

    def __init__(self, recipe: Recipe, seconds: Sequence[float]) -> None:
        self.recipe = recipe
        stages: dict[int, list[float]] = {}
        for epoch, taken in enumerate(seconds, start=1):
            stages.setdefault(self._count_steps(epoch), []).append(taken)
        known = [
            (steps, statistics.median(some[-_NUM_LATEST_EPOCHS:])) for steps, some in stages.items()
        ]
        self._known_steps, self._known_seconds = known[-1]
        before, then = known[-2] if len(known) > 1 else (0, 0.0)
        # Longer sequences never take less time, whatever other programs did meanwhile.
        self._slope = (
            max(0.0, (self._known_seconds - then) / (self._known_steps - before))
            if self._known_steps
            else 0.0
        )

    def _count_steps(self, epoch: int) -> int:
        """Return the steps that an epoch trains on; whole sequences: as if they were a stage more.

        Without a curriculum it is zero for every epoch.
        """
        stages = self.recipe.curriculum
        if not stages or self.recipe.curriculum_epochs is None:
            return 0
        before = stages[-2] if len(stages) > 1 else 0
        return self.recipe.get_stage_length(epoch) or 2 * stages[-1] - before

    def predict_epoch_seconds(self, epoch: int) -> float:
        """Return the seconds that an epoch takes, counted from 1."""
        return max(
            0.0, self._known_seconds + self._slope * (self._count_steps(epoch) - self._known_steps)
        )

    def predict_remaining_seconds(self, done: int) -> float:
        """Return the seconds that all epochs after the first ``done`` take."""
        return sum(
            self.predict_epoch_seconds(epoch) for epoch in range(done + 1, self.recipe.epochs + 1)
        )

    @property
    def mean(self) -> float:
        """The mean over all epochs of the run."""
        return self.predict_remaining_seconds(0) / self.recipe.epochs
