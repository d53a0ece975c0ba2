from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import tauflow
from tauflow import SequenceBatch
from tauflow.errors import ArgumentError, DtypeError, NonFiniteError, ShapeError
from tauflow.models import WHOLE_MODELS, IPNet
from tauflow.training.losses import LOSSES

B, T, D, H, K = 3, 7, 2, 4, 5
MEANS, DEVIATIONS = (0.25, -0.75), (2.0, 0.5)


def model(seed=0, **options):
    torch.manual_seed(seed)
    settings = {"horizon": 4.0, "reference_points": K, "dropout": 0.0, "channel_means": MEANS}
    settings |= {"channel_deviations": DEVIATIONS, **options}
    network = IPNet(D, H, **settings).double()
    with torch.no_grad():
        for parameter in (network.a, network.rho):
            parameter.add_(0.3 * torch.randn_like(parameter))
    return network


def sequences(seed=1):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(B, T, D, generator=generator, dtype=torch.float64)
    dt = torch.rand(B, T, generator=generator, dtype=torch.float64) + 0.1
    observed = torch.rand(B, T, D, generator=generator) < 0.6
    observed[1, :, 1] = False  # a channel that this sequence never measured
    x[~observed] = float("nan")
    return x, dt, observed


def values(*tensors):
    return [tensor.detach().numpy() for tensor in tensors]


def single_channel(network, x, t, observed, at, kappa):
    """Return interpolants and intensities, (times asked for, channels), sample by sample."""
    alpha = kappa * np.log1p(np.exp(network.a.detach().numpy()))
    smooth, intensity = np.zeros((2, len(at), D))
    for k, r in enumerate(at):
        for d in range(D):
            there = np.flatnonzero(observed[:, d])
            times, samples = (t[there], x[there, d]) if len(there) else ([0.0], [MEANS[d]])
            omega = np.exp(-alpha[d] * (r - np.array(times)) ** 2)
            intensity[k, d] = omega.sum()
            smooth[k, d] = (omega * samples).sum() / omega.sum()
    return smooth, intensity


def crossed(network, smooth, intensity):
    rho, mean = network.rho.detach().numpy(), smooth.mean(0)
    share = intensity / intensity.sum(1, keepdims=True)
    chi = np.zeros_like(smooth)
    for k in range(len(smooth)):
        for d in range(D):
            chi[k, d] = mean[d]
            for other in range(D):
                weight = rho[other, d] * share[k, other]
                chi[k, d] += weight * (smooth[k, other] - mean[other])
    return chi


def test_interpolation_is_that_of_the_equations():
    network, (x, dt, observed) = model(), sequences()
    actual = network.interpolate(x.nan_to_num(), dt.cumsum(1), observed).detach().numpy()
    for row in range(B):
        sample = (*values(x[row], dt[row].cumsum(0), observed[row]), np.linspace(0, 4, K))
        smooth, intensity = single_channel(network, *sample, 1.0)
        sharp, _ = single_channel(network, *sample, 10.0)
        chi = crossed(network, smooth, intensity)
        expected = np.concatenate([chi, intensity, sharp - chi], 1)
        np.testing.assert_allclose(actual[row], expected, rtol=1e-9, atol=1e-12)


def test_the_output_is_the_last_state_of_a_gru_on_the_grid():
    network, (x, dt, observed) = model(), sequences()
    gru, cell = nn.GRU(3 * D, H, batch_first=True).double(), network.rnn.cell
    names = {"weight_ih_l0": cell.W_x, "weight_hh_l0": cell.W_h, "bias_ih_l0": cell.b}
    gru.load_state_dict({**names, "bias_hh_l0": cell.b_h})
    features = network.interpolate(x.nan_to_num(), dt.cumsum(1), observed)
    y, h = network(x, dt=dt, observed=observed)
    torch.testing.assert_close(y, gru(features)[1][0])
    assert h.shape == (B, 0)


def test_the_loss_is_the_error_at_what_was_held_out():
    network, (x, dt, observed) = model(), sequences()
    held = observed & (torch.rand(B, T, D, generator=torch.Generator().manual_seed(2)) < 0.4)
    assert held.sum() > 3
    expected = []
    for row in range(B):
        left = (observed & ~held)[row]
        t, keep, out = values(dt[row].cumsum(0), left, held[row])
        smooth, intensity = single_channel(network, x[row].numpy(), t, keep, t, 1.0)
        chi = crossed(network, smooth, intensity)
        for d in range(D):
            error = (x[row].numpy()[out[:, d], d] - chi[out[:, d], d]) / DEVIATIONS[d]
            expected.append((error**2).mean() if out[:, d].any() else 0.0)
    loss = network.autoencoding_loss(x, dt=dt, observed=observed, held_out=held)
    assert loss.item() == pytest.approx(np.mean(expected), rel=1e-10)
    longer = [torch.cat([z, z[:, :2]], 1) for z in (x, dt, observed, held)]
    padded = network.autoencoding_loss(
        longer[0], dt=longer[1], observed=longer[2], held_out=longer[3], lengths=[T] * B
    )
    torch.testing.assert_close(padded, loss)


def test_a_sequence_of_weight_two_counts_like_two_in_what_is_held_out(monkeypatch):
    network, (x, dt, observed) = model(), sequences()
    held = observed & (torch.rand(B, T, D, generator=torch.Generator().manual_seed(2)) < 0.4)
    monkeypatch.setattr(network, "hold_out", lambda there, **_: held[: len(there)])
    batch = SequenceBatch(x=x, y=torch.zeros(B, H).double(), dt=dt, observed=observed)
    twice = batch[[0, 1, 2, 2]]
    heavy = replace(batch, weight=torch.tensor([1.0, 1.0, 2.0]))
    weighed = network.training_loss(heavy, LOSSES["mse"], epoch=0)
    held = held[[0, 1, 2, 2]]
    torch.testing.assert_close(weighed, network.training_loss(twice, LOSSES["mse"], epoch=0))


