"""A sequence of weight 3 counts as three of its kind do."""

import pytest
import torch
from sklearn import metrics as sk
from test_scores import Echo
from tiny_training_task import tiny_model

from tauflow.batch import SequenceBatch
from tauflow.errors import ArgumentError, DataError
from tauflow.training import LOSSES, METRICS, Recipe, evaluate, train
from tauflow.training.losses import apply_class_weights

WEIGHTS = torch.tensor([1, 3, 2, 1])


def targets(kind, steps, generator):
    shape = (4, steps) if steps else (4,)
    if kind == "values":
        return torch.randn(*shape, 2, generator=generator)
    y = torch.randint(2, shape, generator=generator)
    return y.float() if kind == "binary" else y


@pytest.mark.parametrize("marks", [None, "mask", "y_mask", "entries"])
@pytest.mark.parametrize("steps", [0, 5])
@pytest.mark.parametrize(
    ("name", "kind"), [("mse", "values"), ("cross_entropy", "classes"), ("bce", "binary")]
)
def test_whole_weights_repeat_sequences(name, kind, steps, marks):
    generator = torch.Generator().manual_seed(steps)
    y = targets(kind, steps, generator)
    outputs = 1 if kind == "binary" else 2
    prediction = torch.randn(*y.shape[: 2 if steps else 1], outputs, generator=generator)
    options = {}
    if steps and marks == "entries" and kind == "values":
        options["y_mask"] = torch.rand(y.shape, generator=generator) < 0.6
    elif steps and marks in ("mask", "y_mask"):
        options[marks] = torch.rand(4, steps, generator=generator) < 0.6
    batch = SequenceBatch(torch.zeros(4, 5, 1), y, **options)
    several = torch.repeat_interleave(torch.arange(4), WEIGHTS)
    losses = [LOSSES[name]]
    if kind != "values":
        losses += [
            apply_class_weights(LOSSES[name], (1.0, 5.0), by) for by in ("weights", "entries")
        ]
    for loss in losses:
        expected = loss(prediction[several], batch[several])
        once = SequenceBatch(**batch.tensors(), weight=WEIGHTS.float())
        torch.testing.assert_close(loss(prediction, once), expected)


@pytest.mark.parametrize("marks", [None, "mask", "y_mask"])
@pytest.mark.parametrize("size", [1, 3, 512])
@pytest.mark.parametrize("name", METRICS.builtin_names)
def test_metrics_count_what_sequences_weigh(name, size, marks):
    generator = torch.Generator().manual_seed(size)
    score, steps = METRICS[name], 5
    x = torch.randn(4, steps, 1 if score.target == "binary" else 2, generator=generator)
    y = targets(score.target, steps, generator)
    y = y.unsqueeze(-1) if score.target == "binary" else y
    options = {} if marks is None else {marks: torch.rand(4, steps, generator=generator) < 0.7}
    if marks == "mask":
        options["mask"][2] = False  # a batch may hold nothing that counts
    batch = SequenceBatch(x, y, **options)
    several = torch.repeat_interleave(torch.arange(4), WEIGHTS)
    once = SequenceBatch(**batch.tensors(), weight=WEIGHTS.float())
    expected = evaluate(Echo(), batch[several], metric=name)
    assert evaluate(Echo(), once, metric=name, batch_size=size) == pytest.approx(expected)


@pytest.mark.parametrize("ties", [False, True])
def test_areas_and_f1_are_weighted_as_scikit_learn_weighs(ties):
    generator = torch.Generator().manual_seed(0)
    logit, weight = torch.randn(60, generator=generator), torch.rand(60, generator=generator)
    logit = (2 * logit).round() / 2 if ties else logit
    y = (torch.rand(60, generator=generator) < torch.sigmoid(logit)).long()
    batch = SequenceBatch(torch.zeros(60, 1, 1), y.float()[:, None], weight=weight)
    scores = [METRICS[name](logit[:, None], batch) for name in ("binary_auroc", "binary_f1")]
    assert float(scores[0]) == pytest.approx(sk.roc_auc_score(y, logit, sample_weight=weight))
    assert float(scores[1]) == pytest.approx(sk.f1_score(y, logit > 0, sample_weight=weight))


