"""Limits of time and memory within which a call must end."""

import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

MIB = 1 << 20


class TookTooLongError(BaseException):
    """A guarded call did not end in time; no ``except Exception`` swallows it."""


@contextmanager
def limits(*, seconds: float = 10.0, memory: int = 512 * MIB) -> Iterator[None]:
    """End the block by an error after ``seconds``, or when it asks for ``memory`` bytes more.

    Seconds are those of the processor, so that a busy machine fails nothing; a block that waits is
    ended after ten times as many by the clock.

    Raises:
        TookTooLongError: in the block, when the time is over.
        MemoryError: (or an allocator's own error) where the block asks for too much.
    """

    def ring(signum: int, frame: FrameType | None) -> None:
        raise TookTooLongError(f"still running after {seconds:g} s")

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    before = {alarm: signal.signal(alarm, ring) for alarm in (signal.SIGPROF, signal.SIGALRM)}
    resource.setrlimit(resource.RLIMIT_AS, (_address_space() + memory, hard))
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, 10 * seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        for alarm, handler in before.items():
            signal.signal(alarm, handler)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _address_space() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()
