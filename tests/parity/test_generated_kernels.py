"""Triton kernels generated from the step of every cell, against the step itself in a loop.

On the CPU they run in Triton's interpreter, on a GPU compiled.
"""

from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from sequences_of_cells import EVERY, call_of, leaves, values_and_gradients
from torch import nn
from triton_rows import DEVICES, checked_memory, error, pull

from tauflow.cells.base import AbstractCell
from tauflow.errors import BackendError
from tauflow.kernels import KernelCall, get_kernels, select, select_kernel
from tauflow.kernels.generated import kernel
from tauflow.kernels.generated.kernel import (
    LaunchConfig,
    generated_unsupported_reason,
    run_generated,
    unmeasured_reason,
)
from tauflow.kernels.phased_lstm import run_phased_generated
from tauflow.kernels.trace.cuda_graphs import run_cuda_graph
from tauflow.sequence import reference_loop

pytest.importorskip("triton", reason="triton is not installed")
pytestmark = pytest.mark.parametrize("device", DEVICES)

CANNOT = {"ltc", "ltc-exp", "lrc", "stc", "hippo-legs", "cru"}
"""Models whose steps are beyond the generator: they sum over synapses, or are too long."""

FOUR = ["gru-d", "lem", "gnode", "phased-lstm"]


@pytest.fixture(autouse=True)
def _memory(device):
    with checked_memory(device):
        yield


def on(device: str, call: KernelCall) -> KernelCall:
    """Return a call on a device, its cell there too."""
    tensors = {
        name: tensor.detach().to(device).requires_grad_(tensor.requires_grad)
        for name in ("x", "h", "dt", "mask", "observed")
        if (tensor := getattr(call, name)) is not None
    }
    return replace(call, cell=call.cell.to(device), **tensors)


def on_cpu(call: KernelCall) -> dict[str, torch.Tensor]:
    """Return the inputs of a call on the CPU."""
    return {key: getattr(call, key).detach().cpu().requires_grad_() for key in ("x", "h", "dt")}


def in_double(call: KernelCall) -> list[torch.Tensor]:
    """Return what the reference makes of a call in double precision, on the CPU."""
    before = next((p.dtype for p in call.cell.parameters()), torch.float32)
    call.cell.double()
    tensors = {k: getattr(call, k).detach().double().requires_grad_() for k in ("x", "h", "dt")}
    results = values_and_gradients(reference_loop, replace(call, **tensors))
    call.cell.to(before)
    return results


def run(call: KernelCall) -> tuple[torch.Tensor, torch.Tensor]:
    """Run a call by the generated kernel of its cell."""
    rows = [row for row in get_kernels(call.cell) if row.backend == "triton"]
    assert rows
    return next(row for row in rows if row.unsupported_reason(call) is None).run(call)


def assert_exact(actual, expected):
    assert max(map(error, actual[:2], expected[:2])) < 1e-5
    assert max(map(error, actual[2:], expected[2:]), default=0.0) < 1e-4


GENERATED = [row for row in EVERY if row[0] not in CANNOT]


@pytest.mark.sampled(20)
@pytest.mark.parametrize(("name", "options"), GENERATED, ids=str)
@pytest.mark.parametrize("masked", [False, True])
def test_it_is_the_step(name, options, masked, device):
    call = call_of(name, 3, 4, options, masked=masked)
    expected = in_double(call)
    call = on(device, call)
    assert_exact(values_and_gradients(run, call), expected)
    with torch.no_grad():
        assert_exact(run(call), expected[:2])


@pytest.mark.sampled(40)
@pytest.mark.parametrize("name", FOUR)
@pytest.mark.parametrize("rows", [1, 17])
@pytest.mark.parametrize("sizes", [(1, 1), (17, 33), (2, 130)], ids=str)
@pytest.mark.parametrize("resident", [False, True])
def test_tiles_of_any_size(name, rows, sizes, resident, device, monkeypatch):
    monkeypatch.setattr(kernel, "choose_launch", lambda generated: LaunchConfig(resident, 8))
    call = call_of(name, rows, 2, masked=True, sizes=sizes)
    call.mask[:, 0] = True  # else a phased LSTM keeps its clock as it was given, a sum of any parts
    expected = in_double(call)
    assert_exact(values_and_gradients(run, on(device, call)), expected)


