"""Threads on a machine that others use, too: idle threads wait by spinning, and take its time."""

import os

import torch

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
_BUSY_LOAD = 2.0  # processes that want to run, for each core


def measure_load() -> tuple[float, int] | None:
    """Return how many processes wanted to run in the last minute, and the cores of this one."""
    if not hasattr(os, "getloadavg"):
        return None
    affinity = getattr(os, "sched_getaffinity", None)
    return os.getloadavg()[0], len(affinity(0)) if affinity else os.cpu_count() or 1


def describe_load() -> str:
    """Return the load of the machine, and what to do if it is above the cores."""
    measured = measure_load()
    if measured is None:
        return "not known on this platform"
    load, cores = measured
    is_slow = load > cores and torch.get_num_threads() > 1 and not _waits_asleep()
    advice = ": set OMP_WAIT_POLICY=passive (the same results) or OMP_NUM_THREADS=1"
    advice = advice if is_slow else ""
    return f"load {load:.0f} on {cores} core{'' if cores == 1 else 's'}{advice}"


def _waits_asleep() -> bool:
    return os.environ.get("OMP_WAIT_POLICY", "").lower() == "passive"


def use_one_thread_if_busy() -> str | None:
    """Use one thread on a busy machine, unless the environment sets a number; return a note.

    Threads that wait asleep cost next to nothing, and are left as they are.
    """
    measured = measure_load()
    if (
        measured is None
        or torch.get_num_threads() == 1
        or any(map(os.environ.get, _THREAD_VARIABLES))
    ):
        return None
    if _waits_asleep():
        return None
    load, cores = measured
    if load < _BUSY_LOAD * cores:
        return None
    note = describe_load().partition(":")[0]
    torch.set_num_threads(1)
    return (
        f"{note}: using one thread; set OMP_NUM_THREADS for another number, or "
        "OMP_WAIT_POLICY=passive for threads that wait asleep"
    )
