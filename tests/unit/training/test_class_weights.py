import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight
from tiny_training_task import tiny_model
from torch.nn import functional as F

from tauflow import GRU, SequenceModel
from tauflow.batch import SequenceBatch
from tauflow.errors import ArgumentError, DataError
from tauflow.training import LOSSES, Recipe, train
from tauflow.training.class_weights import compute_class_weights
from tauflow.training.losses import apply_class_weights

WEIGHTS = (1.0, 4.0, 0.5)


def example():
    generator = torch.Generator().manual_seed(0)
    prediction = torch.randn(6, 5, 3, generator=generator)
    y = torch.randint(3, (6, 5), generator=generator)
    mask = torch.rand(6, 5, generator=generator) < 0.7
    return prediction, y, mask


def test_a_weighted_mean_is_that_of_torch():
    prediction, y, mask = example()
    loss = apply_class_weights(LOSSES["cross_entropy"], WEIGHTS)
    expected = F.cross_entropy(prediction[mask], y[mask], torch.tensor(WEIGHTS))
    torch.testing.assert_close(loss(prediction, SequenceBatch(prediction, y, mask=mask)), expected)


def test_a_mean_over_entries_divides_by_their_number():
    prediction, y, mask = example()
    loss = apply_class_weights(LOSSES["cross_entropy"], WEIGHTS, "entries")
    total = F.cross_entropy(prediction[mask], y[mask], torch.tensor(WEIGHTS), reduction="sum")
    value = loss(prediction, SequenceBatch(prediction, y, mask=mask))
    torch.testing.assert_close(value, total / mask.sum())


@pytest.mark.parametrize("column", [False, True])
def test_a_single_logit_has_two_classes(column):
    logit = torch.randn(7, 1, generator=torch.Generator().manual_seed(1))
    y = torch.tensor([0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0])
    loss = apply_class_weights(LOSSES["bce"], (1.0, 3.0))
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
    with pytest.raises(ArgumentError, match="for losses of classes, not for mse"):
        apply_class_weights(LOSSES["mse"], WEIGHTS)
    prediction, y, _ = example()
    with pytest.raises(ArgumentError, match="there are 2 class weights for 3 classes"):
        apply_class_weights(LOSSES["cross_entropy"], (1.0, 2.0))(
            prediction, SequenceBatch(prediction, y)
        )


def test_a_mask_of_outputs_leaves_entries_out():
    generator = torch.Generator().manual_seed(1)
    logit, y = torch.randn(4, 5, 1, generator=generator), torch.rand(4, 5, 1, generator=generator)
    y, y_mask = (y > 0.5).float(), torch.rand(4, 5, 1, generator=generator) < 0.6
    value = apply_class_weights(LOSSES["bce"], (1.0, 3.0))(
        logit, SequenceBatch(logit, y, y_mask=y_mask)
    )
    weight = 1 + 2 * y[y_mask]
    entries = F.binary_cross_entropy_with_logits(logit[y_mask], y[y_mask], reduction="none")
    torch.testing.assert_close(value, (weight * entries).sum() / weight.sum())


def test_probabilities_have_no_class_and_no_weight():
    logit = torch.randn(3, 1)
    batch = SequenceBatch(torch.zeros(3, 2, 1), torch.tensor([0.0, 1.0, 0.9]))
    with pytest.raises(DataError, match="some of these are fractions"):
        apply_class_weights(LOSSES["bce"], (1.0, 3.0))(logit, batch)


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("per_step", [False, True])
def test_balanced_weights_are_those_of_scikit_learn(per_step, single):
    generator = torch.Generator().manual_seed(3)
    y = (torch.rand((40, 5) if per_step else (40,), generator=generator) < 0.2).long()
    mask = torch.rand(40, 5, generator=generator) < 0.7
    counting = y[mask] if per_step else y
    data = SequenceBatch(torch.zeros(40, 5, 1), y.float() if single else y, mask=mask)
    expected = compute_class_weight("balanced", classes=np.arange(2), y=counting.numpy())
    assert compute_class_weights(data, 2) == pytest.approx(expected)
    assert compute_class_weights(data, 4) == pytest.approx([*expected, 1.0, 1.0])


def test_balanced_weights_of_labels_count_the_known_ones():
    generator = torch.Generator().manual_seed(5)
    y = (torch.rand(40, 2, generator=generator) < 0.8).float()
    known = torch.rand(40, 1, 2, generator=generator) < 0.5
    data = SequenceBatch(torch.zeros(40, 5, 1), y.where(known[:, 0], torch.nan), y_mask=known)
    counting = y[known[:, 0]].numpy()
    expected = compute_class_weight("balanced", classes=np.arange(2), y=counting)
    assert compute_class_weights(data, 2) == pytest.approx(expected)


@pytest.mark.parametrize(("loss", "outputs"), [("cross_entropy", 2), ("bce", 1)])
def test_a_recipe_balances_classes_by_the_training_split(loss, outputs):
    generator = torch.Generator().manual_seed(4)
    x = torch.randn(30, 5, 2, generator=generator)
    y = (torch.rand(30, 5, generator=generator) < 0.2).long()
    data = SequenceBatch(x, y if outputs == 2 else y.float())

    def trained(weights):
        torch.manual_seed(0)
        recipe = Recipe(epochs=2, class_weights=weights, select="last")
        return train(
            SequenceModel(GRU(2, 3), outputs), train=data, loss=loss, recipe=recipe
        ).history

    weights = tuple(compute_class_weight("balanced", classes=np.arange(2), y=y.flatten().numpy()))
    losses, expected, plain = (
        [row["train_loss"] for row in trained(weights_of_run)]
        for weights_of_run in ("balanced", weights, None)
    )
    assert losses == pytest.approx(expected, rel=1e-5)
    assert losses != pytest.approx(plain, rel=1e-3)


def test_weights_are_a_tuple_or_balanced():
    assert Recipe.from_dict(Recipe(class_weights="balanced").to_dict()).class_weights == "balanced"
    for wrong in ("balance", (1.0,), 2.0):
        with pytest.raises(ArgumentError, match="must be 'balanced' or a tuple of one number per"):
            Recipe(class_weights=wrong)
