"""Irregular sequences with holes, and plain NumPy twins of the parts of latent models."""

from itertools import pairwise

import numpy as np
import torch
from torch import nn

from tauflow import SequenceBatch
from tauflow.models import RNNVAE, LatentODE

SIZES = {"encoder_size": 5, "units": 6}
ODE_SIZES = {**SIZES, "layers": 1, "encoder_layers": 2, "gru_units": 4}


def model(kind, features=2, latent=3, **options):
    """Build a model with weights large enough for every term to matter."""
    if kind == "vae":
        built = RNNVAE(features, latent, **{**SIZES, **options})
    else:
        sizes = ODE_SIZES if kind == "ode-rnn" else {**SIZES, "layers": 1}
        built = LatentODE(features, latent, encoder=kind, **{**sizes, **options})
    for parameter in built.parameters():
        nn.init.normal_(parameter, std=0.4)
    return built.double()


def call(batch):
    return {"dt": batch.dt, "mask": batch.mask, "observed": batch.observed}


def irregular_batch(rows=5, steps=9, features=2, *, dtype=torch.float64, seed=0):
    """Sines at random times; NaN where nothing was measured, empty steps, padding at both ends."""
    random = torch.Generator().manual_seed(seed)
    gaps = torch.rand(rows, steps, generator=random, dtype=dtype) + 0.05
    phase = torch.arange(features, dtype=dtype)
    x = torch.sin(gaps.cumsum(1).unsqueeze(-1) + phase)
    observed = torch.rand(rows, steps, features, generator=random) > 0.3
    observed[1, 4] = False  # an empty step in the middle,
    observed[2, 0] = False  # at the beginning,
    observed[3, -1] = False  # and at the end
    observed[0, :, 1] = False  # a feature never measured
    mask = torch.ones(rows, steps, dtype=torch.bool)
    mask[1, -3:] = False
    mask[4, :2] = False
    mask[2, 5] = False
    x = x.masked_fill(~(observed & mask.unsqueeze(-1)), torch.nan)
    labels = torch.randint(0, 2, (rows,), generator=random).to(dtype)
    return SequenceBatch(x=x, y=labels, dt=gaps, mask=mask, observed=observed)


def events(batch, row):
    """Return a sequence's measured steps as (time since the first valid step, x, seen)."""
    time, events_of_row = None, []
    for step in np.flatnonzero(batch.mask[row].numpy()):
        time = 0.0 if time is None else time + float(batch.dt[row, step])
        seen = batch.observed[row, step].numpy()
        if seen.any():
            events_of_row.append((time, np.where(seen, batch.x[row, step].numpy(), 0.0), seen))
    return events_of_row


def array(tensor):
    return tensor.detach().numpy()


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def dense(net, v, between=np.tanh):
    """Apply dense layers with an activation between them."""
    layers = [layer for layer in net if isinstance(layer, nn.Linear)]
    for layer in layers[:-1]:
        v = between(array(layer.weight) @ v + array(layer.bias))
    return array(layers[-1].weight) @ v + array(layers[-1].bias)


def gru(cell, x, h):
    """Take a step of a GRU with the reset gate behind the recurrent product."""
    from_x = array(cell.W_x) @ x + array(cell.b)
    from_h = array(cell.W_h) @ h + array(cell.b_h)
    (r_x, z_x, n_x), (r_h, z_h, n_h) = np.split(from_x, 3), np.split(from_h, 3)
    r, z = sigmoid(r_x + r_h), sigmoid(z_x + z_h)
    return (1 - z) * np.tanh(n_x + r * n_h) + z * h


def moments(output):
    mean, spread = np.split(output, 2)
    return mean, np.abs(spread)


def recurrent_posterior(encoder, events_of_row):
    """Read events backwards; the time step goes to the event read before."""
    h = np.zeros(encoder.gru.cell.hidden_size)
    later = events_of_row[-1][0]
    for time, x, seen in reversed(events_of_row):
        h = gru(encoder.gru.cell, np.concatenate([x, seen, [later - time]]), h)
        later = time
    return moments(dense(encoder.to_moments, h))


def ode_rnn_posterior(encoder, events_of_row):
    """Flow back on a grid of fiftieths of the whole time, and jump at events."""
    y = s = np.zeros(encoder.hidden_size)
    finest = events_of_row[-1][0] / encoder.steps

    def flow(y, start, end):
        points = max(2, int((start - end) // finest))
        grid = np.linspace(start, end, points)
        for now, then in pairwise(grid):
            y = y + (then - now) * dense(encoder.field, y)
        return y

    later = events_of_row[-1][0]
    for time, x, seen in reversed(events_of_row):
        y = flow(y, later, time)
        later = time
        c = np.concatenate([y, s, x, seen])
        u, r = sigmoid(dense(encoder.update, c)), sigmoid(dense(encoder.reset, c))
        n, m = np.split(dense(encoder.new_state, np.concatenate([y * r, s * r, x, seen])), 2)
        y, s = (1 - u) * n + u * y, np.abs((1 - u) * np.abs(m) + u * s)
    y = flow(y, later, 0.0)
    return moments(dense(encoder.to_moments, np.concatenate([y, s])))
