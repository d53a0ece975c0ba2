"""Latent ODE and RNN-VAE: their loss, what they ignore, chance, and learning."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from latent_examples import array, call, irregular_batch, model

from tauflow import SequenceBatch
from tauflow.errors import ArgumentError, DtypeError, ShapeError, UnknownNameError
from tauflow.models import RNNVAE, LatentODE, kl_coefficient
from tauflow.training.evaluation_loop import evaluate

pytest.importorskip("torchode", reason="the adaptive solvers need the extra 'ode'")

KINDS = ("ode-rnn", "rnn", "vae")


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def likelihoods(batch, reconstruction, std):
    """Return log-likelihoods and squared errors, (K, B), entry by entry."""
    samples, rows, _, features = reconstruction.shape
    density, squares = np.zeros((samples, rows)), np.zeros((samples, rows))
    for sample, row, feature in np.ndindex(samples, rows, features):
        terms, errors = [], []
        for step in np.flatnonzero((batch.mask[row] & batch.observed[row, :, feature]).numpy()):
            error = float(batch.x[row, step, feature]) - reconstruction[sample, row, step, feature]
            errors.append(error**2)
            terms.append(-(error**2) / (2 * std**2) - math.log(std) - 0.5 * math.log(2 * math.pi))
        density[sample, row] += np.mean(terms) / features if terms else 0.0
        squares[sample, row] += np.mean(errors) / features if errors else 0.0
    return density, squares


def bound_loss(bounds, bound, weight=None):
    """Return the loss of bounds, (K, B), for each sequence or of the batch's mean."""
    if bound == "batch":
        return -np.log(np.exp(np.average(bounds, axis=1, weights=weight)).sum())
    return np.average(-np.log(np.exp(bounds).sum(axis=0)), weights=weight)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bound", ["sequence", "batch"])
def test_loss_is_the_bound_computed_entry_by_entry(kind, bound):
    batch, network = irregular_batch(), model(kind, bound=bound, observation_std=0.7, samples=3)
    got = network.loss(batch, kl_weight=0.3, generator=seeded())
    density, squares = likelihoods(batch, array(got.paths.reconstruction), 0.7)
    mean, std = array(got.paths.mean), array(got.paths.std)
    kl = (np.log(1 / std) + (std**2 + mean**2) / 2 - 0.5).mean(axis=1)
    expected = bound_loss(density - 0.3 * kl, bound)
    assert got.loss.item() == pytest.approx(expected, rel=1e-10)
    assert got.log_likelihood.item() == pytest.approx(density.mean(), rel=1e-10)
    assert got.squared_error.item() == pytest.approx(squares.mean(), rel=1e-10)
    assert got.kl.item() == pytest.approx(kl.mean(), rel=1e-10)
    assert got.classification is None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bound", ["sequence", "batch"])
