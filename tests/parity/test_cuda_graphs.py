"""Steps of every cell recorded as CUDA graphs, against the same steps taken by torch.

Without a GPU a stand-in takes the place of a graph: it runs the same operations on the same tensors
again, so that what is copied in and out is tested, and what a recording depends on.
"""

from dataclasses import replace
from importlib import import_module

import pytest
import torch
from sequences_of_cells import EVERY, assert_close, call_of, leaves, values_and_gradients
from torch import nn

import tauflow
from tauflow.cells import AbstractCell
from tauflow.cells.registry import MODELS
from tauflow.errors import BackendError
from tauflow.kernels import KERNELS, KernelCall, select_kernel
from tauflow.kernels.gpu import graph_loop
from tauflow.kernels.select import _is_graph_profitable
from tauflow.kernels.trace.cuda_graphs import (
    _prepare_inputs,
    cuda_graph_trace_unsupported_reason,
    cuda_graph_unsupported_reason,
    run_cuda_graph,
)
from tauflow.sequence import reference_loop

ON_A_GPU = pytest.param(
    "cuda",
    marks=[
        pytest.mark.gpu,
        pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    ],
)
device = pytest.mark.parametrize("device", ["cpu", ON_A_GPU])


@pytest.fixture(autouse=True)
def recordings(request, monkeypatch):
    """Record chunks of four steps at most, and return what was recorded."""
    monkeypatch.setattr(graph_loop, "MAX_CHUNK_STEPS", 4)
    params = getattr(request.node, "callspec", None)
    if params is None or params.params.get("device") != "cuda":

        def capture(run):
            run()
            return run

        monkeypatch.setattr(graph_loop, "can_capture", lambda like: True)
        monkeypatch.setattr(graph_loop, "capture_graph", capture)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    graph_loop.clear_captures()
    yield graph_loop._captured_loops
    graph_loop.clear_captures()


def on(device: str, call: KernelCall) -> KernelCall:
    """Return a call on a device, its cell there too."""
    tensors = {
        name: tensor.detach().to(device).requires_grad_(tensor.requires_grad)
        for name in ("x", "h", "dt", "mask", "observed")
        if (tensor := getattr(call, name)) is not None
    }
    return replace(call, cell=call.cell.to(device), **tensors)


@device
@pytest.mark.sampled(60)
@pytest.mark.parametrize(("name", "options"), EVERY, ids=str)
@pytest.mark.parametrize("masked", [False, True])
def test_it_is_the_step(name, options, masked, device, recordings):
    call = on(device, call_of(name, 3, 7, options, masked=masked))
    assert cuda_graph_trace_unsupported_reason(call) is None
    expected = values_and_gradients(reference_loop, call)
    assert_close(values_and_gradients(run_cuda_graph, call), expected)
    assert not recordings  # the shapes were new
    for _ in range(2):  # recorded, and replayed on memory used before
        assert_close(values_and_gradients(run_cuda_graph, call), expected)
        assert [len(recording.chunks) for recording in recordings.values()] == [
            3,
            3,
        ]  # of 4, 2 and 1 steps
    with torch.no_grad():
        assert_close(run_cuda_graph(call), expected[:2])


def thrice(call):
    """Return what a call gives, seen for the first time, recorded, and replayed."""
    return [values_and_gradients(run_cuda_graph, call) for _ in range(3)]


@device
@pytest.mark.parametrize("name", ["gnode", "gru-d", "ct-gru", "lem"])
def test_in_double_precision(name, device):
    call = call_of(name, 3, 6, masked=True)
    call.cell.double()
    tensors = {k: getattr(call, k).detach().double().requires_grad_() for k in ("x", "h", "dt")}
    call = on(device, replace(call, **tensors))
    expected = values_and_gradients(reference_loop, call)
    for results in thrice(call):
        for actual, wanted in zip(results, expected, strict=True):
            torch.testing.assert_close(actual, wanted, rtol=1e-9, atol=1e-11)


@device
@pytest.mark.parametrize("name", ["gnode", "gru", "lipschitz-rnn"])
def test_autocast_is_followed(name, device):
    """Products are rounded as in plain steps. Gradients of weights are summed in float32."""
    call = on(device, call_of(name, 8, 6))
    exact = values_and_gradients(reference_loop, call)
    with torch.autocast(device, torch.bfloat16):
        plain = values_and_gradients(reference_loop, call)
        assert cuda_graph_trace_unsupported_reason(call) is None
        replayed = thrice(call)
    for results in replayed:
        for actual, rounded, wanted in zip(results, plain, exact, strict=True):
            assert actual.dtype is rounded.dtype
            unit = max(1.0, wanted.abs().max().item())
            error = (rounded - wanted).abs().max().item()
            assert (actual - wanted).abs().max().item() <= 2 * error + 1e-5 * unit
    assert (replayed[0][0] - exact[0]).abs().max() > 1e-4  # it was followed


