"""The training loop: epochs of steps, an evaluation after each, the selected weights in the end."""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tauflow.batch import SequenceBatch
from tauflow.checks import at_least
from tauflow.errors import ArgumentError, CheckpointError, NonFiniteError

from .checkpoint import Checkpoint
from .curriculum import beginning, starts_stage, steps_of_epoch
from .long_gaps import long_gap_words
from .metrics import METRICS, evaluate_all
from .optimization import (
    attach_constraints,
    clip_gradients,
    l2_penalty,
    learning_rate,
    make_optimizer,
    packed_parts,
    set_learning_rate,
)
from .preconditions import Splits, check_training, loss_of
from .progress import progress_bar
from .recipe import Recipe
from .result import TrainingResult
from .run_directory import RunDirectory, fingerprint, owned
from .step_loss import training_loss


def train(
    model: nn.Module,
    *,
    train: SequenceBatch,
    valid: SequenceBatch | None,
    test: SequenceBatch | None,
    loss: str,
    metric: str,
    recipe: Recipe,
    seed: int,
    run_dir: Path | None = None,
    resume: bool = False,
    progress: bool | None = None,
    after_epoch: Callable[[Mapping[str, Any]], None] | None = None,
) -> TrainingResult:
    """Train a model, and leave it with the selected weights, in evaluation mode.

    The model is called as ``prediction, state = model(x, dt=..., mask=...)``, with ``observed=...``
    if the data have it, and predicts once per step, (B, T, O), or per sequence, (B, O).

    A model that learns from more than the error of its predictions has a method
    ``training_loss(batch, prediction_loss, *, epoch)``. It returns the number to minimise, computed
    as it likes: ``prediction_loss(prediction, batch)`` is the loss named here, ``epoch`` the number
    of finished epochs, and chance comes from torch's global generator. Evaluation knows nothing of
    it: metrics compare the model's predictions with the targets.

    The order of the batches and the global random numbers that the model draws (dropout) follow
    from ``seed`` alone; the caller's global generator is left as it was. A run with a ``run_dir``
    saves its state after every epoch, and continues from there with ``resume=True``, on the CPU
    with exactly the numbers of a run that was never interrupted.

    Args:
        model: on the device of the data.
        train: the training split.
        valid: the validation split, or None.
        test: the test split, or None; evaluated after every epoch, never used to select.
        loss: a name in :data:`LOSSES`.
        metric: a name in :data:`METRICS`.
        recipe: the protocol.
        seed: of the order and of the model's random numbers; 0 or larger.
        run_dir: where to keep ``run.json``, ``log.jsonl``, ``last.safetensors`` and, if the recipe
            selects the best weights, ``best.safetensors``. None: nothing is written.
        resume: continue the run in ``run_dir``, or start it if there is none. It may be given more
            epochs than it had, and then ends with the numbers of a run that had them at once, and
            another ``eval_batch_size``.
        progress: whether to draw a progress bar; None: on a terminal.
        after_epoch: called with the row of the history of every epoch once that epoch is saved. An
            exception that it raises ends the training; with a ``run_dir`` it can be resumed.

    Raises:
        ArgumentError: arguments contradict each other.
        BusyError: another training goes on in ``run_dir``.
        DataError: a split is empty, or its targets do not suit the loss or the metric.
        CheckpointError: ``run_dir`` holds another run, or a damaged one.
        NonFiniteError: the loss, a metric or a parameter became NaN or infinite, and the recipe
            does not say to stop there. The epochs before that one are in ``run_dir``.
    """
    splits: Splits = {"train": train, "valid": valid, "test": test}
    at_least(0, seed=seed)
    check_training(model, splits, loss=loss, metric=metric, recipe=recipe)
    directory = None
    if run_dir is not None:
        description = {
            "recipe": recipe.to_dict(),
            "seed": seed,
            "loss": loss,
            "metric": metric,
            "fingerprint": fingerprint(model, splits),
        }
        directory = RunDirectory(Path(run_dir), description)
    elif resume:
        raise ArgumentError("resume=True needs a run_dir to resume from. Pass the directory.")
    ownership = nullcontext() if directory is None else owned(directory.path)
    with ownership, _own_random_numbers(train.x.device, seed):
        run = _Run(model, train, loss, recipe, seed)
        selection = _Selection(metric, recipe)
        if directory is not None:
            _open(directory, run, selection, resume=resume)
        done = len(run.history)
        with progress_bar(recipe.epochs, done=done, wanted=progress) as show:
            for epoch in range(done + 1, recipe.epochs + 1):
                try:
                    row = _one_epoch(run, epoch, splits, metric)
                except NonFiniteError:
                    if recipe.on_divergence == "raise" or selection.epoch is None:
                        raise
                    break
                selection.consider(row, model)
                if directory is not None:
                    directory.save(_snapshot(run, selection))
                show(row)
                if after_epoch is not None:
                    after_epoch(row)
    selection.restore(model)
    model.eval()
    best_epoch = selection.epoch or recipe.epochs
    _check_selected(run.history[best_epoch - 1], splits)
    return TrainingResult.from_history(
        run.history,
        best_epoch=best_epoch,
        parameters=sum(parameter.numel() for parameter in run.parameters),
    )


