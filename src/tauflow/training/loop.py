"""The training loop: epochs of steps, an evaluation after each, the selected weights in the end."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tauflow._internal.checks import check_at_least
from tauflow.batch import SequenceBatch
from tauflow.errors import ArgumentError

from .callbacks import AnyCallback, CallbackList
from .early_stopping import BestWeights
from .objectives import (
    AUTO,
    AnyScore,
    Objectives,
    TaskSplits,
    check_loss_is_mean,
    choose_metrics,
)
from .preconditions import (
    check_data,
    check_model,
    resolve_device,
    resolve_splits,
    warn_time_scale_mismatch,
)
from .process_group import DistributedContext
from .recipe import Recipe
from .result import TrainingResult
from .run_directory import RunDirectory, compute_fingerprint
from .trainer import Trainer
from .training_run import TrainingRun


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
    if the data have it. It returns a prediction per step, (B, T, O), or per sequence, (B, O). For
    models with ``ignores_padding = True``, such as those of tauflow, final steps that are padding
    in the whole batch are removed first (:meth:`~tauflow.SequenceBatch.trim_padding`); other models
    get every batch at full length.

    A model may define its own objective as a method ``training_loss(batch, prediction_loss, *,
    epoch)`` that returns the number to minimise. ``prediction_loss(prediction, batch)`` is the loss
    given here, and ``epoch`` the number of finished epochs; random numbers come from torch's global
    generator. Metrics always compare predictions with targets.

    In an initialised process group (``torchrun``), every process makes the same call with the same
    data. The ``recipe.batch_size`` sequences of each step, and evaluation, are divided among them;
    gradients are averaged. The result equals that of a single process up to rounding, and is
    bit-equal when resumed with the same number of processes. The weights are those of the first
    process, which writes ``run_dir`` and calls the callbacks. If a process fails, ``torchrun`` ends
    the others.

    The order of batches and the model's random numbers (dropout) depend on ``seed`` only; the
    state of the global generator is preserved. With a ``run_dir`` the state is saved after every
    epoch, and ``resume=True`` continues from there; on the CPU the result is bit-identical to that
    of an uninterrupted run.

    Args:
        model: the model, on the device of the data unless ``device`` is given.
        train: the training split; or a task, such as :func:`tauflow.data.load_task` returns, which
            also provides the other splits and, in its card, what is ``"auto"``.
        valid: the validation split, or None.
        test: the test split, or None; evaluated after every epoch, never used to select.
        loss: a name in :data:`~tauflow.training.LOSSES`; a :class:`~tauflow.training.Score`; or a
            function or module, such as ``nn.CrossEntropyLoss(label_smoothing=0.1)``, of predictions
            (N, O) and targets that returns one number; padded entries are removed first. Targets
            are (N, O), also for a single output, or (N,) for one class out of several outputs.
            Default ``"auto"``: cross entropy for integer targets, otherwise mean squared error.
        metric: the same, with names in :data:`~tauflow.training.METRICS`; for a function, lower is
            better unless it has a true attribute ``higher_is_better``. Default ``"auto"``: the
            metric of the card of a task, but ``"auroc"`` for a table in which one of two classes
            makes up less than 30 % of the training targets; without a task, accuracy for losses of
            classes, otherwise the loss.
        recipe: the hyperparameters; by default ``Recipe()``, with the last weights if there are no
            validation data.
        seed: random seed of the order of batches and of the model's random numbers, 0 or larger.
        device: where to train, such as ``"cuda"``: the model is moved there, and each batch when it
            is used. Default: where model and data are.
        compile: whether to compile the model in place first, as ``model.compile()`` does.
        run_dir: folder for ``run.json``, ``log.jsonl``, ``last.safetensors`` and, if the recipe
            selects the best weights, ``best.safetensors``. None: nothing is written.
        resume: continue the run in ``run_dir``, or start it if it has none. With more epochs than
            before, the result is that of a run that had them from the start; ``eval_batch_size``
            may change too. Pass a loss or metric without a name again, with the settings it had,
            which are not compared; the state of a loss module is restored from the run. A run that
            patience or a callback ended stays finished.
        progress: whether to show a progress bar; None: in a terminal.
        callbacks: objects of :class:`~tauflow.training.Callback`, or functions that are called with
            the history row of each epoch after the epoch is saved.

    Raises:
        ArgumentError: arguments contradict each other.
        BusyError: another process is training in ``run_dir``.
        DataError: a split is empty, or its targets do not suit the loss or the metric.
        CheckpointError: ``run_dir`` holds another run, or a damaged one.
        NonFiniteError: the loss, a metric or a parameter became NaN or infinite, and the recipe
            does not say to stop there. The epochs before that one are in ``run_dir``.

    Warns:
        TimeUnitWarning: the model uses time steps whose median is far from its time constants.
    """
    ranks = DistributedContext.current()
    seed = check_at_least(0, seed=seed)
    splits = resolve_splits(train, valid, test)
    task = None if isinstance(train, SequenceBatch) else train
    data = splits["train"]
    assert data is not None
    recipe = recipe or Recipe(select="last" if splits["valid"] is None else "best")
    check_model(model, recipe)
    is_auto = isinstance(metric, str) and metric == AUTO
    choice = choose_metrics(task) if task is not None and is_auto else None
    metric = metric if choice is None else choice.monitor
    card = None if task is None else task.card
    measures = Objectives.from_arguments(loss, metric, recipe, data, card)
    check_data(splits, measures, recipe)
    check_loss_is_mean(measures.loss, data, recipe, several_processes=ranks.is_distributed)
    if ranks.is_distributed and recipe.on_divergence == "stop":
        raise ArgumentError("on_divergence='stop' is for one process: the others go on. Drop it.")
    if resume and run_dir is None:
        raise ArgumentError("resume=True needs a run_dir to resume from. Pass the directory.")
    to = None if device is None else resolve_device(device)
    if to is not None:
        model.to(to)
    if compile:
        model.compile()
    directory = None
    if run_dir is not None:
        description: dict[str, Any] = {"recipe": recipe.to_dict(), "seed": seed, **measures.names}
        if ranks.is_distributed:
            description["ranks"] = ranks.world_size
        if ranks.is_main:
            description["fingerprint"] = compute_fingerprint(model, splits)
        directory = RunDirectory(Path(run_dir), description)
    if ranks.is_main:
        warn_time_scale_mismatch(model, data, stacklevel=2)
    trainer = Trainer(
        model,
        data,
        measures.loss,
        recipe,
        seed,
        selection=BestWeights(measures.monitor, recipe),
        ranks=ranks,
        device=to,
        loss_module=loss if isinstance(loss, nn.Module) else None,
    )
    listeners = CallbackList(callbacks, ranks, to or data.x.device)
    run = TrainingRun(trainer, task, splits, measures, choice, directory, listeners)
    return run.run(resume=resume, progress=progress)
