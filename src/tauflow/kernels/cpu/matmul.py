"""Matrix products of compiled loops, made of tiles that stay in registers.

A loop multiplies a few rows by the same small matrix at every step, where a call of a library costs
as much as the product. Terms are summed in one order, whatever the rows around them, so that equal
rows have equal products, bit by bit. Nothing is allocated, and no threads are started: each thread
multiplies its own slice of the batch.
"""

# mypy: ignore-errors

import llvmlite.binding
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from tauflow._internal.fork_safety import compile_lock

from .jit import f4, inline, kernel, pause_gc
from .tiles import build_tile, find_own_vector_unit, list_tiles

_TERMS = 128  # of one pass, so that the columns of a tile stay in the first-level cache
_FLOAT, _SIZE = ir.FloatType(), ir.IntType(64)
_UNIT = find_own_vector_unit()
_LANES = _UNIT.lanes
_VECTORS = _UNIT.registers // 8  # of a tile: with six rows, a quarter of the registers is left
_WIDEST = 4 * _VECTORS  # of one row, whose sums else wait for each other
_PANEL_WIDTH = _VECTORS * _LANES
_MIN_PACKED_ROWS = 32  # from which on a copy of the columns of a tile takes less than it spares
_CLASHING = 256  # floats between rows that take each other's place in the first-level cache


@intrinsic
def _run_tile(
    context, rows, vectors, a, a_rows, a_terms, b, b_rows, d, d_rows, c, c_rows, terms, columns
):  # fmt: skip
    """Add a tile, by addresses; see :func:`build_tile`. No vectors mean one that is masked."""

    def generate(context, builder, signature, arguments):
        rows, vectors, *passed = arguments
        passed = [
            builder.inttoptr(value, _FLOAT.as_pointer()) if at in (0, 3, 5, 7) else value
            for at, value in enumerate(passed)
        ]
        end = builder.append_basic_block("end")
        code = builder.add(rows, builder.mul(vectors, _SIZE(8)))
        switch = builder.switch(code, end)
        for tile in list_tiles(_UNIT):
            block = builder.append_basic_block()
            tile_code = tile.rows + 8 * (0 if tile.is_masked else tile.vectors)
            switch.add_case(_SIZE(tile_code), block)
            builder.position_at_end(block)
            builder.call(build_tile(builder.module, _UNIT, tile), passed)
            builder.branch(end)
        builder.position_at_end(end)
        return context.get_dummy_value()

    return types.void(*[types.intp] * 13), generate


@intrinsic
def _reserve_panel(context):
    """Return where there is memory for the columns of a tile, until the function returns."""

    def generate(context, builder, signature, arguments):
        with builder.goto_entry_block():  # numba's alloca_once writes zeros to all of it
            panel = builder.alloca(ir.ArrayType(_FLOAT, _TERMS * _PANEL_WIDTH))
        panel.align = 64
        return builder.ptrtoint(panel, _SIZE)

    return types.intp(), generate


@intrinsic
def _copy_panel_row(context, source, to):
    """Copy a row of a panel, by addresses."""

    def generate(context, builder, signature, arguments):
        of, to = (builder.inttoptr(value, _FLOAT.as_pointer()) for value in arguments)
        cgutils.raw_memcpy(builder, to, of, _SIZE(_PANEL_WIDTH), _SIZE(4))
        return context.get_dummy_value()

    return types.void(types.intp, types.intp), generate


