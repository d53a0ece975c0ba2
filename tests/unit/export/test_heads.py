"""Models whose heads are no plain linear layers, in every form."""

import json

import onnxruntime
import pytest
import torch
from torch import nn
from torch.nn.utils import prune, spectral_norm, weight_norm

import tauflow
from tauflow.errors import ExportError
from tauflow.export import program, program_step, to_c, to_onnx, to_program
from tauflow.models import SequenceModel

X = torch.randn(2, 6, 3, generator=torch.Generator().manual_seed(0))


class Gated(nn.Module):
    """A head of two layers, which has no attribute that says how wide it is."""

    def __init__(self):
        super().__init__()
        self.value, self.gate = nn.Linear(8, 5), nn.Linear(8, 5)

    def forward(self, y):
        return self.value(y) * torch.sigmoid(self.gate(y))


HEADS = {
    "sequential": lambda: nn.Sequential(nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 5)),
    "own": Gated,
    "none": nn.Identity,
}


def model(head, **options):
    torch.manual_seed(0)
    network = SequenceModel(tauflow.CfC(3, 8, **options), 2)
    network.head = head()
    return network.eval()


@pytest.mark.thorough
@pytest.mark.sampled(10)
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("last", [False, True])
def test_any_head_on_the_last_axis_leaves_in_every_form(head, last, tmp_path):
    network = model(HEADS[head], return_sequences=not last)
    expected, h = network(X)
    width = 8 if head == "none" else 5
    files = [
        to_program(network, tmp_path / "step.pt2", mode="step"),
        to_onnx(network, tmp_path / "whole.onnx"),
        to_c(network, tmp_path / "c"),
    ]
    for file in files:
        metadata = json.loads(file.metadata_path.read_text())
        assert metadata["output_size"] == width
        assert metadata["model"] is None  # whose options tell of a linear layer of 2 outputs
    inputs = {"x": X, "dt": torch.ones(2, 6), "mask": torch.ones(2, 6, dtype=torch.bool)}
    session = onnxruntime.InferenceSession(files[1].path, providers=["CPUExecutionProvider"])
    feed = {name: value.numpy() for name, value in {**inputs, "h_in": torch.zeros(2, 8)}.items()}
    y, _ = session.run(None, feed)
    torch.testing.assert_close(torch.from_numpy(y), expected.detach(), rtol=0, atol=1e-5)
    run = torch.export.load(files[0].path).module()
    state = torch.zeros(2, 8)
    for step in range(6):
        y, state = run(x=X[:, step], dt=torch.ones(2), h_in=state)
    torch.testing.assert_close(y, expected if last else expected[:, -1])
    torch.testing.assert_close(state, h)


class Summed(nn.Module):
    def forward(self, y):
        return y.sum()


@pytest.mark.parametrize(
    ("head", "match"),
    [
        (lambda: nn.Linear(7, 2), r"a Linear, does not take .*shape \(1, 1, 8\): mat1"),
        (nn.Flatten, r"a Flatten, makes \(1, 8\) of .*\(1, 1, 8\), expected \(1, 1, O\)"),
        (Summed, r"a Summed, makes \(\) of"),
        (lambda: nn.LSTM(8, 2), "a LSTM, makes tuple of"),
    ],
)
def test_a_head_that_no_form_can_take_is_named(head, match):
    with pytest.raises(ExportError, match=f"the head, {match}"):
        program(model(head))


class OverTime(nn.Module):
    def forward(self, y):
        batch, time, width = y.shape
        return y.reshape(batch, time, width)


def test_a_head_that_one_step_cannot_take_is_named():
    network = model(OverTime)
    assert program(network) is not None
    with pytest.raises(ExportError, match=r"a OverTime, does not take .*shape \(1, 8\)"):
        program_step(network)


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated")
@pytest.mark.parametrize("place", ["head", "rnn.projections.0"])
@pytest.mark.parametrize(
    "kind",
    [lambda part: prune.l1_unstructured(part, "weight", 0.5), weight_norm, spectral_norm],
    ids=["prune", "weight_norm", "spectral_norm"],
)
def test_parameters_that_hooks_compute_are_refused(kind, place, tmp_path):
    network = SequenceModel(tauflow.CfC(3, 8, proj_size=4), 2).eval()
    kind(network.get_submodule(place))
    for write in (program, program_step, lambda network: to_c(network, tmp_path / "c")):
        with pytest.raises(ExportError, match=r"computed by a hook.*prune\.remove"):
            write(network)


def test_a_pruned_head_leaves_as_c(tmp_path):
    network = model(lambda: prune.l1_unstructured(nn.Linear(8, 2), "weight", 0.5))
    prune.remove(network.head, "weight")
    assert to_c(network, tmp_path / "c").parity.max_difference < 1e-6