@device
def test_what_autocast_casts_is_a_recording_of_its_own(device):
    call = on(device, call_of("gnode", 3, 6))
    expected = values_and_gradients(reference_loop, call)
    for _ in range(2):
        with torch.autocast(device, torch.bfloat16):
            thrice(call)
        for results in thrice(call):
            assert_close(results, expected)


@device
def test_lengths_share_a_recording_and_batches_do_not(device, recordings):
    call = on(device, call_of("gru-ode", 3, 6))
    thrice(call)
    longer = on(device, call_of("gru-ode", 3, 11))
    longer = replace(longer, cell=call.cell)
    assert_close(
        values_and_gradients(run_cuda_graph, longer), values_and_gradients(reference_loop, longer)
    )
    assert [sorted(recording.chunks) for recording in recordings.values()] == [[1, 2, 4], [1, 2, 4]]
    values_and_gradients(
        run_cuda_graph, on(device, replace(call_of("gru-ode", 4, 6), cell=call.cell))
    )
    assert len(recordings) == 2


@device
def test_new_parameters_and_options_are_followed(device):
    call = on(device, call_of("gnode", 2, 9))
    before = thrice(call)[0][0]
    with torch.no_grad():
        for parameter in call.cell.parameters():
            parameter.mul_(0.5)
    assert_close(run_cuda_graph(call), reference_loop(call))
    assert not torch.allclose(run_cuda_graph(call)[0], before)
    call = replace(call, cell=call.cell.replace(tau=3.0))
    for _ in range(3):
        assert_close(run_cuda_graph(call), reference_loop(call))


class Mixing(AbstractCell):
    """A cell of one's own."""

    compiled = True

    def __init__(self, phi):
        super().__init__(5, 6)
        self.linear = nn.Linear(11, 6)
        self.phi = phi

    def step(self, x, h, dt):
        return h + dt * self.phi(self.linear(torch.cat((x, h), 1)))


def mixing(phi, rows=2):
    call = call_of("elman", rows, 9)
    return replace(call, cell=Mixing(phi))


def test_a_matrix_is_told_from_its_transpose():
    A = 0.2 * torch.randn(6, 6)
    call = mixing(lambda z: torch.tanh(z @ A) @ A.t())
    expected = values_and_gradients(reference_loop, call)
    for results in thrice(call):
        assert_close(results, expected)


def test_under_autocast_no_cell_is_refused():
    for name, options in EVERY:
        with torch.autocast("cpu", torch.bfloat16):
            assert cuda_graph_trace_unsupported_reason(call_of(name, 2, 4, options)) is None, (
                name,
                options,
            )


def test_as_many_cells_as_there_are_in_a_deep_model(recordings):
    calls = [call_of("elman", 2, 4, sizes=(5, 3 + i)) for i in range(12)]
    for call in 2 * calls:
        values_and_gradients(run_cuda_graph, call)
    assert len(recordings) == 24


def test_cells_that_are_alike_but_for_their_parameters_share_a_recording(recordings):
    calls = [call_of("elman", 2, 4) for _ in range(3)]
    for scale, call in enumerate(2 * calls):
        with torch.no_grad():
            call.cell.W_h.mul_(0.5 + scale)
        results = values_and_gradients(run_cuda_graph, call)
        assert_close(results, values_and_gradients(reference_loop, call))
    assert len(recordings) == 2


def test_memory_of_recordings_is_bounded(recordings, monkeypatch):
    monkeypatch.setattr(graph_loop, "_MAX_TOTAL_BYTES", 20_000)
    for call in 2 * [call_of("elman", 2, 4) for _ in range(12)]:
        values_and_gradients(run_cuda_graph, call)
    assert 0 < sum(recording.size for recording in recordings.values()) <= 20_000


def test_random_numbers_of_the_check_are_drawn_where_their_generator_is():
    call = call_of("gnode", 2, 9)
    with torch.device("meta"):  # or a GPU, by torch.set_default_device
        assert cuda_graph_trace_unsupported_reason(call) is None


@pytest.mark.parametrize("name", ["rnn-impute", "hippo-legs", "ltc-exp"])
def test_a_cell_that_moves_is_captured_again(name):
    call = call_of(name, 2, 4)
    with torch.no_grad():
        _prepare_inputs(call)
        _, inputs = _prepare_inputs(on("meta", call))
    assert {tensor.device.type for tensor in inputs} == {"meta"}


def test_functions_of_ones_own_are_not_compared_number_by_number(monkeypatch):
    """For which a GPU would have to be waited for."""
    call = mixing(torch.tanh, 3)
    run_cuda_graph(call)
    monkeypatch.setattr(torch, "equal", None)
    assert_close(run_cuda_graph(call), reference_loop(call))


def test_functions_given_to_cells_of_the_library_are_not_captured():
    call = call_of("gnode", 3, 9, {"activation": lambda z: torch.tanh(z)})
    assert "does not say compiled" in cuda_graph_trace_unsupported_reason(call)


