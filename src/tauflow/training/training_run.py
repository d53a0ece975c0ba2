"""A training from its start to its result: what surrounds the steps of its epochs."""

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from tauflow.errors import CheckpointError, NonFiniteError

from .callbacks import CallbackList
from .checkpoint import Checkpoint, check_numbers
from .elementwise import Score
from .evaluation_loop import evaluate_all
from .objectives import MetricChoice, Objectives, TaskSplits, get_shown_metrics
from .preconditions import Splits, describe_longest_dt
from .progress import ShowEpoch, progress_bar
from .result import TrainingResult
from .run_directory import RunDirectory, lock_run_directory
from .trainer import Trainer, preserve_rng_state, seeded_rng


class TrainingRun:
    """A training, epoch by epoch; see :func:`tauflow.training.train`.

    Who drives it opens it, and until it :attr:`is_over` trains an epoch, scores it, saves it and
    tells the callbacks.

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
        self._task, self._choice = task, choice
        self._has_diverged = False
        self._show: ShowEpoch = lambda row: None
        self._generator: torch.Tensor | None = None
        self._owns_generators = False

    @contextmanager
    def own_generators(self) -> Iterator[None]:
        """Let torch's global generators be those of this training for a while."""
        if self._owns_generators:
            yield
            return
        trainer = self.trainer
        with seeded_rng(trainer.device, trainer.seed, trainer.ranks.rank):
            if self._generator is not None:
                torch.set_rng_state(self._generator)
            self._owns_generators = True
            try:
                yield
            finally:
                self._owns_generators, self._generator = False, torch.get_rng_state()

    @contextmanager
    def open(self, *, resume: bool, progress: bool | None = False) -> Iterator[None]:
        """Own the directory, and begin or take up the training there until the block ends.

        Args:
            resume: whether to take up what is in the directory.
            progress: whether to draw a bar; ``None``: on a terminal.
        """
        trainer, directory = self.trainer, self.directory
        with ExitStack() as stack:
            if directory is not None:
                lock = partial(lock_run_directory, directory.path)
                trainer.ranks.on_rank_zero(lambda: stack.enter_context(lock()))
            with self.own_generators():
                if directory is not None and resume:
                    self._resume(directory)
                elif directory is not None:
                    trainer.ranks.on_rank_zero(directory.claim)
            try:
                self._tell("on_start")
                history = list(trainer.history)
                drawn = progress if trainer.ranks.is_main else False
                epochs = trainer.recipe.epochs
                with progress_bar(epochs, history=history, enabled=drawn) as self._show:
                    yield
            finally:
                self.callbacks.notify_end(trainer)

    @property
    def is_over(self) -> bool:
        """Whether there is no epoch left to train."""
        trainer, done = self.trainer, len(self.trainer.history)
        if self._has_diverged or done >= trainer.recipe.epochs:
            return True
        ended = trainer.should_stop or trainer.selection.is_patience_exhausted(done)
        return done > 0 and ended

    def train_epoch(self) -> tuple[float, float]:
        """Take the steps of the next epoch; return the mean loss and the seconds that it took.

        Raises:
            NonFiniteError: the loss or a parameter is not finite.
        """
        started, epoch = time.perf_counter(), len(self.trainer.history) + 1
        return self.trainer.train_epoch(epoch, self.after_step), time.perf_counter() - started

    def after_step(self) -> None:
        """Tell the callbacks of a step."""
        self.trainer.should_stop |= self.callbacks.notify("on_batch", self.trainer)

    def score_epoch(self, trained: tuple[float, float]) -> bool:
        """Evaluate the model after an epoch; return whether it is the best so far.

        Args:
            trained: the mean loss of the epoch and the seconds that its steps took.

        Raises:
            NonFiniteError: a score is not finite.
        """
        (train_loss, seconds), started = trained, time.perf_counter()
        trainer, measures = self.trainer, self.measures
        row: dict[str, Any] = {
            "epoch": len(trainer.history) + 1,
            "step": trainer.step,
            "lr": trainer.lr,
            "train_loss": train_loss,
        }
        criterion = [] if trainer.recipe.select_by is None else [measures.monitor]
        row["valid"], *chosen = self._evaluate("valid", [measures.metric, *criterion])
        (row["test"],) = self._evaluate("test", [measures.metric])
        if chosen:
            row["criterion"] = chosen[0]
        row["seconds"] = seconds + time.perf_counter() - started
        trainer.history.append(row)
        trainer.schedule.after_epoch(trainer.selection.score(row))
        return trainer.selection.update_if_better(row, trainer.evaluated_model)

    def save(self) -> None:
        """Put the state after an epoch on disk, if there is a directory."""
        if self.directory is not None:
            save = partial(self.directory.save, self._make_checkpoint())
            self.trainer.ranks.on_rank_zero(save)

    def tell_epoch(self, *, improved: bool) -> None:
        """Tell the bar and the callbacks of an epoch that is saved."""
        self._show(self.trainer.history[-1])
        for event in ("on_improved", "on_epoch") if improved else ("on_epoch",):
            self._tell(event)

    def ends_where_it_diverges(self) -> bool:
        """Return whether numbers that are not finite end the training with what it has by now."""
        trainer = self.trainer
        self._has_diverged = (
            trainer.recipe.on_divergence != "raise" and trainer.selection.epoch is not None
        )
        return self._has_diverged

    def finish(self) -> TrainingResult:
        """Give the model the selected weights, and return what training came to.

        Raises:
            NonFiniteError: a score of the selected epoch is missing.
        """
        trainer, choice = self.trainer, self._choice
        model, selection, history = trainer.model, trainer.selection, trainer.history
        if trainer.averaged is not None:
            model.load_state_dict(trainer.averaged.module.state_dict())
        selection.restore(model)
        model.eval()
        best_epoch = selection.epoch or len(history)
        _check_selected_scores(history[best_epoch - 1], self.splits)
        count = sum(parameter.numel() for parameter in trainer.parameters)
        result = TrainingResult.from_history(history, best_epoch=best_epoch, parameters=count)
        scores, notes = self._score_shown_metrics(), () if choice is None else choice.notes
        return replace(result, metric=self.measures.metric.name, scores=scores, notes=notes)

    def _score_shown_metrics(self) -> dict[str, dict[str, float]] | None:
        """Return what reports show of the validation and the test split, if that is several."""
        run, choice = self.trainer, self._choice
        if self._task is None or choice is None or len(choice.shown) < 2:
            return None
        metrics, scores = get_shown_metrics(choice.shown, self._task), {}
        for name in ("valid", "test"):
            if (part := self.splits[name]) is None:
                continue
            with preserve_rng_state(run.device):  # of models that draw
                values = evaluate_all(
                    *(run.model, part),
                    metrics=metrics,
                    batch_size=run.recipe.eval_batch_size,
                    ranks=run.ranks,
                    device=run.target_device,
                )
            scores[name] = dict(zip(choice.shown, values, strict=True))
        return scores

    def _tell(self, event: str) -> None:
        trainer = self.trainer
        had_stopped = trainer.should_stop
        trainer.should_stop |= self.callbacks.notify(event, trainer)
        if trainer.should_stop and not had_stopped and trainer.history:
            self._overwrite()

    def _evaluate(self, name: str, metrics: list[Score]) -> list[float | None]:
        """Return the value of each metric.

        A value is ``None`` without data, or if it is not finite while training has not seen whole
        sequences yet: what a network makes of steps that it was never trained on may well overflow.
        """
        data, run = self.splits[name], self.trainer
        if data is None:
            return [None] * len(metrics)
        unfinished = run.recipe.get_stage_length(run.epoch) is not None
        try:
            scores = evaluate_all(
                *(run.evaluated_model, data),
                metrics=metrics,
                batch_size=run.recipe.eval_batch_size,
                ranks=run.ranks,
                device=run.target_device,
            )
        except NonFiniteError:  # of a state that overflowed on the way
            if not unfinished or run.ranks.is_distributed:
                raise
            return [None] * len(metrics)
        for metric, value in zip(metrics, scores, strict=True):
            if not math.isfinite(value) and not unfinished:
                raise NonFiniteError(
                    f"{metric.name} on the {name} data is {value} after epoch {run.epoch}, "
                    f"although every parameter is finite. {describe_longest_dt(run.model, data)}"
                    "Lower lr, or look for extreme values in these data."
                )
        return [value if math.isfinite(value) else None for value in scores]

    def _resume(self, directory: RunDirectory) -> None:
        """Take over the state of the run in the directory, if any; the first process reads it."""
        run = self.trainer
        ranks, selection = run.ranks, run.selection
        saved = ranks.on_rank_zero(directory.read_last_checkpoint)
        if saved is None:
            return
        try:
            check_numbers(saved)
            run.step, run.history = saved.step, saved.history
            run.epoch = len(run.history)
            run.reset_optimizer()
            groups = run.optimizer.state_dict()["param_groups"]
            run.model.load_state_dict(saved.model)
            run.optimizer.load_state_dict({"state": saved.optimizer, "param_groups": groups})
            _check_optimizer_state(run.optimizer)
            _restore_scalar_dtypes(run.optimizer, saved.optimizer)
            run.should_stop = saved.stopped
            if run.history:
                run.lr = float(run.history[-1].get("lr", run.lr))
            if run.loss_module is not None and saved.loss:
                run.loss_module.load_state_dict(saved.loss)
            if run.averaged is not None:
                run.averaged.module.load_state_dict(saved.averaged)
                run.averaged.n_averaged.fill_(run.step)
            ranks.set_rng_states(saved.rng, run.device)
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
        if run.history:
            # What was the last epoch, and perhaps left unscored, is not if there are more now.
            selection.update_if_better(run.history[-1], run.evaluated_model)
            if selection.epoch != saved.best_epoch:
                self._overwrite()

    def _overwrite(self) -> None:
        if self.directory is not None:
            write = partial(self.directory.overwrite, self._make_checkpoint())
            self.trainer.ranks.on_rank_zero(write)

    def _make_checkpoint(self) -> Checkpoint:
        run = self.trainer
        return Checkpoint(
            model=run.model.state_dict(),
            averaged={} if run.averaged is None else run.averaged.module.state_dict(),
            optimizer=run.optimizer.state_dict()["state"],
            rng=run.ranks.get_rng_states(run.device),
            epoch=len(run.history),
            step=run.step,
            best_epoch=run.selection.epoch,
            best_metric=run.selection.value,
            history=run.history,
            loss={} if run.loss_module is None else run.loss_module.state_dict(),
            stopped=run.should_stop,
        )


