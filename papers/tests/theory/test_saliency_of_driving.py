"""A small network learns to keep the lane, and where it looks stays the same under noise."""

from dataclasses import replace

import pytest
import torch

import tauflow
from tauflow.data.registry import load_task
from tauflow.models import ConvolutionalSequenceModel
from tauflow.training.evaluation_loop import predict
from tauflow.training.loop import train
from tauflow.training.recipe import Recipe
from tauflow_papers.theory import saliency_under_noise

LAYERS = ((8, 5, 2), (12, 3, 2), (16, 3, 2))
RECIPE = Recipe(lr=3e-3, epochs=12, batch_size=8, clip="norm", clip_norm=1.0, select="last")


@pytest.fixture(scope="module")
def data():
    return load_task("lane-keeping", sizes=(96, 0, 24), steps=6, image_size=(36, 64))


@pytest.fixture(scope="module")
def trained(data):
    torch.manual_seed(0)
    model = ConvolutionalSequenceModel(
        tauflow.CfC(16, 8, backbone_units=16),
        data.card.image_size,
        output_size=1,
        layers=LAYERS,
        dense=(16,),
    )
    parts = {"train": data.train, "valid": None, "test": data.test}
    train(model, **parts, loss="mse", metric="mse", recipe=RECIPE, seed=0, progress=False)
    return model.eval()


@torch.no_grad()
def error(model, batch):
    return float((predict(model, batch) - batch.y).square().mean())


@pytest.mark.thorough
def test_a_short_training_beats_the_mean_on_new_drives(trained, data):
    trivial = float((data.train.y.mean() - data.test.y).square().mean())
    assert error(trained, data.test) < trivial / 4


@pytest.mark.thorough
def test_it_steers_by_what_it_sees_now(trained, data):
    """Drives whose images are exchanged are not steered well."""
    exchanged = replace(data.test, x=data.test.x.roll(1, dims=0))
    assert error(trained, exchanged) > 4 * error(trained, data.test)


def test_a_frame_under_noise_is_known_by_its_mask(trained, data):
    """After Fig. 5 of Hasani et al. 2022: attention stays under noise of variance 0.35."""
    saliency = saliency_under_noise(trained, data.test.x[:, 3], variance=0.35)
    assert saliency.correlation.mean() > 0.85
    clean, noisy = (part.masks.flatten(1) for part in (saliency.clean, saliency.noisy))
    count = len(clean)
    between = torch.corrcoef(torch.cat([clean, noisy]))[:count, count:]
    known = between.argmax(dim=0) == torch.arange(count)
    assert known.float().mean() > 0.75
    others = between.sum() - between.diagonal().sum()
    assert others / (count**2 - count) < saliency.correlation.mean() - 0.1
