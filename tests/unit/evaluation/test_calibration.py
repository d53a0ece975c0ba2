import numpy as np
import pytest
import torch
from scipy.special import expit, softmax
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import log_loss
from torch import nn

import tauflow
from tauflow.batch import SequenceBatch
from tauflow.errors import ArgumentError, DataError, UnknownNameError
from tauflow.evaluation import calibrate
from tauflow.models import Calibrated, Ensemble
from tauflow.models.wrappers import interpolate, list_members


class Readout(nn.Module):
    """Gives the last step of the inputs as its outputs."""

    def forward(self, x, **_):
        return x[:, -1], None


def overconfident(classes, count=600):
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 1, (count, classes))
    p = softmax(logits, axis=1)
    y = np.array([rng.choice(classes, p=row) for row in p])
    return 3 * logits, y


def as_batch(logits, y):
    x = torch.from_numpy(logits)[:, None]
    return SequenceBatch(x, torch.from_numpy(y))


def probabilities(model, logits):
    return model(torch.from_numpy(logits)[:, None])[0].softmax(-1).numpy()


@pytest.mark.parametrize("classes", [2, 3])
def test_the_temperature_is_the_best_of_a_grid(classes):
    logits, y = overconfident(classes)
    model = calibrate(Readout(), as_batch(logits, y))
    grid = np.geomspace(0.5, 10, 300)
    losses = [log_loss(y, softmax(logits / t, axis=1)) for t in grid]
    assert model.temperature == pytest.approx(grid[np.argmin(losses)], rel=0.01)
    assert model.temperature == pytest.approx(3, rel=0.2)  # what the logits were multiplied by


@pytest.mark.parametrize("classes", [2, 3])
def test_the_curves_are_those_of_scikit_learn(classes):
    logits, y = overconfident(classes)
    model = calibrate(Readout(), as_batch(logits, y), "isotonic")
    expected = np.empty_like(logits)
    p = softmax(logits, axis=1)
    for k in range(classes):
        curve = IsotonicRegression(out_of_bounds="clip", y_min=0, y_max=1).fit(p[:, k], y == k)
        expected[:, k] = curve.predict(p[:, k])
    expected /= expected.sum(1, keepdims=True)
    np.testing.assert_allclose(probabilities(model, logits), expected, atol=1e-6)


def test_a_single_logit_is_calibrated_alike():
    logits, y = overconfident(2)
    difference = logits[:, 1:] - logits[:, :1]
    pair = calibrate(Readout(), as_batch(logits, y))
    for method in ("temperature", "isotonic"):
        pair = calibrate(Readout(), as_batch(logits, y), method)
        calibrated = calibrate(
            Readout(), as_batch(difference, y.astype(float)[:, None]), method, task="binary"
        )
        probability = expit(calibrated(torch.from_numpy(difference)[:, None])[0][:, 0].numpy())
        np.testing.assert_allclose(probability, probabilities(pair, logits)[:, 1], atol=1e-5)


@pytest.mark.parametrize(
    ("task", "logits", "curves"), [("binary", 2, 2), ("classify", 3, 1), ("classify", 3, 2)]
)
def test_as_many_curves_as_are_used(task, logits, curves):
    model = Calibrated(Readout(), task, curves=[[[0.0, 1.0], [0.1, 0.9]]] * curves)
    with pytest.raises(ArgumentError, match=rf"{curves} curves? for {logits} logits of task="):
        model.correct(torch.zeros(4, logits))


def test_interpolation_is_numpys():
    x, y = torch.tensor([0.0, 0.2, 1.0]), torch.tensor([0.1, 0.4, 0.5])
    p = torch.linspace(-0.5, 1.5, 31)
    np.testing.assert_allclose(interpolate(p, x, y), np.interp(p, x, y), rtol=1e-6)


def test_what_cannot_be_calibrated_is_refused():
    logits, y = overconfident(2)
    with pytest.raises(UnknownNameError, match="temperature, isotonic"):
        calibrate(Readout(), as_batch(logits, y), "platt")
    with pytest.raises(ArgumentError, match="the targets are values"):
        calibrate(Readout(), as_batch(logits, y), task="regress")
    with pytest.raises(DataError, match="hold 1 class"):
        calibrate(Readout(), as_batch(logits, 0 * y))


def test_an_ensemble_averages_values_and_probabilities():
    torch.manual_seed(0)
    x, dt = torch.randn(4, 5, 3), torch.rand(4, 5)
    members = [
        tauflow.SequenceModel(tauflow.CfC(3, 4, return_sequences=False), 2) for _ in range(3)
    ]
    each = torch.stack([member(x, dt=dt)[0] for member in members])
    values, state = Ensemble(members)(x, dt=dt)
    torch.testing.assert_close(values, each.mean(0))
    assert state is None
    classes = Ensemble(members, "classify")(x, dt=dt)[0].softmax(-1)
    torch.testing.assert_close(classes, each.softmax(-1).mean(0))
    likely = Ensemble(members, "binary")(x, dt=dt)[0].sigmoid()
    torch.testing.assert_close(likely, each.sigmoid().mean(0))
    calibrated = Calibrated(Ensemble(members, "classify"), temperature=2.0)
    assert list_members(calibrated) == members
    with pytest.raises(ArgumentError, match="at least one member"):
        Ensemble([])
