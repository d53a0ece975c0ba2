"""Train on the beginnings of sequences first, and on more of them from stage to stage."""

from tauflow.batch import SequenceBatch

from .recipe import Recipe


def get_stage_length(recipe: Recipe, epoch: int) -> int | None:
    """Return how many steps of a sequence an epoch trains on, ``None`` for all.

    Args:
        recipe: the protocol.
        epoch: counted from 1.
    """
    if recipe.curriculum is None or recipe.curriculum_epochs is None:
        return None
    stage = (epoch - 1) // recipe.curriculum_epochs
    return recipe.curriculum[stage] if stage < len(recipe.curriculum) else None


def is_stage_start(recipe: Recipe, epoch: int) -> bool:
    """Whether an epoch, counted from 1, trains on another length than the one before it."""
    return epoch > 1 and get_stage_length(recipe, epoch) != get_stage_length(recipe, epoch - 1)


def truncate(batch: SequenceBatch, steps: int) -> SequenceBatch:
    """Return the first steps of every sequence; shares memory with the batch.

    Targets are taken for one per step if they have a third axis or their second is as long as the
    sequences, and are then cut too; else they are one per sequence, and stay.
    """
    return batch.with_steps(min(steps, batch.x.shape[1]))
