import math

import numpy as np
import pytest
import torch
from torch import nn

import tauflow
from tauflow.errors import ArgumentError, DtypeError
from tauflow.models import Transformer

B, T, D, N = 3, 6, 2, 8


def model(seed=0, **options):
    torch.manual_seed(seed)
    network = Transformer(D, N, **{"heads": 2, "dropout": 0.0, "longest": 50.0, **options}).double()
    with torch.no_grad():  # biases and gains away from 0 and 1, so that none can be forgotten
        for parameter in network.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return network


def sequences(batch=B, seed=1):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(batch, T, D, generator=generator, dtype=torch.float64)
    dt = torch.rand(batch, T, generator=generator, dtype=torch.float64) + 0.1
    return x, dt


def layer_norm(z, norm):
    centred = z - z.mean(-1, keepdims=True)
    scaled = centred / np.sqrt(z.var(-1, keepdims=True) + 1e-5)
    return scaled * norm.weight.detach().numpy() + norm.bias.detach().numpy()


def dense(z, layer):
    return z @ layer.weight.detach().numpy().T + layer.bias.detach().numpy()


def numpy_transformer(network, x, dt):
    """One sequence, step by step and head by head, from the equations."""
    erf = np.vectorize(math.erf)
    scales = 50.0 ** np.linspace(0, 1, N // 2)
    angles = np.cumsum(dt)[:, None] / scales
    z = dense(np.concatenate([x, dt[:, None]], 1), network.embedding)
    z = z + np.concatenate([np.sin(angles), np.cos(angles)], 1)
    for block in network.blocks:
        q, k, v = np.split(
            dense(layer_norm(z, block.attention_norm), block.queries_keys_values), 3, 1
        )
        attended = np.zeros_like(z)
        for head in range(2):
            part = slice(head * N // 2, (head + 1) * N // 2)
            for step in range(len(x)):
                logits = k[: step + 1, part] @ q[step, part] / np.sqrt(N // 2)
                weights = np.exp(logits) / np.exp(logits).sum()
                attended[step, part] = weights @ v[: step + 1, part]
        z = z + dense(attended, block.mix)
        hidden = dense(layer_norm(z, block.dense_norm), block.up)
        z = z + dense(hidden * (1 + erf(hidden / np.sqrt(2))) / 2, block.down)
    return layer_norm(z, network.norm)


def test_values_are_those_of_the_equations():
    network, (x, dt) = model(), sequences()
    y, h = network(x, dt=dt)
    assert h.shape == (B, 0)
    for row in range(B):
        expected = numpy_transformer(network, x[row].numpy(), dt[row].numpy())
        np.testing.assert_allclose(y[row].detach().numpy(), expected, rtol=1e-9, atol=1e-11)


def test_blocks_are_those_of_torch():
    network = model(layers=3)
    layer = nn.TransformerEncoderLayer(N, 2, 4 * N, 0.0, "gelu", batch_first=True, norm_first=True)
    theirs = nn.TransformerEncoder(layer, 3, nn.LayerNorm(N), enable_nested_tensor=False).double()
    pairs = (
        ("self_attn.in_proj_", "queries_keys_values."),
        ("self_attn.out_proj.", "mix."),
        ("linear1.", "up."),
        ("linear2.", "down."),
        ("norm1.", "attention_norm."),
        ("norm2.", "dense_norm."),
    )
    state = {f"norm.{kind}": getattr(network.norm, kind) for kind in ("weight", "bias")}
    for i, block in enumerate(network.blocks):
        for to, ours in pairs:
            for kind in ("weight", "bias"):
                state[f"layers.{i}.{to}{kind}"] = block.state_dict()[ours + kind]
    theirs.load_state_dict(state)
    z = torch.randn(B, T, N, dtype=torch.float64)
    causal = nn.Transformer.generate_square_subsequent_mask(T, dtype=torch.float64)
    expected, y = theirs(z, mask=causal, is_causal=True), z
    for block in network.blocks:
        y = block(y, None)
    torch.testing.assert_close(network.norm(y), expected)


@pytest.mark.parametrize(("width", "heads", "layers"), [(8, 2, 1), (12, 3, 4)])
def test_number_of_parameters(width, heads, layers):
    network = Transformer(D, width, heads=heads, layers=layers)
    expected = (D + 4) * width + layers * (12 * width**2 + 13 * width)
    assert sum(p.numel() for p in network.parameters()) == expected


def test_the_future_changes_nothing():
    network, (x, dt) = model(), sequences()
    y, _ = network(x, dt=dt)
    for step in range(1, T):
        early, _ = network(x[:, :step], dt=dt[:, :step])
        torch.testing.assert_close(early, y[:, :step])


@pytest.mark.parametrize("filler", [7.0, float("nan")])
def test_masked_steps_change_nothing_and_repeat_the_output_before(filler):
    network, (x, dt) = model(), sequences()
    mask = torch.ones(B, T, dtype=torch.bool)
    mask[0, 2] = mask[1, 0] = mask[2, 3:] = False
    x[~mask], dt[~mask] = filler, filler
    y, _ = network(x, dt=dt, mask=mask)
    for row in range(B):
        alone, _ = network(x[row, mask[row]], dt=dt[row, mask[row]])
        torch.testing.assert_close(y[row, mask[row]], alone)
    torch.testing.assert_close(y[0, 2], y[0, 1])
    torch.testing.assert_close(y[2, 3:], y[2, 2].expand(T - 3, -1))
    assert (y[1, 0] == 0).all()
    last, _ = model(return_sequences=False)(x, dt=dt, mask=mask)
    torch.testing.assert_close(last, y[:, -1])
    gradients = torch.autograd.grad(y.sum(), list(network.parameters()))
    assert all(gradient.isfinite().all() for gradient in gradients)
    nothing, _ = network(x, dt=dt, lengths=[0] * B)
    assert (nothing == 0).all()


def test_times_are_felt_as_gaps_alone():
    network, (x, dt) = model(), sequences()
    y, _ = network(x, dt=dt)
    other, _ = network(x, dt=2 * dt)
    assert (y - other).abs().amin(-1).max() > 1e-4
    still, _ = network(x, dt=0.0)
    assert still.isfinite().all()
    t = dt.cumsum(1)
    torch.testing.assert_close(network(x, t=t)[0], network(x, t=t + 100)[0])


def test_gradients():
    network, (x, dt) = model(layers=1), sequences(batch=2)
    x, dt = x[:, :3].requires_grad_(), dt[:, :3].requires_grad_()
    mask = torch.tensor([[True, True, False], [True, True, True]])
    assert torch.autograd.gradcheck(lambda x, dt: network(x, dt=dt, mask=mask)[0], (x, dt))
    network(x, dt=dt)[0].square().sum().backward()
    assert all((p.grad != 0).any() for p in network.parameters())


def test_dropout_only_while_training_and_by_the_seed():
    network, (x, dt) = model(dropout=0.5), sequences()
    runs = [(torch.manual_seed(seed), network(x, dt=dt)[0])[1] for seed in (3, 3, 4)]
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])
    torch.testing.assert_close(network.eval()(x, dt=dt)[0], model()(x, dt=dt)[0])
    assert "dropout=0.5" in repr(network)


def test_the_same_seed_draws_the_same_weights_within_their_bound():
    draws = []
    for seed in (5, 5, 6):
        network = Transformer(D, 256)
        network.reset_parameters(torch.Generator().manual_seed(seed))
        draws.append(network.blocks[0].up.weight)
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    bound = (6 / (256 + 1024)) ** 0.5
    assert 0.99 * bound < draws[0].abs().max() <= bound
    assert (network.norm.weight == 1).all()
    assert (network.blocks[0].up.bias == 0).all()


def test_a_head_goes_on_top():
    x, dt = sequences()
    network = tauflow.SequenceModel(model(), 3).double()
    expected = network.rnn(x, dt=dt)[0] @ network.head.weight.T + network.head.bias
    torch.testing.assert_close(network(x, dt=dt)[0], expected)


def test_wrong_arguments_are_refused():
    network, (x, dt) = model(), sequences()
    with pytest.raises(ArgumentError, match=r"hidden_size=10 must be even.*heads=4. Try 12\."):
        Transformer(D, 10)
    with pytest.raises(ArgumentError, match=r"hidden_size=9 .*heads=3. Try 12\."):
        Transformer(D, 9, heads=3)
    with pytest.raises(ArgumentError, match="hx must be None"):
        network(x, network(x, dt=dt)[1], dt=dt)
    with pytest.raises(ArgumentError, match="Transformer does not model missing features"):
        network(x, dt=dt, observed=torch.ones_like(x, dtype=torch.bool))
    with pytest.raises(DtypeError, match=r"or the module with \.to\(torch\.float32\)"):
        network(x.float(), dt=dt)
