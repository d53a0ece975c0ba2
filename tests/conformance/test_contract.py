"""Every catalogued model through one battery; a model joins by being listed in the catalog."""

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, vmap
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from variants import NAMES, B, D, T, model

import tauflow
from tauflow.cells.registry import MODELS
from tauflow.errors import NonFiniteError
from tauflow.sequence import RNN

FLOWS = [name for name in NAMES if model(name).cell.is_flow]
OBSERVERS = [name for name in NAMES if model(name).cell.uses_observed]


def sequences(batch: int = B, steps: int = T, seed: int = 1) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(batch, steps, D, generator=generator, dtype=torch.float64)
    dt = torch.rand(batch, steps, generator=generator, dtype=torch.float64) + 0.1
    return x, dt


def same(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", NAMES)
def test_shapes_and_finite_values(name):
    rnn, (x, dt) = model(name), sequences()
    y, h = rnn(x, dt=dt)
    assert y.shape == (B, T, rnn.output_size)
    assert h.shape == (B, rnn.state_size)
    assert y.isfinite().all()
    assert h.isfinite().all()


@pytest.mark.parametrize("name", NAMES)
def test_batch_equals_its_rows(name):
    """As many rows as neurons: what spreads over the wrong axis has the right shape here."""
    rnn, (x, dt) = model(name, hidden_size=4), sequences(4)
    y, h = rnn(x, dt=dt)
    for row in range(4):
        y_row, h_row = rnn(x[row : row + 1], dt=dt[row : row + 1])
        same(y[row : row + 1], y_row)
        same(h[row : row + 1], h_row)


@pytest.mark.parametrize("name", NAMES)
def test_unbatched_equals_a_batch_of_one(name):
    rnn, (x, dt) = model(name), sequences(1)
    y, h = rnn(x, dt=dt)
    y_single, h_single = rnn(x[0], dt=dt[0])
    same(y_single, y[0])
    same(h_single, h[0])
    y_carried, h_carried = rnn(x[0], h_single, dt=dt[0].unsqueeze(-1))
    expected = rnn(x, h, dt=dt)
    same(y_carried, expected[0][0])
    same(h_carried, expected[1][0])


@pytest.mark.parametrize("name", NAMES)
def test_permuting_the_batch_permutes_the_result(name):
    rnn, (x, dt) = model(name), sequences(4)
    order = torch.tensor([2, 0, 3, 1])
    y, h = rnn(x, dt=dt)
    y_permuted, h_permuted = rnn(x[order], dt=dt[order])
    same(y_permuted, y[order])
    same(h_permuted, h[order])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("filler", [7.0, float("nan")])
def test_padding_changes_nothing(name, filler):
    rnn, (x, dt) = model(name), sequences()
    lengths = torch.tensor([T, 1, 4])
    x_padded, dt_padded = x.clone(), dt.clone()
    for row, length in enumerate(lengths):
        x_padded[row, length:] = filler
        dt_padded[row, length:] = filler
    y, h = rnn(x_padded, dt=dt_padded, lengths=lengths)
    for row, length in enumerate(lengths.tolist()):
        y_row, h_row = rnn(x[row : row + 1, :length], dt=dt[row : row + 1, :length])
        same(y[row : row + 1, :length], y_row)
        same(h[row : row + 1], h_row)
        same(y[row, length:], y[row, length - 1].expand(T - length, -1))
    gradients = torch.autograd.grad(y.sum(), list(rnn.parameters()), allow_unused=True)
    assert all(g is None or g.isfinite().all() for g in gradients)


@pytest.mark.parametrize("name", NAMES)
def test_a_masked_step_keeps_state_and_output(name):
    rnn, (x, dt) = model(name), sequences()
    mask = torch.ones(B, T, dtype=torch.bool)
    mask[0, 2] = mask[1, 0] = mask[2, 3:5] = False
    y, h = rnn(x, dt=dt, mask=mask)
    for row in range(B):
        valid = mask[row]
        y_row, h_row = rnn(x[row : row + 1, valid], dt=dt[row : row + 1, valid])
        same(y[row : row + 1, valid], y_row)
        same(h[row : row + 1], h_row)
    same(y[0, 2], y[0, 1])
    start = rnn.cell.initial_state(x[1:2, 1])  # of the first valid sample
    same(y[1, 0], rnn.cell.readout(start)[0])


@pytest.mark.parametrize("name", NAMES)
def test_length_zero_keeps_the_given_state(name):
    rnn, (x, dt) = model(name, return_sequences=False), sequences(2)
    _, h = rnn(x, dt=dt)
    y_after, h_after = rnn(x, h, dt=dt, lengths=[0, T])
    same(h_after[0], h[0])
    same(y_after[0], rnn.cell.readout(h)[0])


@pytest.mark.parametrize("name", NAMES)
def test_packed_sequence_equals_lengths(name):
    rnn, (x, dt) = model(name), sequences()
    lengths = torch.tensor([2, T, 4])
    y, h = rnn(x, dt=dt, lengths=lengths)
    packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    y_packed, h_packed = rnn(packed, dt=dt)
    same(h_packed, h)
    y_padded, returned = pad_packed_sequence(y_packed, batch_first=True)
    assert returned.tolist() == lengths.tolist()
    valid = torch.arange(T) < lengths.unsqueeze(1)
    same(y_padded[valid], y[valid])


@pytest.mark.parametrize("name", NAMES)
def test_splitting_and_carrying_the_state_changes_nothing(name):
    rnn, (x, dt) = model(name), sequences()
    y, h = rnn(x, dt=dt)
    y_first, carried = rnn(x[:, :2], dt=dt[:, :2])
    y_second, last = rnn(x[:, 2:], carried, dt=dt[:, 2:])
    same(torch.cat([y_first, y_second], dim=1), y)
    same(last, h)


@pytest.mark.parametrize("name", NAMES)
def test_absolute_times_equal_their_gaps(name):
    rnn, (x, dt) = model(name), sequences()
    t = torch.cumsum(dt, dim=1)
    gaps = dt.clone()
    gaps[:, 0] = 0
    expected = rnn(x, dt=gaps)
    actual = rnn(x, t=t)
    for a, e in zip(actual, expected, strict=True):
        torch.testing.assert_close(a, e, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_gap_matters_exactly_when_the_cell_says_so(name):
    rnn, (x, dt) = model(name), sequences()
    uneven = dt * torch.linspace(1, 2, T)  # a scale-invariant memory feels no common factor
    changed = not torch.allclose(rnn(x, dt=dt)[0], rnn(x, dt=uneven)[0])
    assert changed == rnn.cell.uses_dt


@pytest.mark.parametrize("name", NAMES)
def test_zero_gap_is_finite(name):
    rnn, (x, _) = model(name), sequences()
    y, _ = rnn(x, dt=0.0)
    gradients = torch.autograd.grad(y.sum(), list(rnn.parameters()), allow_unused=True)
    assert y.isfinite().all()
    assert all(g is None or g.isfinite().all() for g in gradients)


@pytest.mark.parametrize("name", FLOWS)
def test_zero_gap_leaves_the_state_of_a_flow_alone(name):
    rnn, (x, dt) = model(name), sequences()
    _, h = rnn(x, dt=dt)
    _, later = rnn(x, h, dt=0.0)
    same(later, h)


@pytest.mark.parametrize("name", FLOWS)
def test_two_half_gaps_approach_one_gap(name):
    """With the input held, halving the gap is refining the solver's grid."""
    cell, (x, dt) = model(name, substeps=256).cell, sequences()
    h = torch.rand(B, cell.state_size, dtype=torch.float64)
    gap = dt[:, :1]
    full = cell.step(x[:, 0], h, gap)
    halves = cell.step(x[:, 0], cell.step(x[:, 0], h, gap / 2), gap / 2)
    moved = (full - h).abs().max()
    assert (halves - full).abs().max() < 0.01 * moved


@pytest.mark.parametrize("name", NAMES)
def test_gradcheck(name):
    rnn = model(name, hidden_size=4)
    x, dt = sequences(batch=2, steps=3)
    h = torch.rand(2, rnn.state_size, dtype=torch.float64) * 0.5
    parameters = dict(rnn.named_parameters())
    mask = torch.tensor([[True, True, True], [True, False, True]])

    def run(x: Tensor, h: Tensor, dt: Tensor, *values: Tensor) -> tuple[Tensor, Tensor]:
        return functional_call(
            rnn, dict(zip(parameters, values, strict=True)), (x, h), {"dt": dt, "mask": mask}
        )

    # away from the initial values, some of which lie on a kink, such as that of |w_tau| at 0
    values = [p.detach() + 0.1 * torch.rand_like(p) for p in parameters.values()]
    leaves = [v.detach().requires_grad_() for v in (x, h, dt, *values)]
    assert torch.autograd.gradcheck(run, leaves, fast_mode=True)


@pytest.mark.parametrize("name", NAMES)
def test_no_dead_parameter(name):
    rnn, (x, dt) = model(name), sequences()
    # what a cell does with a missing feature it does only where one is missing
    partly = (torch.arange(x.numel()) % 5 > 0).view_as(x)
    y, _ = rnn(x, dt=dt, observed=partly if rnn.cell.uses_observed else None)
    weights = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)
    (y * weights).sum().backward()
    dead = [n for n, p in rnn.named_parameters() if p.grad is None or not p.grad.any()]
    assert dead == []


@pytest.mark.parametrize("name", NAMES)
def test_state_dict_round_trip(name):
    rnn, (x, dt) = model(name), sequences()
    other = model(name, seed=99)
    other.load_state_dict(rnn.state_dict())
    same(other(x, dt=dt)[0], rnn(x, dt=dt)[0])


@pytest.mark.parametrize("name", NAMES)
def test_one_seed_one_result(name):
    first, second = model(name), model(name)
    for (n, a), (_, b) in zip(first.named_parameters(), second.named_parameters(), strict=True):
        assert torch.equal(a, b), n
    other = model(name, seed=1)
    assert any(
        not torch.equal(a, b) for a, b in zip(first.parameters(), other.parameters(), strict=True)
    )


@pytest.mark.parametrize("name", NAMES)
def test_functional_call_obeys(name):
    rnn, (x, dt) = model(name), sequences()
    other = model(name, seed=5)
    y, _ = functional_call(rnn, dict(other.named_parameters()), (x,), {"dt": dt})
    same(y, other(x, dt=dt)[0])


@pytest.mark.parametrize("name", NAMES)
def test_vmap_over_inputs_and_over_parameters(name):
    rnn, (x, dt) = model(name), sequences(4)
    groups = x.view(2, 2, T, D)
    gaps = dt.view(2, 2, T)
    y = vmap(lambda x, dt: rnn(x, dt=dt)[0])(groups, gaps)
    same(y.reshape(4, T, -1), rnn(x, dt=dt)[0])
    stacked = {n: torch.stack([p, p * 1.1]) for n, p in rnn.named_parameters()}
    ensemble = vmap(lambda p: functional_call(rnn, p, (x,), {"dt": dt})[0])(stacked)
    same(ensemble[0], rnn(x, dt=dt)[0])


@pytest.mark.untyped
@pytest.mark.sampled(60)
@pytest.mark.parametrize("name", NAMES)
def test_compiles_in_one_graph(name):
    torch.compiler.reset()  # the tracer counts recompilations of shared code across tests
    rnn, (x, dt) = model(name), sequences(steps=2)  # the loop is unrolled: more steps, more work
    compiled = torch.compile(rnn, backend="eager", fullgraph=True)
    same(compiled(x, dt=dt)[0], rnn(x, dt=dt)[0])


@pytest.mark.sampled(9)
@pytest.mark.slow
@pytest.mark.untyped
@pytest.mark.parametrize("kind", [tauflow.LSTM, tauflow.GRU, tauflow.Elman])
def test_gated_cells_train_compiled(kind):
    """Torch's fused operators are served by other ones than in eager mode."""
    torch.compiler.reset()
    torch.manual_seed(0)
    rnn, x = kind(3, 5), torch.randn(2, 4, 3)  # in float32, which has separate operators
    parameters = list(rnn.parameters())
    want = torch.autograd.grad(rnn(x)[0].square().sum(), parameters)
    compiled = torch.compile(rnn, backend="aot_eager")
    gradients = torch.autograd.grad(compiled(x)[0].square().sum(), parameters)
    torch.testing.assert_close(gradients, want)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("proj_size", [0, 3])
def test_stacked_layers_equal_modules_one_after_the_other(name, proj_size):
    rnn, (x, dt) = model(name, num_layers=2, proj_size=proj_size), sequences()
    y, h = rnn(x, dt=dt)
    first, second = (RNN(cell) for cell in rnn.cells)
    y_first, h_first = first(x, dt=dt)
    y_first = rnn.projections[0](y_first) if proj_size else y_first
    y_second, h_second = second(y_first, dt=dt)
    same(y, rnn.projections[1](y_second) if proj_size else y_second)
    same(h, torch.cat([h_first, h_second], dim=-1))


@pytest.mark.parametrize("name", NAMES)
def test_bidirectional_equals_two_modules(name):
    rnn, (x, dt) = model(name, bidirectional=True), sequences()
    y, h = rnn(x, dt=dt)
    forward, backward = (RNN(cell) for cell in rnn.cells)
    gaps = torch.cat([dt[:, :1], dt[:, 1:].flip(1)], dim=1)
    y_forward, h_forward = forward(x, dt=dt)
    y_backward, h_backward = backward(x.flip(1), dt=gaps)
    same(y, torch.cat([y_forward, y_backward.flip(1)], dim=-1))
    same(h, torch.cat([h_forward, h_backward], dim=-1))


@pytest.mark.parametrize("name", NAMES)
def test_bidirectional_padding_changes_nothing(name):
    rnn, (x, dt) = model(name, bidirectional=True), sequences()
    mask = torch.ones(B, T, dtype=torch.bool)
    mask[0, 4:] = mask[1, 2] = mask[2, 0] = False
    y, h = rnn(x, dt=dt, mask=mask)
    for row in range(B):
        valid = mask[row]
        y_row, h_row = rnn(x[row : row + 1, valid], dt=dt[row : row + 1, valid])
        same(y[row : row + 1, valid], y_row)
        same(h[row : row + 1], h_row)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_last_output_is_the_last_valid_one(name, bidirectional):
    options = {"bidirectional": bidirectional, "num_layers": 2}
    rnn, (x, dt) = model(name, **options), sequences()
    last = model(name, return_sequences=False, **options)
    lengths = torch.tensor([3, T, 1])
    y, _ = rnn(x, dt=dt, lengths=lengths)
    y_last, _ = last(x, dt=dt, lengths=lengths)
    width = rnn.cell.output_size
    same(y_last[:, :width], y[torch.arange(B), lengths - 1, :width])
    if bidirectional:
        same(y_last[:, width:], y[:, 0, width:])


@pytest.mark.parametrize("name", NAMES)
def test_dropout_acts_between_layers_in_training_only(name):
    rnn, (x, dt) = model(name, num_layers=2, dropout=0.5), sequences()
    assert not torch.equal(rnn(x, dt=dt)[0], rnn(x, dt=dt)[0])
    rnn.eval()
    same(rnn(x, dt=dt)[0], rnn(x, dt=dt)[0])


@pytest.mark.parametrize("name", NAMES)
def test_one_step_one_sequence_and_no_sequence(name):
    rnn, (x, dt) = model(name), sequences()
    y, h = rnn(x[:1, :1], dt=dt[:1, :1])
    assert y.shape == (1, 1, rnn.output_size)
    y, h = rnn(x[:0], dt=dt[:0])
    assert y.shape == (0, T, rnn.output_size)
    assert h.shape == (0, rnn.state_size)


@pytest.mark.parametrize("name", NAMES)
def test_state_parts_cover_the_state(name):
    rnn, (x, dt) = model(name, num_layers=2), sequences()
    _, h = rnn(x, dt=dt)
    parts = [part for layer in rnn.split_state(h) for part in layer.values()]
    same(torch.cat(parts, dim=-1), h)


@pytest.mark.parametrize("name", NAMES)
def test_nan_input_reaches_the_output(name):
    rnn, (x, dt) = model(name), sequences()
    x[1, 3, 0] = float("nan")
    if name in OBSERVERS:  # where it is a feature that was not measured
        same(rnn(x, dt=dt)[0], rnn(x, dt=dt, observed=~x.isnan())[0])
        return
    with pytest.raises(NonFiniteError, match=r"x is NaN in 1 sequence \(1\), .* step 3, feature 0"):
        rnn(x, dt=dt)
    y, _ = rnn(x.requires_grad_(), dt=dt)  # computed, and no gap in the data
    assert y[1, 3:].isnan().any()
    assert y[[0, 2]].isfinite().all()
    assert y[1, :3].isfinite().all()


@pytest.mark.parametrize("name", OBSERVERS)
def test_what_was_not_observed_reaches_neither_values_nor_gradients(name):
    rnn, (x, dt) = model(name, num_layers=2, bidirectional=True), sequences()
    observed = torch.rand(x.shape, generator=torch.Generator().manual_seed(2)) < 0.5
    observed[0, 2] = observed[1, 0] = False
    y, h = rnn(x, dt=dt, observed=observed)
    spoilt = x.masked_fill(~observed, float("nan")).requires_grad_()
    y_spoilt, h_spoilt = rnn(spoilt, dt=dt, observed=observed)
    same(y_spoilt, y)
    same(h_spoilt, h)
    gradients = torch.autograd.grad(y_spoilt.sum(), [spoilt, *rnn.parameters()], allow_unused=True)
    assert all(g is None or g.isfinite().all() for g in gradients)
    assert not gradients[0][~observed].any()
    y_all, _ = rnn(x, dt=dt)
    same(rnn(x, dt=dt, observed=torch.ones_like(observed))[0], y_all)
    assert not torch.allclose(y, y_all)


@pytest.mark.parametrize("name", list(MODELS))
def test_catalog_names_its_paper(name):
    assert MODELS[name].paper
    assert MODELS[name].title
