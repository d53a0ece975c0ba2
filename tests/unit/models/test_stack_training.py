"""Networks that are trained together are what each is when it is trained alone."""

import logging
from dataclasses import replace

import pytest
import torch

import tauflow
from tauflow import Recipe, SequenceBatch, SequenceModel
from tauflow.errors import ArgumentError, CheckpointError, NonFiniteError
from tauflow.models.stack_training import find_training_obstacle, train_stack, train_together
from tauflow.training import TrainingResult
from tauflow.training.checkpoint import read_checkpoint
from tauflow.training.loop import prepare_training
from tauflow.training.run_directory import RunDirectory

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
        epochs=3,
        batch_size=7,
        optimizer="sgd",
        lr=0.1,
        clip="norm",
        clip_norm=0.2,
        ema=0.9,
        schedule="cosine",
    ),
    "own steps": Recipe(
        epochs=3,
        batch_size=8,
        optimizer="adafactor",
        clip="per_tensor",
        clip_norm=0.2,
        ema=0.9,
        schedule="cosine",
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
def test_each_trajectory_is_that_of_a_single_training(name, rnn, dtype, tolerance, caplog):
    train, valid, recipe = data(30, 0, dtype=dtype), data(20, 1, dtype=dtype), RECIPES[name]
    together, alone = networks(rnn, dtype), networks(rnn, dtype)
    with caplog.at_level(logging.INFO, logger="tauflow"):
        results = train_stack(together, seeds=SEEDS, train=train, valid=valid, recipe=recipe)
    assert "training 3 networks side by side" in caplog.text
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
        ({}, {"accumulate": 2}, "accumulate"),
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


@pytest.mark.parametrize("name", ["patience", "SGD, clipped", "own steps"])
@pytest.mark.parametrize("epochs", [1, 2])
def test_a_training_that_was_interrupted_goes_on_with_the_same_numbers(
    name, epochs, tmp_path, monkeypatch
):
    train, valid, recipe = data(30, 0), data(20, 1), RECIPES[name]
    given = {"seeds": SEEDS, "train": train, "valid": valid, "recipe": recipe}
    whole, cut = networks(), networks()
    expected = train_stack(whole, **given)
    saved, save = [], RunDirectory.save

    def interrupt(directory, checkpoint):
        save(directory, checkpoint)
        saved.append(directory.path.name)
        if len(saved) == epochs * len(SEEDS):
            raise Interrupted

    with monkeypatch.context() as patched:
        patched.setattr(RunDirectory, "save", interrupt)
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


def test_files_are_those_of_single_trainings(tmp_path):
    given = {"train": data(30, 0), "valid": data(20, 1), "recipe": RECIPES["patience"]}
    train_stack(networks(), seeds=SEEDS, **given, run_dir=tmp_path / "stack")
    for number, (model, seed) in enumerate(zip(networks(), SEEDS, strict=True)):
        alone, stacked = tmp_path / f"alone{number}", tmp_path / "stack" / str(number)
        tauflow.train(model, seed=seed, **given, run_dir=alone, progress=False)
        names = [sorted(file.name for file in folder.iterdir()) for folder in (alone, stacked)]
        assert names[0] == names[1]
        assert (alone / "run.json").read_text() == (stacked / "run.json").read_text()
        one, its = (read_checkpoint(folder / "last.safetensors") for folder in (alone, stacked))
        assert [row.keys() for row in one.history] == [row.keys() for row in its.history]
        assert (one.epoch, one.step, one.best_epoch) == (its.epoch, its.step, its.best_epoch)
        for group in ("model", "rng"):
            for key, value in getattr(one, group).items():
                torch.testing.assert_close(getattr(its, group)[key], value, rtol=0, atol=1e-4)
        assert one.optimizer.keys() == its.optimizer.keys()
        for place, state in one.optimizer.items():
            for key, value in state.items():
                torch.testing.assert_close(its.optimizer[place][key], value, rtol=0, atol=1e-4)


def test_what_began_alone_goes_on_alone_with_the_same_bits(tmp_path):
    given = {"train": data(30, 0), "valid": data(20, 1)}
    recipe = replace(RECIPES["Adam, best"], epochs=4)
    short = replace(recipe, epochs=2)
    for number, (model, seed) in enumerate(zip(networks(), SEEDS, strict=True)):
        run_dir = tmp_path / str(number)
        tauflow.train(model, seed=seed, **given, recipe=short, run_dir=run_dir, progress=False)
    resumed, whole = networks(), networks()
    train_stack(resumed, seeds=SEEDS, **given, recipe=recipe, run_dir=tmp_path, resume=True)
    for model, other, seed in zip(resumed, whole, SEEDS, strict=True):
        tauflow.train(other, seed=seed, **given, recipe=recipe, progress=False)
        for key, value in other.state_dict().items():
            assert torch.equal(model.state_dict()[key], value)


def test_each_network_may_have_a_recipe_of_its_own(caplog):
    recipes = [
        replace(RECIPES["patience"], lr=0.01, weight_decay=0.1),
        replace(RECIPES["patience"], lr=0.05, epochs=3),
        replace(RECIPES["patience"], lr=0.002, schedule="plateau", optimizer="rmsprop"),
    ]
    train, valid = data(30, 0, dtype=torch.float64), data(20, 1, dtype=torch.float64)
    together, alone = networks(dtype=torch.float64), networks(dtype=torch.float64)
    with caplog.at_level(logging.INFO, logger="tauflow"):
        results = train_stack(together, seeds=SEEDS, train=train, valid=valid, recipe=recipes)
    assert "training 3 networks side by side" in caplog.text
    for model, other, seed, recipe, result in zip(
        together, alone, SEEDS, recipes, results, strict=True
    ):
        expected = tauflow.train(
            other, train=train, valid=valid, recipe=recipe, seed=seed, progress=False
        )
        assert (result.epochs, result.best_epoch) == (expected.epochs, expected.best_epoch)
        assert result.valid == pytest.approx(expected.valid, abs=1e-10)
        for key, value in other.state_dict().items():
            torch.testing.assert_close(model.state_dict()[key], value, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("lr", "failure"), [(1e20, NonFiniteError), (1e40, RuntimeError)], ids=["diverges", "overflows"]
)
def test_a_network_that_fails_does_as_it_would_alone_and_leaves_the_others_alone(lr, failure):
    recipe = Recipe(epochs=3, batch_size=8, optimizer="sgd", lr=0.01, clip="none")
    recipes = [recipe, replace(recipe, lr=lr), recipe]
    given = {
        name: replace(part, y=part.x.sum(1))
        for name, part in {"train": data(30, 0), "valid": data(20, 1)}.items()
    }
    how = {"loss": "mse", "metric": "mse"}

    def prepare(models):
        return [
            prepare_training(model, **given, **how, test=None, recipe=own, seed=seed)
            for model, seed, own in zip(models, SEEDS, recipes, strict=True)
        ]

    together, alone = networks(), networks()
    found = train_together(prepare(together))
    assert [isinstance(one, TrainingResult) for one in found] == [True, False, True]
    with pytest.raises(failure) as error:
        tauflow.train(alone[1], **given, **how, recipe=recipes[1], seed=SEEDS[1], progress=False)
    assert str(found[1]) == str(error.value)
    for number in (0, 2):
        model, other = together[number], alone[number]
        tauflow.train(other, **given, **how, recipe=recipe, seed=SEEDS[number], progress=False)
        for key, value in other.state_dict().items():
            torch.testing.assert_close(model.state_dict()[key], value, rtol=0, atol=1e-4)


def test_a_directory_that_holds_another_training_is_refused(tmp_path):
    given = {"seeds": SEEDS, "train": data(30, 0), "valid": data(20, 1)}
    recipe = replace(RECIPES["Adam, best"], epochs=2)
    train_stack(networks(), **given, recipe=recipe, run_dir=tmp_path)
    with pytest.raises(CheckpointError, match="holds a run already"):
        train_stack(networks(), **given, recipe=recipe, run_dir=tmp_path)
    other = replace(recipe, lr=0.02)
    with pytest.raises(CheckpointError, match=r"recipe\.lr"):
        train_stack(networks(), **given, recipe=other, run_dir=tmp_path, resume=True)


def test_networks_on_data_of_their_own_are_trained_side_by_side(caplog):
    recipe = replace(RECIPES["Adam, best"], epochs=3)
    parts = [data(30, seed, dtype=torch.float64) for seed in range(3)]
    parts[1] = parts[1].with_steps(9)

    def prepare(models):
        return [
            prepare_training(
                model, part, part, loss="cross_entropy", metric="accuracy", recipe=recipe, seed=seed
            )
            for model, part, seed in zip(models, parts, SEEDS, strict=True)
        ]

    together, alone = networks(dtype=torch.float64), networks(dtype=torch.float64)
    with caplog.at_level(logging.INFO, logger="tauflow"):
        train_together(prepare(together))
    assert "training 3 networks side by side" in caplog.text
    for model, other, part, seed in zip(together, alone, parts, SEEDS, strict=True):
        tauflow.train(other, train=part, valid=part, recipe=recipe, seed=seed, progress=False)
        for key, value in other.state_dict().items():
            torch.testing.assert_close(model.state_dict()[key], value, rtol=0, atol=1e-10)
    parts[2] = data(29, 2, dtype=torch.float64)
    assert find_training_obstacle(prepare(alone)) is not None
