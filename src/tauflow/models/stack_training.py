"""Train networks of one shape together, each as it would be trained alone."""

import logging
import time
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tauflow.batch import SequenceBatch
from tauflow.errors import ArgumentError, NonFiniteError
from tauflow.training import Recipe, TrainingResult, make_optimizer
from tauflow.training import train as train_alone
from tauflow.training.argument_checks import (
    AUTO,
    Objectives,
    Splits,
    check_argument_types,
    check_data,
    check_loss_is_mean,
    check_recipe,
    resolve_splits,
)
from tauflow.training.best_weights import BestWeights
from tauflow.training.denormals import flush_denormals
from tauflow.training.loop import evaluate_split
from tauflow.training.metric_choice import choose_task_metrics, score_shown_metrics
from tauflow.training.model_options import collect_model_options
from tauflow.training.optim import attach_constraints, set_learning_rate
from tauflow.training.process_group import DistributedContext
from tauflow.training.resolve_metric import AnyScore
from tauflow.training.run_directory import (
    RunDirectory,
    compute_fingerprint,
    lock_run_directory,
)
from tauflow.training.trainer import Trainer, seeded_rng
from tauflow.training.training_warnings import warn_loss_increase, warn_time_scale_mismatch

from .sequence_model import SequenceModel
from .stack import ModuleStack, find_stacking_obstacle, named_tensors
from .stack_checkpoint import SavedOptimizer, load_stack, save_stack

_log = logging.getLogger("tauflow")
_ELEMENTWISE_OPTIMIZERS = ("adam", "adamw", "rmsprop", "sgd")


def train_stack(
    models: Sequence[nn.Module],
    *,
    seeds: Sequence[int],
    train: SequenceBatch,
    valid: SequenceBatch | None = None,
    loss: AnyScore = AUTO,
    metric: AnyScore = AUTO,
    recipe: Recipe | None = None,
    run_dir: Path | None = None,
    resume: bool = False,
) -> list[TrainingResult]:
    """Train models of one shape together; each ends with its selected weights.

    Each model is trained as :func:`tauflow.train` would with its seed, up to rounding: it has its
    own order of the batches, its own clipping, and stops when its own patience has run out. What
    cannot be trained together is trained one after the other; the log says why.

    Args:
        models: on the CPU.
        seeds: one for each model.
        train: the training split.
        valid: the validation split, or ``None``.
        loss: as for :func:`tauflow.train`.
        metric: likewise.
        recipe: likewise.
        run_dir: where to keep the state after every epoch, of all models in one file; what is
            trained one after the other has a directory of its own in it, ``0`` and so on. None:
            nothing is written.
        resume: continue the training in ``run_dir``, or start it if there is none. The numbers are
            those of a training that was never interrupted.

    Returns:
        What training each model returned. Seconds of an epoch are those of all models together.

    Raises:
        ArgumentError: there is not one seed for each model; or as :func:`tauflow.train`.
        BusyError, CheckpointError, NonFiniteError: as :func:`tauflow.train`.
    """
    if resume and run_dir is None:
        raise ArgumentError("train_stack: resume=True needs a run_dir to resume from.")
    if len(models) != len(seeds):
        raise ArgumentError(
            f"train_stack: seeds must have one entry per model, got {len(seeds)} for {len(models)}."
        )
    recipe = recipe or Recipe(select="last" if valid is None else "best")
    options: dict[str, Any] = {"valid": valid, "loss": loss, "metric": metric, "recipe": recipe}
    reason = find_training_obstacle(models, train, recipe, loss)
    if reason is None:
        splits, card = resolve_splits(train, valid, None)
        choice = choose_task_metrics(train, metric)
        monitor = metric if choice is None else choice.monitor
        objectives = Objectives.from_arguments(loss, monitor, recipe, train, card)
        check_argument_types(models[0], splits, recipe)
        check_data(splits, objectives)
        check_recipe(models[0], splits, recipe)
        check_loss_is_mean(objectives, train, recipe, DistributedContext.current())
        warn_time_scale_mismatch(models[0], train, stacklevel=2)
        group = _Group(models, seeds, train, valid, objectives, recipe)
        directory = None if run_dir is None else _make_directory(run_dir, group, splits)
        locked = nullcontext() if run_dir is None else lock_run_directory(run_dir)
        with suppress(_DrawsRandomNumbersError), locked:
            return [
                replace(
                    result,
                    scores=score_shown_metrics(
                        *(model, train, choice, recipe.eval_batch_size),
                        *(DistributedContext.current(), None),
                    ),
                    notes=() if choice is None else choice.notes,
                )
                for model, result in zip(models, group.train(directory, resume), strict=True)
            ]
        group.restore()
        reason = "they draw random numbers in training, as dropout does"
    _log.info("training the networks one after the other: %s", reason)
    return [
        train_alone(
            model,
            train=train,
            seed=seed,
            progress=False,
            run_dir=None if run_dir is None else run_dir / str(number),
            resume=resume,
            **options,
        )
        for number, (model, seed) in enumerate(zip(models, seeds, strict=True))
    ]


