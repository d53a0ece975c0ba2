"""Connect to the workers of a Dask cluster, on one machine or on many."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tauflow._internal.optional_deps import require
from tauflow._internal.sanitize import format_count
from tauflow.errors import ArgumentError

LOCAL = "local"
_CONNECT_TIMEOUT = 30.0  # seconds until a scheduler counts as not there


@contextmanager
def connect_client(cluster: str, workers: int) -> Iterator[Any]:
    """Yield a client of a scheduler, or of one that is started with its workers and ended.

    Args:
        cluster: address of the scheduler, or ``"local"``.
        workers: how many to start if it is ``"local"``.

    Raises:
        MissingExtraError: Dask is not installed.
        ArgumentError: no scheduler answers at the address, or workers run several jobs at a time.
    """
    distributed = require("distributed", extra="cluster")
    if cluster != LOCAL:
        try:
            client = distributed.Client(cluster, timeout=_CONNECT_TIMEOUT, set_as_default=False)
        except (OSError, ValueError) as error:
            raise ArgumentError(
                f"no scheduler answers at {cluster!r} ({error}). Start one with 'dask scheduler' "
                "and give the address that it prints, or 'local'."
            ) from error
        with client:
            _check_workers(client, cluster)
            yield client
        return
    with (
        distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            silence_logs=50,  # a worker that dies is told by its job
        ) as local_cluster,
        distributed.Client(local_cluster, set_as_default=False) as client,
    ):
        yield client


def _check_workers(client: Any, cluster: str) -> None:
    """Wait for workers.

    Raises:
        ArgumentError: no worker came, or one of them runs several jobs at a time.
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
