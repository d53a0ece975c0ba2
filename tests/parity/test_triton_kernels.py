"""The Triton kernels against the reference loop in double precision: values, every gradient.

On the CPU they run in Triton's interpreter, which has the exponentials of NumPy and ignores the
precision of products; ``pytest -m gpu`` runs the same on a GPU.
"""

import pytest
import torch
from triton_rows import (
    DEVICES,
    FIRST,
    ROWS,
    UNMASKED,
    calls,
    checked_memory,
    error,
    leaves,
    on,
    pull,
    values_and_gradients,
)

from tauflow.cells import CfCCell, LTCCell, MixedMemoryCell, WiredCfCCell
from tauflow.kernels import KernelCall
from tauflow.sequence import reference_loop

pytest.importorskip("triton", reason="triton is not installed")
pytestmark = [pytest.mark.parametrize("device", DEVICES), pytest.mark.sampled(3)]

HALF_BOUNDS = {
    (LTCCell, torch.bfloat16): (8e-3, 3e-2),
    (LTCCell, torch.float16): (1e-3, 5e-3),
    (CfCCell, torch.bfloat16): (2e-2, 5e-2),
    (CfCCell, torch.float16): (2e-3, 6e-3),
    (MixedMemoryCell, torch.bfloat16): (2e-2, 5e-2),
    (MixedMemoryCell, torch.float16): (2e-3, 6e-3),
    (WiredCfCCell, torch.bfloat16): (2e-2, 5e-2),
    (WiredCfCCell, torch.float16): (2e-3, 6e-3),
}
"""Largest errors of values and gradients for inputs, parameters and results of 8 or 11 bits.

The LTC rounds results once, and the gradients of what enters once more; closed forms also round
what they multiply by matrices.
"""


@pytest.fixture(autouse=True)
def _memory(device):
    with checked_memory(device):
        yield


@pytest.mark.parametrize(("spec", "size", "options"), ROWS)
def test_triton_equals_reference(spec, size, options, device):
    _compare(spec, *calls(spec, size, device, masked=True, **options))


@pytest.mark.parametrize(("spec", "size", "options"), UNMASKED)
def test_triton_equals_reference_without_a_mask(spec, size, options, device):
    _compare(spec, *calls(spec, size, device, **options))


def _compare(spec, call, double):
    assert spec.unsupported_reason(call) is None
    expected = values_and_gradients(reference_loop, double)
    actual = values_and_gradients(spec.run, call)
    assert max(map(error, actual[:2], expected[:2])) < 1e-5
    assert max(map(error, actual[2:], expected[2:])) < 1e-4


@pytest.mark.parametrize(("spec", "size", "options"), FIRST)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_is_storage_only(spec, size, options, dtype, device):
    call, _ = calls(spec, size, device, **options)
    cell = call.cell.to(dtype)
    inputs = [v.detach().to(dtype).requires_grad_() for v in (call.x, call.h, call.dt)]
    half = KernelCall(cell, *inputs)
    actual = values_and_gradients(spec.run, half)
    assert {tensor.dtype for tensor in actual} == {dtype}
    cell.to("cpu", torch.float64)  # of the rounded numbers
    double = KernelCall(cell, *(v.detach().cpu().double().requires_grad_() for v in inputs))
    expected = values_and_gradients(reference_loop, double)
    to_values, to_gradients = HALF_BOUNDS[spec.cell, dtype]
    assert max(map(error, actual[:2], expected[:2])) < to_values
    assert max(map(error, actual[2:], expected[2:])) < to_gradients


@pytest.mark.parametrize(("spec", "size", "options"), FIRST)
def test_inputs_may_lie_in_memory_as_they_like(spec, size, options, device):
    call, _ = calls(spec, size, device, masked=True, **options)
    expected = values_and_gradients(spec.run, call)

    def scattered(tensor):
        wide = torch.stack([tensor.detach(), torch.full_like(tensor, torch.nan)], dim=-1)
        wide = wide.transpose(0, 1).contiguous().transpose(0, 1)
        return wide[..., 0].requires_grad_()

    mask = torch.stack([call.mask, ~call.mask], dim=-1)[..., 0]
    assert not scattered(call.x).is_contiguous()
    strange = KernelCall(call.cell, *map(scattered, (call.x, call.h, call.dt)), mask)
    for value, other in zip(values_and_gradients(spec.run, strange), expected, strict=True):
        torch.testing.assert_close(value, other, rtol=0, atol=0)


