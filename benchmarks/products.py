"""Small matrix products of compiled loops, beside the library inside torch, on one thread."""

import argparse
import ctypes
import os
from datetime import date
from itertools import product
from pathlib import Path
from typing import Any

import numba
import numpy as np
import torch
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from tauflow.kernels.cpu.matmul import matmul
from tauflow.kernels.cpu.tiles import find_own_vector_unit
from tauflow.runs.results import describe_machine, get_versions

from .timing import Job, interleaved

ROWS = (1, 2, 4, 8, 16, 32, 64)
SIZES = [*product((32, 64, 128, 256), repeat=2), (17, 33), (50, 50), (64, 512), (256, 1024)]
"""Terms and columns."""
_WORK = 2e6  # multiplications of a call


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--results", type=Path, help="folder for a Markdown file")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Measure, print Markdown, and keep it if there is a folder for it."""
    lines = [
        f"# Small products, {date.today().isoformat()}",
        "",
        "Shortest of interleaved rounds: microseconds of a product, and in brackets how many times "
        "as long the library inside torch takes, if there is one that loops can call.",
        "",
        f"| terms x columns | {' | '.join(f'{rows} rows' for rows in ROWS)} |",
        f"| --- |{' ---: |' * len(ROWS)}",
    ]
    library = _find_library()
    for terms, columns in SIZES:
        cells = [_measure(library, rows, terms, columns, arguments.rounds) for rows in ROWS]
        lines.append(f"| {terms} x {columns} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    about = {**describe_machine(), **get_versions(), "vectors": find_own_vector_unit()._asdict()}
    lines += ["", ", ".join(f"{key} {value}" for key, value in about.items()), ""]
    print("\n".join(lines))
    if arguments.results is not None:
        arguments.results.mkdir(parents=True, exist_ok=True)
        path = arguments.results / f"products-{date.today().isoformat()}.md"
        path.write_text("\n".join(lines), encoding="utf-8")


def _measure(library: int, rows: int, terms: int, columns: int, rounds: int) -> str:
    """Return the time of a product and the ratio of the library's to it."""
    left, right, out = (
        torch.randn(shape).numpy() for shape in ((rows, terms), (terms, columns), (rows, columns))
    )
    count = max(1, round(_WORK / (rows * terms * columns)))
    jobs: dict[str, Job] = {"own": lambda: _repeat_own(left, right, out, count)}
    if library:
        jobs["library"] = lambda: _repeat_library(library, left, right, out, count)
    timings = interleaved(jobs, rounds=rounds, least=0.002)
    best = {name: min(timing.rounds) / count for name, timing in timings.items()}
    ratio = f" ({best['library'] / best['own']:.2f})" if library else ""
    return f"{best['own'] * 1e6:.2f}{ratio}"


def _find_library() -> int:
    """Return where sgemm of the library inside torch begins, set to one thread; 0 if it hides."""
    try:
        path = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
        library = ctypes.CDLL(str(path), mode=os.RTLD_NOLOAD)
        library.MKL_Set_Num_Threads_Local(1)
        return ctypes.cast(library.sgemm_, ctypes.c_void_p).value or 0
    except (OSError, AttributeError):
        return 0


@numba.njit(nogil=True)
def _repeat_own(left, right, out, count):  # type: ignore[no-untyped-def]
    for _ in range(count):
        matmul(left, right, out, False)


@numba.njit(nogil=True)
def _repeat_library(address, left, right, out, count):  # type: ignore[no-untyped-def]
    letter, unit, zero = np.int8(ord("N")), np.float32(1.0), np.float32(0.0)
    rows, terms, columns = left.shape[0], left.shape[1], right.shape[1]
    for _ in range(count):
        _call_sgemm(
            address, letter, letter, columns, rows, terms, unit, right.ctypes.data, columns,
            left.ctypes.data, terms, zero, out.ctypes.data, columns,
        )  # fmt: skip


@intrinsic  # type: ignore[untyped-decorator]
def _call_sgemm(
    context: Any, address: Any, trans_a: Any, trans_b: Any, m: Any, n: Any, k: Any, alpha: Any,
    a: Any, lda: Any, b: Any, ldb: Any, beta: Any, c: Any, ldc: Any,
) -> Any:  # fmt: skip
    """Call the Fortran function at an address, which takes pointers only."""
    size, letter, factor = types.intp, types.int8, types.float32
    kinds = [letter, letter, size, size, size, factor, size, size, size, size, factor, size, size]

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = ir.IntType(8).as_pointer()

        def by_reference(value: Any) -> Any:
            with builder.goto_entry_block():
                slot = builder.alloca(value.type)
            builder.store(value, slot)
            return builder.bitcast(slot, pointer)

        passed = [
            builder.inttoptr(value, pointer) if at in (6, 8, 11) else by_reference(value)
            for at, value in enumerate(arguments[1:])
        ]
        function = ir.FunctionType(ir.VoidType(), [pointer] * len(passed))
        builder.call(builder.inttoptr(arguments[0], function.as_pointer()), passed)
        return context.get_dummy_value()

    return types.void(size, *kinds), generate
