"""Many small launches as one: steps of a loop, recorded as CUDA graphs and replayed.

A launch from Python takes several microseconds, which is longer than a small step takes on the
device. A loop over time therefore runs in chunks of :data:`CHUNK` steps, and what is left over in
chunks of half as many, a quarter, and so on, on tensors of the recording's own: what a chunk reads
is copied in and what it writes is copied out, a dozen launches in place of a hundred. Neither the
number of steps nor the addresses of a call's tensors matter to a recording, so that it serves
sequences of any length. Steps that CUDA cannot record are launched one by one, after a warning.
"""

import warnings
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from tauflow.forks import make_lock
from tauflow.kernels.engine.torch_state import forget_workspaces
from tauflow.kernels.engine.workspace import on_release

CHUNK = 16
"""Most steps of a chunk, a power of two."""

_MOST_BYTES = 1 << 28  # of its tensors; above, a step takes the device longer than its launches
_MOST_RECORDINGS = 64
_MOST_BYTES_IN_ALL = 1 << 30
_MOST_KEYS = 1024  # of loops that have come, whether they were recorded or not

Tensors = Any  # a NamedTuple of tensors, which need not be of one class for two loops


class Loop(Protocol):
    """A loop over time whose body can run on any tensors of the right shapes."""

    key: tuple[Hashable, ...]
    """What a recording depends on besides shapes and dtypes."""

    steps: int
    """Turns of the whole loop."""

    backwards: bool
    """Whether it runs from the last step to the first."""

    fixed: Tensors
    """What every step reads."""

    carried: Tensors
    """What every step reads and writes."""

    reads: Sequence[str]
    """Fields of a part that its steps read."""

    writes: Sequence[str]
    """Fields of a part that its steps write, and that are wanted."""

    def part(self, first: int, last: int) -> Tensors:
        """Return the tensors of the steps from ``first`` to before ``last``."""

    def run(self, fixed: Tensors, carried: Tensors, part: Tensors) -> None:
        """Launch the steps of a part."""


def run_loop(loop: Loop, *, record: bool) -> None:
    """Run a loop, replaying a recording of its body where there is one, or may be one.

    Shapes that are seen for the first time are not recorded: they may not come again.

    Args:
        loop: what to run.
        record: whether recordings are allowed.
    """
    recording = _recording(loop) if record and loop.steps else None
    if recording is None or not recording.replay(loop):
        loop.run(loop.fixed, loop.carried, loop.part(0, loop.steps))


def _chunks(steps: int, *, backwards: bool) -> list[tuple[int, int]]:
    """Return the first step of every chunk, and the one after its last, in the order of a loop."""
    bounds, first, length = [], 0, CHUNK
    while first < steps:
        while length > steps - first:
            length //= 2
        bounds.append((first, first + length))
        first += length
    return [(steps - last, steps - first) for first, last in bounds] if backwards else bounds


class _RefusedError(Exception):
    """A body of a loop cannot be recorded."""


class _Recording:
    """The body of a loop over some steps, for every length of a chunk that has come.

    Args:
        loop: any of those that are alike.
        size: bytes of its tensors, about.
    """

    def __init__(self, loop: Loop, size: int) -> None:
        twins: dict[Hashable, Tensor] = {}
        self.fixed, self.carried = _twins(loop.fixed, twins), _twins(loop.carried, twins)
        self.size = size
        self.chunks: dict[int, tuple[Tensors, Callable[[], None]]] = {}
        self.refused = False
        self.lock = make_lock()

    def replay(self, loop: Loop) -> bool:
        """Run a loop; return false, and leave its tensors, if it cannot be recorded."""
        with self.lock:  # until all is in the stream, where it stays in order
            if not self.refused:
                try:
                    self._record(loop)
                except _RefusedError as error:
                    self.refused = True
                    self.chunks.clear()
                    warnings.warn(
                        f"CUDA cannot record these steps, which are launched one by one: {error}",
                        stacklevel=2,
                    )
                else:
                    self._replay(loop)
            return not self.refused

    def _record(self, loop: Loop) -> None:
        """Record chunks of all lengths that a loop has, before any of its tensors is written."""
        for first, last in _chunks(loop.steps, backwards=loop.backwards):
            if last - first not in self.chunks:
                try:
                    self.chunks[last - first] = self._recorded(loop, loop.part(first, last))
                except RuntimeError as error:  # which comes again if the steps are to blame
                    raise _RefusedError(error) from error

    def _recorded(self, loop: Loop, part: Tensors) -> tuple[Tensors, Callable[[], None]]:
        """Return tensors like those of a part, and what runs its steps on them."""
        pairs = zip((*loop.fixed, *loop.carried), (*self.fixed, *self.carried), strict=True)
        own = _twins(part, {_memory(tensor): twin for tensor, twin in pairs})
        groups = (self.fixed, loop.fixed), (self.carried, loop.carried), (own, part)
        for twins, tensors in groups:  # numbers that steps can take
            copy_all(twins, tensors)
        with torch.inference_mode(False):  # whose tensors serve no other mode
            return own, capture(lambda: loop.run(self.fixed, self.carried, own))

    def _replay(self, loop: Loop) -> None:
        copy_all(self.fixed, loop.fixed)
        copy_all(self.carried, loop.carried)
        for first, last in _chunks(loop.steps, backwards=loop.backwards):
            own, launch = self.chunks[last - first]
            part = loop.part(first, last)
            copy_all(_fields(own, loop.reads), _fields(part, loop.reads))
            launch()
            copy_all(_fields(part, loop.writes), _fields(own, loop.writes))
        copy_all(loop.carried, self.carried)


