"""Several processes that train one model on shares of its data, by PyTorch's process groups."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from tauflow.errors import ArgumentError, DistributedError

T = TypeVar("T")


@dataclass(frozen=True)
class DistributedContext:
    """The processes of a training: this one's number, and how many there are.

    Args:
        rank: number of this process; the one with 0 writes.
        world_size: number of processes.
    """

    rank: int = 0
    world_size: int = 1

    @classmethod
    def current(cls) -> "DistributedContext":
        """Return those of the process group that is initialised, or this process alone."""
        if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
            return cls(dist.get_rank(), dist.get_world_size())
        return cls()

    @property
    def is_distributed(self) -> bool:
        """Whether there is another process."""
        return self.world_size > 1

    @property
    def is_main(self) -> bool:
        """Whether this process writes files and draws progress."""
        return self.rank == 0

    def shard(self, rows: Tensor) -> Tensor:
        """Return which rows of a batch are this process's; one that counts nothing if none is."""
        own = rows[self.rank :: self.world_size]
        return own if len(own) else rows[:1]

    def has_shard(self, num_rows: int) -> bool:
        """Return whether this process has a row of its own of so many."""
        return self.rank < num_rows

    def all_reduce_sum(self, *numbers: float, device: torch.device) -> list[float]:
        """Return the sums of numbers over all processes."""
        total = torch.tensor(numbers, dtype=torch.float64, device=device)
        dist.all_reduce(total)
        found: list[float] = total.tolist()
        return found

    def all_gather(self, value: T) -> list[T]:
        """Return the value of every process."""
        found: list[Any] = [None] * self.world_size
        dist.all_gather_object(found, value)
        return found

    def assert_equal(self, values: Mapping[str, Any]) -> None:
        """Refuse processes that were called differently.

        Raises:
            ArgumentError: a fact differs between them.
        """
        if not self.is_distributed:
            return
        for rank, others in enumerate(self.all_gather(dict(values))):
            for name, value in values.items():
                if others.get(name) != value:
                    raise ArgumentError(
                        f"train: the processes disagree about {name}: it is {value!r} here (rank "
                        f"{self.rank}) and {others.get(name)!r} on rank {rank}. Call train() alike "
                        "in all of them."
                    )

    def on_rank_zero(self, action: Callable[[], T]) -> T:
        """Do something in the process that writes, and return the result to all of them.

        Raises:
            DistributedError: it failed there; that process raises what it failed of.
        """
        if not self.is_distributed:
            return action()
        box: list[Any] = [None, None]
        failure: BaseException | None = None
        if self.is_main:
            try:
                box = [action(), None]
            except BaseException as error:
                box, failure = [None, f"{type(error).__name__}: {error}"], error
        dist.broadcast_object_list(box, src=0)
        if failure is not None:
            raise failure
        if box[1] is not None:
            raise DistributedError(f"rank 0 failed, and this one ends with it. {box[1]}")
        result: T = box[0]
        return result

    def on_all_ranks(self, action: Callable[[], T]) -> T:
        """Do something in every process; if it fails in one, all end.

        Raises:
            DistributedError: it failed in another process.
        """
        if not self.is_distributed:
            return action()
        failure: BaseException | None = None
        try:
            result = action()
        except BaseException as error:
            failure = error
        told = self.all_gather(None if failure is None else f"{type(failure).__name__}: {failure}")
        if failure is not None:
            raise failure
        for rank, words in enumerate(told):
            if words is not None:
                raise DistributedError(f"rank {rank} failed, and this one ends with it. {words}")
        return result

    def get_rng_states(self, device: torch.device) -> dict[str, Tensor]:
        """Return the states of all processes' generators, by name of the device and rank."""
        own = {"cpu": torch.get_rng_state()}
        if device.type == "cuda":
            own["cuda"] = torch.cuda.get_rng_state(device)
        if not self.is_distributed:
            return own
        every = self.all_gather(own)
        return {
            _make_rng_key(k, rank): v
            for rank, states in enumerate(every)
            for k, v in states.items()
        }

    def set_rng_states(self, states: Mapping[str, Tensor], device: torch.device) -> None:
        """Set this process's generators to what :meth:`get_rng_states` told."""
        torch.set_rng_state(states[_make_rng_key("cpu", self.rank)])
        name = _make_rng_key("cuda", self.rank)
        if name in states and device.type == "cuda":
            torch.cuda.set_rng_state(states[name], device)


def _make_rng_key(device: str, rank: int) -> str:
    return device if rank == 0 else f"{device}-{rank}"


@contextmanager
def join_process_group() -> Iterator[DistributedContext]:
    """Join the processes that ``torchrun`` started together with this one, if it did.

    A group that exists already is taken as it is; without ``torchrun`` this process is alone.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) < 2 or dist.is_initialized():
        yield DistributedContext.current()
        return
    dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    try:
        yield DistributedContext.current()
    finally:
        dist.destroy_process_group()