class _Run:
    """A model being trained: what changes from step to step."""

    def __init__(
        self, model: nn.Module, data: SequenceBatch, loss: str, recipe: Recipe, seed: int
    ) -> None:
        self.model, self.data, self.recipe, self.seed = model, data, recipe, seed
        self.loss = loss_of(loss, recipe)
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.packed = packed_parts(model)
        self._start_optimizer()
        self.step = 0
        self.lr = recipe.lr
        self.history: list[dict[str, Any]] = []

    def _start_optimizer(self) -> None:
        self.optimizer = make_optimizer(self.recipe, self.parameters)
        attach_constraints(self.model, self.optimizer)

    def train_epoch(self, epoch: int) -> float:
        """Take the steps of an epoch, counted from 1; return the mean loss over its entries."""
        self.model.train()
        if starts_stage(self.recipe, epoch):
            self._start_optimizer()
        total, count = 0.0, 0
        for batch in self._batches(epoch):
            self.lr = learning_rate(
                self.recipe, epoch=epoch - 1, step=self.step, sequences=len(self.data)
            )
            set_learning_rate(self.optimizer, self.lr)
            value, entries = self._take_step(batch, epoch)
            total += value * entries
            count += entries
        self._check_finite_parameters(epoch)
        return total / count

    def _take_step(self, batch: SequenceBatch, epoch: int) -> tuple[float, int]:
        loss, entries = training_loss(self.model, batch, self.loss, epoch=epoch - 1)
        value = loss.item()
        if not math.isfinite(value):
            at = self._where(epoch, self.step + 1, first=self.step == 0)
            raise NonFiniteError(f"the loss is {value} at {at}")
        self.optimizer.zero_grad()
        if self.recipe.l2 > 0:
            loss = loss + self.recipe.l2 * l2_penalty(self.model)
        loss.backward()
        clip_gradients(self.parameters, self.recipe, self.packed)
        self.optimizer.step()
        self.step += 1
        return value, entries

    def _batches(self, epoch: int) -> Iterator[SequenceBatch]:
        steps = steps_of_epoch(self.recipe, epoch)
        for batch in self._whole_batches(epoch):
            yield batch if steps is None else beginning(batch, steps)

    def _whole_batches(self, epoch: int) -> Iterator[SequenceBatch]:
        sequences, size = len(self.data), self.recipe.batch_size
        stop = sequences - sequences % size if self.recipe.drop_last else sequences
        if not self.recipe.shuffle:
            for start in range(0, stop, size):
                yield self.data[start : min(start + size, stop)]
            return
        generator = torch.Generator().manual_seed(_mix(self.seed, epoch))
        order = torch.randperm(sequences, generator=generator).to(self.data.x.device)
        for indices in torch.split(order[:stop], size):
            yield self.data[indices]

    def _check_finite_parameters(self, epoch: int) -> None:
        # The evaluation would notice too, but could not say which parameters they are.
        if not all(bool(torch.isfinite(parameter).all()) for parameter in self.parameters):
            where = self._where(epoch, self.step)
            raise NonFiniteError(f"parameters are not finite after {where}")

    def _where(self, epoch: int, step: int, *, first: bool = False) -> str:
        named = list(self.model.named_parameters())
        parameters = _not_finite((name, parameter) for name, parameter in named)
        gradients = _not_finite((n, p.grad) for n, p in named if p.grad is not None)
        return (
            f"epoch {epoch}, step {step}, with lr={self.lr:g}. Not finite: "
            f"parameters: {parameters}; gradients of the last update: {gradients}. "
            f"{long_gap_words(self.model, self.data)}{_UNTRAINED if first else _TRAINED}"
        )


_TRAINED = "Lower lr, set clip and clip_norm, or look for extreme values in the data."
_UNTRAINED = (
    "No update was made yet, so that lr is not the cause: look for extreme values in the data, or "
    "in the model's first parameters."
)


class _Selection:
    """The weights that training will return: the best so far, or those of the last epoch."""

    def __init__(self, metric: str, recipe: Recipe) -> None:
        self.higher_is_better = METRICS[recipe.select_by or metric].higher_is_better
        self.recipe = recipe
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


def _one_epoch(run: _Run, epoch: int, splits: Splits, metric: str) -> dict[str, Any]:
    """Train and evaluate once; return, and append to the history, what came of it."""
    started = time.perf_counter()
    train_loss = run.train_epoch(epoch)
    row: dict[str, Any] = {
        "epoch": epoch,
        "step": run.step,
        "lr": run.lr,
        "train_loss": train_loss,
    }
    criterion = run.recipe.select_by
    scores = _evaluate_split(run, epoch, "valid", splits["valid"], metric, criterion)
    row["valid"], *chosen = scores
    (row["test"],) = _evaluate_split(run, epoch, "test", splits["test"], metric)
    if criterion is not None:
        row["criterion"] = chosen[0]
    row["seconds"] = time.perf_counter() - started
    run.history.append(row)
    return row


