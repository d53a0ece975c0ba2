import numpy as np
import pytest
import torch

import tauflow
from tauflow.errors import ArgumentError
from tauflow.models import SeFT

B, T, D, H = 3, 6, 2, 5
SIZES = {"phi_layers": 2, "phi_size": 4, "latent_size": 3, "psi_layers": 1, "psi_size": 4}
SIZES |= {"g_layers": 2, "heads": 2, "key_size": 3, "longest": 10.0, "time_scales": 3}


def model(seed=0, **options):
    torch.manual_seed(seed)
    network = SeFT(D, H, **{**SIZES, "attention_dropout": 0.0, **options}).double()
    with torch.no_grad():  # biases and queries away from 0
        for parameter in network.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return network


def sequences(seed=1):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(B, T, D, generator=generator, dtype=torch.float64)
    dt = torch.rand(B, T, generator=generator, dtype=torch.float64) + 0.1
    observed = torch.rand(B, T, D, generator=generator) < 0.6
    x[~observed] = float("nan")
    return x, dt, observed


def dense(z, network):
    for layer in network:
        if isinstance(layer, torch.nn.Linear):
            W, b = layer.weight.detach().numpy(), layer.bias.detach().numpy()
            z = np.maximum(W @ z + b, 0)
    return z


def numpy_seft(network, x, t, observed):
    """One sequence, element by element and head by head, from the equations."""
    W_k, q = network.W_k.detach().numpy(), network.q.detach().numpy()
    elements = []
    for step in range(len(x)):
        for channel in range(D):
            if observed[step, channel]:
                angles = t[step] / 10.0 ** (np.arange(3) / 2)
                one_hot = [float(channel == d) for d in range(D)]
                e = [*np.sin(angles), *np.cos(angles), x[step, channel], *one_hot]
                elements.append(np.array(e))
    c = np.mean([dense(e, network.psi) for e in elements], axis=0)
    pooled = []
    for head in range(2):
        W = W_k[3 * head : 3 * head + 3]
        logits = np.array([q[head] @ W @ np.concatenate([e, c]) for e in elements]) / np.sqrt(3)
        weights = np.exp(logits) / np.exp(logits).sum()
        pooled += list(
            sum(w * dense(e, network.phi) for w, e in zip(weights, elements, strict=True))
        )
    return dense(np.array(pooled), network.g)


def test_values_are_those_of_the_equations():
    network, (x, dt, observed) = model(), sequences()
    y, h = network(x, dt=dt, observed=observed)
    assert h.shape == (B, 0)
    for row in range(B):
        sample = (x[row].numpy(), dt[row].cumsum(0).numpy(), observed[row].numpy())
        expected = numpy_seft(network, *sample)
        assert expected.max() > 0.1
        np.testing.assert_allclose(y[row].detach().numpy(), expected, rtol=1e-9, atol=1e-12)


