"""Models that learn from more than the error of their predictions."""

import pytest
import torch
from test_resume import assert_same_run
from tiny_training_task import Affine, TinyModel, tiny_model, tiny_splits
from torch import nn
from torch.nn import functional as F

from tauflow import RNNVAE, LatentODE, SequenceBatch, SequenceModel
from tauflow.errors import ArgumentError, DataError
from tauflow.models import IPNet, SeFT, kl_coefficient
from tauflow.training import METRICS, Recipe, train
from tauflow.training.run_directory import RunDirectory

RECIPE = Recipe(lr=0.01, epochs=3, batch_size=4, select="last")
LATENT = {"encoder_size": 4, "units": 5, "kl_wait": 0, "kl_rate": 0.5, "observation_std": 0.5}


def with_holes(sequences=9, steps=20, *, per_step=False):
    """Return sequences with NaN where nothing was measured, and padding."""
    random = torch.Generator().manual_seed(3)
    x = torch.randn(sequences, steps, 2, generator=random)
    dt = 0.3 * torch.rand(sequences, steps, generator=random)
    observed = torch.rand(x.shape, generator=random) > 0.3
    mask = torch.ones(sequences, steps, dtype=torch.bool)
    mask[0, 4:] = False
    x[~observed] = torch.nan
    y = torch.randint(0, 2, (sequences, steps) if per_step else (sequences,), generator=random)
    return SequenceBatch(x, y.float(), dt=dt, mask=mask, observed=observed)


def fit(model, data, **changes):
    arguments = {"valid": None, "test": data[:3], "loss": "bce", "metric": "bce", "seed": 1}
    return train(model, train=data, **{**arguments, "recipe": RECIPE, **changes})


def models():
    torch.manual_seed(0)
    return {
        "latent-ode": LatentODE(2, 3, encoder="rnn", layers=0, classes=1, **LATENT),
        "rnn-vae": RNNVAE(2, 3, classes=1, per_step=True, **LATENT),
        "ip-net": SequenceModel(IPNet(2, 3, reference_points=4, horizon=4.0), 1),
        "seft": SequenceModel(SeFT(2, 3, heads=2, latent_size=4, psi_size=3, phi_size=3), 1),
    }


class Noisy(TinyModel):
    """Doubles the error of its predictions and adds noise from the global generator."""

    def training_loss(self, batch, prediction_loss, *, epoch):
        self.epochs.append(epoch)
        y, _ = self(batch.x)
        return 2 * prediction_loss(y, batch) + self.head.weight.mean() * torch.randn(())


def test_a_loss_of_its_own_takes_the_place_of_the_predictions():
    data = tiny_splits()
    ours, theirs = Noisy(dropout=0.0), tiny_model(dropout=0.0)
    ours.load_state_dict(theirs.state_dict())
    ours.epochs = []
    recipe = Recipe(lr=0.02, epochs=2, batch_size=8, shuffle=False, select="last")
    drawn, draw = [], torch.randn
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "randn", lambda size: drawn.append(draw(size)) or drawn[-1])
        result = fit(ours, data["train"], loss="mse", metric="mse", test=None, recipe=recipe)
    assert ours.epochs == [0, 0, 0, 1, 1, 1]
    noise = iter(drawn)
    optimizer = torch.optim.Adam(theirs.parameters(), lr=0.02)
    for row in result.history:
        total = 0.0
        for start in (0, 8, 16):
            batch = data["train"][start : start + 8]
            error = F.mse_loss(theirs(batch.x)[0], batch.y)
            loss = 2 * error + theirs.head.weight.mean() * next(noise)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch)
        assert row["train_loss"] == pytest.approx(total / 22, rel=1e-5)
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("name", ["latent-ode", "rnn-vae"])
def test_latent_models_minimise_their_bound_with_the_weight_of_the_epoch(name):
    if name == "latent-ode":
        pytest.importorskip("torchode", reason="the adaptive solvers need the extra 'ode'")
    data = with_holes(4, per_step=name == "rnn-vae")
    ours, theirs = models()[name], models()[name]
    theirs.load_state_dict(ours.state_dict())
    recipe = Recipe(lr=0.01, epochs=3, batch_size=4, shuffle=False, select="last")
    drawn, draw = [], torch.randn

    def record(*size, generator=None, **options):
        drawn_values = draw(*size, generator=generator, **options)
        if generator is None:  # as the model draws; checks of traces have a generator
            drawn.append(drawn_values)
        return drawn_values

    def replay(*size, generator=None, **options):
        return drawn.pop(0) if generator is None else draw(*size, generator=generator, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "randn", record)
        result = fit(ours, data, recipe=recipe, test=None)
        patch.setattr(torch, "randn", replay)
        optimizer = torch.optim.Adam(theirs.parameters(), lr=0.01)
        for epoch, row in enumerate(result.history):
            weight = kl_coefficient(epoch, wait=0, rate=0.5)
            assert weight == [0.0, 0.5, 0.75][epoch]
            loss = theirs.loss(data, kl_weight=weight).loss
            assert row["train_loss"] == pytest.approx(loss.item(), rel=1e-5)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    assert not drawn
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_ip_net_adds_its_autoencoding_loss():
    data, body = with_holes(), IPNet(2, 3, reference_points=4, dropout=0.0, autoencoding_weight=0.7)
    model, score = SequenceModel(body, 1), METRICS["bce"]
    parts = {"dt": data.dt, "mask": data.mask, "observed": data.observed}
    expected = score(model(data.x, **parts)[0], data)
    torch.manual_seed(4)
    extra = body.autoencoding_loss(data.x, **parts)
    assert extra > 0.01
    torch.manual_seed(4)
    torch.testing.assert_close(model.training_loss(data, score, epoch=0), expected + 0.7 * extra)
    body.autoencoding_weight = 0.0
    torch.testing.assert_close(model.training_loss(data, score, epoch=0), expected)


