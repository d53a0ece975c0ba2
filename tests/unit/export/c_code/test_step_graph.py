"""The graph of a step computes what the model does, with sub-steps as a loop."""

import numpy as np
import pytest
import torch
from torch import nn

import tauflow
from tauflow.cells import AbstractCell
from tauflow.errors import ExportError
from tauflow.export.c_code.evaluate import evaluate
from tauflow.export.c_code.float_code import write_float_step
from tauflow.export.c_code.graph_passes import Repeat, simplify
from tauflow.export.c_code.lane_builder import build_step_graph
from tauflow.export.exportable_model import ExportedStep
from tauflow.export.torch_program import trace


def compile_step(model, *, fold_offsets=False):
    step = ExportedStep(model.double().eval(), is_sparse=True, dynamic="")
    graph = build_step_graph(trace(step))
    return step, graph, simplify(graph, fold_offsets=fold_offsets)


class Mixed(nn.Module):
    """Operations that no cell has."""

    def forward(self, y):
        low, high = y.chunk(2, dim=-1)
        z = torch.stack([low, high], dim=-1).flatten(-2)  # lanes of two nodes in turn
        z = nn.functional.pad(z.roll(1, -1), (1, 0), value=2.0)
        z = torch.softmax(z, -1) + nn.functional.leaky_relu(z - 1) + z.clamp(-0.1, 0.1)
        weights = z.unsqueeze(-1) @ z.unsqueeze(-2)  # (B, n, n)
        return torch.cat([weights.mean(-1), nn.functional.elu(z), z.amax(-1, keepdim=True)], -1)


class Sorting(nn.Module):
    def forward(self, y):
        return y.sort(-1).values


def with_head(head):
    model = tauflow.SequenceModel(tauflow.Elman(3, 6), 1)
    model.head = head
    return model


@pytest.mark.sampled(4)
@pytest.mark.parametrize("fold_offsets", [False, True])
@pytest.mark.parametrize(
    "make",
    [
        lambda: tauflow.SequenceModel(tauflow.CfC(3, 4, backbone_units=5), 2),
        lambda: tauflow.SequenceModel(tauflow.LTC(3, 4), 2),
        lambda: with_head(Mixed()),
        lambda: tauflow.GRU(3, 4, num_layers=2),
    ],
    ids=["cfc", "ltc", "mixed", "layers"],
)
def test_a_graph_computes_what_the_step_does(make, fold_offsets):
    torch.manual_seed(0)
    step, graph, items = compile_step(make(), fold_offsets=fold_offsets)
    x, h = (
        torch.randn(5, 3).double(),
        0.3 * torch.randn(5, step.sequence_module.state_size).double(),
    )
    dt = torch.rand(5).double()
    inputs = {"x": x.numpy(), "dt": dt.numpy()[:, None], "h_in": h.numpy()}
    results = evaluate(items, graph.outputs, inputs)
    for row in range(5):
        inputs_of_row = {"x": x[row : row + 1], "dt": dt[row : row + 1], "h_in": h[row : row + 1]}
        y, h_out = step(**inputs_of_row)
        np.testing.assert_allclose(results["y"][row], y[0], atol=1e-12)
        np.testing.assert_allclose(results["h_out"][row], h_out[0], atol=1e-12)


def test_sub_steps_are_a_loop_and_arrays_are_used_again():
    def measure(substeps):
        torch.manual_seed(0)
        _, graph, items = compile_step(tauflow.LTC(3, 5, substeps=substeps))
        repeats = [item.times for item in items if isinstance(item, Repeat)]
        code = write_float_step(graph, items, "model")
        return repeats, code[1].replace(str(substeps), "K").count("\n"), code[2:]

    few, many = measure(7), measure(9)
    assert (few[0], many[0]) == ([7], [9])
    assert few[1:] == many[1:]  # as many lines, bytes of constants and of stack
    assert few[2][1] <= 4 * 4 * 5  # two sums of the inputs' synapses, two of the others


def test_products_with_several_readers_are_computed_where_they_are_read():
    _, graph, items = compile_step(tauflow.CfC(3, 4, backbone_units=6))
    assert write_float_step(graph, items, "model")[3] == 4 * 6  # the backbone's outputs alone


def test_an_operation_without_c_is_named():
    with pytest.raises(ExportError, match=r"there is no C for: aten\.sort"):
        compile_step(with_head(Sorting()))


class Halving(AbstractCell):
    """A cell of a user's own with what only single and double precision tell apart."""

    def __init__(self, input_size, hidden_size):
        super().__init__(input_size, hidden_size)
        self.W = nn.Linear(input_size, hidden_size)

    def step(self, x, h, dt):
        wide = h.double() / 3 + dt.double()
        return self.W(x) + wide.float()


def test_double_precision_inside_a_step_stays():
    torch.manual_seed(0)
    step = ExportedStep(tauflow.RNN(Halving(2, 3)).eval(), is_sparse=True, dynamic="")
    graph = build_step_graph(trace(step))
    body = write_float_step(graph, simplify(graph, fold_offsets=False), "model")[1]
    assert "const double" in body
    assert "(double)h_in" in body