def _evaluate_split(
    run: _Run, epoch: int, name: str, data: SequenceBatch | None, *metrics: str | None
) -> list[float | None]:
    """Return the value of each metric; of those that are ``None``, nothing.

    A value is ``None`` without data, or if it is not finite while training has not seen whole
    sequences yet: what a network makes of steps that it was never trained on may well overflow.
    """
    wanted = [metric for metric in metrics if metric is not None]
    if data is None:
        return [None] * len(wanted)
    unfinished = steps_of_epoch(run.recipe, epoch) is not None
    size = run.recipe.eval_batch_size
    try:
        found = evaluate_all(run.model, data, metrics=wanted, batch_size=size)
    except NonFiniteError:  # of a state that overflowed on the way
        if not unfinished:
            raise
        return [None] * len(wanted)
    for metric, value in found.items():
        if not math.isfinite(value) and not unfinished:
            raise NonFiniteError(
                f"{metric} on the {name} data is {value} after epoch {epoch}, although every "
                f"parameter is finite. {long_gap_words(run.model, data)}Lower lr, or look for "
                "extreme values in these data."
            )
    return [value if math.isfinite(value := found[metric]) else None for metric in wanted]


def _check_selected(row: dict[str, Any], splits: Splits) -> None:
    """Refuse to return weights whose scores overflowed."""
    for name in ("valid", "test"):
        if splits[name] is not None and row[name] is None:
            raise NonFiniteError(
                f"the score of the {name} data is not finite after epoch {row['epoch']}, the "
                "selected one: training had not seen whole sequences by then. Train for more "
                "epochs than the curriculum's, or lower lr."
            )


def _check_moments(optimizer: torch.optim.Optimizer) -> None:
    """Raise ``ValueError`` for a state that belongs to tensors of other shapes."""
    for parameter, state in optimizer.state.items():
        for name, value in state.items():
            shape = () if name == "step" else parameter.shape
            if isinstance(value, torch.Tensor) and value.shape != shape:
                raise ValueError(f"{name} of the optimizer has shape {tuple(value.shape)}")


def _open(directory: RunDirectory, run: _Run, selection: _Selection, *, resume: bool) -> None:
    """Claim the directory, or take over the state of the run in it."""
    if not resume:
        directory.start()
        return
    saved = directory.resume()
    if saved is None:
        return
    groups = run.optimizer.state_dict()["param_groups"]
    try:
        run.model.load_state_dict(saved.model)
        run.optimizer.load_state_dict({"state": saved.optimizer, "param_groups": groups})
        _check_moments(run.optimizer)
        torch.set_rng_state(saved.rng["cpu"])
        for row in saved.history:
            float(row["epoch"]), float(row["seconds"]), row["valid"], row["test"]
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"the checkpoint in {directory.path} does not fit this model: {error}. Restore it from "
            "a copy, or delete the directory and train anew."
        ) from error
    run.step, run.history = saved.step, saved.history
    selection.epoch, selection.value = saved.best_epoch, saved.best_metric
    if saved.best_epoch is not None:
        selection.weights = directory.best_weights(saved.best_epoch)
    if "cuda" in saved.rng and run.data.x.device.type == "cuda":
        torch.cuda.set_rng_state(saved.rng["cuda"], run.data.x.device)
    if run.history:
        # What was the last epoch, and perhaps left unscored, is not if there are more now.
        selection.consider(run.history[-1], run.model)
        if selection.epoch != saved.best_epoch:
            directory.overwrite(_snapshot(run, selection))


def _snapshot(run: _Run, selection: _Selection) -> Checkpoint:
    rng = {"cpu": torch.get_rng_state()}
    if run.data.x.device.type == "cuda":
        rng["cuda"] = torch.cuda.get_rng_state(run.data.x.device)
    return Checkpoint(
        model=run.model.state_dict(),
        optimizer=run.optimizer.state_dict()["state"],
        rng=rng,
        epoch=len(run.history),
        step=run.step,
        best_epoch=selection.epoch,
        best_metric=selection.value,
        history=run.history,
    )


def _not_finite(named: Iterator[tuple[str, Tensor]]) -> str:
    return ", ".join(n for n, tensor in named if not bool(torch.isfinite(tensor).all())) or "none"


def _mix(seed: int, epoch: int) -> int:
    return int(np.random.SeedSequence([seed, epoch]).generate_state(1)[0])


@contextmanager
def _own_random_numbers(device: torch.device, seed: int) -> Iterator[None]:
    """Seed the global generators, and give them back as they were."""
    on_cuda = device.type == "cuda"
    with torch.random.fork_rng(devices=[device] if on_cuda else []):
        torch.default_generator.manual_seed(_mix(seed, 0))
        if on_cuda:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(_mix(seed, 0))
        yield
