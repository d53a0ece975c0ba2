"""Encoders, decoders, parameter counts and draws of the latent models."""

import numpy as np
import pytest
import torch
from latent_examples import (
    array,
    call,
    dense,
    events,
    gru,
    irregular_batch,
    model,
    ode_rnn_posterior,
    recurrent_posterior,
)
from torch import nn

from tauflow.errors import DtypeError, ShapeError, TimeError
from tauflow.models import RNNVAE, LatentODE

pytest.importorskip("torchode", reason="the adaptive solvers need the extra 'ode'")

REFERENCES = {"rnn": recurrent_posterior, "ode-rnn": ode_rnn_posterior, "vae": recurrent_posterior}


@pytest.mark.parametrize("kind", REFERENCES)
def test_posterior_is_the_equations_on_the_measured_steps(kind):
    batch, network = irregular_batch(), model(kind)
    paths = network.infer(batch.x, **call(batch), samples=0)
    assert (paths.std > 0).all()
    for row in range(len(batch)):
        mean, std = REFERENCES[kind](network.encoder, events(batch, row))
        np.testing.assert_allclose(array(paths.mean[row]), mean, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(array(paths.std[row]), std, rtol=1e-10, atol=1e-12)


def test_latent_ode_paths_are_those_of_scipy():
    solve_ivp = pytest.importorskip("scipy.integrate").solve_ivp
    network = model("rnn", rtol=1e-9, atol=1e-9)
    z0 = torch.randn(3, 3, dtype=torch.float64)
    elapsed = torch.tensor([[0.0, 0.3, 0.3, 2.0], [0.5, 1.0, 4.0, 4.0], [0.0] * 4]).double()
    latent, decoded, evaluations = network.decode(z0, elapsed)
    assert evaluations > 20
    for row in range(3):
        end = float(elapsed[row, -1])
        path = solve_ivp(
            lambda _, z: dense(network.field, z),
            (0.0, max(end, 1e-9)),
            array(z0[row]),
            rtol=1e-11,
            atol=1e-11,
            t_eval=np.unique(array(elapsed[row])),
        )
        at = np.searchsorted(path.t, array(elapsed[row]))
        np.testing.assert_allclose(array(latent[row]), path.y.T[at], rtol=1e-6, atol=1e-6)
        expected = [dense(network.decoder, z) for z in array(latent[row])]
        np.testing.assert_allclose(array(decoded[row]), expected, rtol=1e-12)


def test_rnn_vae_unrolls_on_its_own_predictions():
    batch, network = irregular_batch(), model("vae")
    paths = network.infer(batch.x, **call(batch), samples=2)
    assert paths.evaluations == 0
    for sample in range(2):
        for row in range(len(batch)):
            h = array(paths.z0[sample, row])
            predicted = dense(network.decoder, h)
            begun = False
            for step in range(batch.x.shape[1]):
                if batch.mask[row, step] and begun:
                    gap = [float(batch.dt[row, step])]
                    h = gru(network.unroller, np.concatenate([predicted, [1.0, 1.0], gap]), h)
                    predicted = dense(network.decoder, h)
                begun = begun or bool(batch.mask[row, step])
                got = array(paths.reconstruction[sample, row, step])
                np.testing.assert_allclose(got, predicted, rtol=1e-9, atol=1e-12)


def test_times_count_from_the_first_valid_step():
    batch, network = irregular_batch(), model("rnn")
    elapsed = network.infer(batch.x, **call(batch), samples=0).elapsed
    for row in range(len(batch)):
        valid = batch.mask[row]
        steps = batch.dt[row][valid]
        expected = steps.cumsum(0) - steps[0]
        torch.testing.assert_close(elapsed[row][valid], expected)
    shifted = network.infer(batch.x, **{**call(batch), "dt": None, "t": elapsed + 100}, samples=0)
    torch.testing.assert_close(shifted.elapsed[batch.mask], elapsed[batch.mask])


@pytest.mark.parametrize(("classes", "linear"), [(0, False), (3, True), (1, False)])
def test_parameter_counts(classes, linear):
    D, N, R, U, G, L, el = 4, 6, 5, 7, 8, 2, 1

    def field(n, layers):
        return 2 * n * U + layers * (U * U + U) + U + n

    head = N * classes + classes
    if classes and not linear:
        head = 300 * (N + 1) + 300 * 301 + 301 * classes
    options = {"encoder_size": R, "units": U, "classes": classes, "linear_head": linear}
    generative = field(N, L) + (N + 1) * D
    recurrent = 3 * R * (2 * D + R + 3)
    ode_rnn = field(R, el) + (10 * R + 6 * D + 3) * G + 204 * R + 202 * N + 100
    vae = (R + 1) * U + 2 * N * (U + 1) + 3 * N * (2 * D + N + 3) + (N + 1) * U + (U + 1) * D
    deep = {"layers": L, **options}
    built = {
        LatentODE(D, N, encoder_layers=el, gru_units=G, **deep): generative + ode_rnn,
        LatentODE(D, N, encoder="rnn", **deep): generative + recurrent + 50 * R + 102 * N + 50,
        RNNVAE(D, N, **options): recurrent + vae,
    }
    for network, expected in built.items():
        assert sum(p.numel() for p in network.parameters()) == expected + head


@pytest.mark.parametrize("build", [LatentODE, RNNVAE])
def test_draws(build):
    """Dense weights N(0, 0.01), dense biases 0, GRU tensors uniform; one seed, one draw."""
    network = build(30, 60, encoder_size=80, units=100, classes=2)
    for module in network.modules():
        if isinstance(module, nn.Linear) and module.weight.numel() > 1000:
            assert module.weight.std().item() == pytest.approx(0.1, rel=0.1)
            assert abs(module.weight.mean().item()) < 0.01
            assert (module.bias == 0).all()
    if build is RNNVAE:
        for cell in (network.encoder.gru.cell, network.unroller):
            bound = cell.hidden_size**-0.5
            for tensor in cell.parameters():
                assert 0.9 * bound < tensor.abs().max() <= bound
    draws = []
    for _ in range(2):
        network.reset_parameters(torch.Generator().manual_seed(3))
        draws.append(torch.cat([p.detach().flatten() for p in network.parameters()]))
    assert torch.equal(*draws)


def test_paths_from_the_prior():
    network = model("rnn")
    latent, decoded = network.generate(torch.zeros(4000, 2).double())
    assert decoded.shape == (4000, 2, 2)
    assert latent[:, 0].std().item() == pytest.approx(1, abs=0.05)
    assert abs(latent[:, 0].mean().item()) < 0.05
    seeded = [
        network.generate(torch.ones(2, 1).double(), generator=torch.Generator().manual_seed(s))[0]
        for s in (1, 1, 2)
    ]
    assert torch.equal(seeded[0], seeded[1])
    assert not torch.equal(seeded[0], seeded[2])


@pytest.mark.parametrize("kind", [LatentODE, RNNVAE])
@pytest.mark.parametrize(
    ("elapsed", "error", "words"),
    [
        (torch.tensor([[3.0, 1.0]]), TimeError, "elapsed runs backwards within a row"),
        (torch.tensor([[-3.0, 1.0]]), TimeError, "elapsed is -3 in sample 0"),
        (torch.tensor([[0.0, torch.nan]]), TimeError, "elapsed is nan in sample 0"),
        (torch.tensor([[0.0, 1.0]]).double(), DtypeError, "Convert it with elapsed.to"),
        (torch.tensor([[0, 1]]), DtypeError, "elapsed has dtype torch.int64"),
        ([[0.0, 1.0]], DtypeError, "elapsed must be a torch.Tensor"),
        (torch.tensor([0.0, 1.0]), ShapeError, r"elapsed has shape \(2,\), expected \(B, T\)"),
        (torch.zeros(2, 0), ShapeError, "T >= 1"),
    ],
)
def test_paths_are_drawn_for_times_that_run_forwards(kind, elapsed, error, words):
    with pytest.raises(error, match=rf"^{kind.__name__}.generate: .*{words}"):
        kind(2, 3).generate(elapsed)