@pytest.mark.parametrize("frozen", ["x", "parameters", "all"])
def test_only_what_learns_gets_gradients(frozen):
    call = call_of("ct-gru", 3, 8)
    if frozen != "parameters":
        call = replace(call, x=call.x.detach(), dt=call.dt.detach())
    if frozen != "x":
        call.cell.requires_grad_(False)
    wanted = [leaf for leaf in leaves(call) if leaf.requires_grad] or [call.h]
    for _ in range(3):
        results = [run(call)[0].square().sum() for run in (run_cuda_graph, reference_loop)]
        gradients, expected = (torch.autograd.grad(result, wanted) for result in results)
        assert_close(gradients, expected)


def test_gradients_of_gradients():
    call = call_of("gnode", 2, 5)

    def curvature(run):
        (first,) = torch.autograd.grad(run(call)[0].square().sum(), call.x, create_graph=True)
        return torch.autograd.grad(first.square().sum(), call.h)

    for _ in range(2):
        assert_close(curvature(run_cuda_graph), curvature(reference_loop))


def test_what_no_graph_can_hold_is_left_to_plain_steps():
    call = call_of("cfc", 2, 9, {"backbone_dropout": 0.5, "dropout_first": True})
    assert "draws numbers" in cuda_graph_trace_unsupported_reason(call)
    call.cell.eval()
    assert cuda_graph_trace_unsupported_reason(call) is None
    call = mixing(lambda z: z.cumprod(1))
    reason = cuda_graph_trace_unsupported_reason(call)
    assert "no CUDA graph was tested with aten.cumprod" in reason
    with pytest.raises(BackendError, match=r"cannot be traced.*backend='reference'"):
        run_cuda_graph(call)


@pytest.mark.filterwarnings("ignore:CUDA cannot record")
def test_what_cannot_be_captured_is_launched_step_by_step(monkeypatch):
    call = call_of("gnode", 2, 9)
    expected = values_and_gradients(reference_loop, call)
    tried = []

    def capture(run):
        run()
        tried.append(run)
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(graph_loop, "capture_graph", capture)
    values_and_gradients(run_cuda_graph, call)
    with pytest.warns(UserWarning, match=r"one by one: operation not permitted"):
        assert_close(values_and_gradients(run_cuda_graph, call), expected)
    assert_close(values_and_gradients(run_cuda_graph, call), expected)
    assert len(tried) == 2  # once each way


def test_it_is_for_gpus():
    call = call_of("gnode", 2, 9)
    assert "NVIDIA GPUs" in cuda_graph_unsupported_reason(call)
    with pytest.raises(BackendError, match="NVIDIA GPUs"):
        tauflow.build("gnode", 3, 4, backend="graph")(torch.zeros(1, 9, 3))
    assert select_kernel(call, "auto").backend == "numba"


def test_every_cell_has_a_row_behind_those_of_its_own_kernels():
    cells = {entry.cell for entry in MODELS.values()}
    for cell in cells:
        rows = [row.backend for row in KERNELS if row.cell is cell]
        assert rows.count("graph") == 1
        assert rows[-1] == "graph"


def test_where_it_is_worth_it():
    assert _is_graph_profitable(call_of("gnode", 2, 4))
    assert not _is_graph_profitable(call_of("gnode", 2, 3))  # too few steps
    wide = call_of("gnode", 2200, 4, {"units": 1000, "layers": 3})
    assert not _is_graph_profitable(wide)  # products take longer than their launches
    torch.use_deterministic_algorithms(True)
    try:
        assert not _is_graph_profitable(call_of("gnode", 2, 4))
    finally:
        torch.use_deterministic_algorithms(False)


def test_hooks_on_what_autograd_saves_do_not_see_steps():
    """Those of a caller may copy to another device, which no graph could hold."""
    call, seen = call_of("gnode", 2, 9), []

    def pack(tensor):
        seen.append(tensor)
        return tensor

    for _ in range(3):
        seen.clear()
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            loss = run_cuda_graph(call)[0].sum()
            forwards = len(seen)
            torch.autograd.grad(loss, call.x)
        assert 0 < forwards == len(seen)


def test_steps_are_taken_anew_in_checkpoints(monkeypatch):
    model, x = tauflow.build("gnode", 3, 4, checkpoint_every=4), torch.randn(2, 9, 3)
    (wanted,) = torch.autograd.grad(model(x)[0].square().sum(), model.cell.W_h)
    row = next(r for r in KERNELS if (r.cell, r.backend) == (type(model.cell), "graph"))
    monkeypatch.setattr(import_module("tauflow.sequence.unroll"), "select_kernel", lambda *_: row)
    for _ in range(3):
        (gradient,) = torch.autograd.grad(model(x)[0].square().sum(), model.cell.W_h)
        torch.testing.assert_close(gradient, wanted, rtol=1e-5, atol=1e-5)
    assert graph_loop._captured_loops
