import pytest
import torch
from tiny_training_task import tiny_model
from torch.nn import functional as F

from tauflow.batch import SequenceBatch
from tauflow.errors import ArgumentError, DataError
from tauflow.training import LOSSES, Recipe, train
from tauflow.training.losses import weighted

WEIGHTS = (1.0, 4.0, 0.5)


def example():
    generator = torch.Generator().manual_seed(0)
    prediction = torch.randn(6, 5, 3, generator=generator)
    y = torch.randint(3, (6, 5), generator=generator)
    mask = torch.rand(6, 5, generator=generator) < 0.7
    return prediction, y, mask


def test_a_weighted_mean_is_that_of_torch():
    prediction, y, mask = example()
    loss = weighted(LOSSES["cross_entropy"], WEIGHTS)
    expected = F.cross_entropy(prediction[mask], y[mask], torch.tensor(WEIGHTS))
    torch.testing.assert_close(loss(prediction, SequenceBatch(prediction, y, mask=mask)), expected)


def test_a_mean_over_entries_divides_by_their_number():
    prediction, y, mask = example()
    loss = weighted(LOSSES["cross_entropy"], WEIGHTS, "entries")
    total = F.cross_entropy(prediction[mask], y[mask], torch.tensor(WEIGHTS), reduction="sum")
    found = loss(prediction, SequenceBatch(prediction, y, mask=mask))
    torch.testing.assert_close(found, total / mask.sum())


@pytest.mark.parametrize("column", [False, True])
def test_a_single_logit_has_two_classes(column):
    logit = torch.randn(7, 1, generator=torch.Generator().manual_seed(1))
    y = torch.tensor([0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0])
    loss = weighted(LOSSES["bce"], (1.0, 3.0))
    expected = F.binary_cross_entropy_with_logits(logit[:, 0], y, 1 + 2 * y) / (1 + 2 * y).mean()
    batch = SequenceBatch(torch.zeros(7, 2, 1), y[:, None] if column else y)
    torch.testing.assert_close(loss(logit, batch), expected)


def test_training_takes_them_from_the_recipe():
    x = torch.randn(8, 5, 2, generator=torch.Generator().manual_seed(2))
    data = SequenceBatch(x, (x[..., 0] > 0).long())
    losses = []
    for by in ("weights", "entries"):
        recipe = Recipe(
            epochs=1, batch_size=8, select="last", class_weights=(1.0, 9.0), class_weight_mean=by
        )
        model = tiny_model(outputs=2, dropout=0.0)
        logits = model(x)[0]
        each = F.cross_entropy(logits.flatten(0, 1), data.y.flatten(), reduction="none")
        weights = torch.where(data.y.flatten() == 1, 9.0, 1.0)
        result = train(
            model,
            train=data,
            valid=None,
            test=None,
            loss="cross_entropy",
            metric="accuracy",
            recipe=recipe,
            seed=0,
        )
        by_hand = (weights * each).sum() / (weights.sum() if by == "weights" else len(each))
        assert result.history[0]["train_loss"] == pytest.approx(by_hand.item(), rel=1e-5)
        losses.append(by_hand.item())
    assert losses[0] != losses[1]


def test_what_cannot_be_weighted_is_refused():
    with pytest.raises(ArgumentError, match="for losses of classes, and mse is none"):
        weighted(LOSSES["mse"], WEIGHTS)
    prediction, y, _ = example()
    with pytest.raises(ArgumentError, match="there are 2 class weights for 3 classes"):
        weighted(LOSSES["cross_entropy"], (1.0, 2.0))(prediction, SequenceBatch(prediction, y))


def test_a_mask_of_outputs_leaves_entries_out():
    generator = torch.Generator().manual_seed(1)
    logit, y = torch.randn(4, 5, 1, generator=generator), torch.rand(4, 5, 1, generator=generator)
    y, y_mask = (y > 0.5).float(), torch.rand(4, 5, 1, generator=generator) < 0.6
    found = weighted(LOSSES["bce"], (1.0, 3.0))(logit, SequenceBatch(logit, y, y_mask=y_mask))
    weight = 1 + 2 * y[y_mask]
    entries = F.binary_cross_entropy_with_logits(logit[y_mask], y[y_mask], reduction="none")
    torch.testing.assert_close(found, (weight * entries).sum() / weight.sum())


def test_probabilities_have_no_class_and_no_weight():
    logit = torch.randn(3, 1)
    batch = SequenceBatch(torch.zeros(3, 2, 1), torch.tensor([0.0, 1.0, 0.9]))
    with pytest.raises(DataError, match="some of these are fractions"):
        weighted(LOSSES["bce"], (1.0, 3.0))(logit, batch)
