"""Products of compiled loops against float64, and the code that other processors would get."""

import numpy as np
import pytest

pytest.importorskip("numba")

import llvmlite.binding
import numba
import torch
from llvmlite import ir

import tauflow
from tauflow.kernels.cpu import matmul, tiles
from tauflow.kernels.cpu.binding import import_kernels


@numba.njit
def multiply(left, right, out, accumulate):
    matmul.matmul(left, right, out, accumulate)


@numba.njit
def multiply_transposed_add(left, step, right, row, out):
    (M, N), K = out.shape, right.shape[0]
    products = left.ctypes.data, 1, step, M, right.ctypes.data, N
    matmul.multiply_add(*products, row.ctypes.data, 0, out.ctypes.data, N, N, K)


@numba.njit
def transpose(matrix):
    return matmul.transpose(matrix)


def draw(rows: int, columns: int, extra: int = 0) -> np.ndarray:
    """Return a matrix whose rows lie ``extra`` floats further apart than they are long."""
    numbers = np.random.default_rng(rows + 1000 * columns).standard_normal((rows, columns + extra))
    return numbers.astype(np.float32)[:, :columns]


def check(actual: np.ndarray, exact: np.ndarray, scale: np.ndarray) -> None:
    """Compare with what float64 gives, against the sum of the terms' magnitudes."""
    assert (np.abs(actual - exact) <= 3e-7 * scale).all()


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("rows", "terms", "columns"),
    [(1, 1, 1), (1, 40, 300), (2, 7, 70), (3, 33, 100), (5, 17, 64), (7, 300, 31), (8, 129, 16),
     (11, 20, 5), (16, 64, 50), (64, 257, 66), (37, 129, 256)],
)  # fmt: skip
@pytest.mark.parametrize("extra", [0, 3])
def test_products_of_odd_sizes(rows, terms, columns, extra):
    left, right = draw(rows, terms, extra), draw(terms, columns, extra)
    memory = np.full((rows, columns + 4), 7.0, np.float32)
    out = memory[:, :columns]
    exact, scale = left.astype(np.float64) @ right, np.abs(left) @ np.abs(right)
    out[:] = np.nan  # must not be read
    multiply(left, right, out, False)
    check(out, exact, scale)
    out[:] = 0.5
    multiply(left, right, out, True)
    check(out, exact + 0.5, scale + 0.5)
    assert (memory[:, columns:] == 7.0).all()


@pytest.mark.parametrize(
    ("rows", "terms", "columns"), [(1, 1, 1), (17, 5, 33), (32, 16, 64), (40, 130, 512)]
)
def test_transposed_products_plus_a_row(rows, terms, columns):
    step = rows + 2
    left, right, row = draw(terms, step), draw(terms, columns), draw(1, columns)
    out = np.full((rows, columns), np.nan, np.float32)  # must not be read
    multiply_transposed_add(left.reshape(-1)[: (terms - 1) * step + rows], step, right, row, out)
    used = left[:, :rows].T
    scale = np.abs(row) + np.abs(used) @ np.abs(right)
    check(out, row + used.astype(np.float64) @ right, scale)


def test_a_row_does_not_depend_on_the_rows_around_it():
    """Of many rows the columns are copied before they are read."""
    left, right = draw(40, 300), draw(300, 256)
    many, few = np.zeros((40, 256), np.float32), np.zeros((6, 256), np.float32)
    multiply(left, right, many, False)
    multiply(left[:6], right, few, False)
    np.testing.assert_array_equal(many[:6], few)


@pytest.mark.parametrize("shape", [(1, 1), (7, 9), (1024, 3), (30, 64)])
def test_transposes(shape):
    matrix = draw(*shape)
    np.testing.assert_array_equal(transpose(matrix), matrix.T)


def test_rows_have_the_same_bits_in_any_company():
    left, right = draw(23, 150), draw(150, 77)
    together, alone = np.empty((2, 23, 77), np.float32)
    multiply(left, right, together, False)
    for row in range(23):
        multiply(left[row : row + 1], right, alone[row : row + 1], False)
    np.testing.assert_array_equal(together, alone)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_reaches_its_row_and_column(value):
    left, right = draw(7, 9), draw(9, 37)
    out = np.empty((7, 37), np.float32)
    left[2, 4] = value
    multiply(left, right, out, False)
    assert not np.isfinite(out[2]).any()
    assert np.isfinite(np.delete(out, 2, axis=0)).all()
    left[2, 4], right[3, 5] = 0.0, value
    left[1, 3] = 0.0  # times infinity, is NaN
    multiply(left, right, out, False)
    assert not np.isfinite(out[:, 5]).any()
    assert np.isnan(out[1, 5])
    assert np.isfinite(np.delete(out, 5, axis=1)).all()


PROCESSORS = [
    ("x86_64-unknown-linux-gnu", "skylake-avx512", tiles.VectorUnit(16, 32, fuses=True), "zmm"),
    ("x86_64-unknown-linux-gnu", "haswell", tiles.VectorUnit(8, 16, fuses=True), "ymm"),
    ("x86_64-unknown-linux-gnu", "nehalem", tiles.VectorUnit(4, 16, fuses=False), "mulps"),
    ("aarch64-unknown-linux-gnu", "generic", tiles.VectorUnit(4, 32, fuses=True), "fmla"),
    ("arm64-apple-darwin", "apple-m1", tiles.VectorUnit(4, 32, fuses=True), "fmla"),
]


@pytest.mark.parametrize(("triple", "cpu", "unit", "word"), PROCESSORS)
def test_tiles_for_other_processors(triple, cpu, unit, word):
    llvmlite.binding.initialize_all_targets()
    llvmlite.binding.initialize_all_asmprinters()
    try:
        target = llvmlite.binding.Target.from_triple(triple)
    except RuntimeError:
        pytest.skip(reason="this llvmlite lacks the target")
    assert tiles.find_vector_unit(triple, cpu, "") == unit
    module = ir.Module()
    for tile in tiles.list_tiles(unit):
        tiles.build_tile(module, unit, tile)
    machine = target.create_target_machine(cpu=cpu, opt=3)
    code = machine.emit_assembly(llvmlite.binding.parse_assembly(str(module)))
    assert word in code
    assert "fmaf" not in code  # a call for every float


@pytest.mark.parametrize(
    ("model", "loops", "kernels"),
    [
        ("ct-gru", "ct_gru.numba_loop", ("ct_gru_forward", "ct_gru_backward")),
        ("lem", "trace.interpreter", ("interpret_forward", "interpret_backward")),
    ],
)
def test_loops_call_this_product_and_no_library(model, loops, kernels):
    rnn = tauflow.build(model, 3, 4, backend="numba")
    rnn(torch.randn(2, 9, 3))[0].square().sum().backward()
    for name in kernels:
        for compiled in getattr(import_kernels(loops), name).overloads.values():
            module = compiled.library._get_module_for_linking()
            called = {function.name for function in module.functions if function.is_declaration}
            assert "tauflow_multiply" in called
            assert not [name for name in called if "gemm" in name or "mkl" in name.lower()]
