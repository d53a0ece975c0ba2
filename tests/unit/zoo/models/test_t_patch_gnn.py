"""t-PatchGNN against its equations, channel by channel and patch by patch."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from tauflow import SequenceBatch
from tauflow.data.card import DatasetCard
from tauflow.errors import ArgumentError
from tauflow.models import TPatchGNN
from tauflow.models.spec import ModelSpec, build_model
from tauflow.training import Recipe, train

B, T, D, H, M = 2, 7, 3, 6, 3
HORIZON = 3.0
TIMES = {"time_size": 4, "node_size": 2, "patches": M, "horizon": HORIZON}


def model(inputs=D, **options):
    torch.manual_seed(0)
    network = TPatchGNN(inputs, H, **{**TIMES, "layers": 2, "heads": 2, **options}).double().eval()
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.4)
    return network


def samples():
    random = torch.Generator().manual_seed(1)
    x = torch.randn(B, T, D, generator=random, dtype=torch.float64)
    t = 0.6 * torch.rand(B, T, generator=random, dtype=torch.float64).cumsum(1)
    t[0, -1] = 1.4 * HORIZON
    observed = torch.rand(B, T, D, generator=random) > 0.4
    observed[0, :, 1] = False  # a channel that is never measured
    return x, t, observed


def array(tensor):
    return tensor.detach().numpy()


def linear(layer, v):
    return array(layer.weight) @ v + array(layer.bias)


def dense(net, v):
    layers = [layer for layer in net if isinstance(layer, nn.Linear)]
    for layer in layers[:-1]:
        v = np.maximum(linear(layer, v), 0)
    return linear(layers[-1], v)


def softmax(z, axis=-1):
    e = np.exp(z - z.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def phi(network, t):
    angle = linear(network.embedding, np.array([t / HORIZON]))
    return np.array([angle[0], *np.sin(angle[1:])])


def patches(network, x, t, observed):
    """Return what one sequence's samples put into the patches, (D, M, H)."""
    h = np.zeros((D, M, H))
    for n, m in np.ndindex(D, M):
        end = np.inf if m == M - 1 else (m + 1) * HORIZON / M
        rows = [i for i in np.flatnonzero(observed[:, n]) if m * HORIZON / M <= t[i] < end]
        total = np.zeros(H - 1)
        if rows:
            z = np.stack([np.concatenate([[x[i, n]], phi(network, t[i])]) for i in rows])
            filters = np.stack([dense(network.filters, vector).reshape(H - 1, -1) for vector in z])
            total = np.einsum("idf,if->d", softmax(filters, axis=0), z)
        h[n, m] = [*np.maximum(total + array(network.bias), 0), bool(rows)]
    return h


def graph_layer(layer, nodes, h):
    """Return one layer's exchange between the channels, after its attention, (D, M, H)."""
    out = np.zeros_like(h)
    for m in range(M):
        moved = []
        for node, shift, gate in zip(nodes, layer.shifts, layer.gates, strict=True):
            opened = [
                np.maximum(np.tanh(linear(gate, np.concatenate([h[n, m], node[n]]))), 0)
                for n in range(D)
            ]
            moved.append(np.stack([node[n] + opened[n] * linear(shift, h[n, m]) for n in range(D)]))
        A = softmax(np.maximum(moved[0] @ moved[1].T, 0))
        for n in range(D):
            taken = sum(A[k, n] * h[k, m] for k in range(D))
            out[n, m] = np.maximum(linear(layer.mix, np.concatenate([h[n, m], taken])), 0)
    return out


