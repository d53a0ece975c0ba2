"""The training loop: epochs of steps, an evaluation after each, the selected weights in the end."""

import math
import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tauflow._internal.checks import check_at_least
from tauflow.batch import SequenceBatch
from tauflow.errors import ArgumentError, CheckpointError, NonFiniteError

from .argument_checks import (
    AUTO,
    Objectives,
    Splits,
    TaskSplits,
    check_argument_types,
    check_data,
    check_loss_is_mean,
    check_recipe,
    resolve_device,
    resolve_splits,
)
from .best_weights import BestWeights
from .callbacks import AnyCallback, CallbackList
from .checkpoint import Checkpoint, check_numbers
from .elementwise import Score
from .evaluation_loop import evaluate_all
from .metric_choice import choose_task_metrics, score_shown_metrics
from .model_options import collect_model_options
from .process_group import DistributedContext
from .progress import progress_bar
from .recipe import Recipe
from .resolve_metric import AnyScore
from .result import TrainingResult
from .run_directory import RunDirectory, compute_fingerprint, lock_run_directory
from .trainer import Trainer, seeded_rng
from .training_warnings import describe_longest_dt, warn_loss_increase, warn_time_scale_mismatch


def train(
    model: nn.Module,
    *,
    train: SequenceBatch | TaskSplits,
    valid: SequenceBatch | None = None,
    test: SequenceBatch | None = None,
    loss: AnyScore = AUTO,
    metric: AnyScore = AUTO,
    recipe: Recipe | None = None,
    seed: int = 0,
    device: str | torch.device | None = None,
    compile: bool = False,
    run_dir: Path | None = None,
    resume: bool = False,
    progress: bool | None = None,
    callbacks: Iterable[AnyCallback] = (),
) -> TrainingResult:
    """Train a model; it ends with the selected weights, in evaluation mode.

    The model is called as ``prediction, state = model(x, dt=..., mask=...)``, with ``observed=...``
    if the data have it, and predicts once per step, (B, T, O), or per sequence, (B, O). Where it
    says ``ignores_padding = True``, as tauflow's models and what derives from their bases do, a
    batch ends with the longest of its sequences, as :meth:`~tauflow.SequenceBatch.trim_padding`
    cuts it; other models get every batch as long as the data.

    A model that learns from more than the error of its predictions has a method
    ``training_loss(batch, prediction_loss, *, epoch)``. It returns the number to minimise, computed
    as it likes: ``prediction_loss(prediction, batch)`` is the loss named here, ``epoch`` the number
    of finished epochs, and random numbers come from torch's global generator. Evaluation knows
    nothing of it: metrics compare the model's predictions with the targets.

    In an initialised process group (``torchrun``), every process calls this alike, with the same
    data. Each step's ``recipe.batch_size`` sequences are shared out, and so is evaluation;
    gradients are averaged by PyTorch's DistributedDataParallel. The result is that of one process
    to rounding, and bit-equal when resumed by as many processes. The first one writes ``run_dir``
    and tells the callbacks.

    The order of the batches and the global random numbers that the model draws (dropout) follow
    from ``seed`` alone; the caller's global generator is left as it was. A run with a ``run_dir``
    saves its state after every epoch, and continues from there with ``resume=True``, on the CPU
    with exactly the numbers of a run that was never interrupted.

    Args:
        model: on the device of the data, unless there is a ``device``.
        train: the training split; or a task, such as :func:`tauflow.data.load_task` returns, whose
            parts and card then give the other splits and what is ``"auto"``.
        valid: the validation split, or None.
        test: the test split, or None; evaluated after every epoch, never used to select.
        loss: a name in :data:`~tauflow.training.LOSSES`; a :class:`Score`; or a function or module,
            such as ``nn.CrossEntropyLoss(label_smoothing=0.1)``, that makes one number of the
            predictions (N, O) and targets of the entries that count: padding is left out before.
            Targets are (N, O), also of single outputs, or (N,) where they are one class of several
            outputs. Default ``"auto"``: cross entropy for integer targets, mean squared error for
            others.
        metric: the same, of :data:`~tauflow.training.METRICS`; less is better of a function, unless
            it has an attribute ``higher_is_better`` that is true. Default ``"auto"``: that of the
            card of a task, but ``"auroc"`` for a table of which one of two classes is below 30 % of
            the training targets; without a task, accuracy for losses of classes, else the loss.
        recipe: the protocol; by default ``Recipe()``, with the last weights if there are no
            validation data.
        seed: of the order and of the model's random numbers; 0 or larger.
        device: where to train, such as ``"cuda"``: the model is moved there, and every batch as its
            turn comes. Default: where model and data are.
        compile: whether to compile the model in place first, as ``model.compile()`` does.
        run_dir: where to keep ``run.json``, ``log.jsonl``, ``last.safetensors`` and, if the recipe
            selects the best weights, ``best.safetensors``. None: nothing is written.
        resume: continue the run in ``run_dir``, or start it if there is none. It may be given more
            epochs than it had, and then ends with the numbers of a run that had them at once, and
            another ``eval_batch_size``. A loss or metric that has no name is given again, as it was
            when the run began: the state of a loss that is a module is taken from the run. One that
            patience or a callback ended stays so.
        progress: whether to draw a progress bar; None: on a terminal.
        callbacks: objects of :class:`~tauflow.training.Callback`, or functions that are called with
            the row of the history of every epoch once that epoch is saved.

    Raises:
        ArgumentError: arguments contradict each other.
        BusyError: another training goes on in ``run_dir``.
        DataError: a split is empty, or its targets do not suit the loss or the metric.
        CheckpointError: ``run_dir`` holds another run, or a damaged one.
        NonFiniteError: the loss, a metric or a parameter became NaN or infinite, and the recipe
            does not say to stop there. The epochs before that one are in ``run_dir``.
        DistributedError: another process of the group failed.

    Warns:
        TimeUnitWarning: the model reads gaps, and their median is far from its time constants; or
            it looks at times up to a horizon, and the last one is far from that.
        UserWarning: the training loss more than doubled, to more than half of the first epoch's.
    """
    ranks = DistributedContext.current()
    check_at_least(0, seed=seed)
    splits, card = resolve_splits(train, valid, test)
    check_argument_types(model, splits, recipe)
    data = splits["train"]
    assert data is not None
    choice = choose_task_metrics(train, metric)
    metric = metric if choice is None else choice.monitor
    recipe = recipe or Recipe(select="last" if splits["valid"] is None else "best")
    measures = Objectives.from_arguments(loss, metric, recipe, data, card)
    check_data(splits, measures)
    check_recipe(model, splits, recipe)
    check_loss_is_mean(measures, data, recipe, ranks)
    to = None if device is None else resolve_device(device)
    if to is not None:
        model.to(to)
    if compile:
        model.compile()
    if ranks.is_main:
        warn_time_scale_mismatch(model, data, stacklevel=2)
    told = CallbackList(callbacks, ranks, to or data.x.device)
    facts: dict[str, Any] = {"recipe": recipe.to_dict(), "seed": seed, **measures.names}
    sizes = {name: None if split is None else len(split) for name, split in splits.items()}
    shapes = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    also = {"the model": shapes, "the data": sizes, "callbacks": told.events}
    ranks.assert_equal({**facts, "resume": resume, **also})
    if resume and run_dir is None:
        raise ArgumentError("resume=True needs a run_dir to resume from. Pass the directory.")
    directory = (
        None if run_dir is None else _make_run_directory(run_dir, facts, model, splits, ranks)
    )
    selection = BestWeights(measures.monitor, recipe)
    with ExitStack() as stack:
        if directory is not None:
            path = directory.path
            ranks.on_rank_zero(lambda: stack.enter_context(lock_run_directory(path)))
        stack.enter_context(seeded_rng(to or data.x.device, seed, ranks.rank))
        what = (model, data, measures.loss, recipe, seed)
        run = Trainer(*what, selection=selection, ranks=ranks, device=to)
        run.loss_module = loss if isinstance(loss, nn.Module) else None
        if directory is not None:
            _resume_or_claim(directory, run, resume=resume)
        try:
            _train_epochs(run, splits, measures, directory, progress, told)
        finally:
            told.notify_end(run)
    if run.averaged is not None:
        model.load_state_dict(run.averaged.module.state_dict())
    selection.restore(model)
    model.eval()
    best_epoch = selection.epoch or len(run.history)
    _check_selected_scores(run.history[best_epoch - 1], splits)
    result = TrainingResult.from_history(
        run.history,
        best_epoch=best_epoch,
        parameters=sum(parameter.numel() for parameter in run.parameters),
    )
    scores = score_shown_metrics(model, train, choice, recipe.eval_batch_size, ranks, to)
    notes = () if choice is None else choice.notes
    return replace(result, metric=measures.metric.name, scores=scores, notes=notes)


