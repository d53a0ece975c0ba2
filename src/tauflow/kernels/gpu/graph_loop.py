"""Many small launches as one: steps of a loop, recorded as CUDA graphs and replayed.

A launch from Python takes several microseconds, which is longer than a small step takes on the
device. A loop over time therefore runs in chunks of :data:`MAX_CHUNK_STEPS` steps, and what is left
over in chunks of half as many, a quarter, and so on, on separate tensors of the recording: what a
chunk reads is copied in and what it writes is copied out, a dozen launches in place of a hundred.
Neither the number of steps nor the addresses of a call's tensors matter to a recording, so that it
serves sequences of any length. Steps that CUDA cannot record are launched one by one, after a
warning.
"""

import warnings
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from tauflow._internal.fork_safety import make_fork_safe_lock
from tauflow.kernels.engine.torch_state import clear_cublas_workspaces
from tauflow.kernels.engine.workspace import register_release_callback

MAX_CHUNK_STEPS = 16
"""Most steps of a chunk, a power of two."""

_MAX_CAPTURE_BYTES = (
    1 << 28
)  # of its tensors; above, a step takes the device longer than its launches
_MAX_CAPTURES = 64
_MAX_TOTAL_BYTES = 1 << 30
_MAX_SEEN_KEYS = 1024  # of loops that have come, whether they were recorded or not

TensorGroup = Any  # a NamedTuple of tensors, which need not be of one class for two loops


class TimeLoop(Protocol):
    """A loop over time whose body can run on any tensors of the right shapes."""

    key: tuple[Hashable, ...]
    """What a recording depends on besides shapes and dtypes."""

    steps: int
    """Turns of the whole loop."""

    is_reversed: bool
    """Whether it runs from the last step to the first."""

    fixed: TensorGroup
    """What every step reads."""

    carry: TensorGroup
    """What every step reads and writes."""

    reads: Sequence[str]
    """Fields of a part that its steps read."""

    writes: Sequence[str]
    """Fields of a part that its steps write, and that are wanted."""

    def part(self, first: int, last: int) -> TensorGroup:
        """Return the tensors of the steps from ``first`` to before ``last``."""

    def run(self, fixed: TensorGroup, carry: TensorGroup, steps: TensorGroup) -> None:
        """Launch the steps of a part."""


def run_loop(loop: TimeLoop, *, use_graphs: bool) -> None:
    """Run a loop, replaying a recording of its body where there is one, or may be one.

    Shapes that are seen for the first time are not recorded: they may not come again.

    Args:
        loop: what to run.
        use_graphs: whether recordings are allowed.
    """
    recording = _get_captured_loop(loop) if use_graphs and loop.steps else None
    if recording is None or not recording.replay(loop):
        loop.run(loop.fixed, loop.carry, loop.part(0, loop.steps))


def _split_chunks(steps: int, *, is_reversed: bool) -> list[tuple[int, int]]:
    """Return the first step of every chunk, and the one after its last, in the order of a loop."""
    bounds, first, length = [], 0, MAX_CHUNK_STEPS
    while first < steps:
        while length > steps - first:
            length //= 2
        bounds.append((first, first + length))
        first += length
    return [(steps - last, steps - first) for first, last in bounds] if is_reversed else bounds


class _CaptureError(Exception):
    """A body of a loop cannot be recorded."""


class _CapturedLoop:
    """The body of a loop over some steps, for every length of a chunk that has come.

    Args:
        loop: any of those that are alike.
        size: bytes of its tensors, about.
    """

    def __init__(self, loop: TimeLoop, size: int) -> None:
        twins: dict[Hashable, Tensor] = {}
        self.fixed, self.carry = (
            _allocate_static(loop.fixed, twins),
            _allocate_static(loop.carry, twins),
        )
        self.size = size
        self.chunks: dict[int, tuple[TensorGroup, Callable[[], None]]] = {}
        self.is_uncapturable = False
        self.lock = make_fork_safe_lock()

    def replay(self, loop: TimeLoop) -> bool:
        """Run a loop; return false, and leave its tensors, if it cannot be recorded."""
        with self.lock:  # until all is in the stream, where it stays in order
            if not self.is_uncapturable:
                try:
                    self._capture_missing_chunks(loop)
                except _CaptureError as error:
                    self.is_uncapturable = True
                    self.chunks.clear()
                    warnings.warn(
                        f"CUDA cannot record these steps, which are launched one by one: {error}",
                        stacklevel=2,
                    )
                else:
                    self._replay_chunks(loop)
            return not self.is_uncapturable

    def _capture_missing_chunks(self, loop: TimeLoop) -> None:
        """Record chunks of all lengths that a loop has, before any of its tensors is written."""
        for first, last in _split_chunks(loop.steps, is_reversed=loop.is_reversed):
            if last - first not in self.chunks:
                try:
                    self.chunks[last - first] = self._capture_chunk(loop, loop.part(first, last))
                except RuntimeError as error:  # which comes again if the steps are to blame
                    raise _CaptureError(error) from error

    def _capture_chunk(
        self, loop: TimeLoop, part: TensorGroup
    ) -> tuple[TensorGroup, Callable[[], None]]:
        """Return tensors like those of a part, and what runs its steps on them."""
        pairs = zip((*loop.fixed, *loop.carry), (*self.fixed, *self.carry), strict=True)
        static = _allocate_static(part, {_memory_key(tensor): twin for tensor, twin in pairs})
        groups = (self.fixed, loop.fixed), (self.carry, loop.carry), (static, part)
        for twins, tensors in groups:  # numbers that steps can take
            copy_tensors(twins, tensors)
        with torch.inference_mode(False):  # whose tensors serve no other mode
            return static, capture_graph(lambda: loop.run(self.fixed, self.carry, static))

    def _replay_chunks(self, loop: TimeLoop) -> None:
        copy_tensors(self.fixed, loop.fixed)
        copy_tensors(self.carry, loop.carry)
        for first, last in _split_chunks(loop.steps, is_reversed=loop.is_reversed):
            static, launch = self.chunks[last - first]
            part = loop.part(first, last)
            copy_tensors(_get_fields(static, loop.reads), _get_fields(part, loop.reads))
            launch()
            copy_tensors(_get_fields(part, loop.writes), _get_fields(static, loop.writes))
        copy_tensors(loop.carry, self.carry)