def find_training_obstacle(
    models: Sequence[nn.Module], data: SequenceBatch, recipe: Recipe, loss: AnyScore
) -> str | None:
    """Return why models have to be trained one after the other, or ``None``."""
    usual = {
        **{"accumulate": 1, "l2": 0.0, "autocast": None, "ema": None, "curriculum": None},
        "on_divergence": "raise",
    }
    unusual = [name for name, value in usual.items() if getattr(recipe, name) != value]
    obstacles = {
        "there is one only": len(models) < 2,
        "several processes share the batches": DistributedContext.current().is_distributed,
        "the data are not on the CPU": data.x.device.type != "cpu",
        "the loss may have a state": isinstance(loss, nn.Module),
        f"a step of {recipe.optimizer!r} is not elementwise": (
            recipe.optimizer not in _ELEMENTWISE_OPTIMIZERS
        ),
        f"the recipe sets {', '.join(unusual)}": bool(unusual),
        "the recipe clips each tensor by itself": recipe.clip == "per_tensor",
        f"schedule={recipe.schedule!r} follows a single optimizer": (
            recipe.schedule not in ("constant", "exponential")
        ),
        "the models have a loss of their own": any(map(_has_own_loss, models)),
    }
    found = next((reason for reason, is_so in obstacles.items() if is_so), None)
    return found or find_stacking_obstacle(models)


def _has_own_loss(model: nn.Module) -> bool:
    if isinstance(model, SequenceModel):
        return model.spread is not None or hasattr(model.rnn, "training_loss")
    return hasattr(model, "training_loss")


class _DrawsRandomNumbersError(Exception):
    """A step of a model has drawn random numbers, which networks together draw otherwise."""


@dataclass
class _Stack:
    """The networks that are still trained, with the optimizer of all of them."""

    members: list[int]
    module: ModuleStack
    optimizer: torch.optim.Optimizer


