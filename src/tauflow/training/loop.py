"""The training loop: epochs of steps, an evaluation after each, the selected weights in the end."""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tauflow.batch import SequenceBatch
from tauflow.checks import at_least
from tauflow.errors import ArgumentError, CheckpointError, NonFiniteError

from .checkpoint import Checkpoint, check_numbers
from .curriculum import beginning, starts_stage, steps_of_epoch
from .long_gaps import long_gap_words
from .metrics import evaluate_all
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
from .ranks import Ranks
from .recipe import Recipe
from .result import TrainingResult
from .run_directory import RunDirectory, fingerprint, owned
from .selection import Selection
from .shared_loss import loss_over_ranks, shared_loss


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

    In an initialised process group (``torchrun``), every process calls this alike, with the same
    data. Each step's ``recipe.batch_size`` sequences are shared out, and so is evaluation;
    gradients are averaged by PyTorch's DistributedDataParallel. The result is that of one process
    to rounding, and bit-equal when resumed by as many processes. The first one writes ``run_dir``
    and calls ``after_epoch``.

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
        RankError: another process of the group failed.
    """
    ranks = Ranks.here()
    splits: Splits = {"train": train, "valid": valid, "test": test}
    at_least(0, seed=seed)
    check_training(model, splits, loss=loss, metric=metric, recipe=recipe)
    by_sum = recipe.class_weights and recipe.class_weight_mean != "entries"
    if ranks.several and (by_sum or train.weight is not None):
        raise ArgumentError(
            "several processes share a batch's loss by its entries, and weights, of classes or of "
            "sequences, divide it by their sum. Set class_weight_mean='entries' and leave out the "
            "weights of sequences, or train in one process."
        )
    facts = {"recipe": recipe.to_dict(), "seed": seed, "loss": loss, "metric": metric}
    sizes = {name: None if data is None else len(data) for name, data in splits.items()}
    shapes = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    ranks.agree({**facts, "resume": resume, "the model": shapes, "the data": sizes})
    if resume and run_dir is None:
        raise ArgumentError("resume=True needs a run_dir to resume from. Pass the directory.")
    directory = None
    if run_dir is not None:
        facts |= {"ranks": ranks.world} if ranks.several else {}
        if ranks.writes:
            facts["fingerprint"] = fingerprint(model, splits)
        directory = RunDirectory(Path(run_dir), facts)
    with ExitStack() as stack:
        if directory is not None:
            path = directory.path
            ranks.first_only(lambda: stack.enter_context(owned(path)))
        stack.enter_context(_own_random_numbers(train.x.device, seed, ranks.rank))
        run = _Run(model, train, loss, recipe, seed, ranks)
        selection = Selection(metric, recipe)
        if directory is not None:
            _open(directory, run, selection, resume=resume)
        _epochs(run, selection, splits, directory, progress, after_epoch)
    selection.restore(model)
    model.eval()
    best_epoch = selection.epoch or recipe.epochs
    _check_selected(run.history[best_epoch - 1], splits)
    return TrainingResult.from_history(
        run.history,
        best_epoch=best_epoch,
        parameters=sum(parameter.numel() for parameter in run.parameters),
    )


def _epochs(
    run: "_Run",
    selection: Selection,
    splits: Splits,
    directory: RunDirectory | None,
    progress: bool | None,
    after_epoch: Callable[[Mapping[str, Any]], None] | None,
) -> None:
    """Train the epochs that are left, keeping each one's outcome."""
    recipe, ranks, done = run.recipe, run.ranks, len(run.history)
    with progress_bar(recipe.epochs, done=done, wanted=progress if ranks.writes else False) as show:
        for epoch in range(done + 1, recipe.epochs + 1):
            try:
                row = _one_epoch(run, epoch, splits, selection.metric)
            except NonFiniteError:
                if recipe.on_divergence == "raise" or selection.epoch is None:
                    raise
                return
            selection.consider(row, run.model)
            if directory is not None:
                ranks.first_only(partial(directory.save, _snapshot(run, selection)))
            show(row)
            if after_epoch is not None:
                ranks.first_only(partial(after_epoch, row))


