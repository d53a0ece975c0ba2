"""Every fused kernel against the reference loop: values and every gradient."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from kernel_variants import (
    ON_ANY_DEVICE,
    RECORDED,
    ROWS,
    example,
    name_of,
    takes_double,
    takes_masks,
)
from torch import Tensor

from tauflow.cells import GRUDCell
from tauflow.kernels import KernelCall, KernelSpec
from tauflow.sequence import reference_loop

SIZES = [(1, 1, 1), (3, 7, 5), (2, 63, 33), (5, 4, 5)]


def values_and_gradients(run, call: KernelCall) -> list[Tensor]:
    y, last = run(call)
    leaves = [call.x, call.h, *call.cell.parameters()]
    leaves += [call.dt] if call.cell.uses_dt else []
    loss = sum(  # every output, and the last state, pulls differently
        (
            out
            * torch.linspace(-1, 1, out.numel(), dtype=out.dtype, device=out.device).view_as(out)
        ).sum()
        for out in (y, last)
    )
    return [y, last, *torch.autograd.grad(loss, leaves)]


def close_in_single_precision(spec: KernelSpec, actual: Tensor, reference: Tensor) -> None:
    """Compare at the row's tolerance, the absolute one in units of the tensor's largest entry.

    A gradient summed over all steps rounds in proportion to its terms, which the small entries of
    the sum no longer show.
    """
    unit = max(1.0, reference.abs().max().item())
    torch.testing.assert_close(actual, reference, rtol=spec.rtol, atol=spec.atol * unit)


@pytest.mark.parametrize("row", ROWS, ids=name_of)
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("masked", [False, True])
def test_fused_equals_reference(row, size, masked):
    spec, options = row
    if masked and not takes_masks(spec):
        pytest.skip(reason="this kernel leaves masked calls to the reference")
    call = example(spec, *size, masked=masked, **options)
    assert spec.unsupported_reason(call) is None
    expected = values_and_gradients(reference_loop, call)
    fused = values_and_gradients(spec.run, call)
    for actual, reference in zip(fused, expected, strict=True):
        close_in_single_precision(spec, actual, reference)


@pytest.mark.parametrize("masked", [False, True])
def test_missing_features_are_filled_in_as_by_the_reference(masked):
    spec = next(spec for spec in RECORDED if spec.cell is GRUDCell)
    call = example(spec, 3, 9, 5, masked=masked)
    call = replace(call, observed=torch.rand(call.x.shape) < 0.6)
    assert spec.unsupported_reason(call) is None
    expected = values_and_gradients(reference_loop, call)
    for actual, reference in zip(values_and_gradients(spec.run, call), expected, strict=True):
        close_in_single_precision(spec, actual, reference)


@pytest.mark.parametrize("row", [row for row in ROWS if takes_double(row[0])], ids=name_of)
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("masked", [False, True])
def test_kernels_in_double_precision_equal_the_reference(row, size, masked):
    spec, options = row
    if masked and not takes_masks(spec):
        pytest.skip(reason="this kernel leaves masked calls to the reference")
    call = example(spec, *size, torch.float64, masked=masked, **options)
    assert spec.unsupported_reason(call) is None
    expected = values_and_gradients(reference_loop, call)
    for actual, reference in zip(values_and_gradients(spec.run, call), expected, strict=True):
        torch.testing.assert_close(actual, reference, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("row", [row for row in ROWS if not takes_double(row[0])], ids=name_of)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_fused_is_close_to_the_reference_in_double_precision(row, size):
    spec, options = row
    expected = values_and_gradients(reference_loop, example(spec, *size, torch.float64, **options))
    single = example(spec, *size, **options)
    fused = values_and_gradients(spec.run, single)
    # A flow without decay carries its own rounding on, in single precision of any kind.
    plain = values_and_gradients(reference_loop, single)
    for position, tensors in enumerate(zip(fused, plain, expected, strict=True)):
        actual, rounded, reference = (tensor.double() for tensor in tensors)
        largest = max(1.0, reference.abs().max().item())
        error, unavoidable = (
            (value - reference).abs().max().item() / largest for value in (actual, rounded)
        )
        assert error < max(1e-6 if position < 2 else 1e-5, 2 * unavoidable)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("spec", ON_ANY_DEVICE, ids=lambda s: f"{s.cell.__name__}-{s.backend}")
def test_evaluation_mode_changes_nothing(spec, training):
    call = example(spec, 2, 5, 4)
    call.cell.train(training)
    expected = values_and_gradients(reference_loop, call)
    for actual, reference in zip(values_and_gradients(spec.run, call), expected, strict=True):
        close_in_single_precision(spec, actual, reference)


@pytest.mark.parametrize(
    "spec", [s for s in ON_ANY_DEVICE if s.cell.__name__ == "LSTMCell"], ids=lambda s: s.backend
)
@pytest.mark.parametrize("forget_bias", [1.0, -2.0])
def test_lstm_forget_bias(spec, forget_bias):
    call = example(spec, 3, 6, 5, torch.float64, forget_bias=forget_bias)
    expected = values_and_gradients(reference_loop, call)
    for actual, reference in zip(values_and_gradients(spec.run, call), expected, strict=True):
        torch.testing.assert_close(actual, reference, rtol=1e-9, atol=1e-11)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize(
    "spec",
    [s for s in ON_ANY_DEVICE if s.backend != "numba"],
    ids=lambda s: f"{s.cell.__name__}-{s.backend}",
)
@pytest.mark.parametrize("size", [(1, 1, 1), (3, 7, 5), (2, 63, 33)], ids=str)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_fused_equals_reference_on_a_gpu(spec, size, training, dtype, monkeypatch):
    """In evaluation mode too, where cuDNN gives gradients only if it was asked to before."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)  # torch's default rounds to 1e-3
    call = example(spec, *size, dtype)
    call.cell.train(training)
    expected = values_and_gradients(reference_loop, call)
    there = KernelCall(
        call.cell.cuda(), *(v.detach().cuda().requires_grad_() for v in (call.x, call.h, call.dt))
    )
    if (reason := spec.unsupported_reason(there)) is not None:
        assert not takes_double(spec), reason
        pytest.skip(reason=reason)
    fused = values_and_gradients(spec.run, there)
    on_gpu = values_and_gradients(reference_loop, there)
    if dtype == torch.float64:
        close = partial(torch.testing.assert_close, rtol=1e-9, atol=1e-11)
    elif spec.backend == "torch":  # cuDNN rounds by up to 1e-5, without tf32, too
        close = partial(close_in_single_precision, replace(spec, rtol=1e-4, atol=2e-5))
    else:
        close = partial(close_in_single_precision, spec)
    for actual, reference, there_too in zip(fused, expected, on_gpu, strict=True):
        close(actual, there_too)
        close(actual.cpu(), reference)
