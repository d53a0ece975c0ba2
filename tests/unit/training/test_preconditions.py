"""Arguments of another kind than training takes are refused by name, before anything runs."""

import pytest
import torch
from tiny_training_task import Affine
from torch.utils.data import DataLoader, TensorDataset

from tauflow.batch import SequenceBatch
from tauflow.data import DatasetCard, TaskData
from tauflow.errors import DtypeError
from tauflow.training import Recipe, train

DATA = SequenceBatch(torch.ones(4, 3, 1), torch.ones(4, 3, 1))
LOADER = DataLoader(TensorDataset(DATA.x, DATA.y))
CARD = DatasetCard(
    *("ones", "Ones", "regress", 1, 1, "row", (4, 0, 4), "source", "licence", "split"), "mse", "mse"
)


def fit(**changes):
    given = {
        "model": Affine(),
        "train": DATA,
        "valid": None,
        "test": None,
        "loss": "mse",
        "metric": "mse",
        "recipe": Recipe(epochs=1, select="last"),
        "seed": 0,
    }
    return train(**{**given, **changes})


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"train": LOADER}, "^train must be a SequenceBatch, got DataLoader. Put all its sequen"),
        ({"train": None}, "^train must be a SequenceBatch, got NoneType"),
        ({"valid": LOADER}, "^valid must be a SequenceBatch, got DataLoader"),
        ({"test": (DATA.x, DATA.y)}, "^test must be a SequenceBatch, got tuple"),
        ({"train": TaskData(CARD, DATA, None, DATA)}, "got TaskData. Pass train=data.train"),
        (
            {"loss": torch.nn.functional.mse_loss},
            r"^loss must be a name, one of .*mse.*, got function\. Give yours a name with "
            r"tauflow\.training\.LOSSES\.add\(name, Score\(\.\.\.\)\)",
        ),
        ({"metric": torch.nn.MSELoss()}, "^metric must be a name, .* got MSELoss.*METRICS.add"),
        ({"model": lambda x: x}, "^model must be a torch.nn.Module, got function"),
    ],
)
def test_a_wrong_kind_of_argument_is_refused(changes, match):
    with pytest.raises(DtypeError, match=match) as caught:
        fit(**changes)
    assert isinstance(caught.value, TypeError)
