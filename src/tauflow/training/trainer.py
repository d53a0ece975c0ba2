"""A model being trained: what changes from step to step, and from epoch to epoch."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from tauflow.batch import SequenceBatch
from tauflow.errors import DataError, NonFiniteError

from .denormals import flush_denormals
from .early_stopping import BestWeights
from .elementwise import NoValidEntriesError, Score
from .evaluation_loop import can_trim_padding
from .lr_schedule import LRSchedule
from .optim import attach_constraints, clip_gradients, l2_penalty, make_optimizer, packed_parts
from .preconditions import describe_longest_dt
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
    ) -> None:
        self.loss_module: nn.Module | None = None  # the loss, where it may have a state to keep
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

    def train_epoch(self, epoch: int, after_step: Callable[[], object]) -> float:
        """Take the steps of an epoch, counted from 1; return the mean loss over its entries."""
        self.epoch = epoch
        self.model.train()
        length = self.recipe.get_stage_length
        if epoch > 1 and length(epoch) != length(epoch - 1):  # another stage of the curriculum
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
        self.check_finite_parameters()
        return total / divisors

    @flush_denormals()
    def take_step(self, rows: Tensor | slice, number: int) -> tuple[float, float]:
        """Move the parameters; return the loss of the batch, and what that was divided by."""
        if self.recipe.accumulate > 1 or self.ranks.is_distributed:
            value, divisor = self._accumulate_gradients(rows, number)
        else:
            loss, value, divisor = self._compute_loss(rows, number)
            self.optimizer.zero_grad()
            if self.recipe.l2 > 0:
                loss = loss + self.recipe.l2 * l2_penalty(self.model)
            loss.backward()
        self.apply_gradients()
        return value, divisor

    def apply_gradients(self) -> None:
        """Clip the gradients and move the parameters."""
        clip_gradients(self.parameters, self.recipe, self.packed_row_counts)
        self.optimizer.step()
        self.finish_step()

    def finish_step(self) -> None:
        """Note that the parameters have been moved."""
        self.step += 1
        self.schedule.after_step(self.step)
        if self.averaged is not None:
            self.averaged.update_parameters(self.model)

    def _compute_loss(self, rows: Tensor | slice, number: int) -> tuple[Tensor, float, float]:
        try:
            with self._autocast():
                loss, divisor = compute_training_loss(
                    self.model, self._get_batch(rows), self.loss, epoch=self.epoch - 1
                )
        except NonFiniteError as error:  # of a state, by the model itself
            at = self._describe_state(self.step + 1, self._describe_batch(rows, number))
            raise NonFiniteError(f"{error} In training, that is {at}") from error
        if not math.isfinite(value := loss.item()):
            at = self._describe_state(self.step + 1, self._describe_batch(rows, number))
            raise NonFiniteError(f"the loss is {value} at {at}")
        return loss, value, divisor

    def _autocast(self) -> AbstractContextManager[object]:
        if self.recipe.autocast is None:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=getattr(torch, self.recipe.autocast))

    def _accumulate_gradients(self, rows: Tensor | slice, number: int) -> tuple[float, float]:
        """Leave the gradient of a batch in the parameters, from parts that fit in memory.

        The loss of the batch is a mean over its entries: each part's, and each process's share of
        it, counts by how many it has.
        """
        self.optimizer.zero_grad()
        total = divisors = 0.0
        for part in self._get_own_parts(rows):
            with suppress(NoValidEntriesError):
                loss, value, divisor = self._compute_loss(part, number)
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

    def _get_own_parts(self, rows: Tensor | slice) -> Iterator[Tensor | slice]:
        """Yield this process's share of each part of a batch, where it has one."""
        for part in _split_rows(rows, self.recipe.batch_size):
            if not self.ranks.is_distributed:
                yield part
                continue
            all_rows = torch.arange(part.start, part.stop) if isinstance(part, slice) else part
            if len(own_rows := all_rows[self.ranks.rank :: self.ranks.world_size]):
                yield own_rows

    def _get_batch(self, rows: Tensor | slice) -> SequenceBatch:
        """Return sequences as the epoch takes them, on the device."""
        batch, steps = self.data[rows], self.recipe.get_stage_length(self.epoch)
        if steps is not None:
            batch = batch.with_steps(min(steps, batch.x.shape[1]))
        if self.trims_padding:
            batch = batch.trim_padding(has_label_sets=self.allows_multiple_labels)
        return batch if self.target_device is None else batch.to(self.target_device)

    def batches(self, epoch: int) -> Iterator[Tensor | slice]:
        """Yield which sequences make up each batch."""
        sequences, size = len(self.data), self.recipe.effective_batch_size
        stop = sequences - sequences % size if self.recipe.drop_last else sequences
        if not self.recipe.shuffle:
            for start in range(0, stop, size):
                yield slice(start, min(start + size, stop))
            return
        generator = torch.Generator().manual_seed(derive_seed(self.seed, epoch))
        order = torch.randperm(sequences, generator=generator).to(self.data.x.device)
        yield from torch.split(order[:stop], size)

    def check_finite_parameters(self) -> None:
        """Raise if a parameter is not finite.

        Raises:
            NonFiniteError: one is not.
        """
        # The evaluation would notice too, but could not say which parameters they are.
        if not all(bool(torch.isfinite(parameter).all()) for parameter in self.parameters):
            raise NonFiniteError(
                f"parameters are not finite after {self._describe_state(self.step)}"
            )

    def _describe_batch(self, rows: Tensor | slice, number: int) -> str:
        all_rows = range(rows.start, rows.stop) if isinstance(rows, slice) else rows.tolist()
        some = ", ".join(str(row) for row in all_rows[:_MAX_SHOWN_SEQUENCES])
        more = ", ..." if len(all_rows) > _MAX_SHOWN_SEQUENCES else ""
        return f", batch {number} of sequences {some}{more}"

    def _describe_state(self, step: int, batch: str = "") -> str:
        named = list(self.model.named_parameters())
        parameters = _list_non_finite((name, parameter) for name, parameter in named)
        gradients = _list_non_finite((n, p.grad) for n, p in named if p.grad is not None)
        return (
            f"epoch {self.epoch}, step {step}{batch}, with lr={self.lr:g}. Not finite: "
            f"parameters: {parameters}; gradients of the last update: {gradients}. "
            f"{_describe_largest_value(named)}{describe_longest_dt(self.model, self.data)}"
            f"{_ADVICE_AFTER_UPDATES if self.step else _ADVICE_BEFORE_UPDATES}"
        )


def _split_rows(rows: Tensor | slice, size: int) -> Sequence[Tensor | slice]:
    if isinstance(rows, Tensor):
        return torch.split(rows, size)
    return [slice(k, min(k + size, rows.stop)) for k in range(rows.start, rows.stop, size)]


_MAX_SHOWN_SEQUENCES = 6
_ADVICE_AFTER_UPDATES = "Lower lr, set clip and clip_norm, or look for extreme values in the data."
_ADVICE_BEFORE_UPDATES = (
    "No update was made yet, so that lr is not the cause: look for extreme values in the data, or "
    "in the model's first parameters."
)


def _list_non_finite(named: Iterable[tuple[str, Tensor]]) -> str:
    return ", ".join(n for n, tensor in named if not bool(torch.isfinite(tensor).all())) or "none"


def _describe_largest_value(named: Iterable[tuple[str, Tensor]]) -> str:
    """Say which parameter holds the largest of the values that are finite."""
    sizes = [
        (float(finite.abs().max()), name)
        for name, tensor in named
        if (finite := tensor.detach()[torch.isfinite(tensor)]).numel()
    ]
    if not sizes:
        return ""
    size, name = max(sizes)
    return f"The largest finite value of a parameter is {size:.3g}, in {name}. "


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
