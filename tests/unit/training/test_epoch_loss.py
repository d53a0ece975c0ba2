"""The loss in the history of an epoch is that of all its entries together, whatever the batches."""

import pytest
import torch
from tiny_training_task import TinyModel, tiny_model
from torch import nn
from torch.nn import functional as F

from tauflow.batch import SequenceBatch
from tauflow.training import LOSSES, Recipe, Score, evaluate, train
from tauflow.training.losses import apply_class_weights

STANDING = {"optimizer": "sgd", "lr": 1e-12, "epochs": 1, "select": "last"}
CLASS_WEIGHTS = (1.0, 9.0)


def example(*, per_step, weights):
    """Return sequences whose targets, and weights, differ between the batches of two."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(7, 5, 2, generator=generator)
    mask = torch.arange(5) < torch.tensor([5, 1, 2, 5, 3, 3, 4])[:, None]
    y = (torch.arange(7) > 4).long()
    y = y[:, None].expand(7, 5).contiguous() if per_step else y
    weight = torch.tensor([1.0, 1.0, 9.0, 9.0, 2.0, 0.5, 30.0]) if weights else None
    return SequenceBatch(x, y, mask=mask, weight=weight)


def standing(data, loss, *, model=None, per_step=False, **changes):
    """Return a model that hardly moves and the loss that its epoch is said to have."""
    model = model or tiny_model(outputs=2, dropout=0.0, per_step=per_step)
    recipe = Recipe(**{**STANDING, "batch_size": 2, **changes})
    result = train(model, train=data, loss=loss, recipe=recipe, progress=False)
    return model, result.history[0]["train_loss"]


def by_hand(model, data, class_weights):
    """Return the weighted mean of the cross entropies, and the weights, of all entries."""
    logits, weight = model(data.x)[0], data.weight
    weight = torch.ones(len(data)) if weight is None else weight
    y = data.y
    if y.ndim == 2:
        logits, y = logits[data.mask], y[data.mask]
        weight = weight[:, None].expand(data.mask.shape)[data.mask]
    each = weight * torch.tensor(class_weights)[y]
    return ((F.cross_entropy(logits, y, reduction="none") * each).sum() / each.sum()).item()


@pytest.mark.parametrize("per_step", [False, True])
@pytest.mark.parametrize(("weights", "classes"), [(True, None), (False, True), (True, True)])
def test_weights_count_over_the_epoch_as_in_a_batch(per_step, weights, classes):
    data = example(per_step=per_step, weights=weights)
    weighted = CLASS_WEIGHTS if classes else None
    model, loss_of_epoch = standing(
        data, "cross_entropy", per_step=per_step, class_weights=weighted
    )
    expected = by_hand(model, data, weighted or (1.0, 1.0))
    assert loss_of_epoch == pytest.approx(expected, rel=1e-5)
    if not classes:
        assert loss_of_epoch == pytest.approx(
            evaluate(model, data, metric="cross_entropy"), rel=1e-5
        )


@pytest.mark.parametrize("per_step", [False, True])
@pytest.mark.parametrize("options", [{"weight": torch.tensor(CLASS_WEIGHTS)}, {"ignore_index": 0}])
def test_a_mean_of_pytorchs_counts_what_it_was_divided_by(options, per_step):
    data = example(per_step=per_step, weights=False)
    data.y[::2, ...] = 1  # of every batch there is something left
    loss = nn.CrossEntropyLoss(label_smoothing=0.1, **options)
    model, loss_of_epoch = standing(data, loss, per_step=per_step, shuffle=False)
    logits, y = model(data.x)[0], data.y
    entries = (logits[data.mask], y[data.mask]) if per_step else (logits, y)
    assert loss_of_epoch == pytest.approx(loss(*entries).item(), rel=1e-5)


def test_a_metric_is_divided_by_what_its_entries_count():
    """The answer of a call, of pieces of the data, and of PyTorch's weighted mean."""
    data = example(per_step=False, weights=False)
    model, _ = standing(data, "cross_entropy")
    score = apply_class_weights(LOSSES["cross_entropy"], CLASS_WEIGHTS)
    expected = F.cross_entropy(model(data.x)[0], data.y, torch.tensor(CLASS_WEIGHTS)).item()
    assert score(model(data.x)[0], data).item() == pytest.approx(expected, rel=1e-5)
    for size in (512, 3):
        value = evaluate(model, data, metric=score, batch_size=size)
        assert value == pytest.approx(expected, rel=1e-5)


def test_probabilities_of_classes_count_alike():
    data = example(per_step=False, weights=False)
    y = torch.softmax(torch.randn(7, 2, generator=torch.Generator().manual_seed(1)), -1)
    loss = nn.CrossEntropyLoss(weight=torch.tensor(CLASS_WEIGHTS))
    model, loss_of_epoch = standing(SequenceBatch(data.x, y), loss)
    assert loss_of_epoch == pytest.approx(loss(model(data.x)[0], y).item(), rel=1e-5)


def test_a_number_of_all_that_weighs_counts_the_weights():
    data = example(per_step=False, weights=True)

    def weighted_loss(prediction, y, weight):
        return (F.cross_entropy(prediction, y, reduction="none") * weight).sum() / weight.sum()

    model, loss_of_epoch = standing(
        data, Score("own", "classes", whole=weighted_loss, supports_weights=True)
    )
    assert loss_of_epoch == pytest.approx(evaluate(model, data, metric="cross_entropy"), rel=1e-5)


class Doubled(TinyModel):
    """Has a training loss: twice the error of its predictions."""

    def training_loss(self, batch, prediction_loss, *, epoch):
        return 2 * prediction_loss(self(batch.x)[0], batch)


class Unasked(TinyModel):
    """Has a training loss, which looks at inputs alone, sequence by sequence."""

    def training_loss(self, batch, prediction_loss, *, epoch):
        return batch.mean_over_sequences(self(batch.x)[0].square().mean((1, 2)))


def test_a_loss_of_the_models_own_counts_weights_too():
    data = example(per_step=True, weights=True)
    doubled, loss_of_epoch = standing(data, "cross_entropy", model=Doubled(outputs=2, dropout=0.0))
    expected = 2 * evaluate(doubled, data, metric="cross_entropy")
    assert loss_of_epoch == pytest.approx(expected, rel=1e-5)
    unasked, loss_of_epoch = standing(data, "cross_entropy", model=Unasked(outputs=2, dropout=0.0))
    each = unasked(data.x)[0].square().mean((1, 2))
    expected = (each * data.weight).sum() / data.weight.sum()
    assert loss_of_epoch == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize("class_weights", [None, CLASS_WEIGHTS])
def test_parts_of_a_step_add_up_to_the_same_number(class_weights):
    data = example(per_step=True, weights=False)
    options = {"per_step": True, "class_weights": class_weights, "shuffle": False}
    options |= {} if class_weights is None else {"class_weight_mean": "entries"}
    _, loss_of_epoch = standing(data, "cross_entropy", batch_size=4, **options)
    _, parts = standing(data, "cross_entropy", batch_size=2, accumulate=2, **options)
    assert parts == pytest.approx(loss_of_epoch, rel=1e-6)