@pytest.mark.thorough
@pytest.mark.parametrize("name", FOUR)
def test_a_large_batch_goes_in_parts(name, device, monkeypatch):
    call = on(device, call_of(name, 7, 3, masked=True))
    expected = values_and_gradients(run, call)
    monkeypatch.setattr(kernel, "_MAX_FLOATS", 1000)  # two or three sequences at once
    results = values_and_gradients(run, call)
    assert_exact(results, expected)


@pytest.mark.sampled(60)
@pytest.mark.parametrize("name", FOUR)
def test_two_runs_give_the_same_bits(name, device):
    call = on(device, call_of(name, 5, 4, masked=True))
    for value, other in zip(
        values_and_gradients(run, call), values_and_gradients(run, call), strict=True
    ):
        torch.testing.assert_close(value, other, rtol=0, atol=0)


@pytest.mark.parametrize("name", FOUR)
@pytest.mark.parametrize("part", [0, 1], ids=["outputs", "last"])
def test_a_loss_may_use_one_result_only(name, part, device):
    call = call_of(name, 3, 4)
    gradients = []
    for do, call_of_run in ((reference_loop, call), (run, on(device, call))):
        result = do(call_of_run)[part]
        to = torch.autograd.grad(pull(result), leaves(call_of_run), allow_unused=True)
        pairs = zip(to, leaves(call_of_run), strict=True)
        gradients.append([torch.zeros_like(leaf) if g is None else g for g, leaf in pairs])
    assert max(map(error, *gradients[::-1])) < 1e-4


@pytest.mark.thorough
@pytest.mark.parametrize("name", FOUR)
def test_only_parameters_may_want_gradients(name, device):
    call = on(device, call_of(name, 3, 4, masked=True))
    tensors = {key: getattr(call, key).detach() for key in ("x", "h", "dt")}
    plain, parameters = replace(call, **tensors), list(call.cell.parameters())
    gradients = []
    for do, call_of_run in ((run, plain), (run, call)):
        y, last = do(call_of_run)
        gradients.append(torch.autograd.grad(pull(y, last), parameters, allow_unused=True))
    for call_of_run, other in zip(*gradients, strict=True):
        torch.testing.assert_close(call_of_run, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["lem", "gnode"])
def test_second_derivatives_follow_the_step(name, device):
    call = on(device, call_of(name, 2, 3))
    derivatives = []
    for do in (reference_loop, run):
        (to_x,) = torch.autograd.grad(do(call)[0].square().sum(), call.x, create_graph=True)
        derivatives.append(
            torch.autograd.grad(to_x.square().sum(), leaves(call), allow_unused=True)
        )
    for derivative, other in zip(*derivatives, strict=True):
        torch.testing.assert_close(other, derivative, rtol=1e-4, atol=1e-5)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["gru-d", "lem"])
def test_inputs_may_lie_in_memory_as_they_like(name, device):
    call = on(device, call_of(name, 3, 4, masked=True))
    expected = values_and_gradients(run, call)

    def scattered(tensor):
        wide = torch.stack([tensor.detach(), torch.full_like(tensor, torch.nan)], dim=-1)
        return wide.transpose(0, 1).contiguous().transpose(0, 1)[..., 0].requires_grad_()

    strange = replace(call, **{key: scattered(getattr(call, key)) for key in ("x", "h", "dt")})
    for value, other in zip(values_and_gradients(run, strange), expected, strict=True):
        torch.testing.assert_close(value, other, rtol=1e-6, atol=1e-6)


def test_parameters_are_read_at_every_call(device):
    call = on(device, call_of("lem", 3, 4))
    run(call)
    with torch.no_grad():
        call.cell.W_h.mul_(0.5)
    expected = in_double(replace(call, cell=deepcopy(call.cell).cpu(), **on_cpu(call)))
    assert_exact(values_and_gradients(run, call), expected)


