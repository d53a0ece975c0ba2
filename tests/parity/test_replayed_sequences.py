"""Steps of every cell recorded as CUDA graphs, against the same steps taken by torch.

Without a GPU a stand-in takes the place of a graph: it runs the same operations on the same tensors
again, so that what is copied in and out is tested, and what a recording depends on.
"""

from dataclasses import replace

import pytest
import torch
from sequences_of_cells import EVERY, assert_close, call_of, values_and_gradients

from tauflow.kernels import KernelCall
from tauflow.kernels.gpu import graphs
from tauflow.kernels.replayed import (
    recording_limits,
    run_replayed,
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
    monkeypatch.setattr(graphs, "CHUNK", 4)
    if request.node.callspec.params.get("device") != "cuda":

        def capture(run):
            run()
            return run

        monkeypatch.setattr(graphs, "may_record", lambda like: True)
        monkeypatch.setattr(graphs, "capture", capture)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    graphs.release()
    yield graphs._recordings
    graphs.release()


def on(device: str, call: KernelCall) -> KernelCall:
    """Return a call on a device, its cell there too."""
    tensors = {
        name: tensor.detach().to(device).requires_grad_(tensor.requires_grad)
        for name in ("x", "h", "dt", "mask", "observed")
        if (tensor := getattr(call, name)) is not None
    }
    return replace(call, cell=call.cell.to(device), **tensors)


@device
@pytest.mark.sampled(4)
@pytest.mark.parametrize(("name", "options"), EVERY, ids=str)
@pytest.mark.parametrize("masked", [False, True])
def test_it_is_the_step(name, options, masked, device, recordings):
    call = on(device, call_of(name, 3, 7, options, masked=masked))
    assert recording_limits(call) is None
    expected = values_and_gradients(reference_loop, call)
    assert_close(values_and_gradients(run_replayed, call), expected)
    assert list(recordings.values()) == [None, None]  # the shapes were new
    for _ in range(2):  # recorded, and replayed on memory used before
        assert_close(values_and_gradients(run_replayed, call), expected)
        assert [len(one.chunks) for one in recordings.values()] == [3, 3]  # of 4, 2 and 1 steps
    with torch.no_grad():
        assert_close(run_replayed(call), expected[:2])