def test_every_term_counts_sequences_by_their_weights(kind, bound):
    weight, options = [1.0, 3.0, 0.5, 2.0, 1e-9], {"classes": 1, "classification_weight": 2.0}
    network = model(kind, bound=bound, samples=3, observation_std=0.7, **options)
    batch = replace(irregular_batch(), weight=torch.tensor(weight))
    got = network.loss(batch, kl_weight=0.3, generator=seeded())
    density, squares = likelihoods(batch, array(got.paths.reconstruction), network.observation_std)
    mean, std = array(got.paths.mean), array(got.paths.std)
    kl = (np.log(1 / std) + (std**2 + mean**2) / 2 - 0.5).mean(axis=1)
    entropy = np.log1p(np.exp((1 - 2 * array(batch.y)) * array(got.paths.logits)[..., 0]))
    entropy = np.average(entropy, axis=1, weights=weight).mean()
    expected = bound_loss(density - 0.3 * kl, bound, weight) + 2 * entropy
    assert got.loss.item() == pytest.approx(expected, rel=1e-6)
    for term, of in ((got.log_likelihood, density), (got.squared_error, squares), (got.kl, kl)):
        expected_mean = np.average(np.atleast_2d(of), axis=1, weights=weight).mean()
        assert term.item() == pytest.approx(expected_mean, rel=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("per_step", [False, True])
def test_classification_joins_the_loss_or_is_all_of_it(kind, per_step):
    batch = irregular_batch()
    if per_step:
        batch = replace(batch, y=torch.randint(0, 3, batch.mask.shape, generator=seeded()))
    options = {"classes": 3 if per_step else 1, "per_step": per_step, "linear_head": per_step}
    both, alone = (
        model(kind, objective=objective, classification_weight=7.0, **options)
        for objective in ("both", "classification")
    )
    alone.load_state_dict(both.state_dict())
    got = both.loss(batch, generator=seeded())
    paths = got.paths
    read = paths.latent if per_step else paths.z0
    if kind == "vae" and not per_step:
        read = paths.mean.unsqueeze(0)
    logits = both.head(read)
    assert torch.equal(paths.logits, logits)
    if per_step:
        chosen = logits.log_softmax(-1).gather(-1, batch.y.expand(len(logits), -1, -1)[..., None])
        expected = -chosen[:, batch.mask].mean()
    else:
        sign = 2 * batch.y[:, None] - 1
        expected = -torch.log(torch.sigmoid(sign * logits)).mean()
    torch.testing.assert_close(got.classification, expected)
    likelihood = -got.loss + 7 * got.classification
    assert alone.loss(batch, generator=seeded()).loss == got.classification
    plain = model(kind)
    plain.load_state_dict({k: v for k, v in both.state_dict().items() if "head" not in k})
    torch.testing.assert_close(-plain.loss(batch, generator=seeded()).loss, likelihood)
    got.loss.backward()
    assert all(p.grad.abs().sum() > 0 for p in both.parameters()), "a dead parameter"


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_not_measured_changes_nothing(kind):
    batch, network = irregular_batch(), model(kind, samples=2)
    other = replace(batch, x=torch.where(batch.x.isnan(), 1e3, batch.x))
    padding = torch.where(batch.mask, batch.dt, torch.nan)
    results = []
    for part in (batch, other, replace(batch, dt=padding)):
        got = network.loss(part, generator=seeded())
        grads = torch.autograd.grad(got.loss, list(network.parameters()))
        assert all(grad.isfinite().all() for grad in grads)
        results.append((got.loss, *grads))
    for again in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], again, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_without_measurements_changes_no_posterior(kind):
    """Splitting a time step by an empty step, in the middle or behind the end, is no news."""
    batch, network = irregular_batch(), model(kind)
    paths = network.infer(batch.x, **call(batch), samples=0)
    for at in (3, 9):
        share = 0.4 * batch.dt[:, at : at + 1] if at < 9 else torch.ones(5, 1).double()
        rest = [batch.dt[:, at : at + 1] - share, batch.dt[:, at + 1 :]] if at < 9 else []
        empty = torch.zeros(5, 1, 2, dtype=torch.bool)
        split = network.infer(
            torch.cat([batch.x[:, :at], torch.full((5, 1, 2), torch.nan), batch.x[:, at:]], 1),
            dt=torch.cat([batch.dt[:, :at], share, *rest], dim=1),
            mask=torch.cat([batch.mask[:, :at], batch.mask[:, at - 1 : at], batch.mask[:, at:]], 1),
            observed=torch.cat([batch.observed[:, :at], empty, batch.observed[:, at:]], dim=1),
            samples=0,
        )
        rows = batch.mask[:, at] if at < 9 else batch.mask[:, -1]  # where the step is a real one
        torch.testing.assert_close(split.mean[rows], paths.mean[rows], rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(split.std[rows], paths.std[rows], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_is_its_rows_one_by_one(kind):
    batch, network = irregular_batch(), model(kind)
    together = network.loss(batch, samples=0)
    alone = [network.loss(batch[row : row + 1], samples=0) for row in range(len(batch))]
    torch.testing.assert_close(together.loss, torch.stack([result.loss for result in alone]).mean())
    for row, result in enumerate(alone):
        torch.testing.assert_close(
            result.paths.reconstruction[:, 0], together.paths.reconstruction[:, row]
        )


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", KINDS)
def test_samples_follow_the_posterior_and_the_seed(kind):
    batch, network = irregular_batch(), model(kind)
    paths = network.infer(batch.x, **call(batch), samples=4000, generator=seeded(1))
    assert paths.z0.shape == (4000, 5, 3)
    assert paths.reconstruction.shape == (4000, 5, 9, 2)
    scaled = (paths.z0 - paths.mean) / paths.std
    assert scaled.mean(0).abs().max() < 0.08
    assert (scaled.std(0) - 1).abs().max() < 0.08
    again = network.infer(batch.x, **call(batch), samples=4000, generator=seeded(1))
    assert torch.equal(again.z0, paths.z0)
    assert not torch.equal(network.infer(batch.x, **call(batch), samples=4000).z0, paths.z0)
    mean = network.infer(batch.x, **call(batch), samples=0)
    assert torch.equal(mean.z0[0], paths.mean)
    assert network.infer(batch.x, **call(batch)).z0.shape[0] == (1 if kind == "vae" else 3)


@pytest.mark.parametrize("kind", KINDS)
def test_forward_predicts_from_the_mean_as_other_models_are_called(kind):
    batch, network = irregular_batch(), model(kind)
    paths = network.infer(batch.x, **call(batch), samples=0)
    y, h = network(batch.x, **call(batch))
    assert torch.equal(y, paths.reconstruction[0])
    assert h.shape == (5, 0)
    options = {name: value[0] for name, value in call(batch).items()}
    torch.testing.assert_close(network(batch.x[0], **options)[0], y[0])
    classifier = model(kind, classes=1)
    logits, _ = classifier(batch.x, **call(batch))
    assert logits.shape == (5, 1)
    assert 0 <= evaluate(classifier, batch, metric="binary_accuracy") <= 1


@pytest.mark.sampled(6)
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_training_on_sines_learns(kind):
    torch.manual_seed(0)
    options = {"encoder_size": 10, "units": 20, "observation_std": 0.3}
    network = RNNVAE(1, 4, **options) if kind == "vae" else LatentODE(1, 4, encoder=kind, **options)
    steps = torch.rand(16, 10, generator=seeded()) * 0.6
    times = steps.cumsum(1).unsqueeze(-1)
    x = torch.sin(2 * times + torch.linspace(0, 3, 16).view(-1, 1, 1))
    batch = SequenceBatch(x=x, y=x, dt=steps)
    optimizer = torch.optim.Adamax(network.parameters(), lr=0.02)
    losses = []
    for _ in range(25):
        got = network.loss(batch, kl_weight=0.01, generator=seeded(5))
        optimizer.zero_grad()
        got.loss.backward()
        optimizer.step()
        losses.append(got.loss.item())
    assert losses[-1] < losses[0] - 0.5
    assert (got.paths.evaluations > 0) == (kind != "vae")


def test_the_weight_of_the_divergence():
    assert [kl_coefficient(epoch) for epoch in (0, 10)] == [0.0, 0.0]
    assert kl_coefficient(11) == pytest.approx(0.01)
    assert kl_coefficient(60) == pytest.approx(1 - 0.99**50)
    assert kl_coefficient(3, wait=1, rate=0.5) == 0.75
    with pytest.raises(ArgumentError, match="epoch must be at least 0"):
        kl_coefficient(-1)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"encoder": "gru"}, UnknownNameError, "encoder='gru' is unknown"),
        ({"encoder": "rnn", "gru_units": 3}, ArgumentError, "gru_units describe the encoder 'ode"),
        ({"method": "dopri"}, UnknownNameError, "Did you mean 'dopri5'"),
        ({"per_step": True}, ArgumentError, "per_step and linear_head describe a head"),
        ({"objective": "both"}, ArgumentError, "objective='both' does not go with classes=0"),
        ({"classes": 2, "objective": "reconstruction"}, ArgumentError, "go with classes=2"),
        ({"objective": "elbo"}, UnknownNameError, "objective='elbo' is unknown"),
        ({"observation_std": 0.0}, ArgumentError, "observation_std must be greater than 0"),
        ({"samples": 0}, ArgumentError, "samples must be at least 1"),
        ({"bound": "rows"}, UnknownNameError, "bound='rows' is unknown"),
        ({"layers": -1}, ArgumentError, "layers must be at least 0"),
        ({"kl_wait": -1}, ArgumentError, "kl_wait must be at least 0"),
        ({"kl_rate": 1.5}, ArgumentError, "kl_rate must be a number from 0 to 1"),
    ],
)
def test_wrong_options_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        LatentODE(2, 3, **options)


