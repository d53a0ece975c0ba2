"""Compiled loops over the sequences of many networks of one shape, in one parallel region.

The arguments of a loop are those of one network, and each lies a fixed number of bytes behind that
of the network before. The n B sequences are cut into as many ranges as there are threads. A range
takes whole networks, and a part of its first and its last one at most, so that no thread waits for
another, whatever n is.
"""

# mypy: ignore-errors

from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from tauflow._internal.fork_safety import compile_lock
from tauflow.kernels.cpu.binding import ConstantArgument, parallel_for
from tauflow.kernels.cpu.jit import kernel, pause_gc
from tauflow.kernels.cpu.launch import _find_type, _unpack


def parallel_for_stack(function: Any, networks: int, count: int, *arguments: Any) -> None:
    """Call ``function(slice, low, high, *arguments)`` for every slice of the networks' batches.

    Args:
        function: a kernel; ``slice`` numbers its own accumulators, of which each network has as
            many as :func:`~tauflow.kernels.cpu.binding.count_slices` says of n B sequences.
        networks: n.
        count: sequences of each network, B.
        arguments: of the kernel: tensors on the CPU with an axis of networks in front, contiguous
            behind it; constant arguments, which all networks share; and tuples of them.
    """
    kinds, words, strides = [function], [], []
    _pack_stacked(arguments, kinds, words, strides)
    key = tuple(kinds)
    compiled = _compiled.get(key)
    if compiled is None:
        with compile_lock:  # one thread compiles, or reads the cache; a fork waits
            compiled = _compiled[key] = _compile(function, arguments)
    address, example = compiled
    block = np.array((words, strides))
    parallel_for(_run_networks, networks * count, address, count, block, example)


_compiled: dict[tuple[Any, ...], tuple[int, ConstantArgument]] = {}


def _pack_stacked(
    values: tuple[Any, ...], kinds: list[Any], words: list[int], strides: list[int]
) -> None:
    """Append what arguments are, where those of the first network are, and how far apart they lie.

    Args:
        values: as for :func:`parallel_for_stack`.
        kinds: receives what the compiled types of arguments follow from.
        words: receives addresses and sizes, each in 64 bits.
        strides: receives what to add to each word from network to network.
    """
    for value in values:
        if isinstance(value, torch.Tensor):
            shape, stride = value.shape[1:], value.stride(0)
            is_flat = value.is_contiguous() if stride else value[0].is_contiguous()
            assert is_flat, "a loop would read and write beside the entries"
            kinds += (value.dtype, len(shape))
            words.append(value.data_ptr())
            words += shape
            strides.append(stride * value.element_size())
            strides += [0] * len(shape)
        elif isinstance(value, ConstantArgument):
            kinds.append(value.kinds)
            words += value.words
            strides += [0] * len(value.words)
        else:
            kinds += (type(value), len(value))
            _pack_stacked(value, kinds, words, strides)


def _compile(function: Any, arguments: tuple[Any, ...]) -> tuple[int, ConstantArgument]:
    """Return a kernel's address for arguments of such types, and arguments that have the types."""
    example = _make_example(arguments)
    signature = (*[types.int64] * 3, *map(_find_type, example))
    with pause_gc():
        function.compile(signature)
    compiled = function.overloads[signature]
    address = compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name)
    return address, ConstantArgument(example)


def _make_example(value: Any) -> Any:
    """Return arguments of the same types for one network, without entries."""
    if isinstance(value, torch.Tensor):
        return torch.empty((0,) * (value.ndim - 1), dtype=value.dtype)
    if isinstance(value, ConstantArgument):
        return value.value
    parts = map(_make_example, value)
    return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)


@kernel(source_folders=("stacked",))
def _run_networks(index, low, high, function, count, block, example):
    """Call a kernel for each network of which a range has sequences.

    Args:
        index: number of the range.
        low, high: its sequences, counted over all networks.
        function: address of the kernel.
        count: sequences of each network.
        block: (2, W), the words of the first network, and what to add from network to network.
        example: arguments of the kernel's types.
    """
    own = np.empty(block.shape[1], np.int64)
    while low < high:
        network = low // count
        first = low - network * count
        last = min(count, first + high - low)
        for word in range(own.size):
            own[word] = block[0, word] + network * block[1, word]
        _call(function, own.ctypes.data, index, first, last, example)
        low += last - first


@intrinsic
def _call(context, function, words, index, low, high, example):
    """Call a kernel for a slice of a network's batch, with the arguments that words describe."""

    def generate(context, builder, signature, values):
        kinds = example.types
        address, at, *place, _ = values
        argument_types = (*[types.int64] * 3, *kinds)
        convention = context.call_conv
        function_type = convention.get_function_type(types.none, argument_types)
        callee = builder.inttoptr(address, function_type.as_pointer())
        block = builder.inttoptr(at, ir.IntType(64).as_pointer())
        arguments, _ = _unpack(context, builder, types.Tuple(kinds), block, 0)
        given = [*place, *cgutils.unpack_tuple(builder, arguments)]
        status, _ = convention.call_function(builder, callee, types.none, argument_types, given)
        with cgutils.if_unlikely(builder, status.is_error):
            convention.return_status_propagate(builder, status)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 2, *[types.int64] * 3, example), generate
