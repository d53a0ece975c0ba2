"""What the sequence kernels of torch operations do beside computing."""

import pytest
import torch
from kernel_variants import ROWS, example, name_of, takes_double, takes_masks
from test_fused_kernels import values_and_gradients
from torch import Tensor
from torch.autograd import forward_ad
from torch.func import vmap

from tauflow.cells import CfCCell
from tauflow.kernels import KERNELS, KernelCall, select_kernel
from tauflow.kernels.cfc import torch_loop
from tauflow.kernels.engine import requirements
from tauflow.sequence import reference_loop

OWN = [row for row in ROWS if takes_double(row[0]) and takes_masks(row[0])]
PLAIN = [row for at, row in enumerate(OWN) if row[0] not in [spec for spec, _ in OWN[:at]]]
"""The first variant of each kernel."""


def leaves(call: KernelCall) -> list[Tensor]:
    return [call.x, call.h, call.dt, *call.cell.parameters()]


def double_example(row, *size, masked=False) -> KernelCall:
    return example(row[0], *size, torch.float64, masked=masked, **row[1])


@pytest.mark.parametrize("row", OWN, ids=name_of)
@pytest.mark.parametrize("size", [100, 1000, 8000])
def test_blocks_of_any_size_give_the_same(monkeypatch, size, row):
    monkeypatch.setattr(torch_loop, "_BLOCK_BYTES", {"cpu": size})
    call, spec = double_example(row, 3, 6, 7, masked=True), row[0]
    expected = values_and_gradients(reference_loop, call)
    for actual, reference in zip(values_and_gradients(spec.run, call), expected, strict=True):
        torch.testing.assert_close(actual, reference, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("row", OWN, ids=name_of)
@pytest.mark.parametrize("frozen", ["parameters", "inputs"])
def test_leaves_without_gradients_are_left_out(row, frozen):
    call = double_example(row, 3, 5, 4)
    still = call.cell.parameters() if frozen == "parameters" else (call.x, call.h, call.dt)
    for tensor in still:
        tensor.requires_grad_(False)
    wanted = [leaf for leaf in leaves(call) if leaf.requires_grad]
    found = [
        torch.autograd.grad(run(call)[0].square().sum(), wanted, allow_unused=True)
        for run in (row[0].run, reference_loop)
    ]
    for actual, reference in zip(*found, strict=True):
        torch.testing.assert_close(actual, reference, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("row", PLAIN, ids=name_of)
def test_what_is_not_served_is_said(row):
    spec, options = row
    call = double_example(row, 2, 5, 4)
    assert spec.unsupported_reason(call) is None
    half = example(spec, 2, 5, 4, torch.bfloat16, **options)
    mixed = KernelCall(call.cell, call.x.float(), call.h, call.dt)
    for odd in (half, mixed):
        assert "compute in float32 or float64" in spec.unsupported_reason(odd)
    empty = KernelCall(call.cell, call.x[:, :0], call.h, call.dt[:, :0])
    assert "at least one sequence and one step" in spec.unsupported_reason(empty)
    away = KernelCall(call.cell, call.x.to("meta"), call.h, call.dt)
    assert "on one device" in spec.unsupported_reason(away)
    with torch.autocast("cpu"):
        assert "autocast" in spec.unsupported_reason(call)
    with forward_ad.dual_level():
        assert "forward-mode" in spec.unsupported_reason(call)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"backbone_activation": lambda z: z.softmax(-1)}, "do not know this backbone"),
        ({"activation": lambda z: z.softmax(-1)}, "know no such head activation"),
        ({"activation": "silu"}, "know no such head activation"),
        ({"backbone_dropout": 0.5}, "have no backbone dropout"),
    ],
)
def test_options_of_the_closed_form_that_are_not_served_are_said(options, reason):
    (spec,) = (s for s in KERNELS if s.cell is CfCCell and s.backend == "torch")
    call = example(spec, 2, 5, 4, torch.float64, **options)
    assert reason in spec.unsupported_reason(call)
    if "backbone_dropout" in options:
        call.cell.eval()
        assert spec.unsupported_reason(call) is None


@pytest.mark.parametrize("row", PLAIN, ids=name_of)
def test_transforms_are_refused(row):
    call, reasons = double_example(row, 2, 5, 4), []

    def ask(x: Tensor) -> Tensor:
        reasons.append(row[0].unsupported_reason(KernelCall(call.cell, x, call.h, call.dt)))
        return x

    vmap(ask)(call.x.detach().expand(3, -1, -1, -1))
    assert "torch.func transforms" in reasons[0]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.jit itself
@pytest.mark.parametrize("row", PLAIN, ids=name_of)
def test_tracing_is_refused(row):
    call, reasons = double_example(row, 2, 5, 4), []

    def ask(x: Tensor) -> Tensor:
        reasons.append(row[0].unsupported_reason(KernelCall(call.cell, x, call.h, call.dt)))
        return x + 1

    torch.jit.trace(ask, call.x.detach(), check_trace=False)
    assert "cannot be traced" in reasons[0]


@pytest.mark.parametrize("row", PLAIN, ids=name_of)
def test_auto_takes_them_where_no_compiled_kernel_serves(monkeypatch, row):
    spec, options = row
    single = example(spec, 2, 5, 4, **options)
    compiled = select_kernel(single, "auto")
    assert compiled is not None
    assert compiled.backend == "numba"
    assert select_kernel(double_example(row, 2, 5, 4), "auto") is spec
    monkeypatch.setattr(requirements, "_is_numba_installed", lambda: False)
    assert select_kernel(single, "auto") is spec