@pytest.mark.parametrize(
    ("name", "sizes", "reason"),
    [
        ("lrc", (5, 40), "cannot be traced"),
        ("lem", (5, 600), "weights"),
    ],
)
def test_what_cannot_be_generated_has_a_reason(name, sizes, reason, device):
    call = on(device, call_of(name, 2, 3, sizes=sizes))
    assert reason in generated_unsupported_reason(call)
    with pytest.raises(BackendError, match=f"backend 'triton' cannot serve this call.*{reason}"):
        select_kernel(call, "triton")


def test_double_precision_is_left_to_others(device):
    call = call_of("lem", 2, 3)
    call.cell.double()
    tensors = {key: getattr(call, key).detach().double() for key in ("x", "h", "dt")}
    assert "float32" in generated_unsupported_reason(on(device, replace(call, **tensors)))


def test_a_step_is_traced_once_for_all_batches(device):
    call = on(device, call_of("gnode", 5, 4))
    values_and_gradients(run, call)
    known = dict(kernel.TRACES.traces)
    few = replace(call, x=call.x[:1], h=call.h[:1], dt=call.dt[:1])
    values_and_gradients(run_generated, few)
    assert kernel.TRACES.traces == known


class Dividing(AbstractCell):
    """Divides by a parameter before a product and a sum, whose tiles are wider than its state."""

    compiled = True

    def __init__(self):
        super().__init__(5, 5)
        self.W = nn.Parameter(torch.randn(5, 5))
        self.tau = nn.Parameter(torch.rand(5) + 1)

    def step(self, x, h, dt):
        rate = h / self.tau
        return torch.tanh(rate @ self.W.T + x + dt * rate.sum(1, keepdim=True))


def test_what_stands_beside_columns_is_left_out(device):
    torch.manual_seed(3)
    x, h, dt = (torch.randn(3, *sides).requires_grad_() for sides in ((4, 5), (5,), (4, 1)))
    call = KernelCall(Dividing(), x, h, dt)
    expected = in_double(call)
    assert_exact(values_and_gradients(run_generated, on(device, call)), expected)


def auto(call: KernelCall, monkeypatch) -> object:
    """Return what serves a call by default if Triton's device is that of the call."""
    rows = tuple(
        replace(row, device=None) for row in get_kernels(call.cell) if row.device == "cuda"
    )
    monkeypatch.setattr(select, "get_kernels", lambda cell: rows)
    row = select_kernel(call, "auto")
    return None if row is None else row.function


@pytest.mark.parametrize(
    ("name", "options", "size", "served"),
    [
        ("gru-d", {}, (3, 4), run_generated),
        ("lem", {}, (3, 4), run_generated),
        ("gnode", {}, (3, 4), run_generated),
        ("phased-lstm", {}, (3, 4), run_phased_generated),
        ("ct-rnn", {}, (3, 4), run_generated),
        ("cfc", {"backbone_units": 9, "backbone_layers": 4}, (3, 4), run_generated),
        ("lem", {}, (1025, 4), None),
        ("lem", {}, (3, 3), None),
        ("lem", {"substeps": 4}, (3, 4), None),
        ("gnode", {"activation": "silu"}, (3, 4), None),
        ("cornn", {}, (3, 4), None),
    ],
)
def test_auto_takes_what_was_measured(name, options, size, served, device, monkeypatch):
    call = on(device, call_of(name, *size, options))
    served_by = auto(call, monkeypatch)
    assert served_by is served if served else served_by in (None, run_cuda_graph)
    assert select_kernel(call, "triton") is not None


def test_auto_leaves_wide_states_to_graphs(device, monkeypatch):
    call = on(device, call_of("lem", 3, 4, sizes=(5, 200)))
    assert "were not measured" in unmeasured_reason(call)
    assert generated_unsupported_reason(call) is None
