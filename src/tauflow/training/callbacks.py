"""What looks on while a model is trained, and may end it."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeAlias

import torch
from torch import nn

from tauflow.errors import DtypeError

from .process_group import DistributedContext
from .recipe import Recipe
from .trainer import preserve_rng_state


class Training(Protocol):
    """State of a training run as seen by callbacks; :meth:`stop` ends it.

    Args:
        model: in training mode at a batch; what it holds is not the best so far, but the latest.
        recipe: the protocol.
        seed: of the order and of the model's random numbers.
        epoch: the epoch under way, or just finished, counted from 1; 0 before the first.
        step: finished steps, over all epochs.
        lr: of the last step; before the first one, that of the recipe.
        batch_loss: of the last step; NaN before the first one of this call, as no file keeps it.
        history: one dict per finished epoch, see :class:`tauflow.training.TrainingResult`.
    """

    model: nn.Module
    recipe: Recipe
    seed: int
    epoch: int
    step: int
    lr: float
    batch_loss: float
    history: list[dict[str, Any]]

    @property
    def best_epoch(self) -> int | None:
        """The selected epoch so far, if the recipe selects one."""

    def stop(self) -> None:
        """Let the epoch under way be the last; the result is then that of the epochs so far.

        A run with a ``run_dir`` keeps that once all callbacks have heard of the same, and stays
        ended when it is resumed; one that is killed before goes on.
        """


class Callback:
    """Base class of callbacks: override the methods for the events of interest.

    In a process group only the first process is told. An exception that a method raises ends the
    training at once, as an interrupt would; a run with a ``run_dir`` can be resumed, and is
    resumed without what callbacks keep to themselves.

    Random numbers that a method draws are not those of the training: PyTorch's global generators
    are put back after each.
    """

    def on_start(self, training: Training) -> None:
        """Hear that training begins, or goes on, where ``training.epoch`` says."""

    def on_batch(self, training: Training) -> None:
        """Hear that a step was taken."""

    def on_improved(self, training: Training) -> None:
        """Hear that the epoch just saved is the best so far; before :meth:`on_epoch`."""

    def on_epoch(self, training: Training) -> None:
        """Hear that an epoch is over, scored and, with a ``run_dir``, saved."""

    def on_end(self, training: Training) -> None:
        """Hear that training has ended, be it by an exception: the place to close files."""


AnyCallback: TypeAlias = Callback | Callable[[Mapping[str, Any]], object]
"""A callback, or a function that is called with the row of the history of every epoch."""


class _EpochCallback(Callback):
    def __init__(self, function: Callable[[Mapping[str, Any]], object]) -> None:
        self.function = function

    def on_epoch(self, training: Training) -> None:
        self.function(training.history[-1])


_EVENTS = ("on_start", "on_batch", "on_improved", "on_epoch", "on_end")


class CallbackList:
    """All callbacks of a training, told by the first process.

    Args:
        callbacks: the callbacks.
        ranks: the processes.
        device: where training draws random numbers, which none of them takes away.

    Raises:
        DtypeError: they are no list, or one is neither a :class:`Callback` nor a function.
    """

    def __init__(
        self, callbacks: Iterable[AnyCallback], ranks: DistributedContext, device: torch.device
    ) -> None:
        self.ranks, self.device = ranks, device
        if not isinstance(callbacks, Iterable):
            raise DtypeError(f"callbacks must be a list, got {callbacks!r}. Write [callback].")
        listeners: list[Callback] = []
        for callback in callbacks:
            if isinstance(callback, Callback):
                listeners.append(callback)
            elif callable(callback) and not isinstance(callback, type):
                listeners.append(_EpochCallback(callback))
            else:
                raise DtypeError(
                    "callbacks must be objects of tauflow.training.Callback, or functions of an "
                    f"epoch's row, got {callback!r}."
                )
        self.listeners = {
            event: [
                listener
                for listener in listeners
                if getattr(type(listener), event) is not getattr(Callback, event)
            ]
            for event in _EVENTS
        }

    def notify(self, event: str, training: Training) -> bool:
        """Tell those that listen; return whether one of them, now or before, asked to stop."""
        if not self.listeners[event]:
            return False
        return self.ranks.on_rank_zero(lambda: self._notify_listeners(event, training))

    def notify_end(self, training: Training) -> None:
        """Tell of the end, in this process alone: another may have failed, and hear nothing."""
        if self.ranks.is_main:
            self._notify_listeners("on_end", training)

    def _notify_listeners(self, event: str, training: Training) -> bool:
        if self.listeners[event]:
            with preserve_rng_state(self.device):
                for listener in self.listeners[event]:
                    getattr(listener, event)(training)
        return bool(getattr(training, "should_stop", False))
