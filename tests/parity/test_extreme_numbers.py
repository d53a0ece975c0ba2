"""Where the reference is finite, infinite or NaN, every kernel is: values and every gradient."""

import math

import pytest
import torch
from kernel_variants import ROWS, example, name_of
from torch import Tensor

from tauflow.cells import CTRNNCell, LTCCell
from tauflow.kernels import KernelCall
from tauflow.sequence import reference_loop

NUMBERS = (1e19, 1e30, 1e38, math.inf, math.nan)
GAPS = (0.0, 1e-30, 1e30)
CASES = [(place, number) for place in ("x", "h", "weight") for number in NUMBERS]
CASES += [("dt", gap) for gap in GAPS]


def with_number(row, place: str, number: float) -> KernelCall:
    call = example(row[0], 2, 3, 3, **row[1])
    weight = next(p for p in call.cell.parameters() if p.numel() > 1)
    with torch.no_grad():
        if place == "x":
            call.x[0, 1, 1], call.x[0, 2, 0] = number, -number
        else:
            {"h": call.h[0], "weight": weight.view(-1), "dt": call.dt[0]}[place][1] = number
    return call


def limit(row, place: str, number: float) -> str | None:
    """Return why a kernel need not do as the reference does."""
    spec, options = row
    if options.get("sparsity") == 0.8 and not math.isfinite(number):
        return "a synapse that does not exist lets no NaN through to a gradient"
    if options.get("sparsity") == 0.8 and place == "dt" and number > 1:
        return "the same, where an explicit solver has blown up"
    exponential = options.get("solver") == "exponential"
    if exponential and math.isfinite(number) and (number > 1e19 or (place == "dt" and number > 1)):
        return "the reference's slope of (1 - exp(-r)) / r is rounded to 0 before its factor"
    if spec.cell is LTCCell and place == "weight" and number == 1e38 and "solver" not in options:
        return "w sigma, which the loops multiply ahead, must be finite"
    if spec.cell is LTCCell and place == "h" and number == 1e38:
        return "what is infinite only in between may be finite"
    phis = options.get("backbone_activation"), options.get("activation")
    if "hardtanh" in phis and math.isnan(number):
        return "torch's slope of hardtanh at NaN is 0 or 1, depending on the place in the row"
    return None


def values_and_gradients(run, call: KernelCall) -> dict[str, Tensor | None]:
    y, last = run(call)
    named = {"x": call.x, "h": call.h, "dt": call.dt, **dict(call.cell.named_parameters())}
    loss = sum((out * torch.linspace(-1, 1, out.numel()).view_as(out)).sum() for out in (y, last))
    gradients = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
    return {"y": y, "last": last, **{f"d {n}": g for n, g in zip(named, gradients, strict=True)}}


@pytest.mark.sampled(20)
@pytest.mark.parametrize("row", ROWS, ids=name_of)
@pytest.mark.parametrize(("place", "number"), CASES, ids=lambda part: str(part))
def test_kernels_are_finite_where_the_reference_is(row, place, number, monkeypatch):
    why_not = limit(row, place, number)
    if why_not is not None:
        pytest.skip(reason=why_not)
    # With AVX-512 oneDNN's gelu of infinity is NaN; torch's own is infinity everywhere.
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", False)
    fused = values_and_gradients(row[0].run, with_number(row, place, number))
    expected = values_and_gradients(reference_loop, with_number(row, place, number))
    for name, right in expected.items():
        actual = fused[name]
        if right is None or actual is None:
            assert actual is right, name
            continue
        finite = right.isfinite()
        assert torch.equal(actual.isfinite(), finite), f"{name}: {actual}, expected {right}"
        unit = max(1.0, right[finite].abs().max().item()) if finite.any() else 1.0
        torch.testing.assert_close(
            actual[finite],
            right[finite],
            rtol=1e-3,
            atol=1e-4 * unit,
            msg=lambda m, n=name: f"{n}: {m}",
        )


def test_the_clip_of_a_flow_ends_an_infinite_state():
    row = next(r for r in ROWS if r[0].cell is CTRNNCell and r[1].get("clip") == 0.2)
    call = with_number(row, "h", math.inf)
    assert (row[0].run(call)[0].abs() <= 0.2).all()