@pytest.mark.parametrize(("spec", "size", "options"), FIRST)
def test_one_gap_for_all_may_be_expanded(spec, size, options, device):
    call, double = calls(spec, size, device, **options)
    gap = torch.tensor(0.7, device=device).expand(*size[:2]).unsqueeze(-1)
    y, last = spec.run(KernelCall(call.cell, call.x, call.h, gap))
    double = KernelCall(double.cell, double.x, double.h, gap.cpu().double())
    expected = reference_loop(double)
    assert max(error(y, expected[0]), error(last, expected[1])) < 1e-5
    (to_x,) = torch.autograd.grad(y.sum(), call.x)  # an expanded gradient
    (expected_to_x,) = torch.autograd.grad(expected[0].sum(), double.x)
    assert error(to_x, expected_to_x) < 1e-4


@pytest.mark.parametrize(("spec", "size", "options"), FIRST)
@pytest.mark.parametrize("part", [0, 1], ids=["outputs", "last"])
def test_a_loss_may_use_one_result_only(spec, size, options, part, device):
    call, double = calls(spec, size, device, **options)
    gradients = []
    for run, call_of_run in ((spec.run, call), (reference_loop, double)):
        to = torch.autograd.grad(
            pull(run(call_of_run)[part]), leaves(call_of_run), allow_unused=True
        )
        pairs = zip(to, leaves(call_of_run), strict=True)
        gradients.append([torch.zeros_like(leaf) if g is None else g for g, leaf in pairs])
    assert max(map(error, *gradients)) < 1e-4


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("spec", "size", "options"), FIRST)
def test_two_runs_and_two_backward_passes_give_the_same_bits(spec, size, options, device):
    call, _ = calls(spec, size, device, masked=True, **options)
    y, last = spec.run(call)
    once = torch.autograd.grad(pull(y, last), leaves(call), retain_graph=True)
    again = torch.autograd.grad(pull(y, last), leaves(call))
    rerun = values_and_gradients(spec.run, call)
    for value, other, third in zip(once, again, rerun[2:], strict=True):
        torch.testing.assert_close(value, other, rtol=0, atol=0)
        torch.testing.assert_close(value, third, rtol=0, atol=0)


@pytest.mark.parametrize(("spec", "size", "options"), FIRST)
def test_without_gradients_the_values_are_the_same(spec, size, options, device):
    call, _ = calls(spec, size, device, masked=True, **options)
    with torch.no_grad():
        silent = spec.run(call)
    assert not any(result.requires_grad for result in silent)
    # On a GPU these are other kernels, whose compiler joins other products and sums.
    bounds = {"rtol": 0, "atol": 0} if device == "cpu" else {"rtol": 1e-5, "atol": 1e-6}
    for value, other in zip(silent, spec.run(call), strict=True):
        torch.testing.assert_close(value, other.detach(), **bounds)


@pytest.mark.parametrize(("spec", "size", "options"), FIRST)
def test_masked_steps_keep_the_state_and_have_no_gradient(spec, size, options, device):
    call, _ = calls(spec, size, device, masked=True, **options)
    y, _ = spec.run(call)
    to_x, to_dt = torch.autograd.grad(pull(y), [call.x, call.dt])
    assert not to_x[~call.mask].any()
    assert not to_dt[~call.mask].any()
    assert to_x[call.mask].any()
    before = torch.cat([call.cell.readout(call.h).unsqueeze(1), y[:, :-1]], dim=1)
    torch.testing.assert_close(y[~call.mask], before[~call.mask], rtol=0, atol=0)


@pytest.mark.parametrize(("spec", "size", "options"), FIRST)
@pytest.mark.parametrize("odd", [float("nan"), float("inf"), -float("inf")], ids=str)
def test_odd_numbers_spread_as_in_the_reference(spec, size, options, odd, device):
    call, _ = calls(spec, size, "cpu", **options)
    x = call.x.detach().clone()
    x[1, 1, 0] = odd
    call = KernelCall(call.cell, x, call.h, call.dt)
    expected = reference_loop(call)
    for actual, other in zip(spec.run(on(device, call)), expected, strict=True):
        torch.testing.assert_close(actual.cpu().isnan(), other.isnan())
        torch.testing.assert_close(actual.cpu(), other, rtol=1e-5, atol=1e-5, equal_nan=True)