def _check_selected_scores(row: dict[str, Any], splits: Splits) -> None:
    """Refuse to return weights whose scores overflowed."""
    for name in ("valid", "test"):
        if splits[name] is not None and row[name] is None:
            raise NonFiniteError(
                f"the score of the {name} data is not finite after epoch {row['epoch']}, the "
                "selected one: training had not seen whole sequences by then. Train for more "
                "epochs than the curriculum's, or lower lr."
            )


def _check_optimizer_state(optimizer: torch.optim.Optimizer) -> None:
    """Raise ``ValueError`` for a state that belongs to tensors of other shapes."""
    for parameter, state in optimizer.state.items():
        for name, value in state.items():
            if not isinstance(value, torch.Tensor) or value.shape in ((), parameter.shape):
                continue
            # Adafactor keeps means over rows and over columns.
            pairs = zip(value.shape, parameter.shape, strict=False)
            means = value.ndim == parameter.ndim and all(n in (1, size) for n, size in pairs)
            if name == "step" or not means:
                raise ValueError(f"{name} of the optimizer has shape {tuple(value.shape)}")


def _restore_scalar_dtypes(optimizer: torch.optim.Optimizer, saved: Mapping[int, Any]) -> None:
    """Give numbers of the state their dtype back: torch loads all in that of the parameters."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for place, values in saved.items():
        state = optimizer.state[parameters[place]]
        for name, value in values.items():
            if isinstance(value, torch.Tensor) and not value.ndim:
                state[name] = value.to(state[name].device, copy=True)