def _make_run_directory(
    path: Path, facts: dict[str, Any], model: nn.Module, splits: Splits, ranks: DistributedContext
) -> RunDirectory:
    """Return the directory of a run, with what tells it from others; nothing is written yet."""
    if ranks.is_distributed:
        facts = {**facts, "ranks": ranks.world_size}
    if ranks.is_main:
        fingerprint = compute_fingerprint(model, splits)
        facts = {**facts, "fingerprint": fingerprint, "model": collect_model_options(model)}
    return RunDirectory(Path(path), facts)


def _train_epochs(
    run: Trainer,
    splits: Splits,
    measures: Objectives,
    directory: RunDirectory | None,
    progress: bool | None,
    callbacks: CallbackList,
) -> None:
    """Train the epochs that are left, keeping each one's outcome."""
    recipe, ranks, selection = run.recipe, run.ranks, run.selection
    drawn = progress if ranks.is_main else False
    before, warned = list(run.history), not ranks.is_main

    def tell(event: str) -> None:
        had_stopped = run.should_stop
        run.should_stop |= callbacks.notify(event, run)
        if run.should_stop and not had_stopped and directory is not None and run.history:
            ranks.on_rank_zero(partial(directory.overwrite, _make_checkpoint(run)))

    tell("on_start")
    with progress_bar(recipe.epochs, history=before, enabled=drawn) as show:
        while len(run.history) < recipe.epochs:
            if run.history and (
                run.should_stop or selection.is_patience_exhausted(len(run.history))
            ):
                return
            try:
                row = _train_one_epoch(run, splits, measures, callbacks)
            except NonFiniteError:
                if recipe.on_divergence == "raise" or selection.epoch is None:
                    raise
                return
            warned = warned or warn_loss_increase(run.history, recipe, stacklevel=3)
            improved = selection.update_if_better(row, run.evaluated_model)
            if directory is not None:
                ranks.on_rank_zero(partial(directory.save, _make_checkpoint(run)))
            show(row)
            for event in ("on_improved", "on_epoch") if improved else ("on_epoch",):
                tell(event)


