"""Networks that are trained together are what each is when it is trained alone."""

import logging
from dataclasses import replace

import pytest
import torch

import tauflow
from tauflow import Recipe, SequenceBatch, SequenceModel
from tauflow.errors import ArgumentError, CheckpointError
from tauflow.models import stack_training
from tauflow.models.stack_checkpoint import save_stack
from tauflow.models.stack_training import find_training_obstacle, train_stack

SEEDS = (3, 4, 5)


def data(count, seed, *, masked=True, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 6, 2, generator=generator).to(dtype)
    dt = torch.rand(count, 6, generator=generator).to(dtype) + 0.2
    lengths = torch.randint(3, 7, (count, 1), generator=generator)
    mask = torch.arange(6) < lengths if masked else None
    return SequenceBatch(x, (x.sum((1, 2)) > 0).long(), dt, mask)


def networks(rnn=tauflow.CfC, dtype=torch.float32, **options):
    made = []
    for seed in SEEDS:
        torch.manual_seed(seed)
        body = rnn(2, 6, return_sequences=False, **options)
        made.append(SequenceModel(body, 2).to(dtype))
    return made


RECIPES = {
    "Adam, best": Recipe(epochs=5, batch_size=8, lr=0.01, eps=1e-4),
    "patience": Recipe(epochs=12, batch_size=8, lr=0.05, eps=1e-4, patience=1),
    "SGD, clipped": Recipe(
        epochs=3, batch_size=7, optimizer="sgd", lr=0.1, clip="norm", clip_norm=0.2
    ),
    "decay, last": Recipe(
        epochs=3, batch_size=8, lr=0.01, eps=1e-4, schedule="exponential", decay=0.5, select="last"
    ),
}


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize(
    ("rnn", "dtype", "tolerance"),
    [
        (tauflow.CfC, torch.float32, 1e-4),
        (tauflow.CfC, torch.float64, 1e-10),
        (tauflow.LTC, torch.float32, 1e-4),
        (tauflow.GRU, torch.float64, 1e-10),
    ],
)
def test_each_trajectory_is_that_of_a_single_training(name, rnn, dtype, tolerance):
    train, valid, recipe = data(30, 0, dtype=dtype), data(20, 1, dtype=dtype), RECIPES[name]
    together, alone = networks(rnn, dtype), networks(rnn, dtype)
    assert find_training_obstacle(together, train, recipe, "cross_entropy") is None
    results = train_stack(together, seeds=SEEDS, train=train, valid=valid, recipe=recipe)
    for model, other, seed, result in zip(together, alone, SEEDS, results, strict=True):
        expected = tauflow.train(
            other, train=train, valid=valid, recipe=recipe, seed=seed, progress=False
        )
        assert [row["epoch"] for row in result.history] == [
            row["epoch"] for row in expected.history
        ]
        assert result.best_epoch == expected.best_epoch
        for row, its in zip(result.history, expected.history, strict=True):
            assert row["train_loss"] == pytest.approx(its["train_loss"], abs=tolerance)
            assert row["lr"] == its["lr"]
            assert row["step"] == its["step"]
        assert not model.training
        for key, value in other.state_dict().items():
            torch.testing.assert_close(model.state_dict()[key], value, rtol=0, atol=tolerance)


def test_networks_stop_when_their_own_patience_has_run_out():
    results = train_stack(
        networks(), seeds=SEEDS, train=data(30, 0), valid=data(20, 1), recipe=RECIPES["patience"]
    )
    assert len({len(result.history) for result in results}) > 1


