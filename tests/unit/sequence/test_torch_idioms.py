"""What users of torch.nn and ncps bring along: states in parts, batch_first, other words."""

import copy
import pickle

import pytest
import torch

import tauflow
from tauflow.errors import ArgumentError, DtypeError, OptionError, ShapeError

B, T, D, N = 2, 5, 3, 4


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_states_are_taken_and_given_as_torch_does(kind, layers, bidirectional):
    options = {"num_layers": layers, "bidirectional": bidirectional, "batch_first": True}
    theirs = getattr(torch.nn, kind)(D, N, **options)
    ours = getattr(tauflow, kind)(D, N, **options)
    for i, cell in enumerate(ours.cells):  # what both hold, the biases aside
        suffix = f"l{i // ours.num_directions}" + "_reverse" * (i % ours.num_directions)
        names = dict(cell.named_parameters())
        assert {tuple(getattr(theirs, f"weight_{w}_{suffix}").shape) for w in ("ih", "hh")} <= {
            tuple(p.shape) for p in names.values()
        }
    x = torch.randn(B, T, D, generator=torch.Generator().manual_seed(0))
    _, state = theirs(x)
    _, h = ours(x)
    parts = ours.to_torch_state(h)
    shapes = torch.utils._pytree.tree_map(lambda part: part.shape, (parts, state))
    assert shapes[0] == shapes[1]
    y, after = ours(x, h)
    again, same = ours(x, parts)
    assert torch.equal(y, again)
    assert torch.equal(after, same)
    first = torch.utils._pytree.tree_map(lambda part: part[:, 0], parts)
    single, _ = ours(x[0], first)
    torch.testing.assert_close(single, y[0])
    assert (ours.input_size, ours.hidden_size, ours.num_layers) == (D, N, layers)


def test_parts_lie_layer_by_layer_and_forward_first():
    rnn = tauflow.LSTM(D, N, num_layers=2, bidirectional=True)
    h = torch.arange(1.0 * rnn.state_size).expand(B, -1)
    state, memory = rnn.to_torch_state(h)
    for i, named in enumerate(rnn.split_state(h)):
        assert torch.equal(state[i], named["h"])
        assert torch.equal(memory[i], named["c"])


def test_a_single_cell_takes_parts_without_the_axis_of_layers():
    rnn, x = tauflow.MixedMemory(D, N, core="ltc"), torch.ones(B, T, D)
    v, c = torch.rand(B, N), torch.rand(B, N)
    expected, _ = rnn(x, torch.cat([v, c], -1))
    assert torch.equal(rnn(x, (v, c))[0], expected)
    torch.testing.assert_close(rnn(x[0], [v[0], c[0]])[0], expected[0])


@pytest.mark.parametrize(
    ("hx", "error", "match"),
    [
        ((torch.zeros(2, B, N),), ArgumentError, "hx has 1 part, but .* LSTMCell has 2: h, c"),
        (
            (torch.zeros(2, B, N), torch.zeros(1, B, N)),
            ShapeError,
            r"c of hx has shape \(1, 2, 4\)",
        ),
        ((torch.zeros(2, B, N), None), DtypeError, "hx must be a tensor or a tuple of them"),
        (torch.zeros(2, B, N), ArgumentError, "hx has 1 part"),
    ],
)
def test_parts_that_do_not_fit_are_refused(hx, error, match):
    with pytest.raises(error, match=rf"^LSTM\.forward: {match}"):
        tauflow.LSTM(D, N, num_layers=2)(torch.zeros(B, T, D), hx)


def test_states_without_common_widths_have_no_parts():
    rnn = tauflow.GRUD(D, N, num_layers=2)
    with pytest.raises(
        ArgumentError, match=r"GRUD\.to_torch_state: .*not equally wide in all layers"
    ):
        rnn.to_torch_state(torch.zeros(B, rnn.state_size))
    with pytest.raises(ShapeError, match=r"LSTM\.to_torch_state: h has shape \(2, 9\)"):
        tauflow.LSTM(D, N).to_torch_state(torch.zeros(2, 9))


def test_time_first_is_refused_with_the_transposes_to_write():
    with pytest.raises(ArgumentError, match=r"x\.transpose\(0, 1\)\) and y\.transpose\(0, 1\)"):
        tauflow.CfC(D, N, batch_first=False)
    assert tauflow.build("gru", D, N, batch_first=True).options["batch_first"] is True


@pytest.mark.parametrize(
    ("build", "match"),
    [
        (
            lambda: tauflow.LTC(D, units=N),
            "'units'. In tauflow write hidden_size=",
        ),
        (lambda: tauflow.CfC(D, N, mixed_memory=True), "use tauflow.MixedMemory"),
        (lambda: tauflow.LTC(D, N, ode_unfolds=3), "write substeps="),
        (lambda: tauflow.LSTM(D, N, device="cpu"), r"then move it with .to\(device, dtype\)"),
        (lambda: tauflow.NCP(inter_neurons=3, command_neurons=2, motor_neurons=1), "write inter="),
        (lambda: tauflow.RandomSparse(N, sparsity_level=0.5), "write sparsity="),
        (
            lambda: tauflow.CfC(D, N)(torch.zeros(B, T, D), timespans=torch.ones(B, T)),
            r"CfC\.forward has no option 'timespans'. In tauflow write dt=",
        ),
    ],
)
def test_words_of_other_libraries_are_translated(build, match):
    with pytest.raises(OptionError, match=match):
        build()


def test_wirings_know_what_is_right_and_travel():
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        tauflow.AutoNCP(units=12, output_size=2, colour=1)
    wiring = tauflow.AutoNCP(units=12, output_size=2)
    assert pickle.loads(pickle.dumps(wiring)) == copy.deepcopy(wiring) == wiring


def test_calls_of_torch_nn_are_taken():
    rnn, x = tauflow.LSTM(D, N, 2), torch.ones(B, T, D)
    assert rnn.num_layers == 2
    rnn.flatten_parameters()
    expected = [[tuple(w.shape) for w in cell.parameters()] for cell in rnn.cells]
    assert [[tuple(w.shape) for w in layer] for layer in rnn.all_weights] == expected
    assert torch.equal(rnn(input=x)[0], rnn(x)[0])
    with pytest.raises(OptionError, match=r"LSTM\.forward got x and input, two names of one"):
        rnn(x, input=x)
    with pytest.raises(OptionError, match="cells have biases"):
        tauflow.LSTM(D, N, bias=False)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
@pytest.mark.parametrize("layout", [torch.jagged, torch.strided])
def test_nested_tensors_are_refused_with_the_way_out(layout):
    rows = [torch.ones(n, D) for n in (T, 2)]
    x = torch.nested.nested_tensor(rows, layout=layout)
    rnn = tauflow.CfC(D, N)
    with pytest.raises(DtypeError, match=r"CfC\.forward: x is a NestedTensor.*to_padded_tensor"):
        rnn(x)
    padded = torch.nested.to_padded_tensor(x, 0.0)
    y, _ = rnn(padded, lengths=[len(row) for row in x.unbind()])
    torch.testing.assert_close(y[1, :2], rnn(rows[1])[0])