def _train_one_epoch(
    run: Trainer, splits: Splits, measures: Objectives, callbacks: CallbackList
) -> dict[str, Any]:
    """Train and evaluate once; return, and append to the history, what came of it."""
    started, epoch = time.perf_counter(), len(run.history) + 1

    def after_step() -> None:
        run.should_stop |= callbacks.notify("on_batch", run)

    train_loss = run.train_epoch(epoch, after_step)
    row: dict[str, Any] = {
        "epoch": epoch,
        "step": run.step,
        "lr": run.lr,
        "train_loss": train_loss,
    }
    criterion = [] if run.recipe.select_by is None else [measures.monitor]
    scores = evaluate_split(run, "valid", splits["valid"], [measures.metric, *criterion])
    row["valid"], *chosen = scores
    (row["test"],) = evaluate_split(run, "test", splits["test"], [measures.metric])
    if chosen:
        row["criterion"] = chosen[0]
    row["seconds"] = time.perf_counter() - started
    run.history.append(row)
    run.schedule.after_epoch(run.selection.score(row))
    return row


def evaluate_split(
    run: Trainer, name: str, data: SequenceBatch | None, metrics: list[Score]
) -> list[float | None]:
    """Return the value of each metric.

    A value is ``None`` without data, or if it is not finite while training has not seen whole
    sequences yet: what a network makes of steps that it was never trained on may well overflow.
    """
    if data is None:
        return [None] * len(metrics)
    unfinished = run.recipe.get_stage_length(run.epoch) is not None
    try:
        found = evaluate_all(
            run.evaluated_model,
            data,
            metrics=metrics,
            batch_size=run.recipe.eval_batch_size,
            ranks=run.ranks,
            device=run.target_device,
        )
    except NonFiniteError:  # of a state that overflowed on the way
        if not unfinished:
            raise
        return [None] * len(metrics)
    for metric, value in zip(metrics, found, strict=True):
        if not math.isfinite(value) and not unfinished:
            raise NonFiniteError(
                f"{metric.name} on the {name} data is {value} after epoch {run.epoch}, although "
                f"every parameter is finite. {describe_longest_dt(run.model, data)}Lower lr, or "
                "look "
                "for extreme values in these data."
            )
    return [value if math.isfinite(value) else None for value in found]


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
            means = value.ndim == parameter.ndim and all(n in (1, whole) for n, whole in pairs)
            if name == "step" or not means:
                raise ValueError(f"{name} of the optimizer has shape {tuple(value.shape)}")


def _restore_scalar_dtypes(optimizer: torch.optim.Optimizer, saved: Mapping[int, Any]) -> None:
    """Give numbers of the state their dtype back: torch loads all in that of the parameters."""
    parameters = [one for group in optimizer.param_groups for one in group["params"]]
    for place, values in saved.items():
        state = optimizer.state[parameters[place]]
        for name, value in values.items():
            if isinstance(value, torch.Tensor) and not value.ndim:
                state[name] = value.to(state[name].device, copy=True)


def _resume_or_claim(directory: RunDirectory, run: Trainer, *, resume: bool) -> None:
    """Claim the directory, or take over the state of the run in it; the first process reads it."""
    ranks, selection = run.ranks, run.selection
    if not resume:
        ranks.on_rank_zero(directory.claim)
        return
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
            f"the checkpoint in {directory.path} does not fit this model: {error}. Restore it from "
            "a copy, or delete the directory and train again."
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
            ranks.on_rank_zero(partial(directory.overwrite, _make_checkpoint(run)))


def _make_checkpoint(run: Trainer) -> Checkpoint:
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
