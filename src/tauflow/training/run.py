"""A model being trained: what changes from step to step, and from epoch to epoch."""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tauflow.batch import SequenceBatch
from tauflow.errors import NonFiniteError

from .curriculum import beginning, starts_stage, steps_of_epoch
from .long_gaps import long_gap_words
from .optimization import (
    attach_constraints,
    clip_gradients,
    l2_penalty,
    learning_rate,
    make_optimizer,
    packed_parts,
    set_learning_rate,
)
from .ranks import Ranks
from .recipe import Recipe
from .score import Score
from .selection import Selection
from .shared_loss import loss_over_ranks, shared_loss


class Run:
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
        selection: Selection,
        ranks: Ranks,
        device: torch.device | None,
    ) -> None:
        self.model, self.data, self.recipe, self.seed = model, data, recipe, seed
        self.selection, self.ranks = selection, ranks
        self.moved_to, self.device = device, device or data.x.device
        self.loss = shared_loss(model, loss, ranks)
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.packed = packed_parts(model)
        self._start_optimizer()
        self.epoch = self.step = 0
        self.lr, self.batch_loss = recipe.lr, math.nan
        self.history: list[dict[str, Any]] = []
        self.stopping = False

    @property
    def best_epoch(self) -> int | None:
        """The selected epoch so far."""
        return self.selection.epoch

    def stop(self) -> None:
        """Let the epoch under way be the last."""
        self.stopping = True

    def _start_optimizer(self) -> None:
        self.optimizer = make_optimizer(self.recipe, self.parameters)
        attach_constraints(self.model, self.optimizer)

    def train_epoch(self, epoch: int, after_step: Callable[[], object]) -> float:
        """Take the steps of an epoch, counted from 1; return the mean loss over its entries."""
        self.epoch = epoch
        self.model.train()
        if starts_stage(self.recipe, epoch):
            self._start_optimizer()
        total, count = 0.0, 0
        for number, rows in enumerate(self._rows(epoch), start=1):
            self.lr = learning_rate(
                self.recipe, epoch=epoch - 1, step=self.step, sequences=len(self.data)
            )
            set_learning_rate(self.optimizer, self.lr)
            self.batch_loss, entries = self._take_step(rows, number)
            total += self.batch_loss * entries
            count += entries
            after_step()
        self._check_finite_parameters()
        return total / count

    def _take_step(self, rows: Tensor | slice, number: int) -> tuple[float, int]:
        batch, counts = self._share(rows)
        loss, value, entries = loss_over_ranks(
            self.loss, batch, self.ranks, counts=counts, epoch=self.epoch - 1
        )
        if not math.isfinite(value):
            at = self._where(self.step + 1, self._batch_words(rows, number))
            raise NonFiniteError(f"the loss is {value} at {at}")
        self.optimizer.zero_grad()
        if self.recipe.l2 > 0:
            loss = loss + self.recipe.l2 * l2_penalty(self.model)
        loss.backward()
        clip_gradients(self.parameters, self.recipe, self.packed)
        self.optimizer.step()
        self.step += 1
        return value, entries

    def _share(self, rows: Tensor | slice) -> tuple[SequenceBatch, bool]:
        """Return this process's share of a batch, and whether it counts."""
        counts = True
        if self.ranks.several:
            whole = torch.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
            rows, counts = self.ranks.share(whole), self.ranks.has_own(len(whole))
        batch = self.data[rows] if self.moved_to is None else self.data[rows].to(self.moved_to)
        steps = steps_of_epoch(self.recipe, self.epoch)
        return batch if steps is None else beginning(batch, steps), counts

    def _rows(self, epoch: int) -> Iterator[Tensor | slice]:
        """Yield which sequences make up each batch."""
        sequences, size = len(self.data), self.recipe.batch_size
        stop = sequences - sequences % size if self.recipe.drop_last else sequences
        if not self.recipe.shuffle:
            for start in range(0, stop, size):
                yield slice(start, min(start + size, stop))
            return
        generator = torch.Generator().manual_seed(mixed(self.seed, epoch))
        order = torch.randperm(sequences, generator=generator).to(self.data.x.device)
        yield from torch.split(order[:stop], size)

    def _check_finite_parameters(self) -> None:
        # The evaluation would notice too, but could not say which parameters they are.
        if not all(bool(torch.isfinite(parameter).all()) for parameter in self.parameters):
            raise NonFiniteError(f"parameters are not finite after {self._where(self.step)}")

    def _batch_words(self, rows: Tensor | slice, number: int) -> str:
        whole = range(rows.start, rows.stop) if isinstance(rows, slice) else rows.tolist()
        some = ", ".join(str(row) for row in whole[:_SHOWN])
        return f", batch {number} of sequences {some}{', ...' if len(whole) > _SHOWN else ''}"

    def _where(self, step: int, batch: str = "") -> str:
        named = list(self.model.named_parameters())
        parameters = _not_finite((name, parameter) for name, parameter in named)
        gradients = _not_finite((n, p.grad) for n, p in named if p.grad is not None)
        return (
            f"epoch {self.epoch}, step {step}{batch}, with lr={self.lr:g}. Not finite: "
            f"parameters: {parameters}; gradients of the last update: {gradients}. "
            f"{_largest(named)}{long_gap_words(self.model, self.data)}"
            f"{_TRAINED if self.step else _UNTRAINED}"
        )


_SHOWN = 6
_TRAINED = "Lower lr, set clip and clip_norm, or look for extreme values in the data."
_UNTRAINED = (
    "No update was made yet, so that lr is not the cause: look for extreme values in the data, or "
    "in the model's first parameters."
)


def _not_finite(named: Iterable[tuple[str, Tensor]]) -> str:
    return ", ".join(n for n, tensor in named if not bool(torch.isfinite(tensor).all())) or "none"


def _largest(named: Iterable[tuple[str, Tensor]]) -> str:
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


def mixed(seed: int, epoch: int, rank: int = 0) -> int:
    """Return a seed that follows from a seed, an epoch and the number of a process."""
    entropy = [seed, epoch, rank] if rank else [seed, epoch]
    return int(np.random.SeedSequence(entropy).generate_state(1)[0])


@contextmanager
def own_random_numbers(device: torch.device, seed: int, rank: int) -> Iterator[None]:
    """Seed the global generators, and give them back as they were."""
    on_cuda = device.type == "cuda"
    with torch.random.fork_rng(devices=[device] if on_cuda else []):
        torch.default_generator.manual_seed(mixed(seed, 0, rank))
        if on_cuda:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(mixed(seed, 0, rank))
        yield
