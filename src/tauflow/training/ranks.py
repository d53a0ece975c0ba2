"""Several processes that train one model on shares of its data, by PyTorch's process groups."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from tauflow.errors import ArgumentError, RankError

T = TypeVar("T")


@dataclass(frozen=True)
class Ranks:
    """The processes of a training: this one's number, and how many there are.

    Args:
        rank: number of this process; the one with 0 writes.
        world: number of processes.
    """

    rank: int = 0
    world: int = 1

    @classmethod
    def here(cls) -> "Ranks":
        """Return those of the process group that is initialised, or this process alone."""
        if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
            return cls(dist.get_rank(), dist.get_world_size())
        return cls()

    @property
    def several(self) -> bool:
        """Whether there is another process."""
        return self.world > 1

    @property
    def writes(self) -> bool:
        """Whether this process writes files and draws progress."""
        return self.rank == 0

    def share(self, rows: Tensor) -> Tensor:
        """Return which rows of a batch are this process's; one that counts nothing if none is."""
        own = rows[self.rank :: self.world]
        return own if len(own) else rows[:1]

    def has_own(self, rows: int) -> bool:
        """Return whether this process has a row of its own of so many."""
        return self.rank < rows

    def summed(self, *numbers: float, device: torch.device) -> list[float]:
        """Return the sums of numbers over all processes."""
        total = torch.tensor(numbers, dtype=torch.float64, device=device)
        dist.all_reduce(total)
        found: list[float] = total.tolist()
        return found

    def gathered(self, value: T) -> list[T]:
        """Return the value of every process."""
        found: list[Any] = [None] * self.world
        dist.all_gather_object(found, value)
        return found

    def agree(self, facts: Mapping[str, Any]) -> None:
        """Refuse processes that were called differently.

        Raises:
            ArgumentError: a fact differs between them.
        """
        if not self.several:
            return
        for rank, others in enumerate(self.gathered(dict(facts))):
            for name, value in facts.items():
                if others.get(name) != value:
                    raise ArgumentError(
                        f"train: the processes disagree about {name}: it is {value!r} here (rank "
                        f"{self.rank}) and {others.get(name)!r} on rank {rank}. Call train() alike "
                        "in all of them."
                    )

    def first_only(self, action: Callable[[], T]) -> T:
        """Do something in the process that writes, and return the result to all of them.

        Raises:
            RankError: it failed there; that process raises what it failed of.
        """
        if not self.several:
            return action()
        box: list[Any] = [None, None]
        failure: BaseException | None = None
        if self.writes:
            try:
                box = [action(), None]
            except BaseException as error:
                box, failure = [None, f"{type(error).__name__}: {error}"], error
        dist.broadcast_object_list(box, src=0)
        if failure is not None:
            raise failure
        if box[1] is not None:
            raise RankError(f"rank 0 failed, and this one ends with it. {box[1]}")
        result: T = box[0]
        return result

    def together(self, action: Callable[[], T]) -> T:
        """Do something in every process; if it fails in one, all end.

        Raises:
            RankError: it failed in another process.
        """
        if not self.several:
            return action()
        failure: BaseException | None = None
        try:
            result = action()
        except BaseException as error:
            failure = error
        told = self.gathered(None if failure is None else f"{type(failure).__name__}: {failure}")
        if failure is not None:
            raise failure
        for rank, words in enumerate(told):
            if words is not None:
                raise RankError(f"rank {rank} failed, and this one ends with it. {words}")
        return result

    def random_states(self, device: torch.device) -> dict[str, Tensor]:
        """Return the states of all processes' generators, by name of the device and rank."""
        own = {"cpu": torch.get_rng_state()}
        if device.type == "cuda":
            own["cuda"] = torch.cuda.get_rng_state(device)
        if not self.several:
            return own
        every = self.gathered(own)
        return {_name(k, rank): v for rank, states in enumerate(every) for k, v in states.items()}

    def restore_random_states(self, states: Mapping[str, Tensor], device: torch.device) -> None:
        """Set this process's generators to what :meth:`random_states` told."""
        torch.set_rng_state(states[_name("cpu", self.rank)])
        name = _name("cuda", self.rank)
        if name in states and device.type == "cuda":
            torch.cuda.set_rng_state(states[name], device)


def _name(device: str, rank: int) -> str:
    return device if rank == 0 else f"{device}-{rank}"


@contextmanager
def process_group() -> Iterator[Ranks]:
    """Join the processes that ``torchrun`` started together with this one, if it did.

    A group that exists already is taken as it is; without ``torchrun`` this process is alone.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) < 2 or dist.is_initialized():
        yield Ranks.here()
        return
    dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    try:
        yield Ranks.here()
    finally:
        dist.destroy_process_group()
