"""BRITS: two RITS cells, the mean of their estimates, and the loss of their consistency."""

import numpy as np
import torch

import tauflow
from tauflow import SequenceBatch
from tauflow.cells import RITSCell
from tauflow.zoo import BRITS

B, T, D, N = 3, 7, 2, 4


def example():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(B, T, D, generator=generator, dtype=torch.float64)
    x[torch.rand(B, T, D, generator=generator) < 0.4] = torch.nan
    return x, torch.rand(B, T, generator=generator, dtype=torch.float64) + 0.1


def estimates_of(cell, x, dt):
    """Return what one direction estimates of one sequence, by the steps of RITSCell."""
    rits = RITSCell(D, N).double()
    rits.load_state_dict(cell.state_dict())
    h, estimates = rits.initial_state(x[:1]), []
    for k in range(T):
        h = rits.step(x[k : k + 1], h, dt[k].view(1, 1), ~x[k : k + 1].isnan())
        estimates.append(rits.imputed(h)[0])
    return torch.stack(estimates)


def both_directions(model, x, dt):
    forwards, backwards = model.rnn.cells
    pairs = []
    for row, gaps in zip(x, dt, strict=True):
        # backwards, the time step before a sample is the one after it
        reversed_gaps = torch.cat([gaps[:1], gaps[1:].flip(0)])
        back = estimates_of(backwards, row.flip(0), reversed_gaps).flip(0)
        pairs.append(torch.stack([estimates_of(forwards, row, gaps), back]))
    return torch.stack(pairs)  # (B, 2, T, D)


def test_output_and_loss_are_those_of_the_paper():
    torch.manual_seed(0)
    model, (x, dt) = BRITS(D, N, consistency=0.3).double(), example()
    y, _ = model(x, dt=dt)
    both = both_directions(model, x, dt).detach()
    np.testing.assert_allclose(y.detach(), both.mean(1), rtol=1e-9, atol=1e-12)
    batch = SequenceBatch(x, torch.zeros(B, T, D).double(), dt)
    loss = model.training_loss(batch, lambda y, _: y.sum() * 0, epoch=0)
    measured = ~x.isnan()
    errors = sum((both[:, d] - x)[measured].abs().mean() for d in range(2))
    apart = (both[:, 0] - both[:, 1]).abs().mean()
    torch.testing.assert_close(loss.detach(), errors + 0.3 * apart)


def test_training_brings_the_directions_together():
    torch.manual_seed(0)
    t = torch.linspace(0, 6, 20).repeat(32, 1) + 6 * torch.rand(32, 1)
    waves = torch.stack([t.sin(), t.cos()], dim=-1)
    x = torch.where(torch.rand(waves.shape) < 0.3, torch.nan, waves)
    model = BRITS(2, 16)
    batch = SequenceBatch(x, waves, torch.full((32, 20), 0.3), observed=~x.isnan())
    recipe = tauflow.Recipe(epochs=20, lr=0.03, batch_size=32, select="last")
    before = (model(x, dt=batch.dt)[0] - waves)[x.isnan()].square().mean()
    tauflow.train(model, train=batch, loss="mse", recipe=recipe, progress=False)
    after = (model(x, dt=batch.dt)[0] - waves)[x.isnan()].square().mean()
    assert after < 0.5 * before
