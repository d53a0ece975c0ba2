"""A training from its start to its result: what surrounds the steps of its epochs."""

import math
import time
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

from torch import nn

from tauflow.errors import CheckpointError, NonFiniteError

from .callbacks import CallbackList
from .elementwise import Score
from .evaluation_loop import evaluate_all
from .objectives import MetricChoice, Objectives, TaskSplits, get_shown_metrics
from .preconditions import Splits
from .progress import progress_bar
from .result import TrainingResult
from .run_directory import RunDirectory, lock_run_directory
from .trainer import Trainer, preserve_rng_state, seeded_rng


class TrainingRun:
    """A training, epoch by epoch; see :func:`tauflow.training.train`.

    Args:
        trainer: the model and all that changes with its steps.
        task: that holds the splits, if one was given.
        splits: training, validation and test split.
        measures: what is minimised and what is reported.
        choice: of the metrics that reports show.
        directory: where the state is kept, if anywhere.
        callbacks: told how it goes.
    """

    def __init__(
        self,
        trainer: Trainer,
        task: TaskSplits | None,
        splits: Splits,
        measures: Objectives,
        choice: MetricChoice | None,
        directory: RunDirectory | None,
        callbacks: CallbackList,
    ) -> None:
        self.trainer, self.splits, self.measures = trainer, splits, measures
        self.directory, self.callbacks = directory, callbacks
        self.task, self.choice = task, choice

    def run(self, *, resume: bool, progress: bool | None) -> TrainingResult:
        """Train until no epoch is left; return what training came to.

        Args:
            resume: whether to take up what is in the directory.
            progress: whether to draw a bar; ``None``: on a terminal.

        Raises:
            NonFiniteError: the loss, a parameter or a score is not finite.
        """
        trainer, directory, ranks = self.trainer, self.directory, self.trainer.ranks
        recipe = trainer.recipe
        with seeded_rng(trainer.device, trainer.seed, ranks.rank), ExitStack() as stack:
            if directory is not None:
                lock = partial(lock_run_directory, directory.path)
                ranks.on_rank_zero(lambda: stack.enter_context(lock()))
                if resume:
                    self._resume(directory)
                else:
                    ranks.on_rank_zero(directory.claim)
            stack.callback(self.callbacks.notify_end, trainer)
            self._notify("on_start")
            drawn = progress if ranks.is_main else False
            history = trainer.history
            bar = progress_bar(recipe.epochs, done=len(history), enabled=drawn)
            show = stack.enter_context(bar)
            while not self._is_over():
                try:
                    improved = self._train_epoch()
                except NonFiniteError:
                    if recipe.on_divergence == "raise" or trainer.selection.epoch is None:
                        raise
                    break
                if directory is not None:
                    save = partial(directory.save, trainer.make_checkpoint())
                    ranks.on_rank_zero(save)
                show(history[-1])
                if improved:
                    self._notify("on_improved")
                self._notify("on_epoch")
        return self._finish()

    def _is_over(self) -> bool:
        trainer, done = self.trainer, len(self.trainer.history)
        if done >= trainer.recipe.epochs:
            return True
        ended = trainer.should_stop or trainer.selection.is_patience_exhausted(done)
        return done > 0 and ended

    def _train_epoch(self) -> bool:
        """Train an epoch and score it; return whether it is the best so far."""
        trainer, started = self.trainer, time.perf_counter()
        epoch = len(trainer.history) + 1
        row: dict[str, Any] = {"epoch": epoch, "step": 0, "lr": 0.0}
        row["train_loss"] = trainer.train_epoch(epoch, partial(self._notify, "on_batch"))
        row["step"], row["lr"] = trainer.step, trainer.lr
        criterion = [] if trainer.recipe.select_by is None else [self.measures.monitor]
        row["valid"], *chosen = self._evaluate("valid", [self.measures.metric, *criterion])
        (row["test"],) = self._evaluate("test", [self.measures.metric])
        if chosen:
            row["criterion"] = chosen[0]
        row["seconds"] = time.perf_counter() - started
        trainer.history.append(row)
        trainer.schedule.after_epoch(trainer.selection.score(row))
        return trainer.selection.update_if_better(row, trainer.evaluated_model)

    def _finish(self) -> TrainingResult:
        """Give the model the selected weights, and return what training came to."""
        trainer, choice = self.trainer, self.choice
        model, selection, history = trainer.model, trainer.selection, trainer.history
        if trainer.averaged is not None:
            model.load_state_dict(trainer.averaged.module.state_dict())
        selection.restore(model)
        model.eval()
        count = sum(parameter.numel() for parameter in trainer.parameters)
        best_epoch = selection.epoch or len(history)
        result = TrainingResult.from_history(history, best_epoch=best_epoch, parameters=count)
        scores, notes = self._score_shown_metrics(), () if choice is None else choice.notes
        return replace(result, metric=self.measures.metric.name, scores=scores, notes=notes)

    def _score_shown_metrics(self) -> dict[str, dict[str, float]] | None:
        """Return what reports show of the validation and the test split, if that is several."""
        trainer, choice = self.trainer, self.choice
        if self.task is None or choice is None or len(choice.shown) < 2:
            return None
        metrics, scores = get_shown_metrics(choice.shown, self.task), {}
        for name in ("valid", "test"):
            if self.splits[name] is not None:
                with preserve_rng_state(trainer.device):  # of models that draw
                    values = self._score(trainer.model, name, metrics)
                scores[name] = dict(zip(choice.shown, values, strict=True))
        return scores

    def _notify(self, event: str) -> None:
        """Tell the callbacks; the directory keeps that one of them asked to stop at an epoch."""
        trainer = self.trainer
        had_stopped = trainer.should_stop
        trainer.should_stop |= self.callbacks.notify(event, trainer)
        if event != "on_batch" and trainer.should_stop and not had_stopped and trainer.history:
            self._overwrite()

    def _score(self, model: nn.Module, name: str, metrics: list[Score]) -> list[float]:
        trainer, data = self.trainer, self.splits[name]
        assert data is not None
        return evaluate_all(
            model,
            data,
            metrics=metrics,
            batch_size=trainer.recipe.eval_batch_size,
            ranks=trainer.ranks,
            device=trainer.target_device,
        )

    def _evaluate(self, name: str, metrics: list[Score]) -> list[float | None]:
        """Return the value of each metric.

        A value is ``None`` without data, or if it is not finite while training has not seen whole
        sequences yet: what a network makes of steps that it was never trained on may well overflow.
        """
        trainer = self.trainer
        if self.splits[name] is None:
            return [None] * len(metrics)
        unfinished = trainer.recipe.get_stage_length(trainer.epoch) is not None
        try:
            scores = self._score(trainer.evaluated_model, name, metrics)
        except NonFiniteError:  # of a state that overflowed on the way
            if not unfinished or trainer.ranks.is_distributed:
                raise
            return [None] * len(metrics)
        for metric, value in zip(metrics, scores, strict=True):
            if not math.isfinite(value) and not unfinished:
                raise NonFiniteError(
                    f"{metric.name} on the {name} data is {value} after epoch {trainer.epoch}, "
                    "although every parameter is finite. Lower lr, or look for extreme values or "
                    "time steps in these data."
                )
        return [value if math.isfinite(value) else None for value in scores]

    def _resume(self, directory: RunDirectory) -> None:
        """Take over the state of the run in the directory, if any; the first process reads it."""
        trainer = self.trainer
        ranks, selection = trainer.ranks, trainer.selection
        saved = ranks.on_rank_zero(directory.read_last_checkpoint)
        if saved is None:
            return
        try:
            trainer.restore(saved)
        except (KeyError, RuntimeError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"the checkpoint in {directory.path} does not fit this model: {error}. Restore it "
                "from a copy, or delete the directory and train again."
            ) from error
        selection.epoch, selection.value = saved.best_epoch, saved.best_metric
        if saved.best_epoch is not None:
            selection.weights = ranks.on_rank_zero(
                partial(directory.read_best_weights, saved.best_epoch)
            )
        if trainer.history:
            # What was the last epoch, and perhaps left unscored, is not if there are more now.
            selection.update_if_better(trainer.history[-1], trainer.evaluated_model)
            if selection.epoch != saved.best_epoch:
                self._overwrite()

    def _overwrite(self) -> None:
        if self.directory is not None:
            write = partial(self.directory.overwrite, self.trainer.make_checkpoint())
            self.trainer.ranks.on_rank_zero(write)
