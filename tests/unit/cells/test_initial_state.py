"""Starting states: fixed, learned, or read from the first valid sample of a sequence."""

import math

import pytest
import torch

import tauflow
from tauflow.cells import MODELS
from tauflow.errors import UnknownNameError

D, N, B, T = 3, 5, 4, 6
NAMES = ["gnode", "mgru", "gru-euler", "lstm-euler", "lem"]


@pytest.mark.parametrize("name", NAMES)
def test_kinds(name):
    x = torch.randn(B, D)
    cells = {
        kind: MODELS[name].build(D, N, initial_state=kind)
        for kind in ("zeros", "affine", "learned", "fixed")
    }
    S = cells["zeros"].state_size
    starts = {kind: cell.initial_state(x) for kind, cell in cells.items()}
    assert not starts["zeros"].any()
    affine = cells["affine"].start
    torch.testing.assert_close(starts["affine"], x @ affine.V.T + affine.a)
    for kind in ("learned", "fixed"):
        assert torch.equal(starts[kind], cells[kind].start.a.expand(B, S))
    sizes = {kind: sum(p.numel() for p in cell.parameters()) for kind, cell in cells.items()}
    assert sizes["fixed"] == sizes["zeros"]
    assert sizes["learned"] == sizes["zeros"] + S
    assert sizes["affine"] == sizes["zeros"] + S * (D + 1)


@pytest.mark.parametrize("kind", ["affine", "learned"])
@pytest.mark.parametrize("name", NAMES)
def test_every_start_is_trained(name, kind):
    rnn = tauflow.build(name, D, N, initial_state=kind)
    y, _ = rnn(torch.randn(B, T, D), dt=0.3)
    y.square().sum().backward()
    parts = [*rnn.cell.start.parameters()]
    assert len(parts) == (2 if kind == "affine" else 1)
    assert all((part.grad != 0).all() for part in parts)


@pytest.mark.parametrize("name", NAMES)
def test_a_fixed_start_is_a_buffer_that_travels_with_the_weights(name):
    rnn, other = (tauflow.build(name, D, N, initial_state="fixed") for _ in range(2))
    assert not torch.equal(rnn.cell.start.a, other.cell.start.a)
    assert "cell.start.a" not in dict(rnn.named_parameters())
    other.load_state_dict(rnn.state_dict())
    x = torch.randn(B, T, D)
    assert torch.equal(rnn(x)[0], other(x)[0])
    drawn = rnn.cell.start.a.clone()
    rnn.cell.reset_parameters(torch.Generator().manual_seed(1))
    again = rnn.cell.start.a.clone()
    rnn.cell.reset_parameters(torch.Generator().manual_seed(1))
    assert torch.equal(rnn.cell.start.a, again)
    assert not torch.equal(drawn, again)


@pytest.mark.parametrize("kind", ["fixed", "learned"])
@pytest.mark.parametrize("name", ["gnode", "lem"])
def test_drawn_vectors_have_the_papers_variance(name, kind):
    options = {"units": 2} if name == "gnode" else {}
    cell = MODELS[name].build(1, 1500, initial_state=kind, **options)
    a = cell.start.a.detach()
    assert a.std().item() == pytest.approx(math.sqrt(2 / 1501), rel=0.08)
    assert abs(a.mean().item()) < 4 * math.sqrt(2 / 1501 / len(a))


@pytest.mark.parametrize("bidirectional", [False, True])
def test_an_affine_start_reads_the_first_valid_sample(bidirectional):
    options = {"initial_state": "affine", "bidirectional": bidirectional}
    rnn = tauflow.build("gnode", D, N, units=4, **options).double()
    x, dt = torch.randn(B, T, D).double(), torch.rand(B, T).double()
    mask = torch.tensor(
        [[0, 0, 1, 1, 0, 1], [1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 0]]
    ).bool()
    y, h = rnn(x, dt=dt, mask=mask)
    for row in range(3):
        valid = mask[row]
        y_row, h_row = rnn(x[row : row + 1, valid], dt=dt[row : row + 1, valid])
        torch.testing.assert_close(y[row : row + 1, valid], y_row)
        torch.testing.assert_close(h[row : row + 1], h_row)
    starts = torch.cat([cell.start.a for cell in rnn.cells])
    torch.testing.assert_close(h[3], starts)  # nothing valid: the map of a zero input


def test_unknown_kind():
    with pytest.raises(UnknownNameError, match=r"initial_state='learn' is unknown.*'learned'"):
        MODELS["lem"].build(D, N, initial_state="learn")
