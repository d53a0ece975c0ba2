"""What only a GPU can show of the Triton kernels: it runs beside the host, and has large memory."""

import pytest
import torch
from triton_rows import FIRST, calls, error, leaves, pull

import tauflow
from tauflow.kernels import KernelCall, select_kernel
from tauflow.kernels.gpu import graph_loop

pytest.importorskip("triton", reason="triton is not installed")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

MODULES = [
    pytest.param(tauflow.LTC, {"substeps": 2}, id="LTC"),
    pytest.param(tauflow.CfC, {"backbone_units": 9}, id="CfC"),
    pytest.param(tauflow.MixedMemory, {"backbone_units": 9}, id="mixed"),
    pytest.param(tauflow.WiredCfC, {}, id="wired"),
]
STEPS = 40  # two recordings of steps and a rest


def inputs(device="cuda"):
    x = torch.randn(3, STEPS, 3, device=device, requires_grad=True)
    mask = torch.rand(3, STEPS, device=device) < 0.7
    return x, torch.rand(3, STEPS, device=device), mask


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
@pytest.mark.parametrize(("module", "options"), MODULES)
def test_auto_takes_triton_without_waiting_for_the_device(module, options):
    rnn, (x, dt, mask) = module(3, 5, **options).cuda(), inputs()
    h = x.new_zeros(3, rnn.cell.state_size)
    row = select_kernel(KernelCall(rnn.cell, x, h, dt.unsqueeze(-1), mask), "auto")
    assert row.backend == "triton"
    for _ in range(2):  # compiles, and records
        rnn(x, dt=dt, mask=mask)[0].sum().backward()
    try:
        torch.cuda.set_sync_debug_mode("error")
        rnn(x, dt=dt, mask=mask)[0].sum().backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize(("spec", "size", "options"), FIRST)
def test_forward_and_backward_can_be_captured(spec, size, options):
    call, _ = calls(spec, size, "cuda", masked=True, **options)

    def step():
        return torch.autograd.grad(pull(*spec.run(call)), leaves(call))

    expected = step()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = step()
    with torch.no_grad():
        call.x.add_(1.0)
    graph.replay()
    other = step()
    assert max(map(error, results, other)) < 2e-6
    assert max(map(error, results, expected)) > 1e-3


def test_a_recording_that_fails_leaves_random_numbers_and_later_recordings_alone():
    x, counted = torch.ones(4, device="cuda"), torch.zeros(4, device="cuda")
    torch.cuda.manual_seed(3)
    expected = torch.rand(5, device="cuda")
    torch.cuda.manual_seed(3)
    with pytest.raises(RuntimeError):  # the host reads what only a launch would make
        graph_loop.capture_graph(lambda: x.add_(float(x.sum().item())))
    torch.testing.assert_close(torch.rand(5, device="cuda"), expected, rtol=0, atol=0)
    replay = graph_loop.capture_graph(lambda: counted.add_(1))
    counted.zero_()
    replay()
    assert counted.tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize(("module", "options"), MODULES)
def test_streams_do_not_disturb_each_other(module, options):
    rnn, inputs_of_streams = module(3, 5, **options).cuda(), [inputs() for _ in range(4)]
    expected = [rnn(x, dt=dt, mask=mask)[0] for x, dt, mask in inputs_of_streams]
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in inputs_of_streams]
    for _ in range(3):
        outputs = []
        for stream, (x, dt, mask) in zip(streams, inputs_of_streams, strict=True):
            with torch.cuda.stream(stream):
                outputs.append(rnn(x, dt=dt, mask=mask)[0])
        torch.cuda.synchronize()
        assert max(map(error, outputs, expected)) < 2e-6


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
@pytest.mark.parametrize(("module", "options"), MODULES)
def test_a_device_that_is_not_the_current_one(module, options):
    rnn, (x, dt, mask) = module(3, 5, **options).cuda(), inputs()
    expected = torch.autograd.grad(rnn(x, dt=dt, mask=mask)[0].sum(), x)[0]
    rnn.to("cuda:1")
    for _ in range(3):
        there = x.detach().to("cuda:1").requires_grad_()
        y, _ = rnn(there, dt=dt.to("cuda:1"), mask=mask.to("cuda:1"))
        assert y.device == there.device
        assert error(torch.autograd.grad(y.sum(), there)[0], expected) < 2e-6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "options"),
    [
        pytest.param(tauflow.LTC, {"substeps": 1}, id="LTC"),
        pytest.param(tauflow.CfC, {"backbone_units": 64}, id="CfC"),
    ],
)
def test_more_entries_than_32_bits_count(module, options):
    if torch.cuda.mem_get_info()[0] < 50e9:
        pytest.skip(reason="needs 50 GB of free memory on the device")
    batch, steps, neurons = 4096, 8200, 64
    assert batch * steps * neurons > 2**31
    rnn = module(1, neurons, backend="triton", **options).cuda()
    x = torch.randn(batch, steps, 1, device="cuda")
    with torch.no_grad():
        y, _ = rnn(x)
        few, _ = rnn(x[-2:])
    assert error(y[-2:], few) < 1e-4