def test_a_number_of_all_that_says_nothing_of_weights_is_refused_with_them():
    x = torch.randn(4, 5, 2)
    data = SequenceBatch(x, x, weight=WEIGHTS.float())

    def furthest(prediction, y):
        return (prediction - y).abs().max()

    with pytest.raises(ArgumentError, match="of the evaluated data: sequences have weights, and"):
        evaluate(Echo(), data, metric=furthest)
    options = {"loss": "mse", "metric": furthest, "recipe": Recipe(epochs=1)}
    plain = SequenceBatch(x, x)
    with pytest.raises(ArgumentError, match="of the valid data: sequences have weights, and"):
        train(tiny_model(outputs=2), train=plain, valid=data, test=None, **options)


def fit(weight):
    x = torch.randn(4, 5, 2, generator=torch.Generator().manual_seed(0))
    data = SequenceBatch(x, (x[..., 0] > 0).long(), weight=weight)
    recipe = Recipe(epochs=3, lr=0.1, batch_size=20, select="last", shuffle=False)
    model = tiny_model(outputs=2, dropout=0.0)
    several = slice(None) if weight is not None else torch.repeat_interleave(WEIGHTS)
    options = {"loss": "cross_entropy", "metric": "accuracy", "recipe": recipe, "seed": 0}
    return train(model, train=data[several], valid=None, test=None, **options).history[-1]


def test_training_minimises_the_weighted_loss():
    last_epoch, expected = fit(WEIGHTS.float()), fit(None)
    assert last_epoch["train_loss"] == pytest.approx(expected["train_loss"], rel=1e-5)


@pytest.mark.parametrize("wrong", [0.0, -1.0, float("nan"), float("inf")])
def test_a_weight_that_counts_nothing_is_refused(wrong):
    with pytest.raises(
        DataError, match=f"weight of the train data is {wrong:g} at sequence 2, exp"
    ):
        fit(torch.tensor([1.0, 2.0, wrong, 1.0]))


def test_other_steps_keep_the_weights_of_sequences():
    data = SequenceBatch(torch.zeros(4, 5, 1), torch.zeros(4, 5), weight=WEIGHTS.float())
    for steps in (2, 7):
        assert torch.equal(data.with_steps(steps).weight, WEIGHTS.float())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("of_classes", [None, "weights", "entries"])
def test_weights_are_not_rounded_with_predictions_of_half_precision(dtype, of_classes):
    generator = torch.Generator().manual_seed(0)
    half = torch.randn(512, 3, generator=generator).to(dtype)
    y = torch.randint(3, (512,), generator=generator)
    weight = torch.tensor([1.0, 257.0, 1e5, 200.0]).repeat(128)
    loss = LOSSES["cross_entropy"]
    if of_classes:
        loss = apply_class_weights(loss, (1.0, 257.0, 1e5), of_classes)
    values, slopes = [], []
    for prediction in (half.double(), half):
        batch = SequenceBatch(torch.zeros(512, 1, 1), y, weight=weight.to(torch.float64))
        prediction.requires_grad_()
        value = loss(prediction, batch)
        value.backward()
        values.append(value.item())
        slopes.append(prediction.grad.double())
    # What is left is the rounding of the entries, each by itself.
    assert values[1] == pytest.approx(values[0], rel=torch.finfo(dtype).eps)
    scale = float(slopes[0].abs().max())
    torch.testing.assert_close(
        slopes[1], slopes[0], rtol=0.0, atol=4 * torch.finfo(dtype).eps * scale
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_metrics_of_half_precision_count_whole_weights(dtype):
    x = torch.tensor([[[0.0, 1.0]], [[1.0, 0.0]], [[0.0, 1.0]], [[1.0, 0.0]]])
    y = torch.tensor([1, 1, 1, 0])
    weight = torch.tensor([1.0, 257.0, 1e5, 1.0])
    data = SequenceBatch(x, y[:, None], weight=weight).to(dtype=dtype)
    assert torch.equal(data.weight, weight)
    right = float(weight[[0, 2, 3]].sum() / weight.sum())
    assert evaluate(Echo(), data, metric="accuracy") == pytest.approx(right, rel=1e-6)
    values = torch.arange(8, dtype=dtype).view(2, 4)
    expected = (values.double() * weight).sum(-1) / weight.double().sum()
    mean = data.mean_over_sequences(values)
    torch.testing.assert_close(mean.double(), expected, rtol=1e-6, atol=0.0)
