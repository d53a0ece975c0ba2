"""Every model that is more than a cell through one battery; one joins by being in the catalog."""

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from whole_models import EXCEPTIONS, NAMES, B, T, kind, model, sequences, steps_of

from tauflow import SequenceBatch
from tauflow.errors import ArgumentError


def having(prop: str, names: list[str] = NAMES) -> pytest.MarkDecorator:
    """Parametrise a test with the models that can have a property."""
    assert set(EXCEPTIONS[prop]) <= set(names)
    return pytest.mark.parametrize("name", [n for n in names if n not in EXCEPTIONS[prop]])


EVERY = pytest.mark.parametrize("name", NAMES)
OBSERVERS = [name for name in NAMES if kind(name).uses_observed]


def same(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-11)


def gradients_are_finite(network: nn.Module, y: Tensor) -> None:
    gradients = torch.autograd.grad(y.sum(), list(network.parameters()), allow_unused=True)
    assert all(g is None or g.isfinite().all() for g in gradients)


@EVERY
def test_shapes_and_finite_values(name):
    network, (x, dt) = model(name), sequences(name)
    y, h = network(x, dt=dt)
    assert y.shape == (
        (B, T, network.output_size) if steps_of(network) else (B, network.output_size)
    )
    assert h.shape[0] == B
    assert y.isfinite().all()
    gradients_are_finite(network, y)


@EVERY
@pytest.mark.parametrize("batch", [3, 4], ids=["B", "B_equals_N"])
def test_batch_equals_its_rows(name, batch):
    network, (x, dt) = model(name), sequences(name, batch)
    y, h = network(x, dt=dt)
    for row in range(batch):
        y_row, h_row = network(x[row : row + 1], dt=dt[row : row + 1])
        same(y_row[0], y[row])
        same(h_row[0], h[row])
        y_single, h_single = network(x[row], dt=dt[row])
        same(y_single, y[row])
        same(h_single, h[row])


@EVERY
def test_permuting_the_batch_permutes_the_result(name):
    network, (x, dt) = model(name), sequences(name, 4)
    order = torch.tensor([2, 0, 3, 1])
    same(network(x[order], dt=dt[order])[0], network(x, dt=dt)[0][order])


@EVERY
@pytest.mark.parametrize("filler", [7.0, float("nan")])
def test_padding_changes_nothing(name, filler):
    network, (x, dt) = model(name), sequences(name)
    lengths = [T, 1, 4]
    x_padded, dt_padded = x.clone(), dt.clone()
    for row, length in enumerate(lengths):
        x_padded[row, length:] = dt_padded[row, length:] = filler
    y, _ = network(x_padded, dt=dt_padded, lengths=lengths)
    for row, length in enumerate(lengths):
        alone, _ = network(x[row, :length], dt=dt[row, :length])
        same(y[row, :length] if steps_of(network) else y[row], alone)
    gradients_are_finite(network, y)


@EVERY
def test_a_masked_step_is_no_sample(name):
    network, (x, dt) = model(name), sequences(name)
    mask = torch.ones(B, T, dtype=torch.bool)
    mask[0, 2] = mask[1, 0] = mask[2, 3:5] = False
    y, _ = network(x, dt=dt, mask=mask)
    for row in range(B):
        alone, _ = network(x[row, mask[row]], dt=dt[row, mask[row]])
        same(y[row, mask[row]] if steps_of(network) else y[row], alone)


@EVERY
def test_packed_sequence_equals_lengths(name):
    network, (x, dt) = model(name), sequences(name)
    lengths = torch.tensor([2, T, 4])
    y, h = network(x, dt=dt, lengths=lengths)
    packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    y_packed, h_packed = network(packed, dt=dt)
    same(h_packed, h)
    if not steps_of(network):
        same(y_packed, y)
        return
    y_padded, _ = pad_packed_sequence(y_packed, batch_first=True)
    valid = torch.arange(T) < lengths.unsqueeze(1)
    same(y_padded[valid], y[valid])


@EVERY
def test_absolute_times_equal_their_gaps(name):
    network, (x, dt) = model(name), sequences(name)
    dt[:, 0] = 0
    actual, expected = network(x, t=dt.cumsum(1))[0], network(x, dt=dt)[0]
    torch.testing.assert_close(actual, expected, rtol=1e-7, atol=1e-9)


