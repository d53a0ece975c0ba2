"""PackedSequence inputs against one run per row, for modules of several cells."""

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import (
    PackedSequence,
    pack_padded_sequence,
    pack_sequence,
    pad_packed_sequence,
    unpack_sequence,
)

import tauflow
from tauflow.errors import ArgumentError, ShapeError, TimeError

D, T = 2, 6
LENGTHS = [3, 6, 1, 6, 4]
NAMES = ["ltc", "cfc", "cfc-mmrnn", "wired-cfc", "augmented-lstm", "gru"]
SHAPES = [
    {},
    {"num_layers": 2},
    {"bidirectional": True},
    {"num_layers": 2, "bidirectional": True, "proj_size": 3},
]


def rows() -> tuple[list[Tensor], list[Tensor]]:
    x = [torch.randn(length, D, dtype=torch.float64) for length in LENGTHS]
    dt = [torch.rand(length, dtype=torch.float64) + 0.1 for length in LENGTHS]
    return x, dt


def padded(values: list[Tensor]) -> Tensor:
    """Pad with NaN, which must never be read."""
    return torch.nn.utils.rnn.pad_sequence(values, batch_first=True, padding_value=float("nan"))


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_packed_equals_row_by_row(name, shape):
    rnn = tauflow.build(name, D, 4, **shape).double()
    x, dt = rows()
    hx = torch.rand(len(x), rnn.state_size, dtype=torch.float64)
    y, h = rnn(pack_sequence(x, enforce_sorted=False), hx, dt=padded(dt))
    assert isinstance(y, PackedSequence)
    for row, y_row in enumerate(unpack_sequence(y)):
        expected, h_expected = rnn(x[row], hx[row], dt=dt[row])
        torch.testing.assert_close(y_row, expected, rtol=1e-9, atol=1e-11)
        torch.testing.assert_close(h[row], h_expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_packed_last_output_is_in_the_callers_order(shape):
    rnn = tauflow.CfC(D, 4, return_sequences=False, **shape).double()
    x, dt = rows()
    y, _ = rnn(pack_sequence(x, enforce_sorted=False), dt=padded(dt))
    expected = torch.stack([rnn(x[row], dt=dt[row])[0] for row in range(len(x))])
    torch.testing.assert_close(y, expected, rtol=1e-9, atol=1e-11)


def test_packed_layout_is_kept():
    x, _ = rows()
    for packed in (
        pack_sequence(x, enforce_sorted=False),
        pack_sequence(sorted(x, key=len, reverse=True)),
    ):
        y, _ = tauflow.CfC(D, 4).double()(packed)
        assert torch.equal(y.batch_sizes, packed.batch_sizes)
        if packed.sorted_indices is None:
            assert y.sorted_indices is None
        else:
            assert torch.equal(y.sorted_indices, packed.sorted_indices)
            assert torch.equal(y.unsorted_indices, packed.unsorted_indices)
        assert y.data.shape == (sum(LENGTHS), 4)


def test_packed_agrees_with_torch():
    ours = tauflow.LSTM(D, 4).double()
    theirs = torch.nn.LSTM(D, 4, batch_first=True).double()
    with torch.no_grad():
        theirs.weight_ih_l0.copy_(ours.cell.W_x)
        theirs.weight_hh_l0.copy_(ours.cell.W_h)
        theirs.bias_ih_l0.copy_(ours.cell.b)
        theirs.bias_hh_l0.zero_()
    packed = pack_sequence(rows()[0], enforce_sorted=False)
    y, h = ours(packed)
    expected, (h_expected, c_expected) = theirs(packed)
    torch.testing.assert_close(y.data, expected.data)
    torch.testing.assert_close(h, torch.cat([h_expected[0], c_expected[0]], -1))


def test_packed_takes_absolute_times_and_gives_gradients():
    rnn = tauflow.LTC(D, 4).double()
    x, dt = rows()
    x = [row.requires_grad_() for row in x]
    t = padded([torch.cumsum(gap, 0) for gap in dt])
    y, _ = rnn(pack_sequence(x, enforce_sorted=False), t=t)
    gradients = torch.autograd.grad(y.data.sum(), x)
    for row, gradient in enumerate(gradients):
        gaps = dt[row].clone()
        gaps[0] = 0
        alone, _ = rnn(x[row], dt=gaps)
        (expected,) = torch.autograd.grad(alone.sum(), x[row])
        torch.testing.assert_close(gradient, expected, rtol=1e-7, atol=1e-9)


def test_packed_refuses_a_second_word_on_its_lengths():
    packed = pack_sequence(rows()[0], enforce_sorted=False)
    rnn = tauflow.CfC(D, 4).double()
    for extra in ({"lengths": LENGTHS}, {"mask": torch.ones(5, T, dtype=torch.bool)}):
        with pytest.raises(ArgumentError, match="a PackedSequence knows its lengths"):
            rnn(packed, **extra)


@pytest.mark.parametrize("cell", ["cfc", "gru-d"])
@pytest.mark.parametrize("sort", [False, True])
def test_what_goes_with_packed_inputs_may_be_packed_alike(cell, sort):
    rnn = tauflow.build(cell, D, 4).double()
    x, dt = rows()
    if sort:
        x, dt = (sorted(values, key=len, reverse=True) for values in (x, dt))
    seen = [row > -0.5 for row in x]

    def packed(values):
        return pack_sequence(values, enforce_sorted=sort)

    def padding_of_zeros(values):
        return torch.nn.utils.rnn.pad_sequence(values, batch_first=True)

    measured = {"observed": seen} if rnn.cell.uses_observed else {}
    t = [gaps.cumsum(0) for gaps in dt]
    for times in ({"dt": dt}, {"t": t}, {"dt": [gaps[:, None] for gaps in dt]}):
        alike = {name: packed(values) for name, values in {**times, **measured}.items()}
        apart = {name: padding_of_zeros(values) for name, values in {**times, **measured}.items()}
        y, h = rnn(packed(x), **alike)
        expected, h_expected = rnn(packed(x), **apart)
        assert torch.equal(y.data, expected.data)
        assert torch.equal(h, h_expected)


def test_what_is_packed_otherwise_than_the_inputs_is_refused():
    rnn = tauflow.CfC(D, 4).double()
    x, dt = rows()
    packed, gaps = (pack_sequence(values, enforce_sorted=False) for values in (x, dt))
    with pytest.raises(
        ArgumentError,
        match=r"^CfC\.forward: dt is a PackedSequence, but x is not\. Pack both alike, or pad it "
        r"with torch\.nn\.utils\.rnn\.pad_packed_sequence\(dt, batch_first=True\)\[0\]\.$",
    ):
        rnn(torch.zeros(5, T, D).double(), dt=gaps)
    other = pack_sequence([dt[1], dt[0], *dt[2:]], enforce_sorted=False)
    shorter = pack_sequence([gap[:1] for gap in dt], enforce_sorted=False)
    for wrong in (other, shorter):
        with pytest.raises(
            ShapeError, match=r"dt is packed otherwise than x: .* padded, \(B, T\)\."
        ):
            rnn(packed, dt=wrong)
    longer = pack_sequence([torch.arange(len(row) + 1) for row in x], enforce_sorted=False)
    hx = torch.zeros(5, 4).double()
    with pytest.raises(ShapeError, match=r"t is packed .* or \(B, T \+ 1\) with hx"):
        rnn(packed, hx, t=longer)


def test_packed_checks_gaps_only_where_there_are_samples():
    rnn = tauflow.CfC(D, 4).double()
    x, dt = rows()
    packed = pack_sequence(x, enforce_sorted=False)
    with pytest.raises(ShapeError, match=r"dt has shape \(5, 5\), expected \(B, T\) = \(5, 6\)"):
        rnn(packed, dt=torch.ones(5, 5))
    bad = padded(dt)
    bad[2, 3] = -1.0  # beyond the end of row 2
    rnn(packed, dt=bad)
    bad[2, 0] = -1.0
    with pytest.raises(TimeError, match="dt is -1 at sequence 2, step 0"):
        rnn(packed, dt=bad)


def test_sequence_model_keeps_the_packed_form():
    model = tauflow.SequenceModel(tauflow.CfC(D, 4), 3).double()
    x, _ = rows()
    packed = pack_padded_sequence(
        padded(x).nan_to_num(), torch.tensor(LENGTHS), batch_first=True, enforce_sorted=False
    )
    y, _ = model(packed)
    values, lengths = pad_packed_sequence(y, batch_first=True)
    assert lengths.tolist() == LENGTHS
    for row in range(5):
        torch.testing.assert_close(values[row, : LENGTHS[row]], model(x[row])[0])
