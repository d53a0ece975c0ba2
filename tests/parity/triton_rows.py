"""The options and sizes under which the Triton kernels are tested, and where they run."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from kernel_variants import example
from torch import Tensor

import tauflow.zoo  # noqa: F401 - whose kernels are among all
from tauflow.cells import CfCCell, LTCCell, MixedMemoryCell, WiredCfCCell
from tauflow.kernels import KERNELS, KernelCall, KernelSpec
from tauflow.kernels.engine.requirements import TRITON_INTERPRETED
from tauflow.kernels.generated.kernel import run_generated
from tauflow.kernels.phased_lstm import run_phased_generated

DEVICES = [
    pytest.param(
        "cpu",
        marks=pytest.mark.skipif(not TRITON_INTERPRETED, reason="TRITON_INTERPRET=1 is not set"),
    ),
    pytest.param(
        "cuda",
        marks=[
            pytest.mark.gpu,
            pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
        ],
    ),
]
"""Triton's interpreter on the CPU, or a GPU."""

Options = dict[str, object]

OPTIONS: dict[type, list[tuple[tuple[int, int, int], Options]]] = {
    LTCCell: [
        ((1, 1, 1), {"substeps": 1}),
        ((3, 4, 5), {"substeps": 2}),
        ((5, 2, 17), {"substeps": 3, "sparsity": 0.5, "constraint": "clip", "init": "cfc"}),
        ((2, 3, 33), {"dt_offset": 0.5, "input_mapping": "none", "output_mapping": "linear"}),
        ((2, 3, 65), {"substeps": 2, "epsilon": 0.1}),
        ((3, 1, 129), {"substeps": 1, "sparsity": 0.8, "input_mapping": "linear"}),
    ],
    CfCCell: [
        ((1, 1, 1), {"backbone_units": 1}),
        ((3, 4, 5), {"backbone_units": 9}),
        ((17, 2, 3), {"backbone_layers": 0}),
        ((2, 3, 17), {"mode": "pure", "backbone_units": 4}),
        ((2, 3, 5), {"mode": "pure", "backbone_layers": 0}),
        ((2, 3, 5), {"mode": "no_gate", "backbone_layers": 2, "backbone_units": 17}),
        ((2, 3, 4), {"backbone_layers": 3, "backbone_units": 5, "backbone_activation": "silu"}),
        ((2, 3, 4), {"backbone_layers": 2, "backbone_units": 5, "backbone_activation": "gelu"}),
        ((2, 3, 4), {"backbone_units": 9, "backbone_activation": "relu", "activation": "identity"}),
        ((2, 3, 4), {"backbone_units": 9, "backbone_activation": "tanh", "time_bias": False}),
        ((2, 3, 4), {"backbone_layers": 0, "activation": "lecun_tanh", "time_bias": False}),
        ((2, 3, 4), {"backbone_units": 9, "backbone_activation": "sigmoid", "time_sign": 1}),
        ((2, 3, 4), {"backbone_units": 9, "backbone_activation": "hardtanh"}),
        ((2, 3, 4), {"backbone_units": 9, "backbone_activation": "gelu", "mode": "no_gate"}),
        (
            (2, 3, 4),
            {"backbone_units": 9, "activation": "sigmoid", "backbone_activation": "identity"},
        ),
    ],
    MixedMemoryCell: [
        ((3, 4, 5), {"backbone_units": 9}),
        ((17, 1, 5), {"backbone_units": 9, "form": "state", "forget_bias": -0.5}),
        ((2, 3, 7), {"backbone_layers": 2, "backbone_units": 6, "backbone_activation": "silu"}),
        (
            (2, 3, 5),
            {"backbone_layers": 2, "backbone_units": 6, "form": "state", "mode": "no_gate"},
        ),
        ((2, 3, 5), {"backbone_units": 19, "mode": "pure", "form": "state"}),
    ],
    WiredCfCCell: [
        ((3, 4, 5), {}),
        ((2, 3, 12), {"motors": 3, "mode": "no_gate"}),
        ((2, 3, 9), {"motors": 2, "mode": "pure"}),
        ((2, 3, 9), {"motors": 2, "time_bias": False}),
    ],
}
"""Sizes B, T, N with options: tiles of several sequences, of one block of synapses and of more."""

GENERATED = [
    spec
    for spec in KERNELS
    if spec.function in (run_generated, run_phased_generated)  # type: ignore[attr-defined]
]
"""Kernels generated from a step, of which ``test_generated_kernels.py`` is about."""