@pytest.mark.parametrize(
    ("options", "recipe", "reason"),
    [
        ({"backbone_dropout": 0.5, "backbone_layers": 2}, {}, "random numbers"),
        ({}, {"ema": 0.9}, "ema"),
        ({}, {"optimizer": "adafactor"}, "elementwise"),
        ({}, {"schedule": "cosine"}, "schedule"),
    ],
)
def test_what_cannot_be_trained_together_is_trained_alone(caplog, options, recipe, reason):
    recipe = Recipe(epochs=2, batch_size=8, **recipe)
    train, valid = data(16, 0), data(8, 1)
    together, alone = networks(**options), networks(**options)
    with caplog.at_level(logging.INFO, logger="tauflow"):
        train_stack(together, seeds=SEEDS, train=train, valid=valid, recipe=recipe)
    assert reason in caplog.text
    for model, other, seed in zip(together, alone, SEEDS, strict=True):
        tauflow.train(other, train=train, valid=valid, recipe=recipe, seed=seed, progress=False)
        for key, value in other.state_dict().items():
            assert torch.equal(model.state_dict()[key], value)


def test_each_model_needs_a_seed():
    with pytest.raises(ArgumentError, match="got 1 for 3"):
        train_stack(networks(), seeds=[0], train=data(8, 0))


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("name", ["patience", "SGD, clipped", "decay, last"])
@pytest.mark.parametrize("epochs", [1, 2])
def test_a_training_that_was_interrupted_goes_on_with_the_same_numbers(
    name, epochs, tmp_path, monkeypatch
):
    train, valid, recipe = data(30, 0), data(20, 1), RECIPES[name]
    given = {"seeds": SEEDS, "train": train, "valid": valid, "recipe": recipe}
    whole, cut = networks(), networks()
    expected = train_stack(whole, **given)
    done = []

    def save(*arguments):
        save_stack(*arguments)
        done.append(None)
        if len(done) == epochs:
            raise Interrupted

    with monkeypatch.context() as patched:
        patched.setattr(stack_training, "save_stack", save)
        with pytest.raises(Interrupted):
            train_stack(cut, **given, run_dir=tmp_path / "run")
    cut = networks()
    results = train_stack(cut, **given, run_dir=tmp_path / "run", resume=True)
    for model, other, result, wanted in zip(whole, cut, results, expected, strict=True):
        assert result.best_epoch == wanted.best_epoch
        for row, its in zip(result.history, wanted.history, strict=True):
            assert {**row, "seconds": 0} == {**its, "seconds": 0}
        for key, value in model.state_dict().items():
            assert torch.equal(other.state_dict()[key], value)


def test_more_epochs_are_those_that_it_would_have_had_at_once(tmp_path):
    train, valid, recipe = data(30, 0), data(20, 1), RECIPES["Adam, best"]
    given = {"seeds": SEEDS, "train": train, "valid": valid}
    whole, cut = networks(), networks()
    train_stack(whole, **given, recipe=recipe)
    train_stack(cut, **given, recipe=replace(recipe, epochs=3), run_dir=tmp_path)
    again = networks()
    train_stack(again, **given, recipe=recipe, run_dir=tmp_path, resume=True)
    for model, other in zip(whole, again, strict=True):
        for key, value in model.state_dict().items():
            assert torch.equal(other.state_dict()[key], value)
    with pytest.raises(CheckpointError, match="holds a run already"):
        train_stack(networks(), **given, recipe=recipe, run_dir=tmp_path)
    other_recipe = replace(recipe, lr=0.02)
    with pytest.raises(CheckpointError, match=r"recipe\.lr"):
        train_stack(networks(), **given, recipe=other_recipe, run_dir=tmp_path, resume=True)
    file = tmp_path / "stack.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(CheckpointError):
        train_stack(networks(), **given, recipe=recipe, run_dir=tmp_path, resume=True)


def test_what_is_trained_alone_has_directories_of_its_own(tmp_path):
    recipe = Recipe(epochs=2, batch_size=8, ema=0.9)
    given = {"seeds": SEEDS, "train": data(16, 0), "valid": data(8, 1), "recipe": recipe}
    train_stack(networks(), **given, run_dir=tmp_path)
    results = train_stack(networks(), **given, run_dir=tmp_path, resume=True)
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["0", "1", "2"]
    assert [len(result.history) for result in results] == [2, 2, 2]