class _Group:
    """Networks in training."""

    def __init__(
        self,
        models: Sequence[nn.Module],
        seeds: Sequence[int],
        data: SequenceBatch,
        valid: SequenceBatch | None,
        objectives: Objectives,
        recipe: Recipe,
    ) -> None:
        self.data, self.valid, self.objectives, self.recipe = data, valid, objectives, recipe
        self.has_warned = False
        self.before = [{k: v.clone() for k, v in m.state_dict().items()} for m in models]
        self.runs = [
            Trainer(
                *(model, data, objectives.loss, recipe, seed),
                selection=BestWeights(objectives.monitor, recipe),
                ranks=DistributedContext.current(),
                device=None,
            )
            for model, seed in zip(models, seeds, strict=True)
        ]

    def restore(self) -> None:
        """Give the models back the weights that they had."""
        for run, weights in zip(self.runs, self.before, strict=True):
            run.model.load_state_dict(weights)

    def train(self, directory: RunDirectory | None, resume: bool) -> list[TrainingResult]:
        """Train all epochs of all networks, or those that are left.

        Args:
            directory: where to keep their state, if anywhere.
            resume: whether to take up what is there.
        """
        stack, kept = None, SavedOptimizer([], {})
        with seeded_rng(self.data.x.device, self.runs[0].seed, 0):
            if directory is not None and resume:
                kept = load_stack(directory, directory.path / _STACK_FILE, self.runs)
            elif directory is not None:
                directory.claim()
            done = max(len(run.history) for run in self.runs)
            for i in kept.members:  # what was the last epoch, and perhaps left unscored
                run = self.runs[i]
                run.selection.update_if_better(run.history[-1], run.model)
            for epoch in range(done + 1, self.recipe.epochs + 1):
                members = [i for i, run in enumerate(self.runs) if not _is_finished(run, epoch)]
                if not members:
                    break
                stack = self._make_stack(members, stack, kept)
                self._train_epoch(stack, epoch)
                kept = SavedOptimizer(members, stack.optimizer.state_dict()["state"])
                if directory is not None:
                    save_stack(directory.path / _STACK_FILE, self.runs, kept)
        results = []
        for run in self.runs:
            run.selection.restore(run.model)
            run.model.eval()
            best = run.selection.epoch or len(run.history)
            count = sum(parameter.numel() for parameter in run.parameters)
            result = TrainingResult.from_history(run.history, best_epoch=best, parameters=count)
            results.append(replace(result, metric=self.objectives.metric.name))
        return results

    def _make_stack(
        self, members: list[int], before: _Stack | None, kept: SavedOptimizer
    ) -> _Stack:
        """Return the networks with the state of their optimizer, which is part of what is kept."""
        if before is not None and before.members == members:
            return before
        for i in members:
            self.runs[i].model.train()
        module = ModuleStack([self.runs[i].model for i in members])
        trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
        optimizer = make_optimizer(self.recipe, trained)
        attach_constraints(module, optimizer)
        if kept.state:
            rows = [kept.members.index(i) for i in members]
            state: dict[int, Any] = {}
            for number, values in kept.state.items():
                state[number] = {
                    name: value[rows] if isinstance(value, Tensor) and value.ndim else value
                    for name, value in values.items()
                }
            groups = optimizer.state_dict()["param_groups"]
            optimizer.load_state_dict({"state": state, "param_groups": groups})
        return _Stack(members, module, optimizer)

    def _train_epoch(self, stack: _Stack, epoch: int) -> None:
        """Train the networks for an epoch, and evaluate each."""
        started, runs = time.perf_counter(), [self.runs[i] for i in stack.members]
        totals = [[0.0, 0.0] for _ in runs]
        stack.module.train()
        for number, rows in enumerate(zip(*(run.batches(epoch) for run in runs), strict=True)):
            losses = self._take_step(stack, runs, rows, epoch)
            for run, total, (value, divisor) in zip(runs, totals, losses, strict=True):
                run.batch_loss = value
                total[0] += value * divisor
                total[1] += divisor
                run.epoch, run.step = epoch, run.step + 1
            if number == 0 and epoch == 1 and _has_drawn(runs[0]):
                raise _DrawsRandomNumbersError
        self._write_back(stack, runs)
        for run in runs:
            run.check_finite_parameters()
        for run, (summed, divisors) in zip(runs, totals, strict=True):
            self._evaluate(run, epoch, summed / divisors)
        for run in runs:
            run.history[-1]["seconds"] = time.perf_counter() - started

    @flush_denormals()
    def _take_step(
        self, stack: _Stack, runs: Sequence[Trainer], rows: Sequence[Any], epoch: int
    ) -> list[tuple[float, float]]:
        """Move the parameters of all networks; return each one's loss and its divisor."""
        for run in runs:
            run.lr = run.schedule.set_next_rate(epoch=epoch - 1, step=run.step)
        set_learning_rate(stack.optimizer, runs[0].lr)
        joined = self.data[torch.cat([_to_indices(part) for part in rows])]
        if runs[0].trims_padding:
            joined = joined.trim_padding(has_label_sets=runs[0].allows_multiple_labels)
        prediction = stack.module(**_split(joined, len(runs)))[0]
        size = len(joined) // len(runs)
        found = [
            self.objectives.loss.compute_with_divisor(
                prediction[i], joined[slice(i * size, (i + 1) * size)]
            )
            for i in range(len(runs))
        ]
        values = torch.stack([loss for loss, _ in found])
        stack.optimizer.zero_grad()
        values.sum().backward()
        losses = values.tolist()
        if not bool(values.isfinite().all()):
            wrong = [runs[i].seed for i, ok in enumerate(values.isfinite().tolist()) if not ok]
            raise NonFiniteError(
                f"the loss of the networks with seed {', '.join(map(str, wrong))} is not finite in "
                f"epoch {epoch}, with lr={runs[0].lr:g}. Lower lr, set clip and clip_norm, or look "
                "for extreme values in the data."
            )
        _clip_each(stack.module, self.recipe.clip_norm)
        stack.optimizer.step()
        divisors = [float(divisor) for _, divisor in found]
        return list(zip(losses, divisors, strict=True))

    @torch.no_grad()
    def _write_back(self, stack: _Stack, runs: Sequence[Trainer]) -> None:
        stacked = [tensor for _, tensor in named_tensors(stack.module.module)]
        for i, run in enumerate(runs):
            for (_, tensor), values in zip(named_tensors(run.model), stacked, strict=True):
                tensor.copy_(values[i])

    def _evaluate(self, run: Trainer, epoch: int, train_loss: float) -> None:
        """Append the row of an epoch to the history of a network."""
        row: dict[str, Any] = {
            "epoch": epoch,
            "step": run.step,
            "lr": run.lr,
            "train_loss": train_loss,
        }
        measures = self.objectives
        criterion = [] if self.recipe.select_by is None else [measures.monitor]
        row["valid"], *chosen = evaluate_split(
            run, "valid", self.valid, [measures.metric, *criterion]
        )
        row["test"] = None
        if chosen:
            row["criterion"] = chosen[0]
        run.history.append(row)
        self.has_warned = self.has_warned or warn_loss_increase(
            run.history, self.recipe, stacklevel=5
        )
        run.selection.update_if_better(row, run.model)


