"""Multi-time attention against its equations, written out sample by sample."""

import math

import numpy as np
import pytest
import torch

from tauflow.errors import ArgumentError
from tauflow.models import MTAN

B, T, D, HEADS, SIZE, K = 2, 5, 3, 2, 6, 4
HORIZON = 3.0


def model(**options):
    torch.manual_seed(0)
    small = {"units": 4, "embedding_size": SIZE, "heads": HEADS, "reference_points": K}
    return MTAN(D, 7, horizon=HORIZON, **{**small, **options}).double().eval()


def samples():
    random = torch.Generator().manual_seed(1)
    x = torch.randn(B, T, D, generator=random, dtype=torch.float64)
    t = torch.rand(B, T, generator=random, dtype=torch.float64).cumsum(1)
    observed = torch.rand(B, T, D, generator=random) > 0.4
    observed[0, :, 1] = False  # a channel that is never measured
    return x, t, observed


def embedded(network, t):
    omega, alpha = (p.detach().numpy() for p in (network.omega, network.alpha))
    waves = [math.sin(w * t / HORIZON + a) for w, a in zip(omega[1:], alpha[1:], strict=True)]
    return np.array([omega[0] * t / HORIZON + alpha[0], *waves])


def interpolated(network, x, t, observed):
    """One sequence at every reference time, before heads and channels are mixed."""
    W, b, V = (
        p.detach().numpy()
        for p in (network.queries.weight, network.queries.bias, network.keys.weight)
    )
    share, grid = SIZE // HEADS, np.zeros((K, HEADS, 2 * D))
    for point in range(K):
        query = W @ embedded(network, HORIZON * point / (K - 1)) + b
        for head in range(HEADS):
            part = slice(head * share, (head + 1) * share)
            for d in range(D):
                seen = [i for i in range(T) if observed[i, d]]
                if not seen:
                    continue
                keys = [(V @ embedded(network, t[i]))[part] for i in seen]
                weights = [math.exp(query[part] @ key / math.sqrt(share)) for key in keys]
                values = sum(w * x[i, d] for w, i in zip(weights, seen, strict=True))
                grid[point, head, d] = values / sum(weights)
                grid[point, head, D + d] = 1.0
    return grid.reshape(K, -1) @ network.mix.weight.detach().numpy().T + (
        network.mix.bias.detach().numpy()
    )


def test_the_grid_holds_what_the_equations_say():
    network, (x, t, observed) = model(), samples()
    got = network.interpolate(x.masked_fill(~observed, 0.0), t, observed).detach().numpy()
    for row in range(B):
        expected = interpolated(network, x[row].numpy(), t[row].numpy(), observed[row].numpy())
        np.testing.assert_allclose(got[row], expected, rtol=1e-10, atol=1e-12)


def test_the_output_is_dense_layers_on_the_last_state_of_the_grid():
    network, (x, t, observed) = model(g_layers=3), samples()
    y, h = network(x.masked_fill(~observed, torch.nan), t=t, observed=observed)
    assert h.shape == (B, 0)
    state, _ = network.rnn(network.interpolate(x.masked_fill(~observed, 0.0), t, observed))
    for layer in (0, 2, 4):
        state = torch.relu(state @ network.g[layer].weight.T + network.g[layer].bias)
    torch.testing.assert_close(y, state)
    assert len(network.g) == 6


def test_a_single_sample_is_the_value_at_all_times():
    network, (x, t, _) = model(heads=1), samples()
    seen = torch.ones(B, 1, D, dtype=torch.bool)
    grid = network.interpolate(x[:, :1], t[:, :1], seen)
    plain = network.mix(torch.cat([x[:, 0], torch.ones(B, D).double()], dim=-1))
    torch.testing.assert_close(grid, plain.unsqueeze(1).expand_as(grid))


def test_gradients_agree_with_finite_differences():
    network, (x, t, observed) = model(), samples()
    x = x.masked_fill(~observed, 0.0).requires_grad_()

    def call(x, *_):
        return network(x, t=t, observed=observed)[0]

    assert torch.autograd.gradcheck(call, (x, *network.parameters()), fast_mode=True)


def test_parameters_are_those_of_the_paper():
    """With 41 channels, 128 units and 300: all but the logits and the bias of the keys."""
    network = MTAN(41, 300)
    attention = 2 * 128 + (128 + 1) * 128 + 128 * 128 + (2 * 41 + 1) * 128
    gru = sum(p.numel() for p in network.rnn.parameters())
    dense = (128 + 1) * 300 + (300 + 1) * 300
    assert sum(p.numel() for p in network.parameters()) == attention + gru + dense


def test_heads_share_the_embedding_evenly():
    with pytest.raises(ArgumentError, match=r"embedding_size=6 must be a multiple of heads=4"):
        model(heads=4)
