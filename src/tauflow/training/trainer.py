"""A model being trained: what changes from step to step, and from epoch to epoch."""

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from tauflow.batch import SequenceBatch
from tauflow.errors import DataError, NonFiniteError

from .checkpoint import Checkpoint
from .denormals import flush_denormals
from .early_stopping import BestWeights
from .elementwise import NoValidEntriesError, Score
from .evaluation_loop import can_trim_padding
from .lr_schedule import LRSchedule
from .optim import attach_constraints, clip_gradients, l2_penalty, make_optimizer, packed_parts
from .process_group import DistributedContext
from .recipe import Recipe
from .training_loss import compute_training_loss


class Trainer:
    """A model being trained; see :class:`tauflow.training.Training` for what is public of it.

    Args:
        model: on the device.
        data: the training split.
        loss: what is minimised.
        recipe: the protocol.
        seed: of the order and of the model's random numbers.
        selection: the best weights so far.
        ranks: the processes.
        device: where batches go; by default they stay where they are.
        loss_module: the loss, if it is a module, whose state is kept.
    """

    def __init__(
        self,
        model: nn.Module,
        data: SequenceBatch,
        loss: Score,
        recipe: Recipe,
        seed: int,
        *,
        selection: BestWeights,
        ranks: DistributedContext,
        device: torch.device | None,
        loss_module: nn.Module | None = None,
    ) -> None:
        self.loss_module = loss_module
        self.model, self.data, self.recipe, self.seed = model, data, recipe, seed
        self.selection, self.ranks = selection, ranks
        self.target_device, self.device = device, device or data.x.device
        self.trims_padding = can_trim_padding(model)
        self.allows_multiple_labels = loss.allows_multiple_labels
        self.loss = loss
        ranks.share_tensors(iter(model.state_dict().values()))
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.packed_row_counts = packed_parts(model)
        self.averaged: AveragedModel | None = None
        if recipe.ema is not None:
            self.averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(recipe.ema))
        self.epoch = self.step = 0
        self.lr, self.batch_loss = recipe.lr, math.nan
        self.history: list[dict[str, Any]] = []
        self.should_stop = False
        self.reset_optimizer()

    @property
    def best_epoch(self) -> int | None:
        """The selected epoch so far."""
        return self.selection.epoch

    @property
    def evaluated_model(self) -> nn.Module:
        """What is scored and returned: the model, or the moving average of its weights."""
        return self.model if self.averaged is None else self.averaged.module

    def stop(self) -> None:
        """Let the epoch under way be the last."""
        self.should_stop = True

    def reset_optimizer(self) -> None:
        """Take a new optimizer, at the learning rate that the epochs so far have led to."""
        self.optimizer = make_optimizer(self.recipe, self.parameters)
        attach_constraints(self.model, self.optimizer)
        self.schedule = LRSchedule(
            self.recipe,
            self.optimizer,
            sequences=len(self.data),
            higher_is_better=self.selection.higher_is_better,
        )
        self.schedule.replay((row["step"], self.selection.score(row)) for row in self.history)

    def make_checkpoint(self) -> Checkpoint:
        """Return the state after an epoch, with everything needed to resume it."""
        return Checkpoint(
            model=self.model.state_dict(),
            averaged={} if self.averaged is None else self.averaged.module.state_dict(),
            optimizer=self.optimizer.state_dict()["state"],
            rng=self.ranks.get_rng_states(self.device),
            epoch=len(self.history),
            step=self.step,
            best_epoch=self.selection.epoch,
            best_metric=self.selection.value,
            history=self.history,
            loss={} if self.loss_module is None else self.loss_module.state_dict(),
            stopped=self.should_stop,
        )

    def restore(self, saved: Checkpoint) -> None:
        """Take over the state of a checkpoint, but for the best weights.

        Raises:
            KeyError, RuntimeError, TypeError, ValueError: it does not fit.
        """
        self.step, self.history, self.should_stop = saved.step, saved.history, saved.stopped
        self.epoch = len(self.history)
        self.reset_optimizer()
        groups = self.optimizer.state_dict()["param_groups"]
        self.model.load_state_dict(saved.model)
        self.optimizer.load_state_dict({"state": saved.optimizer, "param_groups": groups})
        for place, values in saved.optimizer.items():
            state = self.optimizer.state[self.parameters[place]]
            for name, value in values.items():
                if isinstance(value, Tensor) and not value.ndim:
                    # Torch gives all floats the dtype of the parameters.
                    state[name] = value.to(state[name].device, copy=True)
        if self.history:
            self.lr = self.history[-1]["lr"]
        if self.loss_module is not None and saved.loss:
            self.loss_module.load_state_dict(saved.loss)
        if self.averaged is not None:
            self.averaged.module.load_state_dict(saved.averaged)
            self.averaged.n_averaged.fill_(self.step)
        self.ranks.set_rng_states(saved.rng, self.device)

    def train_epoch(self, epoch: int, after_step: Callable[[], object]) -> float:
        """Take the steps of an epoch, counted from 1; return the mean loss over its entries."""
        self.epoch = epoch
        self.model.train()
        if self.recipe.begins_stage(epoch):
            self.reset_optimizer()
        total = divisors = 0.0
        for number, rows in enumerate(self.batches(epoch), start=1):
            self.lr = self.schedule.set_next_rate(epoch=epoch - 1, step=self.step)
            self.batch_loss, divisor = self.take_step(rows, number)
            # A batch counts by what its loss was divided by, so that this is the mean of them all.
            total += self.batch_loss * divisor
            divisors += divisor
            after_step()
        self.ranks.share_tensors(self.model.buffers())
        # The evaluation would notice too, but could not say which parameters they are.
        if not all(bool(torch.isfinite(parameter).all()) for parameter in self.parameters):
            raise NonFiniteError(
                f"parameters are not finite after {self._describe_state(self.step)}"
            )
        return total / divisors

    @flush_denormals()
    def take_step(self, rows: Tensor, number: int) -> tuple[float, float]:
        """Move the parameters; return the loss of the batch, and what that was divided by."""
        if self.recipe.accumulate > 1 or self.ranks.is_distributed:
            value, divisor = self._accumulate_gradients(rows, number)
        else:
            loss, value, divisor = self._compute_loss(rows, number)
            self.optimizer.zero_grad()
            if self.recipe.l2 > 0:
                loss = loss + self.recipe.l2 * l2_penalty(self.model)
            loss.backward()
        clip_gradients(self.parameters, self.recipe, self.packed_row_counts)
        self.optimizer.step()
        self.step += 1
        self.schedule.after_step(self.step)
        if self.averaged is not None:
            self.averaged.update_parameters(self.model)
        return value, divisor

    def _compute_loss(self, rows: Tensor, number: int) -> tuple[Tensor, float, float]:
        name = self.recipe.autocast
        half = name and torch.autocast(self.device.type, dtype=getattr(torch, name))
        try:
            with half or nullcontext():
                loss, divisor = compute_training_loss(
                    self.model, self._get_batch(rows), self.loss, epoch=self.epoch - 1
                )
        except NonFiniteError as error:  # of a state, by the model itself
            at = self._describe_state(self.step + 1, rows, number)
            raise NonFiniteError(f"{error} In training, that is {at}") from error
        if not math.isfinite(value := loss.item()):
            at = self._describe_state(self.step + 1, rows, number)
            raise NonFiniteError(f"the loss is {value} at {at}")
        return loss, value, divisor

    def _accumulate_gradients(self, rows: Tensor, number: int) -> tuple[float, float]:
        """Leave the gradient of a batch in the parameters, from parts that fit in memory.

        The loss of the batch is a mean over its entries: each part's, and each process's share of
        it, counts by how many it has.
        """
        self.optimizer.zero_grad()
        total = divisors = 0.0
        for part in torch.split(rows, self.recipe.batch_size):
            own_rows = part[self.ranks.rank :: self.ranks.world_size]
            if not len(own_rows):
                continue
            with suppress(NoValidEntriesError):
                loss, value, divisor = self._compute_loss(own_rows, number)
                (loss * divisor).backward()
                total, divisors = total + value * divisor, divisors + divisor
        if self.ranks.is_distributed:
            total, divisors = self.ranks.sum_step(
                self.parameters, total, divisors, device=self.device
            )
        if not divisors:
            raise DataError(
                f"no entry of batch {number} is valid: y_mask, or mask, is false at every step of "
                "its sequences. Leave out such sequences, or take larger batches."
            )
        for parameter in self.parameters:
            if parameter.grad is not None:
                parameter.grad /= divisors
        if self.recipe.l2 > 0:
            (self.recipe.l2 * l2_penalty(self.model)).backward()
        return total / divisors, divisors

    def _get_batch(self, rows: Tensor) -> SequenceBatch:
        """Return sequences as the epoch takes them, on the device."""
        batch, steps = self.data[rows], self.recipe.get_stage_length(self.epoch)
        if steps is not None:
            batch = batch.with_steps(min(steps, batch.x.shape[1]))
        if self.trims_padding:
            batch = batch.trim_padding(has_label_sets=self.allows_multiple_labels)
        return batch if self.target_device is None else batch.to(self.target_device)

    def batches(self, epoch: int) -> Iterator[Tensor]:
        """Yield which sequences make up each batch."""
        sequences, size = len(self.data), self.recipe.effective_batch_size
        order = torch.arange(sequences)
        if self.recipe.shuffle:
            generator = torch.Generator().manual_seed(derive_seed(self.seed, epoch))
            order = torch.randperm(sequences, generator=generator)
        stop = sequences - sequences % size if self.recipe.drop_last else sequences
        yield from torch.split(order[:stop].to(self.data.x.device), size)

    def _describe_state(self, step: int, rows: Tensor | None = None, number: int = 0) -> str:
        """Say where training stands, and what may have made numbers that are not finite."""
        batch = ""
        if rows is not None:
            more = ", ..." if len(rows) > _MAX_SHOWN_SEQUENCES else ""
            some = ", ".join(map(str, rows[:_MAX_SHOWN_SEQUENCES].tolist()))
            batch = f", batch {number} of sequences {some}{more}"
        bad = [
            name
            for name, parameter in self.model.named_parameters()
            if not bool(torch.isfinite(parameter).all())
        ]
        return (
            f"epoch {self.epoch}, step {step}{batch}, with lr={self.lr:g}. Parameters that are not "
            f"finite: {', '.join(bad) or 'none'}. Lower lr, set clip and clip_norm, or look for "
            "extreme values or time steps in the data."
        )


_MAX_SHOWN_SEQUENCES = 6


def derive_seed(seed: int, epoch: int, rank: int = 0) -> int:
    """Return a seed that follows from a seed, an epoch and the number of a process."""
    entropy = [seed, epoch, rank] if rank else [seed, epoch]
    return int(np.random.SeedSequence(entropy).generate_state(1)[0])


def preserve_rng_state(device: torch.device) -> AbstractContextManager[None]:
    """Give the global generators, of the CPU and of this device, back as they were."""
    return torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])


@contextmanager
def seeded_rng(device: torch.device, seed: int, rank: int) -> Iterator[None]:
    """Seed the global generators, and give them back as they were."""
    with preserve_rng_state(device):
        torch.default_generator.manual_seed(derive_seed(seed, 0, rank))
        if device.type == "cuda":
            with torch.cuda.device(device):
                torch.cuda.manual_seed(derive_seed(seed, 0, rank))
        yield