TRITON = [spec for spec in KERNELS if spec.backend == "triton" and spec not in GENERATED]
"""The others."""


def name_of(spec: KernelSpec) -> str:
    return spec.cell.__name__.removesuffix("Cell")


ROWS = [
    pytest.param(
        spec, size, options, id="-".join([name_of(spec), *map(str, (*size, *options.values()))])
    )
    for spec in TRITON
    for size, options in OPTIONS[spec.cell]
]
FIRST = [row for row in ROWS if row.values[1] == (3, 4, 5)]
"""One row of each kernel, where the options do not matter."""

UNMASKED = [row for row in ROWS if row in FIRST or row.values[0].cell is LTCCell]
"""Where to look at calls without a mask too: it is a constant of every kernel alike."""


def calls(
    spec: KernelSpec, size: tuple[int, int, int], device: str, *, masked: bool = False, **options
) -> tuple[KernelCall, KernelCall]:
    """Return a call, and the same one in double precision on the CPU."""
    call = on(device, example(spec, *size, masked=masked, **options))
    return call, example(spec, *size, torch.float64, masked=masked, **options)


def on(device: str, call: KernelCall) -> KernelCall:
    """Return a call with everything on a device."""
    mask = None if call.mask is None else call.mask.to(device)
    inputs = (v.detach().to(device).requires_grad_() for v in (call.x, call.h, call.dt))
    return KernelCall(call.cell.to(device), *inputs, mask)


def leaves(call: KernelCall) -> list[Tensor]:
    return [call.x, call.h, call.dt, *call.cell.parameters()]


def pull(*results: Tensor) -> Tensor:
    """Return a loss that every entry pulls at differently."""
    losses = []
    for result in results:
        weights = torch.linspace(-1, 1, result.numel(), device=result.device)
        losses.append((result * weights.to(result.dtype).view_as(result)).sum())
    return torch.stack(losses).sum()


def values_and_gradients(run, call: KernelCall) -> list[Tensor]:
    y, last = run(call)
    return [y, last, *torch.autograd.grad(pull(y, last), leaves(call))]


def error(actual: Tensor, expected: Tensor) -> float:
    """Return the largest error in units of the largest expected entry; infinite if there is NaN."""
    expected = expected.cpu().double()
    unit = max(1e-3, expected.abs().max().item())
    largest = (actual.cpu().double() - expected).abs().max().item() / unit
    return largest if math.isfinite(largest) else math.inf


@contextmanager
def checked_memory(device: str) -> Iterator[None]:
    """Fill fresh tensors with NaN, so that what a kernel fails to write shows.

    In the interpreter, also check that kernels touch nothing but the tensors they were given.
    """
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=device != "cpu")
    try:
        with np.errstate(all="ignore"):  # infinities are meant where they arise
            if device == "cpu":
                with inside_bounds():
                    yield
            else:
                yield
    finally:
        torch.use_deterministic_algorithms(before)


@contextmanager
def inside_bounds() -> Iterator[None]:
    """Fail where an interpreted kernel reads or writes outside the tensors of its launch."""
    from triton.runtime import interpreter

    executor, builder = interpreter.GridExecutor, interpreter.InterpreterBuilder
    launch, load, store = (
        executor.__call__,
        builder.create_masked_load,
        builder.create_masked_store,
    )
    ranges: list[tuple[int, int]] = []

    def check(pointers, mask) -> None:
        places = pointers.data[mask.data.astype(bool)].astype(np.int64)
        inside = np.zeros(places.shape, bool)
        for first, end in ranges:
            inside |= (places >= first) & (places < end)
        assert inside.all(), "a kernel left the memory of its tensors"

    def checked_launch(self, *arguments, **options):
        ranges.clear()
        for value in (*arguments, *options.values()):
            if isinstance(value, Tensor) and value.numel():
                sides = zip(value.shape, value.stride(), strict=True)
                last = sum((size - 1) * stride for size, stride in sides)
                end = value.data_ptr() + (last + 1) * value.element_size()
                ranges.append((value.data_ptr(), end))
        return launch(self, *arguments, **options)

    def checked_load(self, pointers, mask, *rest):
        check(pointers, mask)
        return load(self, pointers, mask, *rest)

    def checked_store(self, pointers, value, mask, *rest):
        check(pointers, mask)
        return store(self, pointers, value, mask, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(executor, "__call__", checked_launch)
        patch.setattr(builder, "create_masked_load", checked_load)
        patch.setattr(builder, "create_masked_store", checked_store)
        yield
