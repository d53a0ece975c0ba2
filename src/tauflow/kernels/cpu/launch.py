"""Kernels with their arguments, on the threads of a parallel region.

Python runs signal handlers between two lines, and what a handler raises within a callback of
``ctypes`` is dropped together with the rest of the callback. So what the threads of a parallel
region call is compiled, and Python sees a signal when all slices are done.
"""

# mypy: ignore-errors

from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

import numba
import torch
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel import ArgPacker
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from tauflow._internal.fork_safety import compile_lock

from .binding import ConstantArgument, OpenMPTeam
from .jit import kernel, pause_gc


class Launch(NamedTuple):
    """A kernel for arguments of certain types, as the threads of a parallel region take them.

    Numba would look at every argument, and make an array of each, on each call. What they are is
    looked at once for all calls alike; a call packs addresses and sizes into one block of memory,
    of which compiled code makes the arrays.

    Args:
        enter: the compiled function that does so.
        kinds: type of the arguments.
        address: of the kernel.
    """

    enter: Any
    kinds: types.TypeRef
    address: int

    def run(
        self,
        words: Sequence[int],
        team: OpenMPTeam | None,
        count: int,
        slices: int,
        first: int,
        stop: int,
    ) -> None:
        """Call ``function(slice, low, high, *arguments)`` for slices of a batch.

        Args:
            words: of the arguments, whose memory the caller keeps; see
                :func:`~tauflow.kernels.cpu.binding.pack_arguments`.
            team: whose threads do it; ``None`` for this thread.
            count: sequences in the batch.
            slices: into how many they are cut.
            first: of the slices.
            stop: before which one to stop.

        Raises:
            RuntimeError: a slice was not computed.
        """
        head = (*(team or _NO_TEAM), self.address, count, slices, first, stop)
        block = array("q", (*head, *words))
        missing = stop - first - self.enter(block.buffer_info()[0], self.kinds)
        if missing:
            raise RuntimeError(f"{missing} of {slices} slices of the batch were not computed")


_HEAD_SIZE = 8  # words of a block before those of the arguments
_NO_TEAM = OpenMPTeam(0, 0, 0)
_compiled: dict[tuple[Any, ...], Launch] = {}


def find_launch(function: Any, kinds: Sequence[Any], arguments: tuple[Any, ...]) -> Launch:
    """Return the launch of a kernel for arguments like these.

    Args:
        function: a kernel.
        kinds: of the arguments, see :func:`~tauflow.kernels.cpu.binding.pack_arguments`.
        arguments: of the kernel behind ``slice, low, high``: contiguous tensors on the CPU, arrays,
            integers, booleans, floats and tuples of them.
    """
    key = (function, *kinds)
    launch = _compiled.get(key)
    if launch is None:
        with compile_lock:  # one thread compiles, or reads the cache; a fork waits
            launch = _compiled[key] = _compile(function, arguments)
    return launch


def _find_type(value: Any) -> types.Type:
    """Return the type that numba has for an argument."""
    if isinstance(value, ConstantArgument):
        return _find_type(value.value)
    if isinstance(value, tuple):
        return types.BaseTuple.from_types(tuple(map(_find_type, value)), type(value))
    if isinstance(value, array):
        return types.Array(types.int64, 1, "C")
    if isinstance(value, torch.Tensor):
        scalar = numba.typeof(value.new_empty(0, requires_grad=False).numpy()).dtype
        return types.Array(scalar, value.ndim, "C")
    return numba.typeof(value)


def _compile(function: Any, arguments: tuple[Any, ...]) -> Launch:
    """Return the launch of a kernel for arguments of such types."""
    argument_types = tuple(map(_find_type, arguments))
    signature = (*[types.int64] * 3, *argument_types)
    kinds = types.TypeRef(types.Tuple(argument_types))
    with pause_gc():
        function.compile(signature)
        _launch.compile((types.int64, kinds))
    compiled = function.overloads[signature]
    address = compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name)
    return Launch(_launch.overloads[types.int64, kinds].entry_point, kinds, address)


@kernel
def _launch(block, kinds):
    return _run_slices(block, kinds)


@intrinsic
def _run_slices(context, block, kinds):
    """Call a function for slices, by a team if there is one; return how many, or raise."""

    def generate(context, builder, signature, values):
        convention, number = context.call_conv, ir.IntType(32)
        argument_types = (*[types.int64] * 3, *kinds.instance_type.types)
        function_type = convention.get_function_type(types.none, argument_types)
        words = builder.inttoptr(values[0], ir.IntType(64).as_pointer())
        team, _, _, _, _, slices, first, stop = _load_words(builder, words, 0, _HEAD_SIZE)
        empty = function_type.args[1].pointee(None)  # no error
        outcome = [
            cgutils.alloca_once_value(builder, value) for value in (stop.type(0), number(0), empty)
        ]
        shared = cgutils.pack_struct(builder, [words, *outcome])
        shared_address = cgutils.alloca_once_value(builder, shared)
        work = _make_work(context, builder.module, kinds.instance_type, function_type, shared.type)
        task = _make_task(builder.module, work)
        with builder.if_else(builder.icmp_signed("==", team, team.type(0))) as (alone, together):
            with alone:
                builder.call(work, [shared_address, first, stop, stop.type(1)])
            with together:
                start = ir.FunctionType(
                    ir.VoidType(), [task.type, cgutils.voidptr_t, number, number]
                )
                pool = builder.inttoptr(team, start.as_pointer())
                data = builder.bitcast(shared_address, cgutils.voidptr_t)
                builder.call(pool, [task, data, builder.trunc(slices, number), number(0)])
        done, code, error = map(builder.load, outcome)
        status = convention._get_return_status(builder, code, error)
        with cgutils.if_unlikely(builder, status.is_error):
            convention.return_status_propagate(builder, status)
        return done

    return types.int64(block, kinds), generate


