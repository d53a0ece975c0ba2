"""Training whose loss rises again is called unstable; noise near the end is not."""

import warnings

import pytest
import torch

import tauflow
from tauflow.training import Recipe, train
from tauflow.training.trainer import Trainer
from tauflow.training.training_warnings import warn_loss_increase


def history(*losses):
    return [{"train_loss": loss} for loss in losses]


@pytest.mark.parametrize(
    "losses",
    [
        (0.41, 0.27, 0.26, 0.22, 0.45),
        (1.0, 0.3, 0.61),
        (0.5, 3.0),
    ],
)
def test_a_rise_is_named_with_its_epochs(losses):
    best = losses.index(min(losses)) + 1
    match = rf"from {min(losses):g} in epoch {best} to {losses[-1]:g} in epoch {len(losses)}"
    with pytest.warns(UserWarning, match=match):
        assert warn_loss_increase(history(*losses), Recipe(), stacklevel=1)


@pytest.mark.parametrize(
    ("losses", "recipe"),
    [
        ((0.5,), {}),
        ((1.0, 0.5, 0.4, 0.75), {}),  # less than double
        ((1.0, 0.001, 0.1), {}),  # a hundredfold, of almost nothing
        ((1.0, -2.0, -0.5), {}),  # a likelihood
        ((1.0, 0.1, 0.9), {"curriculum": (2,), "curriculum_epochs": 2}),
    ],
)
def test_other_rises_are_not(losses, recipe):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not warn_loss_increase(history(*losses), Recipe(**recipe), stacklevel=1)


def test_advice_is_what_the_recipe_has_not():
    rise = history(1.0, 0.1, 0.9)
    with pytest.warns(UserWarning, match=r"Lower lr, which is 0.5, or clip gradients \(clip="):
        warn_loss_increase(rise, Recipe(lr=0.5), stacklevel=1)
    with pytest.warns(UserWarning, match=r"Lower lr, which is 0.5, or look for extreme"):
        warn_loss_increase(rise, Recipe(lr=0.5, clip="norm", clip_norm=1.0), stacklevel=1)


def test_a_training_says_so_once(monkeypatch):
    losses = [1.0, 0.1, 0.9, 0.1, 0.9]
    monkeypatch.setattr(Trainer, "train_epoch", lambda self, epoch, _: losses[epoch - 1])
    data = tauflow.SequenceBatch(torch.randn(4, 3, 2), torch.zeros(4, 1))
    model = tauflow.SequenceModel(tauflow.build("gru", 2, 4, return_sequences=False), 1)
    with pytest.warns(UserWarning, match="0.9 in epoch 3: training is unstable") as caught:
        train(model, train=data, recipe=Recipe(epochs=5, select="last"))
    assert len(caught) == 1
    assert caught[0].filename == __file__
