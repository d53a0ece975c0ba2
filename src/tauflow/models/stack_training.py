"""Train networks of one shape together, each as it would be trained alone."""

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tauflow._internal.sanitize import format_count
from tauflow.batch import SequenceBatch
from tauflow.errors import ArgumentError, DataError, NonFiniteError
from tauflow.training import Recipe, TrainingResult
from tauflow.training.argument_checks import AUTO
from tauflow.training.denormals import flush_denormals
from tauflow.training.loop import prepare_training
from tauflow.training.resolve_metric import AnyScore
from tauflow.training.trainer import preserve_rng_state
from tauflow.training.training_run import TrainingRun

from .sequence_model import SequenceModel
from .stack import find_stacking_obstacle
from .stack_steps import NotStackableError, StackOfRuns

_log = logging.getLogger("tauflow")


def train_stack(
    models: Sequence[nn.Module],
    *,
    seeds: Sequence[int],
    train: SequenceBatch,
    valid: SequenceBatch | None = None,
    loss: AnyScore = AUTO,
    metric: AnyScore = AUTO,
    recipe: Recipe | Sequence[Recipe] | None = None,
    run_dir: Path | None = None,
    resume: bool = False,
) -> list[TrainingResult]:
    """Train models of one shape together; each ends with its selected weights.

    Each model is trained as :func:`tauflow.train` would with its seed, up to rounding: it has its
    own order of the batches, its own clipping and learning rate, and stops when its own patience
    has run out. What cannot be trained together is trained one after the other; the log says why.

    Args:
        models: on the CPU.
        seeds: one for each model.
        train: the training split.
        valid: the validation split, or ``None``.
        loss: as for :func:`tauflow.train`.
        metric: likewise.
        recipe: likewise, for all models or one for each. Models are trained together if their
            batches have the same size.
        run_dir: folder in which each model has a directory, ``0`` and so on, with the files of
            :func:`tauflow.train`. None: nothing is written.
        resume: continue the trainings in ``run_dir``, or start them if there are none. The numbers
            are those of trainings that were never interrupted: what began in a stack goes on in
            one, and what began alone goes on alone.

    Returns:
        What training each model returned. Seconds of an epoch in which several were trained are
        shared out among them.

    Raises:
        ArgumentError: there is not one seed, or recipe, for each model; or as
            :func:`tauflow.train`.
        BusyError, CheckpointError, NonFiniteError: as :func:`tauflow.train`.
    """
    if resume and run_dir is None:
        raise ArgumentError("train_stack: resume=True needs a run_dir to resume from.")
    recipes = [recipe] * len(models) if isinstance(recipe, Recipe | None) else list(recipe)
    for name, values in {"seeds": seeds, "recipe": recipes}.items():
        if len(values) != len(models):
            raise ArgumentError(
                f"train_stack: {name} must have one entry per model, got {len(values)} for "
                f"{len(models)}."
            )
    runs = [
        prepare_training(
            *(model, train, valid, None),
            loss=loss,
            metric=metric,
            recipe=its_recipe,
            seed=seed,
            run_dir=None if run_dir is None else Path(run_dir) / str(number),
        )
        for number, (model, seed, its_recipe) in enumerate(zip(models, seeds, recipes, strict=True))
    ]
    results = []
    for found in train_together(runs, resume=resume, fails_alone=False) or ():
        if isinstance(found, Exception):
            raise found
        results.append(found)
    return results


def train_together(
    runs: Sequence[TrainingRun],
    *,
    resume: bool = False,
    progress: bool | None = False,
    fails_alone: bool = True,
    only_stacked: bool = False,
) -> list[TrainingResult | Exception] | None:
    """Train networks in a stack where they can be, and one after the other where not.

    Args:
        runs: the trainings, not begun.
        resume: whether to take up what is in their directories.
        progress: whether to draw bars, in a stack that of the first network; ``None``: on a
            terminal.
        fails_alone: whether the others go on where one fails.
        only_stacked: train nothing if they cannot be trained in a stack.

    Returns:
        What training each came to, or what it failed with; ``None`` if nothing was trained.
    """
    group = _Group(runs, resume=resume, progress=progress, fails_alone=fails_alone)
    reason = find_training_obstacle(runs)
    if reason is None:
        is_trained = group.train_stacked(only_stacked=only_stacked)
    else:
        _say_apart(len(runs), reason)
        is_trained = not only_stacked
        if is_trained:
            group.train_apart()
    return group.finish() if is_trained else None