def answers(network, x, t, observed):
    h = patches(network, x, t, observed)
    scales = 10_000.0 ** (np.arange(H // 2) / (H // 2 - 1))
    angles = np.arange(M)[:, None] / scales
    for index, layer in enumerate(network.layers):
        inputs = torch.from_numpy(h + np.concatenate([np.sin(angles), np.cos(angles)], axis=1))
        everywhere = torch.ones(M, M, dtype=torch.bool)
        attended = array(torch.cat([layer.block(row[None], everywhere) for row in inputs]))
        h = graph_layer(layer, array(network.nodes), attended) + (h if index else 0)
    values = np.zeros((T, D))
    for step, n in np.ndindex(T, D):
        state = linear(network.join, h[n].ravel())
        values[step, n] = dense(network.decoder, np.concatenate([state, phi(network, t[step])]))[0]
    return values


def test_it_follows_the_equations():
    network, (x, t, observed) = model(), samples()
    values = x.masked_fill(~observed, torch.nan)
    y, _ = network(values, t=t, observed=observed)
    for row in range(B):
        expected = answers(network, *map(array, (x[row], t[row], observed[row])))
        np.testing.assert_allclose(array(y[row]), expected, rtol=1e-9, atol=1e-10)


def test_queries_are_answered_and_not_read():
    network, (x, t, observed) = model(D + 1, targets=(2, 0)), samples()
    is_query = torch.arange(T) >= 4
    flag = is_query.double().expand(B, T).unsqueeze(-1)
    marks = torch.ones(B, T, 1, dtype=torch.bool)
    y, _ = network(torch.cat([x, flag], -1), t=t, observed=torch.cat([observed, marks], -1))
    plain = model()
    plain.load_state_dict(network.state_dict())
    expected, _ = plain(x, t=t, observed=observed & ~is_query[:, None])
    torch.testing.assert_close(y[:, 4:], expected[:, 4:, [2, 0]])
    assert not y[:, :4].any()


def test_gradients_agree_with_finite_differences():
    network, (x, t, observed) = model(layers=1), samples()
    x = x.masked_fill(~observed, 0.0).requires_grad_()

    def call(x, *_):
        return network(x, t=t, observed=observed)[0]

    assert torch.autograd.gradcheck(call, (x, *network.parameters()), fast_mode=True)


CARD = DatasetCard(
    name="asked",
    title="asked",
    task="regress",
    input_size=D + 1,
    target_size=2,
    time_unit="hour",
    sizes=(1, 1, 1),
    source="none",
    licence="none",
    split="none",
    loss="mse",
    metric="mse",
    per_step=True,
    query_targets=(2, 0),
    query_horizon=2.0,
)


def test_data_with_queries_says_what_to_forecast():
    spec = ModelSpec("t-patchgnn", H, options={**TIMES, "horizon": 2.0})
    built = build_model(spec, CARD)
    assert isinstance(built, TPatchGNN)
    assert (built.targets, built.horizon, built.channels) == ((2, 0), 2.0, D)
    with pytest.raises(ArgumentError, match="data with queries"):
        build_model(spec, replace(CARD, query_targets=()))


def test_it_trains_on_queries():
    x, t, observed = samples()
    is_query = (torch.arange(T) >= 4)[:, None]
    inputs = torch.cat([x, is_query.double().expand(B, T, 1)], -1).float()
    marks = torch.ones(B, T, 1, dtype=torch.bool)
    data = SequenceBatch(
        inputs,
        x[..., [2, 0]].float(),
        y_mask=is_query.expand(B, T, 2),
        dt=t.diff(dim=1, prepend=torch.zeros(B, 1)).float(),
        observed=torch.cat([observed & ~is_query, marks], -1),
    )
    torch.manual_seed(0)
    network = build_model(ModelSpec("t-patchgnn", H, options={**TIMES, "layers": 2}), CARD)
    before = {name: p.detach().clone() for name, p in network.named_parameters()}
    recipe = Recipe(lr=0.01, epochs=3, batch_size=2, select="last")
    result = train(
        network, train=data, valid=data, test=data, loss="mse", metric="mse", recipe=recipe, seed=0
    )
    losses = [row["train_loss"] for row in result.history]
    assert losses[-1] < losses[0]
    # a gate that is closed at all of so few samples does not learn, nor what it lets in
    still = [name for name, p in network.named_parameters() if torch.equal(p, before[name])]
    assert all("gates" in name or "shifts" in name for name in still)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"targets": [3]}, "expected numbers of the 2 channels"),
        ({"targets": []}, "expected numbers of the 2 channels"),
        ({"heads": 4}, "a multiple of heads=4"),
    ],
)
def test_wrong_options(options, match):
    with pytest.raises(ArgumentError, match=match):
        TPatchGNN(D, H, **options)
