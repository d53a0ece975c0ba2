"""Call the BLAS inside torch from compiled loops."""

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .numba_math import f4, inlined

_AS_STORED, _TRANSPOSED = np.int8(ord("N")), np.int8(ord("T"))


@intrinsic
def _sgemm(
    context, sgemm, trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc
):  # fmt: skip
    """Call the Fortran sgemm at an address; a, b and c are addresses too."""
    size, address = types.int64, types.intp
    signature = types.void(
        address, types.int8, types.int8, size, size, size, types.float32, address, size,
        address, size, types.float32, address, size,
    )  # fmt: skip

    def generate(context, builder, signature, arguments):
        pointer = ir.IntType(8).as_pointer()

        def by_reference(value):
            with builder.goto_entry_block():
                slot = builder.alloca(value.type)
            builder.store(value, slot)
            return builder.bitcast(slot, pointer)

        # Sizes are stored in 64 bits, of which a library with 32-bit sizes reads the lower half.
        passed = [
            builder.inttoptr(value, pointer) if kind == address and at in (7, 9, 12)
            else by_reference(value)
            for at, (value, kind) in enumerate(zip(arguments, signature.args, strict=True))
            if at > 0
        ]  # fmt: skip
        function = ir.FunctionType(ir.VoidType(), [pointer] * len(passed))
        builder.call(builder.inttoptr(arguments[0], function.as_pointer()), passed)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def _call_with_int(context, function, value):
    """Call the C function ``int f(int)`` at an address."""

    def generate(context, builder, signature, arguments):
        function = ir.FunctionType(ir.IntType(32), [ir.IntType(32)])
        return builder.call(builder.inttoptr(arguments[0], function.as_pointer()), [arguments[1]])

    return types.int32(types.intp, types.int32), generate


@inlined
def set_blas_threads(blas, count):
    """Set the threads of this thread's products; 0 means the library's default."""
    return _call_with_int(blas.set_threads, np.int32(count))


@inlined
def matmul(blas, left, right, out, columns, inner, transposed, accumulate):
    """Write ``left @ right`` to ``out``, or add it.

    Only the first ``inner`` columns of ``left`` are read and the first ``columns`` of ``out``
    written: both may be wider.

    Args:
        blas: a :class:`~tauflow.kernels.blas.Blas`.
        left: (M, >= inner).
        right: (inner, columns), or (columns, inner) if ``transposed``.
        out: (M, >= columns).
        columns: columns of the product.
        inner: terms of each sum.
        transposed: whether ``right`` is stored transposed.
        accumulate: whether to add to ``out``.
    """
    # Fortran sees the transpose of each matrix, so it is asked for out^T = right^T left^T.
    _sgemm(
        blas.sgemm,
        _TRANSPOSED if transposed else _AS_STORED,
        _AS_STORED,
        columns,
        left.shape[0],
        inner,
        f4(1.0),
        right.ctypes.data,
        right.shape[1],
        left.ctypes.data,
        left.shape[1],
        f4(1.0) if accumulate else f4(0.0),
        out.ctypes.data,
        out.shape[1],
    )