def _say_apart(count: int, reason: str) -> None:
    if count > 1:
        told = format_count(count, "network")
        _log.info("training %s one after the other: %s", told, reason)


def find_training_obstacle(runs: Sequence[TrainingRun]) -> str | None:
    """Return why networks have to be trained one after the other, or ``None``."""
    trainers = [run.trainer for run in runs]
    if len(trainers) < 2:
        return "there is one only"
    first, data = trainers[0], {id(one.data): one.data for one in trainers}.values()
    usual = {"accumulate": 1, "l2": 0.0, "autocast": None, "curriculum": None}
    recipes = [one.recipe for one in trainers]
    unusual = [n for n, value in usual.items() if any(getattr(r, n) != value for r in recipes)]
    batches = {(r.batch_size, r.drop_last) for r in recipes}
    devices = {one.device.type for one in trainers}
    obstacles = {
        "several processes share the batches": first.ranks.is_distributed,
        "they are not on the CPU": devices != {"cpu"} or first.data.x.device.type != "cpu",
        "their training data have other sizes or fields": len(set(map(_describe, data))) > 1,
        "their batches have other sizes": len(batches) > 1,
        "the loss may have a state": any(one.loss_module is not None for one in trainers),
        f"the recipe sets {', '.join(unusual)}": bool(unusual),
        "the models have a loss of their own": any(_has_own_loss(one.model) for one in trainers),
    }
    found = next((reason for reason, is_so in obstacles.items() if is_so), None)
    return found or find_stacking_obstacle([one.model for one in trainers])


def _describe(data: SequenceBatch) -> tuple[int, frozenset[tuple[Any, ...]]]:
    """Return how many sequences data have, and their fields but for the number of steps."""
    steps = data.x.shape[1]
    fields = {
        (name, tensor.dtype, *("T" if size == steps else size for size in tensor.shape[1:]))
        for name, tensor in data.tensors().items()
        if name != "mask"
    }
    return len(data), frozenset(fields)


def _has_own_loss(model: nn.Module) -> bool:
    if isinstance(model, SequenceModel):
        return model.spread is not None or hasattr(model.rnn, "training_loss")
    return hasattr(model, "training_loss")


