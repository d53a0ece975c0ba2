"""Several processes that train one model on shares of its data, by PyTorch's process groups."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

T = TypeVar("T")


@dataclass(frozen=True)
class DistributedContext:
    """The processes of a training: this one's number, and how many there are.

    All of them make the same calls. Where one fails, what started them (``torchrun``,
    ``torch.multiprocessing.spawn``) ends the others.

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

    def sum_step(
        self, parameters: Sequence[nn.Parameter], *numbers: float, device: torch.device
    ) -> list[float]:
        """Add the gradients of all processes up, in place; return the sums of numbers too."""
        uses = [parameter.grad is not None for parameter in parameters]
        total = torch.tensor([*numbers, *uses], dtype=torch.float64, device=device)
        dist.all_reduce(total)
        sums: list[float] = total.tolist()
        for parameter, uses_it in zip(parameters, sums[len(numbers) :], strict=True):
            if uses_it:  # else it is left out by all, and has no gradient
                grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                dist.all_reduce(grad)
                parameter.grad = grad
        return sums[: len(numbers)]

    def share_tensors(self, tensors: Iterator[Tensor]) -> None:
        """Give all processes the values of the first one, in place."""
        for tensor in tensors if self.is_distributed else ():
            dist.broadcast(tensor.data, 0)

    def all_gather(self, value: T) -> list[T]:
        """Return the value of every process."""
        if not self.is_distributed:
            return [value]
        gathered: list[Any] = [None] * self.world_size
        dist.all_gather_object(gathered, value)
        return gathered

    def on_rank_zero(self, action: Callable[[], T]) -> T:
        """Do something in the process that writes, and return the result to all of them."""
        box: list[Any] = [action() if self.is_main else None]
        if self.is_distributed:
            dist.broadcast_object_list(box, src=0)
        result: T = box[0]
        return result

    def get_rng_states(self, device: torch.device) -> dict[str, Tensor]:
        """Return the states of all processes' generators, by name of the device and rank."""
        states_here = {self._make_rng_key("cpu"): torch.get_rng_state()}
        if device.type == "cuda":
            states_here[self._make_rng_key("cuda")] = torch.cuda.get_rng_state(device)
        return {
            name: state for states in self.all_gather(states_here) for name, state in states.items()
        }

    def set_rng_states(self, states: Mapping[str, Tensor], device: torch.device) -> None:
        """Set this process's generators to what :meth:`get_rng_states` told."""
        torch.set_rng_state(states[self._make_rng_key("cpu")])
        name = self._make_rng_key("cuda")
        if name in states and device.type == "cuda":
            torch.cuda.set_rng_state(states[name], device)

    def _make_rng_key(self, device: str) -> str:
        return device if self.is_main else f"{device}-{self.rank}"


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
