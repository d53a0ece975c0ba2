"""Run jobs on the workers of a Dask cluster, on one machine or on many.

Dask's own client, and not joblib's backend for it: that one returns results only when all are there
(it has no generator), and here each is recorded as it comes.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

import torch

from tauflow._internal.optional_deps import require
from tauflow.runs.dask_workers import connect_client

Key = TypeVar("Key")
CallResult = TypeVar("CallResult")


@dataclass(frozen=True)
class WorkerPool:
    """The workers of a cluster.

    Args:
        client: connected to their scheduler.
        size: how many there are.
    """

    client: Any
    size: int

    def run_calls(
        self, calls: Iterable[tuple[Key, Callable[[], CallResult]]]
    ) -> Iterator[tuple[Key, CallResult | BaseException]]:
        """Run calls, as many at a time as there are workers, and yield what comes home.

        Args:
            calls: with what to tell each by; taken only when a worker is free, after what the one
                before found has been seen to.

        Yields:
            What a call returned or raised, or why no worker came to an end with it.
        """
        left, running = iter(calls), {}
        done = require("distributed", extra="cluster").as_completed(loop=self.client.loop)

        def submit() -> None:
            for key, call in islice(left, 1):
                future = self.client.submit(_call_in_one_thread, call, pure=False)
                running[future] = key
                done.add(future)

        for _ in range(self.size):
            submit()
        for future in done:
            key, trouble = running.pop(future), future.exception()
            yield key, future.result() if trouble is None else trouble
            submit()


def _call_in_one_thread(call: Callable[[], CallResult]) -> CallResult:
    torch.set_num_threads(1)
    return call()


@contextmanager
def connect_workers(cluster: str, workers: int) -> Iterator[WorkerPool]:
    """Connect to the workers of a cluster, see :func:`tauflow.runs.dask_workers.connect_client`."""
    with connect_client(cluster, workers) as client:
        yield WorkerPool(client, len(client.nthreads()))


def describe_worker_failure(error: BaseException) -> str:
    """Say what became of a call that no worker came to an end with."""
    return (
        f"no worker came to an end with it ({type(error).__name__}: {error}). Look into the "
        "workers' own logs; the same command tries again."
    )
