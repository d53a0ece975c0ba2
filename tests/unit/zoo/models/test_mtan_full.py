"""mTAND-Full: its parts against their equations sample by sample, its loss entry by entry."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from latent_examples import array, call, dense, irregular_batch
from torch import nn

from tauflow.models import MTANFull

D, N, R, U, SIZE, HEADS, K = 2, 3, 4, 5, 6, 2, 4
HORIZON = 3.0


def model(**options):
    torch.manual_seed(0)
    sizes = {"encoder_size": R, "decoder_size": U, "embedding_size": SIZE, "heads": HEADS}
    network = MTANFull(D, N, reference_points=K, horizon=HORIZON, **{**sizes, **options})
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.4)
    return network.double()


def relu(z):
    return np.maximum(z, 0)


def phi(part, t):
    waves = array(part.omega) * t / HORIZON + array(part.alpha)
    return np.array([waves[0], *np.sin(waves[1:])])


def shares(part, at, times, head):
    """Return the weights of ``times`` at a time, of one head."""
    rows_of_head = slice(head * SIZE // HEADS, (head + 1) * SIZE // HEADS)
    query = (array(part.queries.weight) @ phi(part, at) + array(part.queries.bias))[rows_of_head]
    keys = [(array(part.keys.weight) @ phi(part, t))[rows_of_head] for t in times]
    weights = np.exp([query @ key / math.sqrt(SIZE / HEADS) for key in keys])
    return weights / weights.sum()


def mixed(part, values):
    return array(part.mix.weight) @ values + array(part.mix.bias)


def two_way(rnn, rows):
    """Run torch's own bidirectional GRU."""
    gru = nn.GRU(rows.shape[1], rnn.cells[0].hidden_size, bidirectional=True).double()
    with torch.no_grad():
        for cell, end in zip(rnn.cells, ("", "_reverse"), strict=True):
            getattr(gru, f"weight_ih_l0{end}").copy_(cell.W_x)
            getattr(gru, f"weight_hh_l0{end}").copy_(cell.W_h)
            getattr(gru, f"bias_ih_l0{end}").copy_(cell.b)
            getattr(gru, f"bias_hh_l0{end}").copy_(cell.b_h)
        return gru(torch.from_numpy(rows))[0].numpy()


GRID = np.linspace(0, HORIZON, K)


def posterior(encoder, times, x, seen):
    """Return mean and standard deviation of the states on the grid, (K N,) each."""
    rows = []
    for r in GRID:
        values, marks = np.zeros((HEADS, D)), np.zeros((HEADS, D))
        for head, d in np.ndindex(HEADS, D):
            seen_steps = np.flatnonzero(seen[:, d])
            if len(seen_steps):
                values[head, d] = shares(encoder, r, times[seen_steps], head) @ x[seen_steps, d]
                marks[head, d] = 1
        rows.append(mixed(encoder, np.concatenate([values, marks], axis=1).ravel()))
    read = two_way(encoder.rnn, np.stack(rows))
    moments = np.stack([dense(encoder.to_moments, row, relu) for row in read])
    return moments[:, :N].ravel(), np.exp(moments[:, N:] / 2).ravel()


def decoded(decoder, z, t):
    values = two_way(decoder.rnn, z.reshape(K, N))
    attended = np.concatenate([shares(decoder, t, GRID, head) @ values for head in range(HEADS)])
    return dense(decoder.to_data, mixed(decoder, attended), relu)


def test_posterior_and_reconstruction_follow_the_equations():
    network, batch = model(), irregular_batch()
    paths = network.infer(batch.x, **call(batch), samples=2)
    x = np.nan_to_num(array(batch.x))
    for row in range(len(batch)):
        seen = array(batch.observed[row] & batch.mask[row, :, None])
        times = array(paths.elapsed[row])
        mean, std = posterior(network.encoder, times, x[row], seen)
        np.testing.assert_allclose(array(paths.mean[row]), mean, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(array(paths.std[row]), std, rtol=1e-10)
        for step in (0, 6):
            expected = decoded(network.decoder, array(paths.z0[1, row]), times[step])
            reconstruction = array(paths.reconstruction[1, row, step])
            np.testing.assert_allclose(reconstruction, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("samples", [1, 3])
def test_the_loss_counts_measurements(samples):
    network = model(classes=3, observation_std=0.7, samples=samples, classification_weight=2.0)
    batch = replace(irregular_batch(), y=torch.tensor([0, 2, 1, 1, 0]))
    got = network.loss(batch, kl_weight=0.3)
    paths, bounds = got.paths, np.zeros((samples, len(batch)))
    for row in range(len(batch)):
        seen = array(batch.observed[row] & batch.mask[row, :, None])
        mean, std = array(paths.mean[row]), array(paths.std[row])
        kl = ((mean**2 + std**2 - 1) / 2 - np.log(std)).sum() / seen.sum()
        for k in range(samples):
            error = (array(batch.x[row]) - array(paths.reconstruction[k, row]))[seen] / 0.7
            density = -0.5 * error**2 - math.log(0.7 * math.sqrt(2 * math.pi))
            bounds[k, row] = density.mean() - 0.3 * kl
    state, _ = network.reader(paths.z0.flatten(0, 1).unflatten(-1, (K, N)))
    logits = network.head(state).log_softmax(-1).unflatten(0, (samples, -1))
    entropy = -logits[:, range(len(batch)), batch.y].mean().item()
    expected = -np.log(np.exp(bounds).sum(0)).mean() + 2 * entropy
    assert got.loss.item() == pytest.approx(expected, rel=1e-10)
    got.loss.backward()
    assert all(p.grad.abs().sum() > 0 for p in network.parameters())


def test_it_answers_once_with_a_head_and_at_every_step_without():
    batch = irregular_batch()
    assert model(classes=1)(batch.x, **call(batch))[0].shape == (len(batch), 1)
    network = model()
    y, _ = network(batch.x, **call(batch))
    assert torch.equal(y, network.infer(batch.x, **call(batch), samples=0).reconstruction[0])
    latent, drawn = network.generate(torch.rand(7, 5).double().cumsum(1))
    assert (latent.shape, drawn.shape) == ((7, 5, 2 * U), (7, 5, D))
