"""GraFITi against its equations, edge by edge, and what its queries see."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from tauflow import SequenceBatch
from tauflow.data.card import DatasetCard
from tauflow.errors import ArgumentError
from tauflow.models.spec import ModelSpec, build_model, set_horizon
from tauflow.training import Recipe, train
from tauflow.zoo import GraFITi

B, T, D, H, M = 2, 5, 3, 6, 2
HORIZON = 3.0


def make(inputs=D, **options):
    torch.manual_seed(0)
    return GraFITi(inputs, H, **{"heads": M, "horizon": HORIZON, **options}).double()


def samples():
    random = torch.Generator().manual_seed(1)
    x = torch.randn(B, T, D, generator=random, dtype=torch.float64)
    t = torch.rand(B, T, generator=random, dtype=torch.float64).cumsum(1)
    observed = torch.rand(B, T, D, generator=random) > 0.4
    observed[0, :, 1] = False  # a channel that is never measured
    return x, t, observed


def array(tensor):
    return tensor.detach().numpy()


def linear(layer, v):
    return array(layer.weight) @ v + array(layer.bias)


def relu(z):
    return np.maximum(z, 0)


def attend(block, node, edges):
    """Return a node after attention to its edges, head by head."""
    q = linear(block.query, node)
    h = q.copy()
    if edges:
        keys = np.stack([linear(block.key, edge) for edge in edges])
        values = np.stack([linear(block.value, edge) for edge in edges])
        for part in np.split(np.arange(H), M):
            score = keys[:, part] @ q[part] / np.sqrt(H)
            weight = np.exp(score) / np.exp(score).sum()
            h[part] += weight @ values[:, part]
    return h + relu(linear(block.dense, h))


def answers(model, x, t, edges):
    """Return the answers on edges, a dict from (row, channel) to whether a value is asked for."""
    u = {
        (k, c): relu(linear(model.edge, np.array([0.0 if asked else x[k, c], float(asked)])))
        for (k, c), asked in edges.items()
    }
    times = [np.sin(linear(model.time, np.array([t[k] / HORIZON]))) for k in range(T)]
    channels = [relu(linear(model.channel, np.eye(D)[c])) for c in range(D)]
    for of_channels, of_times, update in zip(
        model.channel_attention, model.time_attention, model.edge_updates, strict=True
    ):
        new_channels = [
            attend(
                of_channels,
                channels[c],
                [np.concatenate([times[k], u[k, d]]) for k, d in edges if d == c],
            )
            for c in range(D)
        ]
        new_times = [
            attend(
                of_times,
                times[k],
                [np.concatenate([channels[c], u[j, c]]) for j, c in edges if j == k],
            )
            for k in range(T)
        ]
        u = {
            (k, c): relu(u[k, c] + linear(update, np.concatenate([u[k, c], times[k], channels[c]])))
            for k, c in edges
        }
        channels, times = new_channels, new_times
    return {
        (k, c): linear(model.output, np.concatenate([u[k, c], times[k], channels[c]]))[0]
        for k, c in edges
    }


def test_it_follows_the_equations():
    model, (x, t, observed) = make(), samples()
    y = model(x.masked_fill(~observed, torch.nan), t=t)[0].detach()
    for row in range(B):
        edges = {(k, c): not observed[row, k, c] for k in range(T) for c in range(D)}
        expected = answers(model, array(x[row]), array(t[row]), edges)
        for (k, c), answer in expected.items():
            assert float(y[row, k, c]) == pytest.approx(answer, rel=1e-10, abs=1e-12)


def test_queries_ask_for_targets_and_read_what_is_known():
    model, (x, t, observed) = make(D + 1, targets=(2, 0)), samples()
    is_query = torch.arange(T) >= 3
    flag = is_query.double().expand(B, T).unsqueeze(-1)
    marks = torch.cat([observed, torch.ones(B, T, 1, dtype=torch.bool)], -1)
    y = model(torch.cat([x, flag], -1), t=t, observed=marks)[0].detach()
    assert y.shape == (B, T, 2)
    assert not y[:, :3].any()
    for row in range(B):
        edges = {(k, c): False for k, c in observed[row].nonzero().tolist()}
        edges |= {(k, c): True for k in (3, 4) for c in (2, 0)}
        edges = dict(sorted(edges.items()))
        expected = answers(model, array(x[row]), array(t[row]), edges)
        for k in (3, 4):
            for place, c in enumerate((2, 0)):
                assert float(y[row, k, place]) == pytest.approx(expected[k, c], rel=1e-10)


def test_gradients_agree_with_finite_differences():
    model, (x, t, observed) = make(layers=1), samples()
    x = x.masked_fill(~observed, 0.0).requires_grad_()

    def call(x, *_):
        return model(x, t=t, observed=observed)[0]

    assert torch.autograd.gradcheck(call, (x, *model.parameters()), fast_mode=True)


CARD = DatasetCard(
    **{"name": "asked", "title": "asked", "task": "regress", "time_unit": "hour"},
    **{"source": "none", "licence": "none", "split": "none", "loss": "mse", "metric": "mse"},
    **{"input_size": D + 1, "target_size": 2, "sizes": (1, 1, 1), "per_step": True},
    query_targets=(2, 0),
    query_horizon=2.0,
)


def test_it_trains_on_queries_of_data():
    x, t, observed = samples()
    is_query = (torch.arange(T) >= 3)[:, None]
    data = SequenceBatch(
        torch.cat([x, is_query.double().expand(B, T, 1)], -1).float(),
        x[..., [2, 0]].float(),
        y_mask=is_query.expand(B, T, 2),
        dt=t.diff(dim=1, prepend=torch.zeros(B, 1)).float(),
        observed=torch.cat([observed & ~is_query, torch.ones(B, T, 1, dtype=torch.bool)], -1),
    )
    torch.manual_seed(0)
    spec = set_horizon(ModelSpec("grafiti", H, options={"heads": M}), lambda: data)
    model = build_model(spec, CARD)
    assert isinstance(model, GraFITi)
    assert model.targets == (2, 0)
    assert model.horizon == pytest.approx(float(t.max()), rel=1e-5)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    recipe = Recipe(lr=0.01, epochs=5, batch_size=2, select="last")
    result = train(
        model, train=data, valid=data, test=data, loss="mse", metric="mse", recipe=recipe, seed=0
    )
    losses = [row["train_loss"] for row in result.history]
    assert losses[-1] < losses[0]
    assert [name for name, p in model.named_parameters() if torch.equal(p, before[name])] == []
    with pytest.raises(ArgumentError, match="data with queries"):
        build_model(spec, replace(CARD, query_targets=()))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"heads": 4}, "hidden_size=6 must be a multiple of heads=4"),
        ({"targets": (3,)}, "expected numbers of the 2 channels"),
        ({"targets": ()}, "expected numbers of the 2 channels"),
        ({"horizon": 0.0}, "horizon must be a number above 0"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(ArgumentError, match=message):
        make(**options)


def test_exponentials_of_single_precision_as_autocast_of_cuda_makes_them(monkeypatch):
    model, (x, t, observed) = make().float(), samples()
    options = {"dt": t.diff(dim=1, prepend=torch.zeros(B, 1)).float(), "observed": observed}
    expected = model(x.float(), **options)[0]
    exponential = torch.exp
    monkeypatch.setattr(torch, "exp", lambda z: exponential(z.float()))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        predictions = model(x.float(), **options)[0]
    torch.testing.assert_close(predictions.float(), expected, atol=0.1, rtol=0)