def test_the_order_of_the_set_changes_nothing():
    network, (x, dt, observed) = model(), sequences()
    elements, there = network.to_elements(x.nan_to_num(), dt.cumsum(1), observed)
    y = network.encode_sets(elements, there)
    torch.testing.assert_close(y, network(x, dt=dt, observed=observed)[0])
    order = torch.randperm(elements.shape[1], generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(network.encode_sets(elements[:, order], there[:, order]), y)
    dt[:, 3] = 0.0  # steps 2 and 3 at one time
    swapped = [z[:, [0, 1, 3, 2, 4, 5]] for z in (x, observed)]
    y, _ = network(x, dt=dt, observed=observed)
    torch.testing.assert_close(network(swapped[0], dt=dt, observed=swapped[1])[0], y)


@pytest.mark.parametrize("filler", [7.0, float("nan")])
def test_padding_and_unmeasured_values_change_nothing(filler):
    network, (x, dt, observed) = model(), sequences()
    lengths = [T, 2, 4]
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


def test_an_empty_set_pools_to_zero():
    network, (x, dt, observed) = model(), sequences()
    observed[1] = False
    y, _ = network(x, dt=dt, observed=observed)
    np.testing.assert_allclose(y[1].detach(), dense(np.zeros(6), network.g))
    nothing, _ = network(x, dt=dt, lengths=[0] * B)
    torch.testing.assert_close(nothing, y[1:2].expand(B, -1))
    gradients = torch.autograd.grad(nothing.sum(), list(network.parameters()), allow_unused=True)
    assert all(gradient.isfinite().all() for gradient in gradients)


def test_times_are_absolute():
    network, (x, dt, observed) = model(), sequences()
    by_gaps, _ = network(x, dt=dt, observed=observed)
    torch.testing.assert_close(network(x, t=dt.cumsum(1), observed=observed)[0], by_gaps)
    later, _ = network(x, t=dt.cumsum(1) + 1, observed=observed)
    assert (later - by_gaps).abs().max() > 1e-3
    assert network(x, dt=0.0, observed=observed)[0].isfinite().all()


def test_attention_starts_even_and_large_logits_stay_finite():
    _, dt, observed = sequences()
    network = SeFT(D, H, attention_dropout=0.0)
    elements, there = network.to_elements(torch.randn(B, T, D), dt.cumsum(1).float(), observed)
    even = (there / there.sum(1, keepdim=True)).unsqueeze(-1).expand(-1, -1, 4)
    torch.testing.assert_close(network.attention_weights(elements, there), even)
    torch.nn.init.constant_(network.q, 1e6)
    weights = network.attention_weights(elements, there)
    torch.testing.assert_close(weights.sum(1), torch.ones(B, 4))


def test_gradients_and_number_of_parameters():
    network, (x, dt, observed) = model(), sequences()
    x = x.nan_to_num().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: network(x, dt=dt, observed=observed)[0], x)
    network(x, dt=dt, observed=observed)[0].square().sum().backward()
    assert all((p.grad != 0).any() for p in network.parameters())
    E = 2 * 3 + 1 + D
    layers = [(E, 4), (4, 4), (4, 3), (E, 4), (4, 4), (2 * 3, H), (H, H)]
    expected = sum((a + 1) * b for a, b in layers) + 2 * 3 * (E + 4 + 1)
    assert sum(p.numel() for p in network.parameters()) == expected


def test_attention_dropout_takes_elements_off_but_never_all():
    network, (x, dt, observed) = model(attention_dropout=0.5), sequences()
    elements, there = network.to_elements(x.nan_to_num(), dt.cumsum(1), observed)
    torch.manual_seed(0)
    weights = torch.stack([network.attention_weights(elements, there) for _ in range(300)])
    torch.testing.assert_close(weights.sum(2), torch.ones_like(weights.sum(2)))
    share = ((weights == 0) & there.unsqueeze(-1)).sum() / (300 * 2 * there.sum())
    assert 0.4 < share.item() < 0.5  # below one half by the draws that would have taken all
    torch.testing.assert_close(
        network.eval()(x, dt=dt, observed=observed)[0], model()(x, dt=dt, observed=observed)[0]
    )


def test_the_same_seed_draws_the_same_weights_within_their_bound():
    draws = []
    for seed in (5, 5, 6):
        network = SeFT(20, H, psi_size=256)
        network.reset_parameters(torch.Generator().manual_seed(seed))
        draws.append(network.W_k)
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    bound = (6 / (2 * 2 + 1 + 20 + 256)) ** 0.5  # He uniform
    assert 0.99 * bound < draws[0].abs().max() <= bound


def test_a_head_goes_on_top_and_a_state_is_refused():
    network, (x, dt, _) = model(), sequences()
    assert tauflow.SequenceModel(network, 2).double()(x.nan_to_num(), dt=dt)[0].shape == (B, 2)
    with pytest.raises(ArgumentError, match="hx must be None"):
        network(x, x[:, 0], dt=dt)