_seen: OrderedDict[Hashable, None] = OrderedDict()  # the latest last
_recordings: OrderedDict[Hashable, _Recording] = OrderedDict()
_lock = make_lock()


def _recording(loop: Loop) -> _Recording | None:
    """Return the recording of a loop, if its shapes came before and it is small enough."""
    like = loop.carried[0]
    if not may_record(like):
        return None
    part = loop.part(0, 1)
    tensors = [*loop.fixed, *loop.carried, *part]
    sizes = [tensor.numel() * tensor.element_size() for tensor in tensors]
    size = sum(sizes) + 2 * CHUNK * sum(sizes[-len(part) :])  # of chunks of all lengths
    if size > _MOST_BYTES:
        return None
    shapes = tuple((tensor.shape, tensor.dtype) for tensor in tensors)
    memory = [_memory(tensor) for tensor in tensors]
    shared = tuple(memory.index(one) for one in memory)
    # A stream keeps the copies of one call before those of the next.
    stream = torch.cuda.current_stream(like.device).cuda_stream if like.is_cuda else 0
    key = (loop.key, like.device, stream, shapes, shared)
    with _lock:
        found = None
        if key in _seen:
            found = _recordings.get(key) or _Recording(loop, size)
            _keep(_recordings, key, found)
        _keep(_seen, key, None)
        _drop_oldest()
    return found


def _keep(held: OrderedDict[Hashable, Any], key: Hashable, value: object) -> None:
    """Hold a value as the latest."""
    held[key] = value
    held.move_to_end(key)


def _drop_oldest() -> None:
    """Forget what came longest ago, but for the latest."""
    while len(_seen) > _MOST_KEYS:
        _seen.popitem(last=False)
    in_all = sum(recording.size for recording in _recordings.values())
    while len(_recordings) > _MOST_RECORDINGS or (
        in_all > _MOST_BYTES_IN_ALL and len(_recordings) > 1
    ):
        in_all -= _recordings.popitem(last=False)[1].size


def may_record(like: Tensor) -> bool:
    """Whether launches on a tensor's device can be recorded now.

    Products may round otherwise where tensors lie at other addresses, as those of a recording do.
    """
    if not like.is_cuda or torch.are_deterministic_algorithms_enabled():
        return False
    return not torch.cuda.is_current_stream_capturing()


def capture(run: Callable[[], None]) -> Callable[[], None]:
    """Record what is launched, and return what launches it again."""
    current, stream = torch.cuda.current_stream(), torch.cuda.Stream()
    stream.wait_stream(current)
    with torch.cuda.stream(stream):  # compiles kernels and sets up libraries
        run()
    current.wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    generator = torch.cuda.default_generators[torch.cuda.current_device()]
    before = generator.clone_state()
    forget_workspaces()
    try:
        # Its default stream is that of the device it was first used on.
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            run()
    except BaseException:
        generator.graphsafe_set_state(before)  # or it waits for the end of a recording for ever
        raise
    finally:
        torch.cuda.set_stream(current)  # which a graph that failed leaves behind
        forget_workspaces()
    replay: Callable[[], None] = graph.replay
    return replay


def release() -> None:
    """Forget all recordings, and give their memory back."""
    with _lock:
        _recordings.clear()
        _seen.clear()


on_release(release)


def _twins(group: Tensors, twins: dict[Hashable, Tensor]) -> Tensors:
    """Return empty tensors of the same shapes; one for all that share memory."""
    found = []
    with torch.inference_mode(False):  # whose tensors serve no other mode
        for tensor in group:
            key = _memory(tensor)
            if key not in twins:
                twins[key] = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
            found.append(twins[key])
    return type(group)(*found)


def _memory(tensor: Tensor) -> Hashable:
    """Return what tensors on the same memory have in common, and a transposed one has not."""
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype


def _fields(part: Tensors, names: Sequence[str]) -> list[Tensor]:
    return [getattr(part, name) for name in names]


def copy_all(targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    """Copy tensors into others, all in one launch where torch can."""
    if targets:
        torch._foreach_copy_(list(targets), list(sources))