def test_a_body_with_a_loss_of_its_own_reads_embedded_tokens():
    model = SequenceModel(IPNet(2, 3, reference_points=4, dropout=0.0), 1, vocabulary=5)
    ids, y = torch.randint(0, 5, (3, 12, 1)), torch.ones(3)
    score, vectors = METRICS["bce"], model.embedding(ids)
    torch.manual_seed(4)
    expected = score(model(ids)[0], SequenceBatch(ids, y)) + model.rnn.autoencoding_loss(vectors)
    torch.manual_seed(4)
    got = model.training_loss(SequenceBatch(ids, y), score, epoch=0)
    torch.testing.assert_close(got, expected)
    got.backward()
    assert model.embedding.table.weight.grad.any()


@pytest.mark.parametrize("padding", [-1, 99])
def test_ids_in_the_padding_may_be_anything(padding):
    model = SequenceModel(IPNet(2, 3, reference_points=4, dropout=0.0), 1, vocabulary=5)
    ids, mask = torch.randint(0, 5, (3, 12, 1)), torch.arange(12) < torch.tensor([[12], [7], [3]])
    losses = []
    for filled in (0, padding):
        batch = SequenceBatch(ids.where(mask[..., None], filled), torch.ones(3), mask=mask)
        torch.manual_seed(4)
        losses.append(model.training_loss(batch, METRICS["bce"], epoch=0).item())
    assert losses[0] == losses[1]


class Killed(BaseException):
    pass


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", models())
@pytest.mark.parametrize("epochs", [1, 2])
def test_a_stopped_run_goes_on_bit_for_bit(tmp_path, monkeypatch, name, epochs):
    if name == "latent-ode":
        pytest.importorskip("torchode", reason="the adaptive solvers need the extra 'ode'")
    data = with_holes(per_step=name == "rnn-vae")
    splits = {"valid": data[:4], "recipe": Recipe(lr=0.1, epochs=3, batch_size=4)}
    peace = models()[name]
    expected = fit(peace, data, run_dir=tmp_path / "peace", **splits)
    assert len({row["train_loss"] for row in expected.history}) == 3
    save, left = RunDirectory.save, iter(range(epochs - 1, -1, -1))

    def die(self, checkpoint):
        save(self, checkpoint)
        if next(left) == 0:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(RunDirectory, "save", die)
        with pytest.raises(Killed):
            fit(models()[name], data, run_dir=tmp_path / "killed", **splits)
    again = models()[name]
    with torch.no_grad():
        for parameter in again.parameters():
            parameter.zero_()  # whatever it starts from, the checkpoint counts
    fit(again, data, run_dir=tmp_path / "killed", resume=True, **splits)
    assert_same_run(tmp_path / "peace", tmp_path / "killed")
    for a, b in zip(peace.parameters(), again.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize(("returned", "got"), [(torch.ones(2), r"shape \(2,\)"), (1.0, "float")])
def test_a_loss_that_is_no_scalar_is_refused(returned, got):
    class Odd(Affine):
        def training_loss(self, batch, prediction_loss, *, epoch):
            return returned

    data = tiny_splits()["train"]
    with pytest.raises(ArgumentError, match=rf"Odd\.training_loss returned {got}, expected a sca"):
        fit(Odd(), data, loss="mse", metric="mse", test=None)


def test_a_part_of_that_name_is_no_loss():
    model, data = Affine(), tiny_splits()["train"]
    model.training_loss = nn.MSELoss()
    x = SequenceBatch(data.x[..., :1], data.y)
    result = fit(model, x, loss="mse", metric="mse", test=None)
    plain = fit(Affine(), x, loss="mse", metric="mse", test=None)
    assert result.history[-1]["train_loss"] == plain.history[-1]["train_loss"]


def test_nan_may_stand_where_nothing_was_measured_and_nowhere_else():
    data = with_holes()
    assert data.x.isnan().any()
    x = data.x.clone()
    row, step, feature = (data.observed & data.mask.unsqueeze(-1)).nonzero()[-1].tolist()
    x[row, step, feature] = torch.nan
    parts = {"dt": data.dt, "mask": data.mask}
    spoilt = SequenceBatch(x, data.y, observed=data.observed, **parts)
    message = f"x of the train data is not finite at sequence {row}, step {step}.*observed=False"
    with pytest.raises(DataError, match=message):
        fit(models()["seft"], spoilt)
    with pytest.raises(DataError, match="x of the train data is not finite at sequence 0"):
        fit(models()["seft"], SequenceBatch(data.x, data.y, **parts))
    x[row, step, feature], mask = torch.inf, data.mask.clone()
    mask[row, step] = False
    hidden = SequenceBatch(x, data.y, dt=data.dt, mask=mask, observed=data.observed)
    assert fit(models()["seft"], hidden, test=None).epochs == 3
