import dataclasses
import inspect
import json

import numpy as np
import pytest

from tauflow.errors import ArgumentError, SpecificationError, UnknownNameError
from tauflow.training import Recipe

KERAS = Recipe(
    optimizer="rmsprop",
    lr=0.02,
    rho=0.9,
    eps=1e-7,
    l2=1e-6,
    schedule="exponential",
    decay=0.95,
    schedule_interval="step",
    clip="per_tensor",
    clip_norm=10.0,
    epochs=50,
    batch_size=256,
)


WEIGHTED = Recipe(
    optimizer="adamax",
    class_weights=(1.0, 7.5),
    curriculum=(14, 28),
    curriculum_epochs=10,
    select_by="cross_entropy",
)


TORCHS = Recipe(
    optimizer="SGD",
    optimizer_options={"momentum": 0.9, "nesterov": True},
    schedule="MultiStepLR",
    schedule_options={"milestones": [2, 4], "gamma": np.float64(0.5)},
    warmup_steps=3,
    accumulate=2,
    ema=0.99,
    autocast="bfloat16",
    patience=4,
)


@pytest.mark.parametrize("recipe", [Recipe(), KERAS, WEIGHTED, TORCHS, Recipe(betas=(0.8, 0.99))])
def test_a_recipe_survives_json(recipe):
    assert Recipe.from_dict(json.loads(json.dumps(recipe.to_dict()))) == recipe


def test_a_recipe_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Recipe().lr = 1.0


def test_unknown_keys_are_refused_with_the_nearest_known_one():
    with pytest.raises(SpecificationError, match=r"'weight_deacy'\. Did you mean 'weight_decay'\?"):
        Recipe.from_dict({"weight_deacy": 0.1})


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"optimizer": "adm"}, UnknownNameError, "Did you mean 'adam'"),
        ({"schedule": "cosin"}, UnknownNameError, "Did you mean 'cosine'"),
        ({"optimizer": "lbfgs"}, UnknownNameError, "optimizer='lbfgs' is unknown"),
        ({"schedule": "LambdaLR"}, UnknownNameError, "schedule='LambdaLR' is unknown"),
        ({"optimizer_options": [1]}, ArgumentError, "optimizer_options must be a mapping"),
        (
            {"schedule": "plateau", "schedule_interval": "step"},
            ArgumentError,
            "looks at scores, once an epoch",
        ),
        ({"schedule": "cosine", "schedule_options": {"a": 1}}, ArgumentError, "has no schedule_op"),
        ({"warmup_steps": -1}, ArgumentError, "warmup_steps must be at least 0"),
        ({"accumulate": 0}, ArgumentError, "accumulate must be at least 1"),
        ({"ema": 1.0}, ArgumentError, "ema must be a finite number > 0 and < 1"),
        ({"autocast": "float16"}, UnknownNameError, "autocast='float16' is unknown"),
        ({"schedule_interval": "batch"}, UnknownNameError, "schedule_interval='batch'"),
        ({"clip": "value"}, UnknownNameError, "clip='value'"),
        ({"select": "first"}, UnknownNameError, "select='first'"),
        ({"lr": 0.0}, ArgumentError, "lr must be a finite number > 0, got 0.0"),
        ({"lr": float("nan")}, ArgumentError, "lr must be a finite number > 0, got nan"),
        ({"lr": float("inf")}, ArgumentError, "lr must be a finite number > 0, got inf"),
        ({"lr": "0.1"}, ArgumentError, "lr must be a finite number > 0, got '0.1'"),
        ({"l2": -1.0}, ArgumentError, "l2 must be a finite number >= 0"),
        ({"schedule": "exponential"}, ArgumentError, "contradicts decay=None"),
        ({"decay": 0.9}, ArgumentError, "schedule='constant' contradicts decay=0.9"),
        ({"schedule": "exponential", "decay": 1.5}, ArgumentError, "decay must be .* <= 1"),
        ({"min_lr": 1e-4}, ArgumentError, "min_lr is the floor of a decay"),
        (
            {"schedule": "exponential", "decay": 0.9, "min_lr": 1.0},
            ArgumentError,
            "min_lr must be a finite number >= 0 and <= 0.001",
        ),
        ({"class_weights": (1.0,)}, ArgumentError, "one number per class"),
        ({"class_weights": (1.0, 0.0)}, ArgumentError, "class_weights must be .* > 0"),
        ({"class_weight_mean": "weights"}, ArgumentError, "needs class_weights"),
        (
            {"class_weights": (1.0, 2.0), "class_weight_mean": "weight"},
            UnknownNameError,
            "Did you mean 'weights'",
        ),
        ({"on_divergence": "stopp"}, UnknownNameError, "Did you mean 'stop'"),
        ({"select": "last", "select_by": "mse"}, ArgumentError, "selects by no metric"),
        ({"clip": "norm"}, ArgumentError, "clip='norm' contradicts clip_norm=None"),
        ({"clip_norm": 1.0}, ArgumentError, "clip='none' contradicts clip_norm=1.0"),
        ({"clip": "norm", "clip_norm": 0.0}, ArgumentError, "clip_norm must be .* > 0"),
        ({"epochs": 0}, ArgumentError, "epochs must be at least 1, got 0"),
        ({"batch_size": 0}, ArgumentError, "batch_size must be at least 1, got 0"),
        ({"batch_size": 2.0}, ArgumentError, "batch_size must be an integer"),
        ({"eval_batch_size": 0}, ArgumentError, "eval_batch_size must be at least 1, got 0"),
        ({"shuffle": 1}, ArgumentError, "shuffle must be True or False, got 1"),
        ({"drop_last": None}, ArgumentError, "drop_last must be True or False"),
        ({"score_last_epoch": "no"}, ArgumentError, "score_last_epoch must be True or False"),
        (
            {"score_last_epoch": False, "epochs": 1},
            ArgumentError,
            "leaves no epoch to select with select='best' and epochs=1",
        ),
        ({"patience": 0}, ArgumentError, "patience must be at least 1, got 0"),
        ({"patience": 3, "select": "last"}, ArgumentError, "patience waits for a better score"),
        ({"score_last_epoch": False, "select": "last"}, ArgumentError, "select='last'"),
    ],
)
def test_impossible_values_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        Recipe(**options)


def test_numbers_of_numpy_are_pythons():
    recipe = Recipe(epochs=np.int64(2), lr=np.float32(0.5))
    assert json.loads(json.dumps(recipe.to_dict()))["epochs"] == 2
    assert recipe == Recipe(epochs=2, lr=0.5)


def test_what_a_recipe_takes_can_be_looked_up():
    names = [field.name for field in dataclasses.fields(Recipe)]
    assert list(inspect.signature(Recipe).parameters) == names
