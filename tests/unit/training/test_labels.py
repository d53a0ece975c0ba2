"""Losses without a name are told apart by their settings, and not by where they lie in memory."""

import copy
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tauflow.training.callable_text import describe_callable


class Holding(nn.Module):
    """Holds anything, under its own name or under a private one."""

    def __init__(self, value, name="value"):
        super().__init__()
        setattr(self, name, value)


@dataclass
class Power:
    exponent: float

    def __call__(self, prediction, y):
        return (prediction - y).abs().pow(self.exponent).mean()


class Plain:
    pass


def smoothed(amount):
    return nn.CrossEntropyLoss(label_smoothing=amount)


def buffered(value):
    module = nn.Module()
    module.register_buffer("scale", torch.tensor(value), persistent=False)
    return module


@pytest.mark.parametrize(
    "make",
    [
        smoothed,
        lambda value: Holding(smoothed(value)),
        lambda value: Holding([smoothed(value), smoothed(0.5)]),
        lambda value: Holding(value, "_private"),
        lambda value: Holding({"a": (value, None)}),
        lambda value: Holding(torch.cat([torch.zeros(2000), torch.tensor([value])])),
        lambda value: Holding(np.full(2000, value)),
        lambda value: Holding(partial(F.cross_entropy, label_smoothing=value)),
        lambda value: Holding(F.l1_loss if value else F.mse_loss),
        lambda value: partial(F.cross_entropy, label_smoothing=value),
        lambda value: partial(Power(value)),
        lambda value: partial(F.cross_entropy, weight=torch.tensor([1.0, value])),
        buffered,
        Power,
    ],
)
def test_another_setting_is_another_loss(make):
    assert (
        describe_callable(make(0.25))
        == describe_callable(copy.deepcopy(make(0.25)))
        != describe_callable(make(0.0))
    )


@pytest.mark.parametrize("value", [F.l1_loss, lambda a: a, Plain(), [Plain()], {"a", "b"}])
def test_no_loss_is_called_by_an_address(value):
    for given in (Holding(value), partial(F.mse_loss, value)):
        assert "0x" not in describe_callable(given)
    assert "Plain object" not in describe_callable(Holding(value))


def test_what_is_trained_is_no_setting():
    def penalised(model):
        return partial(F.mse_loss, model, weights=list(model.parameters()))

    assert describe_callable(penalised(nn.Linear(2, 3))) == describe_callable(
        penalised(nn.Linear(2, 3))
    )
    assert describe_callable(penalised(nn.Linear(2, 3))) != describe_callable(
        penalised(nn.Linear(2, 4))
    )


def test_a_module_may_hold_what_holds_it():
    module = Holding(None)
    module.value = [module]
    assert describe_callable(module) == "Holding(value=[Holding])"


def test_what_had_a_label_keeps_it():
    said = "CrossEntropyLoss(ignore_index=-100, label_smoothing=0.1, reduction='mean')"
    assert describe_callable(smoothed(0.1)) == said
    assert describe_callable(smoothed) == f"{__name__}.smoothed"
    assert describe_callable(F.l1_loss) == "torch.nn.functional.l1_loss"
    module = Holding((1, [2.0, "a"], {"b": None}, torch.float32, ()))
    assert (
        describe_callable(module)
        == "Holding(value=(1, [2.0, 'a'], {'b': None}, torch.float32, ()))"
    )