def test_wrong_calls_are_refused():
    network, x = LatentODE(2, 3, encoder="rnn"), torch.zeros(4, 5, 2)
    with pytest.raises(ArgumentError, match="hx must be None"):
        network(x, torch.zeros(4, 3))
    with pytest.raises(DtypeError, match=r"x has dtype torch\.float64.*x\.to\(torch\.float32\)"):
        network.infer(x.double())
    with pytest.raises(ShapeError, match=r"LatentODE\.infer: x has shape"):
        network.infer(torch.zeros(4, 5, 3))
    with pytest.raises(ArgumentError, match="kl_weight must be a number of 0 or more"):
        network.loss(SequenceBatch(x=x, y=x), kl_weight=-1.0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fresh", [False, True])
def test_where_nothing_was_measured_the_posterior_is_the_prior(kind, fresh):
    batch = irregular_batch()
    blind = replace(batch, observed=batch.observed.clone())
    blind.observed[1] = False
    network = model(kind, classes=1)
    if fresh:  # all biases are zero, and so would be the spread
        network.reset_parameters()
    loss = network.loss(blind, kl_weight=0.0, generator=seeded())
    assert not loss.paths.mean[1].any()
    assert (loss.paths.std[1] == 1).all()
    others = [0, 2, 3, 4]
    torch.testing.assert_close(
        loss.paths.mean[others], network.infer(batch.x, **call(batch)).mean[others]
    )
    assert loss.loss.isfinite()
    assert loss.kl.isfinite()
    gradients = torch.autograd.grad(loss.loss, list(network.parameters()), allow_unused=True)
    assert all(g is None or g.isfinite().all() for g in gradients)
