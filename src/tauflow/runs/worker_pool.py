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
from tauflow._internal.sanitize import format_count
from tauflow.errors import ArgumentError

LOCAL = "local"
Key = TypeVar("Key")
CallResult = TypeVar("CallResult")
_CONNECT_TIMEOUT = 30.0  # seconds until a scheduler counts as not there


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
    """Connect to the workers of a cluster.

    Args:
        cluster: address of the scheduler, or ``"local"``.
        workers: how many to start if it is ``"local"``.

    Raises:
        MissingExtraError: Dask is not installed.
        ArgumentError: nobody answers at the address, or workers run several jobs at a time.
    """
    distributed = require("distributed", extra="cluster")
    with _connect_client(distributed, cluster, workers) as client:
        yield WorkerPool(client, _count_workers(client, cluster))


def describe_worker_failure(error: BaseException) -> str:
    """Say what became of a call that no worker came to an end with."""
    return (
        f"no worker came to an end with it ({type(error).__name__}: {error}). Look into the "
        "workers' own logs; the same command tries again."
    )


@contextmanager
def _connect_client(distributed: Any, cluster: str, workers: int) -> Iterator[Any]:
    """Connect to a scheduler, or start one with its workers and end them afterwards."""
    if cluster != LOCAL:
        try:
            client = distributed.Client(cluster, timeout=_CONNECT_TIMEOUT, set_as_default=False)
        except (OSError, ValueError) as error:
            raise ArgumentError(
                f"no scheduler answers at {cluster!r} ({error}). Start one with 'dask scheduler' "
                "and give the address that it prints, or 'local'."
            ) from error
        with client:
            yield client
        return
    with (
        distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            silence_logs=50,  # a worker that dies is told by its job
        ) as own,
        distributed.Client(own, set_as_default=False) as client,
    ):
        yield client


def _count_workers(client: Any, cluster: str) -> int:
    """Return how many jobs run at a time, once there are workers.

    Raises:
        ArgumentError: there are none, or one of them runs several jobs at a time.
    """
    try:
        client.wait_for_workers(1, timeout=_CONNECT_TIMEOUT)
    except TimeoutError as error:
        raise ArgumentError(
            f"the scheduler at {cluster} has no workers. Start some with 'dask worker {cluster} "
            "--nthreads 1 --nworkers N'."
        ) from error
    threads: dict[str, int] = client.nthreads()
    several = [name for name, count in threads.items() if count > 1]
    if several:
        raise ArgumentError(
            f"the worker {several[0]} runs {format_count(threads[several[0]], 'job')} at a time, "
            "which would share "
            "random numbers. Start workers with '--nthreads 1', and more of them."
        )
    return len(threads)
