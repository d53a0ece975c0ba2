"""Arguments of another kind than training takes are refused by name, before anything runs."""

import pytest
import torch
from tiny_training_task import Affine
from torch.utils.data import DataLoader, TensorDataset

from tauflow.batch import SequenceBatch
from tauflow.data import DatasetCard, TaskData
from tauflow.errors import ArgumentError, DtypeError
from tauflow.training import Callback, Recipe, evaluate, train

DATA = SequenceBatch(torch.ones(4, 3, 1), torch.ones(4, 3, 1))
LOADER = DataLoader(TensorDataset(DATA.x, DATA.y))
CARD = DatasetCard(
    *("ones", "Ones", "regress", 1, 1, "row", (4, 0, 4), "source", "licence", "split"), "mse", "mse"
)


def fit(**changes):
    options = {
        "model": Affine(),
        "train": DATA,
        "valid": None,
        "test": None,
        "loss": "mse",
        "metric": "mse",
        "recipe": Recipe(epochs=1, select="last"),
        "seed": 0,
    }
    return train(**{**options, **changes})


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        (
            {"train": LOADER},
            "^train must be a tauflow.SequenceBatch, got DataLoader. Put all",
        ),
        ({"train": None}, "^train must be a tauflow.SequenceBatch, got NoneType"),
        ({"valid": LOADER}, "^valid must be a tauflow.SequenceBatch, got DataLoader"),
        ({"test": (DATA.x, DATA.y)}, "^test must be a tauflow.SequenceBatch, got tuple"),
        ({"loss": torch.nn.MSELoss}, "^loss must .* got the class MSELoss. .*: MSELoss()"),
        ({"metric": 3}, "^metric must be a name .one of .*mse.*, a Score or a function .* got int"),
        ({"callbacks": ["csv"]}, "^callbacks must be objects of .*Callback, .* got 'csv'"),
        ({"callbacks": [Callback]}, "^callbacks must be objects .* got <class"),
        ({"model": lambda x: x}, "^model must be a torch.nn.Module, got function"),
    ],
)
def test_a_wrong_kind_of_argument_is_refused(changes, match):
    with pytest.raises(DtypeError, match=match) as caught:
        fit(**changes)
    assert isinstance(caught.value, TypeError)


def test_a_task_gives_its_parts_and_its_card():
    task = TaskData(CARD, DATA, DATA, DATA)
    options = {"train": task, "loss": "auto", "metric": "auto", "recipe": Recipe(epochs=1)}
    assert fit(**options).test is not None
    with pytest.raises(
        ArgumentError, match="train is a TaskData, which has validation and test splits"
    ):
        fit(**options, valid=DATA)


def test_a_device_that_is_not_here_is_refused():
    with pytest.raises(ArgumentError, match=r"^device='nowhere' cannot be used here: .* 'cpu'"):
        fit(device="nowhere")


def test_state_that_no_checkpoint_holds_is_refused():
    class Counting(torch.nn.Linear):
        def get_extra_state(self):
            return {"calls": 1}

        def set_extra_state(self, state):
            pass

    with pytest.raises(ArgumentError, match=r"_extra_state .* is a dict"):
        train(Counting(1, 1), train=DATA, recipe=Recipe(epochs=1, select="last"))


def test_a_tensor_is_no_split_to_evaluate():
    with pytest.raises(DtypeError, match=r"^evaluate: data must be a tauflow\.SequenceBatch"):
        evaluate(torch.nn.Linear(2, 1), DATA.x, metric="mse")


@pytest.mark.parametrize("size", [-1, 0, 2.5])
def test_a_batch_to_evaluate_has_a_sequence_at_least(size):
    with pytest.raises(ArgumentError, match=r"^batch_size must be"):
        evaluate(torch.nn.Linear(2, 1), DATA, metric="mse", batch_size=size)
