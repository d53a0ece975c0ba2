"""The Triton kernels as torch sees them: schemas, shapes, tracing, autocast, devices."""

import pytest
import torch
from torch.utils._pytree import tree_map_only
from triton_rows import (
    DEVICES,
    FIRST,
    calls,
    checked_memory,
    error,
    leaves,
    name_of,
    pull,
    values_and_gradients,
)

import tauflow
from tauflow.kernels import KernelCall
from tauflow.kernels.engine import autograd as engine
from tauflow.sequence import reference_loop

pytest.importorskip("triton", reason="triton is not installed")
pytestmark = [pytest.mark.parametrize("device", DEVICES), pytest.mark.sampled(3)]

MODULES = [
    pytest.param(tauflow.LTC, {"substeps": 2}, id="LTC"),
    pytest.param(tauflow.CfC, {"backbone_units": 9}, id="CfC"),
    pytest.param(tauflow.MixedMemory, {"backbone_units": 9}, id="mixed"),
    pytest.param(tauflow.WiredCfC, {}, id="wired"),
]


@pytest.fixture(autouse=True)
def _memory(device):
    with checked_memory(device):
        yield


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("spec", "size", "options"),
    [row for row in FIRST if name_of(row.values[0]) in ("LTC", "MixedMemory")],
)
def test_operators_keep_what_they_promise(spec, size, options, device, monkeypatch):
    seen = []

    def recorded(operator):
        def call(*arguments):
            seen.append((operator, arguments))
            return operator(*arguments)

        return call

    for name in ("sequence", "sequence_backward"):
        monkeypatch.setattr(engine, name, recorded(getattr(engine, name)))
    call, _ = calls(spec, (2, 2, 3), device, masked=True, **options)
    values_and_gradients(spec.run, call)
    (forward, inputs), (backward, pulled) = seen
    inputs = tree_map_only(
        torch.Tensor, lambda t: t.detach().requires_grad_(t.requires_grad), inputs
    )
    torch.library.opcheck(forward, inputs)
    torch.library.opcheck(backward, tree_map_only(torch.Tensor, torch.detach, pulled))


@pytest.mark.thorough
@pytest.mark.parametrize(("module", "options"), MODULES)
def test_compiled_modules_have_no_graph_break(module, options, device):
    torch.manual_seed(0)
    rnn = module(3, 5, backend="triton", **options).to(device)
    x = torch.randn(3, 4, 3, device=device, requires_grad=True)
    dt = torch.rand(3, 4, device=device)
    mask = torch.tensor([[1, 1, 0, 1], [1, 1, 1, 1], [0, 1, 1, 0]], device=device).bool()
    torch._dynamo.reset()
    compiled = torch.compile(rnn, fullgraph=True, backend="aot_eager")
    wanted = [x, *rnn.parameters()]
    results = []
    for run in (rnn, compiled):
        y, h = run(x, dt=dt, mask=mask)
        results.append([y, h, *torch.autograd.grad(pull(y, h), wanted)])
    for value, other in zip(*results, strict=True):
        torch.testing.assert_close(value, other, rtol=1e-6, atol=1e-6)
    torch._dynamo.reset()


@pytest.mark.parametrize(("module", "options"), MODULES)
def test_steps_may_be_run_again_to_save_memory(module, options, device):
    gradients = []
    for every in (None, 2):
        torch.manual_seed(0)
        rnn = module(3, 5, backend="triton", checkpoint_every=every, **options).to(device)
        x = torch.randn(2, 3, 3, device=device, requires_grad=True)
        gradients.append(torch.autograd.grad(pull(*rnn(x)), [x, *rnn.parameters()]))
    assert max(map(error, *gradients)) < 1e-5


@pytest.mark.parametrize(("module", "options"), MODULES)
def test_autocast_rounds_no_more_than_the_reference(module, options, device):
    torch.manual_seed(0)
    rnn = module(3, 5, backend="triton", **options)
    reference = module(3, 5, backend="reference", **options)
    reference.load_state_dict(rnn.state_dict())
    x, dt = torch.randn(3, 4, 3), torch.rand(3, 4)
    exact, _ = reference.double()(x.double(), dt=dt.double())
    rounded = {}
    for name, module_on_device in (("reference", reference.float()), ("triton", rnn)):
        module_on_device.to(device)
        with torch.autocast(device, dtype=torch.bfloat16):
            y, _ = module_on_device(x.to(device), dt=dt.to(device))
        loss = y.square().sum()
        gradients = torch.autograd.grad(loss, list(module_on_device.parameters()))
        assert all(gradient.dtype is torch.float32 for gradient in gradients)
        rounded[name] = y
    assert rounded["triton"].dtype is rounded["reference"].dtype
    assert error(rounded["triton"], exact) < max(2 * error(rounded["reference"], exact), 1e-5)


@pytest.mark.parametrize(("spec", "size", "options"), FIRST)
def test_gradients_have_gradients(spec, size, options, device):
    pair, derivatives = calls(spec, size, device, masked=True, **options), []
    for run, call in zip((spec.run, reference_loop), pair, strict=True):
        first = torch.autograd.grad(pull(*run(call)), leaves(call), create_graph=True)
        norm = sum(gradient.square().sum() for gradient in first)
        derivatives.append([*first, *torch.autograd.grad(norm, leaves(call), allow_unused=True)])
    for derivative, other in zip(*derivatives, strict=True):
        assert (derivative is None) == (other is None)
        assert derivative is None or error(derivative, other) < 1e-4


@pytest.mark.parametrize(("spec", "size", "options"), FIRST)
def test_a_sequence_may_be_split(spec, size, options, device):
    call, double = calls(spec, size, device, masked=True, **options)
    h, outputs = call.h, []
    for steps in (slice(0, 1), slice(1, None)):
        part = (call.x[:, steps], h, call.dt[:, steps], call.mask[:, steps])
        y, h = spec.run(KernelCall(call.cell, *part))
        outputs.append(y)
    y = torch.cat(outputs, dim=1)
    to = torch.autograd.grad(pull(y, h), leaves(call))
    expected_y, expected_h = reference_loop(double)
    expected = torch.autograd.grad(pull(expected_y, expected_h), leaves(double))
    assert error(y, expected_y) < 1e-5
    assert max(map(error, to, expected)) < 1e-4