@EVERY
def test_gaps_matter_exactly_when_the_class_says_so(name):
    network, (x, dt) = model(name), sequences(name)
    uneven = dt * torch.linspace(1, 2, T)
    changed = not torch.allclose(network(x, dt=dt)[0], network(x, dt=uneven)[0])
    assert changed == kind(name).uses_dt
    y, _ = network(x, dt=0.0)
    assert y.isfinite().all()
    gradients_are_finite(network, y)


@having("carrying")
def test_splitting_and_carrying_the_state_changes_nothing(name):
    network, (x, dt) = model(name), sequences(name)
    y, h = network(x, dt=dt)
    first, carried = network(x[:, :2], dt=dt[:, :2])
    second, last = network(x[:, 2:], carried, dt=dt[:, 2:])
    same(torch.cat([first, second], dim=1) if steps_of(network) else second, y)
    same(last, h)


@pytest.mark.parametrize("name", EXCEPTIONS["carrying"])
def test_a_model_without_state_says_so(name):
    network, (x, dt) = model(name), sequences(name)
    _, h = network(x, dt=dt)
    assert h.shape == (B, 0)
    with pytest.raises(ArgumentError, match=r"hx must be None.*carries no state"):
        network(x, h, dt=dt)


@pytest.mark.parametrize("name", OBSERVERS)
def test_what_was_not_observed_reaches_neither_values_nor_gradients(name):
    network, (x, dt) = model(name), sequences(name)
    observed = torch.rand(x.shape, generator=torch.Generator().manual_seed(2)) < 0.5
    observed[0, 2] = observed[1] = False  # a step, and a whole sequence, without measurements
    y, _ = network(x, dt=dt, observed=observed)
    spoilt = x.masked_fill(~observed, torch.nan).requires_grad_()
    y_spoilt, _ = network(spoilt, dt=dt, observed=observed)
    same(y_spoilt, y)
    assert y.isfinite().all()
    gradients = torch.autograd.grad(
        y_spoilt.sum(), [spoilt, *network.parameters()], allow_unused=True
    )
    assert all(g is None or g.isfinite().all() for g in gradients)
    assert not gradients[0][~observed].any()
    y_all, _ = network(x, dt=dt)
    same(network(x, dt=dt, observed=torch.ones_like(observed))[0], y_all)
    assert not torch.allclose(y, y_all)


@EVERY
def test_state_dict_round_trip_and_functional_call(name):
    network, other, (x, dt) = model(name), model(name, seed=99), sequences(name)
    expected = network(x, dt=dt)[0]
    assert not torch.allclose(other(x, dt=dt)[0], expected)
    same(functional_call(other, dict(network.named_parameters()), (x,), {"dt": dt})[0], expected)
    other.load_state_dict(network.state_dict())
    same(other(x, dt=dt)[0], expected)


@EVERY
def test_one_seed_one_result(name):
    first, second, other = model(name), model(name), model(name, seed=1)
    parameters = [list(m.parameters()) for m in (first, second, other)]
    assert all(torch.equal(a, b) for a, b in zip(*parameters[:2], strict=True))
    assert any(not torch.equal(a, b) for a, b in zip(*parameters[::2], strict=True))


@EVERY
def test_no_dead_parameter_in_training(name):
    network, (x, dt) = model(name), sequences(name, steps=12)
    if kind(name).estimates_inputs:
        dt = 10 * dt  # over short time steps its decays may be none
    batch = SequenceBatch(x, torch.zeros(B), dt=dt)

    def pull(y: Tensor, _: SequenceBatch) -> Tensor:
        return (y * torch.linspace(-1, 1.3, y.numel(), dtype=y.dtype).view_as(y)).sum()

    training_loss = getattr(network, "training_loss", None)
    loss = (
        training_loss(batch, pull, epoch=20) if training_loss else pull(network(x, dt=dt)[0], batch)
    )
    loss.backward()
    assert [n for n, p in network.named_parameters() if p.grad is None or not p.grad.any()] == []


@EVERY
def test_one_step_and_no_sequence(name):
    network, (x, dt) = model(name), sequences(name)
    assert network(x[:1, :1], dt=dt[:1, :1])[0].isfinite().all()
    y, h = network(x[:0], dt=dt[:0])
    assert y.shape[0] == h.shape[0] == 0
    assert y.shape[-1] == network.output_size
    assert network(x, dt=dt, lengths=[0, T, 2])[0].isfinite().all()
