"""Tensors changed in place before the backward pass: right gradients, or autograd's own error."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

sys.path.append(str(Path(__file__).parents[1] / "parity"))

from kernel_variants import ROWS, example, name_of, takes_masks

from tauflow.cells.gated import AbstractGatedCell
from tauflow.kernels import KernelCall

FIRST = [row for at, row in enumerate(ROWS) if row[0] not in [spec for spec, _ in ROWS[:at]]]
"""The first variant of each kernel."""


def leaves(call: KernelCall) -> list[Tensor]:
    return [call.x, call.h, call.dt, *call.cell.parameters()]


def pulled(*results: Tensor) -> Tensor:
    """Return a loss in which every entry of every result weighs differently."""
    return sum(
        (result * torch.linspace(-1, 2, result.numel()).view_as(result)).sum() for result in results
    )


def gradients(call: KernelCall, loss: Tensor) -> list[Tensor | None]:
    return list(torch.autograd.grad(loss, leaves(call), allow_unused=True))


def targets(call: KernelCall) -> Iterator[str]:
    """Name every tensor that a user may change."""
    yield from ("x", "h", "dt", "y", "last")
    if call.mask is not None:
        yield "mask"
    yield from (f"cell.{name}" for name, _ in call.cell.named_parameters())
    yield from (f"cell.{name}" for name, _ in call.cell.named_buffers())


def change(tensor: Tensor) -> None:
    with torch.no_grad():
        if tensor.dtype is torch.bool:
            tensor.logical_not_()
        else:
            tensor.mul_(2).add_(1)


def outcome(row, masked: bool, target: str) -> str | None:
    """Return what is wrong after a change of the target; ``None`` if nothing is."""
    spec, options = row
    untouched = example(spec, 3, 5, 6, masked=masked, **options)
    expected = gradients(untouched, pulled(*spec.run(untouched)))
    call = example(spec, 3, 5, 6, masked=masked, **options)
    y, last = spec.run(call)
    loss = pulled(y, last)
    known = {"x": call.x, "h": call.h, "dt": call.dt, "mask": call.mask, "y": y, "last": last}
    tensor = known.get(target)
    if tensor is None:
        tensor = call.cell.state_dict(keep_vars=True)[target.removeprefix("cell.")]
    change(tensor.detach() if target in ("y", "last") else tensor)
    try:
        gradients_now = gradients(call, loss)
    except RuntimeError as error:
        return None if re.search("modified (by an )?inplace", str(error)) else f"{error}"
    for leaf, (gradient, other) in enumerate(zip(gradients_now, expected, strict=True)):
        if (gradient is None) != (other is None):
            return f"gradient {leaf} is missing"
        if gradient is not None and not torch.allclose(
            gradient, other, rtol=1e-5, atol=1e-6, equal_nan=True
        ):
            return f"gradient {leaf} is wrong by {(gradient - other).abs().max():.3g}"
    return None


@pytest.mark.parametrize("row", ROWS, ids=name_of)
@pytest.mark.parametrize("masked", [False, True], ids=["plain", "masked"])
def test_no_gradient_is_silently_wrong(row, masked, tries):
    if masked and not takes_masks(row[0]):
        pytest.skip(reason="the kernel takes no mask")
    names = list(targets(example(row[0], 3, 5, 6, masked=masked, **row[1])))
    few = len(names) if row in FIRST else 0
    wrong = {}
    for name in names[: tries("changes in place", few=few, full=len(names))]:
        if (what := outcome(row, masked, name)) is not None:
            wrong[name] = what
    assert wrong == {}


@pytest.mark.parametrize("row", FIRST, ids=name_of)
def test_an_output_may_be_changed_where_autograd_sees_it(row):
    spec, options = row
    untouched, call = (example(spec, 3, 5, 6, **options) for _ in range(2))
    y, last = (result * 2 + 1 for result in spec.run(untouched))
    expected = gradients(untouched, pulled(y, last))
    results = [result.mul_(2).add_(1) for result in spec.run(call)]
    try:
        gradients_now = gradients(call, pulled(*results))
    except RuntimeError as error:  # torch's own operators keep their outputs
        if "modified by an inplace" in str(error) and issubclass(spec.cell, AbstractGatedCell):
            return
        raise
    for gradient, other in zip(gradients_now, expected, strict=True):
        assert (gradient is None) == (other is None)
        if gradient is not None:
            torch.testing.assert_close(gradient, other, rtol=1e-5, atol=1e-6)