@kernel
def _multiply(a, a_rows, a_terms, rows, b, b_rows, d, d_rows, c, c_rows, columns, terms):
    """Write the product of a and b plus d to c.

    Args:
        a, b, c, d: addresses; d may be c.
        a_rows, b_rows, c_rows, d_rows: floats from row to row.
        a_terms: floats from term to term of a row of a.
        rows, columns: of c.
        terms: of each sum.
    """
    j, panel = 0, _reserve_panel()
    while j < columns:
        vectors = _WIDEST if rows == 1 else 2 * _VECTORS if rows < 4 else _VECTORS
        while vectors * _LANES > columns - j:
            vectors //= 2
        for first in range(0, terms, _TERMS):
            own_a, own_b, i = a + 4 * first * a_terms, b + 4 * (first * b_rows + j), 0
            own_b_rows, count = b_rows, min(_TERMS, terms - first)
            if b_rows % _CLASHING == 0 and rows >= _MIN_PACKED_ROWS and vectors == _VECTORS:
                for k in range(count):
                    _copy_panel_row(own_b + 4 * k * b_rows, panel + 4 * k * _PANEL_WIDTH)
                own_b, own_b_rows = panel, _PANEL_WIDTH
            added, added_rows = (c, c_rows) if first > 0 else (d, d_rows)
            while i < rows:
                left = rows - i
                height = 1 if left < 2 else 2 if left < 4 else 4 if left < 6 or left == 8 else 6
                _run_tile(
                    height,
                    vectors,
                    own_a + 4 * i * a_rows,
                    a_rows,
                    a_terms,
                    own_b,
                    own_b_rows,
                    added + 4 * (i * added_rows + j),
                    added_rows,
                    c + 4 * (i * c_rows + j),
                    c_rows,
                    count,
                    columns - j,
                )
                i += height
        j += max(vectors, 1) * _LANES


_SIGNATURE = types.void(*[types.intp] * 12)
_SYMBOL = "tauflow_multiply"


def _register_product() -> None:
    """Let the kernels of this process find the product by its name, also those from the cache."""
    with compile_lock, pause_gc():
        _multiply.compile(_SIGNATURE.args)
    (compiled,) = _multiply.overloads.values()
    address = compiled.library.get_pointer_to_function(compiled.fndesc.llvm_cfunc_wrapper_name)
    llvmlite.binding.add_symbol(_SYMBOL, address)


_register_product()  # it is compiled once, not into every kernel again


@intrinsic
def multiply_add(
    context, a, a_rows, a_terms, rows, b, b_rows, d, d_rows, c, c_rows, columns, terms
):  # fmt: skip
    """Write the product of a and b plus d to c, by addresses; see :func:`_multiply`."""

    def generate(context, builder, signature, arguments):
        function = builder.module.globals.get(_SYMBOL)
        if function is None:
            kind = ir.FunctionType(ir.VoidType(), [_SIZE] * len(arguments))
            function = ir.Function(builder.module, kind, _SYMBOL)
        builder.call(function, arguments)
        return context.get_dummy_value()

    return _SIGNATURE, generate


@inline
def matmul(left, right, out, accumulate):
    """Write ``left @ right`` to ``out``, or add it. Rows may lie apart, but not their entries.

    Args:
        left: (M, >= K), of which the first K columns are read.
        right: (K, N).
        out: (M, >= N), of which the first N columns are written.
        accumulate: whether to add to ``out``.
    """
    if not accumulate:
        for row in range(left.shape[0]):
            out[row, : right.shape[1]] = f4(0.0)
    multiply_add(
        left.ctypes.data,
        left.strides[0] // 4,
        1,
        left.shape[0],
        right.ctypes.data,
        right.strides[0] // 4,
        out.ctypes.data,
        out.strides[0] // 4,
        out.ctypes.data,
        out.strides[0] // 4,
        right.shape[1],
        right.shape[0],
    )


@inline
def _pad(columns):
    """Return how far apart to keep rows: 4 KiB would be one place of the first-level cache."""
    return columns + 16 if columns % 1024 == 0 else columns


@inline
def transpose(matrix):
    """Return the transpose of a matrix in new memory, which products read row by row."""
    rows, columns = matrix.shape
    out = np.empty((columns, _pad(rows)), f4)
    _transpose_to(matrix, out)
    return out[:, :rows]


@inline
def _transpose_to(matrix, out):
    rows, columns = matrix.shape
    for first in range(0, columns, 8):  # rows of the result, each of which is written in a row
        count = min(8, columns - first)
        for i in range(rows):
            row = matrix[i]
            for j in range(first, first + count):
                out[j, i] = row[j]