class _Group:
    """Trainings that are driven together, see :func:`train_together`."""

    def __init__(
        self,
        runs: Sequence[TrainingRun],
        *,
        resume: bool,
        progress: bool | None,
        fails_alone: bool,
    ) -> None:
        self.runs, self.fails_alone = runs, fails_alone
        self.resume, self.progress = resume, progress
        self.ended: set[int] = set()  # as their numbers are not finite, or for another error
        self.errors: dict[int, Exception] = {}
        self.stack: StackOfRuns | None = None

    def train_stacked(self, *, only_stacked: bool) -> bool:
        """Train all networks, those in a stack that go on together; return whether it was done."""
        with ExitStack() as opened:
            for number, run in enumerate(self.runs):
                with self._catch(number):
                    shown = self.progress if number == 0 else False
                    opened.enter_context(run.open(resume=self.resume, progress=shown))
            for members in self._find_partners():
                try:
                    self._train_members(members)
                except NotStackableError:
                    _say_apart(
                        len(members), "they draw random numbers in training, as dropout does"
                    )
                    if only_stacked:
                        return False
                    for number in members:
                        while self._is_alive(number):
                            self._train_epoch_alone(number)
        return True

    def train_apart(self) -> None:
        """Train one network after the other."""
        for number, run in enumerate(self.runs):
            with self._catch(number), run.open(resume=self.resume, progress=self.progress):
                while self._is_alive(number):
                    self._train_epoch_alone(number)

    def finish(self) -> list[TrainingResult | Exception]:
        """Return what training each came to, or what it failed with."""
        results: list[TrainingResult | Exception] = []
        for number, run in enumerate(self.runs):
            with self._catch(number):
                if number not in self.errors:
                    results.append(run.finish())
                    continue
            results.append(self.errors[number])
        return results

    @contextmanager
    def _catch(self, number: int) -> Iterator[None]:
        """Keep what one training fails with, unless all fail with it."""
        try:
            yield
        except NotStackableError:
            raise
        except Exception as error:
            self.ended.add(number)
            if isinstance(error, NonFiniteError) and self.runs[number].ends_where_it_diverges():
                return
            if not self.fails_alone:
                raise
            self.errors[number] = error

    def _is_alive(self, number: int) -> bool:
        return number not in self.ended and not self.runs[number].is_over

    def _find_partners(self) -> list[list[int]]:
        """Return which networks go on together: what began alone, or in another stack, does not."""
        found: dict[tuple[Any, ...], list[int]] = {}
        apart = 0
        for number, run in enumerate(self.runs):
            done = len(run.trainer.history)
            if self._is_alive(number):
                began_alone = done > 0 and not run.stacked_with
                apart += began_alone
                key = (done, *((number,) if began_alone else run.stacked_with))
                found.setdefault(key, []).append(number)
        _say_apart(apart, "they began so")
        return list(found.values())

    def _train_epoch_alone(self, number: int) -> None:
        run = self.runs[number]
        with self._catch(number), run.own_generators():
            improved = run.score_epoch(run.train_epoch())
            run.save()
            run.tell_epoch(improved=improved)

    def _train_members(self, members: list[int]) -> None:
        """Train networks that have finished as many epochs until none of them has one left.

        Raises:
            NotStackableError: they cannot be; none has taken a step then.
        """
        if len(members) > 1:
            _log.info("training %s side by side", format_count(len(members), "network"))
        try:
            while members := [number for number in members if self._is_alive(number)]:
                if len(members) == 1:
                    self._fit_stack(members)
                    self._train_epoch_alone(members[0])
                else:
                    self._train_epoch(members)
        finally:
            self._fit_stack([])

    def _train_epoch(self, members: list[int]) -> None:
        """Train networks for an epoch, and evaluate each."""
        started = time.perf_counter()
        epoch = len(self.runs[members[0]].trainer.history) + 1
        steps = [self.runs[number].trainer.batches(epoch) for number in members]
        totals = {number: [0.0, 0.0] for number in members}
        with preserve_rng_state(torch.device("cpu")):
            for step, batches in enumerate(zip(*steps, strict=True), start=1):
                rows = dict(zip(members, batches, strict=True))
                alive = [number for number in members if number not in self.ended]
                for number in alive:
                    self.runs[number].trainer.epoch = epoch
                self._fit_stack(alive)
                losses = self._take_step({number: rows[number] for number in alive}, step)
                for number, (value, divisor) in losses.items():
                    totals[number][0] += value * divisor
                    totals[number][1] += divisor
        if self.stack is not None:
            self.stack.share_state()
        seconds = (time.perf_counter() - started) / len(members)
        improved = {}
        for number in members:
            run = self.runs[number]
            with self._catch(number), run.own_generators():
                if number not in self.ended:
                    run.trainer.check_finite_parameters()
                    summed, divisors = totals[number]
                    improved[number] = run.score_epoch((summed / divisors, seconds))
        names = [
            directory.path.name
            for number in members
            if (directory := self.runs[number].directory) is not None
        ]
        for number in improved:
            with self._catch(number), self.runs[number].own_generators():
                self.runs[number].save(names)
        for number, is_best in improved.items():
            with self._catch(number), self.runs[number].own_generators():
                if number not in self.ended:
                    self.runs[number].tell_epoch(improved=is_best)

    def _fit_stack(self, alive: list[int]) -> None:
        """Let the stack be that of these networks; there is none of a single one."""
        if self.stack is not None and self.stack.members != alive:
            self.stack.release()
            self.stack = None
        if self.stack is None and len(alive) > 1:
            for number in alive:
                self.runs[number].trainer.model.train()
            self.stack = StackOfRuns(alive, [self.runs[number] for number in alive])

    def _take_step(self, rows: dict[int, Any], step: int) -> dict[int, tuple[float, float]]:
        """Move the parameters of networks; return each one's loss and its divisor.

        Where a number is not finite, each network takes the step by itself, so that the one whose
        number it is fails as it would alone.
        """
        losses: dict[int, tuple[float, float]] = {}
        trainers = {number: self.runs[number].trainer for number in rows}
        for trainer in trainers.values():
            trainer.lr = trainer.schedule.set_next_rate(epoch=trainer.epoch - 1, step=trainer.step)
        try:
            if self.stack is None:
                raise NonFiniteError
            found = self.stack.compute_losses(list(rows.values()))
            losses = dict(zip(rows, found, strict=True))
            with flush_denormals():
                for number, move in zip(rows, self.stack.move_parameters(), strict=True):
                    with self._catch(number):
                        move()
        except (NonFiniteError, DataError):
            self._fit_stack([])
            for number, trainer in trainers.items():
                with self._catch(number):
                    losses[number] = trainer.take_step(rows[number], step)
        for number, (value, _) in losses.items():
            trainers[number].batch_loss = value
            with self._catch(number):
                self.runs[number].after_step()
        return losses