def test_a_fifth_of_each_channel_is_held_out():
    observed = torch.rand(4, 60, 3, generator=torch.Generator().manual_seed(0)) < 0.5
    observed[0, :, 0] = False
    observed[1, 9:, 1] = False  # fewer than ten: none of them
    held = [
        model().hold_out(observed, generator=torch.Generator().manual_seed(s)) for s in (1, 1, 2)
    ]
    count = observed.sum(1)
    expected = torch.where(count >= 10, count // 5, 0)
    assert torch.equal(held[0].sum(1), expected)
    assert not (held[0] & ~observed).any()
    assert torch.equal(held[0], held[1])
    assert not torch.equal(held[0], held[2])


@pytest.mark.parametrize("filler", [7.0, float("nan")])
def test_padding_and_unmeasured_values_change_nothing(filler):
    network, (x, dt, observed) = model(), sequences()
    lengths = [T, 1, 4]
    x[~observed] = filler
    for row, length in enumerate(lengths):
        x[row, length:], dt[row, length:] = filler, filler
    y, _ = network(x, dt=dt, observed=observed, lengths=lengths)
    for row, length in enumerate(lengths):
        part = slice(0, length)
        alone, _ = network(x[row, part], dt=dt[row, part], observed=observed[row, part])
        torch.testing.assert_close(y[row], alone)
    gradients = torch.autograd.grad(y.sum(), list(network.parameters()))
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert network(x, dt=dt, observed=observed, lengths=[0] * B)[0].isfinite().all()


def test_far_from_every_sample_all_stays_finite():
    network = model(horizon=1e4).float()
    x = torch.randn(2, 3, D, requires_grad=True)
    y, _ = network(x, t=torch.tensor([[0.0, 0.0, 1.0], [9e3, 9e3, 9e3]]))
    y.sum().backward()
    assert y.isfinite().all()
    assert all(p.grad.isfinite().all() for p in (x, *network.parameters()))


def test_times_are_absolute():
    network, (x, dt, observed) = model(), sequences()
    by_gaps, _ = network(x, dt=dt, observed=observed)
    by_times, _ = network(x, t=dt.cumsum(1), observed=observed)
    torch.testing.assert_close(by_gaps, by_times)
    later, _ = network(x, t=dt.cumsum(1).unsqueeze(-1) + 1, observed=observed)
    assert (later - by_times).abs().max() > 1e-3


def test_gradients_and_number_of_parameters():
    network, (x, dt, observed) = model(), sequences()
    x = x.nan_to_num().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: network(x, dt=dt, observed=observed)[0], x)
    network(x, dt=dt, observed=observed)[0].square().sum().backward()
    assert all((p.grad != 0).any() for p in network.parameters())
    assert sum(p.numel() for p in network.parameters()) == D + D**2 + 9 * D * H + 3 * H**2 + 6 * H


def test_dropout_drops_a_feature_from_the_whole_grid():
    (x, dt, observed), network, seen = sequences(), model(dropout=0.5), []
    network.rnn.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    network(x, dt=dt, observed=observed)
    ratio = seen[0] / network.interpolate(x.nan_to_num(), dt.cumsum(1), observed)
    assert {0.0, 2.0} == set(ratio.round(decimals=6).unique().tolist())
    assert (ratio - ratio[:, :1]).abs().max() < 1e-9


def test_a_new_model_weighs_alike_and_does_not_cross():
    network = IPNet(3, H)
    assert (network.a == 0).all()
    assert torch.equal(network.rho, torch.eye(3))
    head = tauflow.SequenceModel(network, 2)
    assert head(torch.randn(B, T, 3))[0].shape == (B, 2)


def test_wrong_arguments_are_refused():
    network, (x, dt, observed) = model(), sequences()
    with pytest.raises(ArgumentError, match=r"channel_means must hold 2 numbers.*got \(1\.0,\)"):
        IPNet(2, 3, channel_means=(1.0,))
    with pytest.raises(ArgumentError, match=r"channel_deviations\[1\] must be a number"):
        IPNet(2, 3, channel_deviations=(1.0, 0.0))
    with pytest.raises(ArgumentError, match="autoencoding_weight must be a number"):
        IPNet(2, 3, autoencoding_weight=-1.0)
    with pytest.raises(ArgumentError, match="hx must be None"):
        network(x, x[:, 0], dt=dt)
    with pytest.raises(ShapeError, match=r"held_out has shape \(3, 7\)"):
        network.autoencoding_loss(x, observed=observed, held_out=observed[..., 0])
    with pytest.raises(DtypeError, match=r"held_out has dtype torch.int64"):
        network.autoencoding_loss(x, observed=observed, held_out=observed.long())


@pytest.mark.parametrize("name", ["ip-net", "mtan", "seft"])
def test_nan_that_is_called_measured_is_refused(name):
    torch.manual_seed(0)
    body, x = WHOLE_MODELS[name].build(2, 4).eval(), torch.randn(2, 5, 2)
    x[1, 3, 0] = float("nan")
    seen = torch.ones_like(x, dtype=torch.bool)
    with pytest.raises(
        NonFiniteError, match="sequence 1 at step 3, feature 0, where observed says"
    ):
        body(x, observed=seen)
    seen[1, 3, 0] = False
    assert torch.equal(body(x, observed=seen)[0], body(x)[0])