def _load_words(builder, words, first, count):
    """Return some of the 64-bit integers at an address."""
    at = (builder.gep(words, [ir.IntType(32)(first + i)]) for i in range(count))
    return [builder.load(place) for place in at]


def _make_work(context, module, kinds, function_type, shared):
    """Return what calls the function for some slices: ``work(shared, first, stop, step)``.

    Args:
        context: numba's.
        module: that receives it.
        kinds: types of the arguments of the function behind ``slice, low, high``.
        function_type: of that function.
        shared: type of a structure: the block's address, and the addresses of the outcome.
    """
    integer = ir.IntType(64)
    work = ir.Function(
        module,
        ir.FunctionType(ir.VoidType(), [shared.as_pointer(), *[integer] * 3]),
        module.get_unique_name("work"),
    )
    work.linkage = "internal"
    builder = ir.IRBuilder(work.append_basic_block())
    words, done, code, error = cgutils.unpack_tuple(builder, builder.load(work.args[0]))
    _, _, _, address, count, slices = _load_words(builder, words, 0, 6)
    function = builder.inttoptr(address, function_type.as_pointer())
    values, _ = _unpack(context, builder, kinds, words, _HEAD_SIZE)
    packer = ArgPacker(context.data_model_manager, (*[types.int64] * 3, *kinds.types))
    result, raised = (cgutils.alloca_once(builder, kind.pointee) for kind in function_type.args[:2])
    with cgutils.for_range_slice(builder, *work.args[1:]) as (index, _):
        ends = [index, builder.add(index, integer(1))]
        rows = [builder.sdiv(builder.mul(count, end), slices) for end in ends]
        kernel_arguments = [index, *rows, *cgutils.unpack_tuple(builder, values)]
        status = builder.call(
            function, [result, raised, *packer.as_arguments(builder, kernel_arguments)]
        )
        with builder.if_else(cgutils.is_null(builder, status)) as (succeeded, failed):
            with succeeded:
                builder.atomic_rmw("add", done, integer(1), "seq_cst")
            with failed:
                builder.store(builder.load(raised), error)
                builder.store(status, code)
    builder.ret_void()
    return work


def _make_task(module, work):
    """Return what each thread of a team calls with the address of what all of them share."""
    task = ir.Function(
        module, ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t]), module.get_unique_name("task")
    )
    task.linkage = "internal"
    builder = ir.IRBuilder(task.append_basic_block())
    shared = builder.bitcast(task.args[0], work.args[0].type)
    words, *_ = cgutils.unpack_tuple(builder, builder.load(shared))
    _, *asked, _, _, slices = _load_words(builder, words, 0, 6)
    ask = ir.FunctionType(ir.IntType(32), []).as_pointer()
    rank, size = (
        builder.sext(builder.call(builder.inttoptr(address, ask), []), slices.type)
        for address in asked
    )
    builder.call(work, [shared, rank, slices, size])
    builder.ret_void()
    return task


def _unpack(context, builder, kind, words, at):
    """Return an argument of a type from the words of a block, and where the next one begins."""
    if isinstance(kind, types.BaseTuple):
        parts = []
        for part_kind in kind.types:
            part, at = _unpack(context, builder, part_kind, words, at)
            parts.append(part)
        return context.make_tuple(builder, kind, parts), at
    if isinstance(kind, types.Array):
        axes, is_flat = kind.ndim, kind.layout == "C"
        count = 1 + axes * (1 if is_flat else 2)
        address, *sizes = _load_words(builder, words, at, count)
        array = context.make_array(kind)(context, builder)
        itemsize = context.get_constant(types.intp, context.get_abi_sizeof(array.data.type.pointee))
        shape, strides = sizes[:axes], sizes[axes:]
        if is_flat:
            strides = [itemsize]
            for size in shape[:0:-1]:
                strides.insert(0, builder.mul(strides[0], size))
        populate_array(
            array,
            data=builder.inttoptr(address, array.data.type),
            shape=shape,
            strides=strides[:axes],
            itemsize=itemsize,
            meminfo=None,
        )
        return array._getvalue(), at + count
    (word,) = _load_words(builder, words, at, 1)
    if isinstance(kind, types.Float):
        double = builder.bitcast(word, ir.DoubleType())
        return context.cast(builder, double, types.float64, kind), at + 1
    return context.cast(builder, word, types.int64, kind), at + 1
