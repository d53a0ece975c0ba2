"""Steps of the Triton kernels recorded as CUDA graphs.

Without a GPU a stand-in takes the place of a graph: it runs the same launches on the same tensors
again, so that what is copied in and out is tested, and what a recording depends on.
"""

import pytest
import torch
from triton_rows import (
    DEVICES,
    FIRST,
    OTHER_FORMS,
    calls,
    checked_memory,
    error,
    is_stepped,
    leaves,
    pull,
    values_and_gradients,
)

from tauflow.kernels import KernelCall
from tauflow.kernels.gpu import graph_loop
from tauflow.sequence import reference_loop

pytest.importorskip("triton", reason="triton is not installed")
pytestmark = [pytest.mark.parametrize("device", DEVICES), pytest.mark.sampled(6)]

STEPPED = [row for row in FIRST if is_stepped(row.values[0])]
FORMS = [*STEPPED, *OTHER_FORMS]

SAME = 2e-6
"""Errors of products that are rounded otherwise, on memory of another alignment."""


@pytest.fixture(autouse=True)
def _memory(device):
    with checked_memory(device):
        yield


@pytest.fixture(autouse=True)
def recordings(device, monkeypatch):
    """Record chunks of two steps, and return what was recorded."""
    monkeypatch.setattr(graph_loop, "MAX_CHUNK_STEPS", 2)
    monkeypatch.setattr(graph_loop, "can_capture", lambda like: True)
    if device == "cpu":

        def capture(run):
            run()
            return run

        monkeypatch.setattr(graph_loop, "capture_graph", capture)
    graph_loop.clear_captures()
    yield graph_loop._captured_loops
    graph_loop.clear_captures()


def count(recordings) -> int:
    return len(recordings)


@pytest.mark.parametrize(("spec", "size", "options"), FORMS)
def test_recorded_steps_change_nothing(spec, size, options, device, recordings):
    size = (2, 5, size[2])  # two chunks, and a step more
    call, double = calls(spec, size, device, masked=True, **options)
    expected = values_and_gradients(spec.run, call)
    assert count(recordings) == 0  # the shapes were new
    reference = values_and_gradients(reference_loop, double)
    assert max(map(error, expected, reference)) < 1e-4
    for _ in range(2):  # the one that is recorded, and one replayed on memory used before
        actual = values_and_gradients(spec.run, call)
        assert count(recordings) == 2
        for one, other in zip(actual, expected, strict=True):
            assert error(one, other) < SAME


@pytest.mark.slow
@pytest.mark.parametrize(("spec", "size", "options"), STEPPED)
def test_one_recording_serves_other_lengths_and_weights(spec, size, options, device, recordings):
    call, _ = calls(spec, size, device, **options)
    for _ in range(2):
        values_and_gradients(spec.run, call)
    before = count(recordings)
    longer, double = calls(spec, (size[0], 7, size[2]), device, **options)
    with torch.no_grad():
        for cell in (longer.cell, double.cell):
            for parameter in cell.parameters():
                parameter.mul_(0.9)
    actual = values_and_gradients(spec.run, longer)
    assert count(recordings) == before == 2
    expected = values_and_gradients(reference_loop, double)
    assert max(map(error, actual[:2], expected[:2])) < 1e-5
    assert max(map(error, actual[2:], expected[2:])) < 1e-4


@pytest.mark.parametrize(("spec", "size", "options"), STEPPED)
def test_recordings_from_inference_serve_later_calls(spec, size, options, device, recordings):
    call, _ = calls(spec, size, device, **options)
    with torch.inference_mode():
        expected, _ = [spec.run(call) for _ in range(2)]
    with torch.no_grad():
        actual = spec.run(call)
    assert count(recordings) == 1
    for one, other in zip(actual, expected, strict=True):
        assert error(one, other) < SAME


@pytest.mark.parametrize(("spec", "size", "options"), STEPPED)
def test_what_was_recorded_without_gradients_serves_no_training(
    spec, size, options, device, recordings
):
    """Then fewer rows of the layers are kept, which no shape of a single step tells."""
    call, double = calls(spec, size, device, **options)
    with torch.no_grad():
        for _ in range(2):
            spec.run(call)
    expected = values_and_gradients(reference_loop, double)
    for _ in range(3):
        assert max(map(error, values_and_gradients(spec.run, call), expected)) < 1e-4
    assert count(recordings) == 3


@pytest.mark.filterwarnings("ignore:CUDA cannot record")
@pytest.mark.parametrize(("spec", "size", "options"), STEPPED)
def test_a_chunk_that_is_refused_leaves_those_before_unwritten(
    spec, size, options, device, monkeypatch
):
    whole = graph_loop.capture_graph
    call, double = calls(spec, (size[0], 5, size[2]), device, **options)
    expected = values_and_gradients(reference_loop, double)
    refused = []

    def capture(run):
        if len(refused) % 2:  # the second length, each way
            refused.append(False)
            raise RuntimeError("no memory is left")
        refused.append(True)
        return whole(run)

    monkeypatch.setattr(graph_loop, "capture_graph", capture)
    for _ in range(3):
        assert max(map(error, values_and_gradients(spec.run, call), expected)) < 1e-4
    assert refused == [True, False, True, False]


@pytest.mark.parametrize(("spec", "size", "options"), STEPPED)
def test_few_and_small_recordings_are_kept(spec, size, options, device, recordings, monkeypatch):
    monkeypatch.setattr(graph_loop, "_MAX_CAPTURES", 2)
    for batch in (1, 2, 3):
        call, _ = calls(spec, (batch, 2, size[2]), device, **options)
        with torch.no_grad():
            for _ in range(2):
                spec.run(call)
        assert count(recordings) <= 2
    monkeypatch.setattr(graph_loop, "_MAX_CAPTURE_BYTES", 1000)
    graph_loop.clear_captures()
    values_and_gradients(spec.run, call)
    assert not recordings


@pytest.mark.slow
@pytest.mark.parametrize(("spec", "size", "options"), STEPPED)
def test_mask_and_gap_of_another_call_leave_no_trace(spec, size, options, device, recordings):
    masked, _ = calls(spec, size, device, masked=True, **options)
    inverse = KernelCall(masked.cell, masked.x, masked.h, masked.dt + 1, ~masked.mask)
    found = []
    for call in (masked, inverse, masked, inverse):
        y, last = spec.run(call)
        found.append([y, last, *torch.autograd.grad(pull(y, last), leaves(masked))])
    assert count(recordings) == 2
    for first, later in ((found[0], found[2]), (found[1], found[3])):
        for one, other in zip(first, later, strict=True):
            assert error(one, other) < SAME