_STACK_FILE = "stack.safetensors"


def _make_directory(path: Path, group: _Group, splits: Splits) -> RunDirectory:
    """Return the directory of a training, with what tells it from others; nothing is written."""
    model = group.runs[0].model
    return RunDirectory(
        Path(path),
        {
            "recipe": group.recipe.to_dict(),
            "seeds": [run.seed for run in group.runs],
            **group.objectives.names,
            "fingerprint": compute_fingerprint(model, splits),
            "model": collect_model_options(model),
        },
    )


def _is_finished(run: Trainer, epoch: int) -> bool:
    return len(run.history) < epoch - 1 or run.selection.is_patience_exhausted(epoch - 1)


def _has_drawn(run: Trainer) -> bool:
    """Whether the global generator is no longer as it was seeded."""
    now = torch.get_rng_state()
    with seeded_rng(run.device, run.seed, 0):
        return not torch.equal(now, torch.get_rng_state())


def _to_indices(rows: Tensor | slice) -> Tensor:
    return rows if isinstance(rows, Tensor) else torch.arange(rows.start, rows.stop)


def _split(joined: SequenceBatch, networks: int) -> dict[str, Tensor | None]:
    """Return the arguments of a stack from the batches of all networks, one after the other."""
    given = {"x": joined.x, "dt": joined.dt, "mask": joined.mask, "observed": joined.observed}
    if joined.observed is None:
        del given["observed"]
    return {
        name: None if value is None else value.view(networks, -1, *value.shape[1:])
        for name, value in given.items()
    }


@torch.no_grad()
def _clip_each(module: nn.Module, clip_norm: float | None) -> None:
    """Scale each network's gradients down to a norm, as ``clip_grad_norm_`` does."""
    if clip_norm is None:
        return
    gradients = [p.grad for p in module.parameters() if p.grad is not None]
    norms = torch.stack([torch.linalg.vector_norm(g.flatten(1), dim=1) for g in gradients])
    scale = (clip_norm / (torch.linalg.vector_norm(norms, dim=0) + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        gradient *= scale.view(-1, *(1,) * (gradient.ndim - 1))