_seen_keys: OrderedDict[Hashable, None] = OrderedDict()  # the latest last
_captured_loops: OrderedDict[Hashable, _CapturedLoop] = OrderedDict()
_lock = make_fork_safe_lock()


def _get_captured_loop(loop: TimeLoop) -> _CapturedLoop | None:
    """Return the recording of a loop, if its shapes came before and it is small enough."""
    like = loop.carry[0]
    if not can_capture(like):
        return None
    part = loop.part(0, 1)
    tensors = [*loop.fixed, *loop.carry, *part]
    sizes = [tensor.numel() * tensor.element_size() for tensor in tensors]
    size = sum(sizes) + 2 * MAX_CHUNK_STEPS * sum(sizes[-len(part) :])  # of chunks of all lengths
    if size > _MAX_CAPTURE_BYTES:
        return None
    shapes = tuple((tensor.shape, tensor.dtype) for tensor in tensors)
    memory = [_memory_key(tensor) for tensor in tensors]
    shared = tuple(memory.index(key_of_memory) for key_of_memory in memory)
    # A stream keeps the copies of one call before those of the next.
    stream = torch.cuda.current_stream(like.device).cuda_stream if like.is_cuda else 0
    key = (loop.key, like.device, stream, shapes, shared)
    with _lock:
        captured_loop = None
        if key in _seen_keys:
            captured_loop = _captured_loops.get(key) or _CapturedLoop(loop, size)
            _store_latest(_captured_loops, key, captured_loop)
        _store_latest(_seen_keys, key, None)
        _evict_oldest()
    return captured_loop


def _store_latest(cache: OrderedDict[Hashable, Any], key: Hashable, value: object) -> None:
    """Hold a value as the latest."""
    cache[key] = value
    cache.move_to_end(key)


def _evict_oldest() -> None:
    """Forget what came longest ago, but for the latest."""
    while len(_seen_keys) > _MAX_SEEN_KEYS:
        _seen_keys.popitem(last=False)
    in_all = sum(recording.size for recording in _captured_loops.values())
    while len(_captured_loops) > _MAX_CAPTURES or (
        in_all > _MAX_TOTAL_BYTES and len(_captured_loops) > 1
    ):
        in_all -= _captured_loops.popitem(last=False)[1].size


def can_capture(like: Tensor) -> bool:
    """Whether launches on a tensor's device can be recorded now.

    Products may round otherwise where tensors lie at other addresses, as those of a recording do.
    """
    if not like.is_cuda or torch.are_deterministic_algorithms_enabled():
        return False
    return not torch.cuda.is_current_stream_capturing()


def capture_graph(run: Callable[[], None]) -> Callable[[], None]:
    """Record what is launched, and return what launches it again."""
    current, stream = torch.cuda.current_stream(), torch.cuda.Stream()
    stream.wait_stream(current)
    with torch.cuda.stream(stream):  # compiles kernels and sets up libraries
        run()
    current.wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    generator = torch.cuda.default_generators[torch.cuda.current_device()]
    before = generator.clone_state()
    clear_cublas_workspaces()
    try:
        # Its default stream is that of the device it was first used on.
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            run()
    except BaseException:
        generator.graphsafe_set_state(before)  # or it waits for the end of a recording for ever
        raise
    finally:
        torch.cuda.set_stream(current)  # which a graph that failed leaves behind
        clear_cublas_workspaces()
    replay: Callable[[], None] = graph.replay
    return replay


def clear_captures() -> None:
    """Forget all recordings, and give their memory back."""
    with _lock:
        _captured_loops.clear()
        _seen_keys.clear()


register_release_callback(clear_captures)


def _allocate_static(group: TensorGroup, static_tensors: dict[Hashable, Tensor]) -> TensorGroup:
    """Return empty tensors of the same shapes; one for all that share memory."""
    tensors = []
    with torch.inference_mode(False):  # whose tensors serve no other mode
        for tensor in group:
            key = _memory_key(tensor)
            if key not in static_tensors:
                static_tensors[key] = torch.empty(
                    tensor.shape, dtype=tensor.dtype, device=tensor.device
                )
            tensors.append(static_tensors[key])
    return type(group)(*tensors)


def _memory_key(tensor: Tensor) -> Hashable:
    """Return what tensors on the same memory have in common, and a transposed one has not."""
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype


def _get_fields(part: TensorGroup, names: Sequence[str]) -> list[Tensor]:
    return [getattr(part, name) for name in names]


def copy_tensors(targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    """Copy tensors into others, all in one launch where torch can."""
    if targets:
        torch._foreach_copy_(list(targets), list(sources))