class _Run:
    """A model being trained: what changes from step to step."""

    def __init__(
        self,
        model: nn.Module,
        data: SequenceBatch,
        loss: str,
        recipe: Recipe,
        seed: int,
        ranks: Ranks,
    ) -> None:
        self.model, self.data, self.recipe, self.seed = model, data, recipe, seed
        self.ranks = ranks
        self.loss = shared_loss(model, loss_of(loss, recipe), ranks)
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
        for batch, counts in self._batches(epoch):
            self.lr = learning_rate(
                self.recipe, epoch=epoch - 1, step=self.step, sequences=len(self.data)
            )
            set_learning_rate(self.optimizer, self.lr)
            value, entries = self._take_step(batch, epoch, counts)
            total += value * entries
            count += entries
        self._check_finite_parameters(epoch)
        return total / count

    def _take_step(self, batch: SequenceBatch, epoch: int, counts: bool) -> tuple[float, int]:
        loss, value, entries = loss_over_ranks(
            self.loss, batch, self.ranks, counts=counts, epoch=epoch - 1
        )
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

    def _batches(self, epoch: int) -> Iterator[tuple[SequenceBatch, bool]]:
        """Yield this process's share of every batch, and whether it counts."""
        steps = steps_of_epoch(self.recipe, epoch)
        for rows in self._rows(epoch):
            counts = True
            if self.ranks.several:
                whole = torch.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
                rows, counts = self.ranks.share(whole), self.ranks.has_own(len(whole))
            batch = self.data[rows]
            yield batch if steps is None else beginning(batch, steps), counts

    def _rows(self, epoch: int) -> Iterator[Tensor | slice]:
        """Yield which sequences make up each batch."""
        sequences, size = len(self.data), self.recipe.batch_size
        stop = sequences - sequences % size if self.recipe.drop_last else sequences
        if not self.recipe.shuffle:
            for start in range(0, stop, size):
                yield slice(start, min(start + size, stop))
            return
        generator = torch.Generator().manual_seed(_mix(self.seed, epoch))
        order = torch.randperm(sequences, generator=generator).to(self.data.x.device)
        yield from torch.split(order[:stop], size)

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
        found = evaluate_all(run.model, data, metrics=wanted, batch_size=size, ranks=run.ranks)
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


def _open(directory: RunDirectory, run: _Run, selection: Selection, *, resume: bool) -> None:
    """Claim the directory, or take over the state of the run in it; the first process reads it."""
    ranks = run.ranks
    if not resume:
        ranks.first_only(directory.start)
        return
    saved = ranks.first_only(directory.resume)
    if saved is None:
        return
    groups = run.optimizer.state_dict()["param_groups"]
    try:
        run.model.load_state_dict(saved.model)
        run.optimizer.load_state_dict({"state": saved.optimizer, "param_groups": groups})
        _check_moments(run.optimizer)
        ranks.restore_random_states(saved.rng, run.data.x.device)
        check_numbers(saved)
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"the checkpoint in {directory.path} does not fit this model: {error}. Restore it from "
            "a copy, or delete the directory and train anew."
        ) from error
    run.step, run.history = saved.step, saved.history
    selection.epoch, selection.value = saved.best_epoch, saved.best_metric
    if saved.best_epoch is not None:
        selection.weights = ranks.first_only(partial(directory.best_weights, saved.best_epoch))
    if run.history:
        # What was the last epoch, and perhaps left unscored, is not if there are more now.
        selection.consider(run.history[-1], run.model)
        if selection.epoch != saved.best_epoch:
            ranks.first_only(partial(directory.overwrite, _snapshot(run, selection)))


def _snapshot(run: _Run, selection: Selection) -> Checkpoint:
    return Checkpoint(
        model=run.model.state_dict(),
        optimizer=run.optimizer.state_dict()["state"],
        rng=run.ranks.random_states(run.data.x.device),
        epoch=len(run.history),
        step=run.step,
        best_epoch=selection.epoch,
        best_metric=selection.value,
        history=run.history,
    )


def _not_finite(named: Iterator[tuple[str, Tensor]]) -> str:
    return ", ".join(n for n, tensor in named if not bool(torch.isfinite(tensor).all())) or "none"


def _mix(seed: int, epoch: int, rank: int = 0) -> int:
    entropy = [seed, epoch, rank] if rank else [seed, epoch]
    return int(np.random.SeedSequence(entropy).generate_state(1)[0])


@contextmanager
def _own_random_numbers(device: torch.device, seed: int, rank: int) -> Iterator[None]:
    """Seed the global generators, and give them back as they were."""
    on_cuda = device.type == "cuda"
    with torch.random.fork_rng(devices=[device] if on_cuda else []):
        torch.default_generator.manual_seed(_mix(seed, 0, rank))
        if on_cuda:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(_mix(seed, 0, rank))
        yield
