"""Where driving networks look: saliency masks with and without noise on the images."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tauflow.data.registry import load_task
from tauflow.models import ConvolutionalSequenceModel
from tauflow_papers.theory import (
    SaliencyUnderNoise,
    plot_saliency_under_noise,
    saliency_under_noise,
)
from tauflow_papers.theory.driving import DRIVING_MODELS, driving_model

from .cfc import CFC
from .paper_figure import FigureJob, FigureResult, PaperFigure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def _figure_5(job: FigureJob) -> FigureResult:
    names = job.choose("models", full=("ncp", "cfc", "lstm"), small=("cfc",))
    steps = job.choose("training steps", full=300, small=0)
    job.settings |= {"variance of the noise": 0.35}
    with job.timed("frames"):
        drives, curvature = _make_frames(job)
    shown = drives[:1, -1]
    found: dict[str, SaliencyUnderNoise] = {}
    for name in names:
        torch.manual_seed(job.seed)
        model = driving_model(name)
        with job.timed(f"training {name}"):
            _train(model, drives, curvature, steps)
        found[name] = saliency_under_noise(model, shown, seed=job.seed)

    def draw() -> "Figure":
        titled = {DRIVING_MODELS[name].title: one for name, one in found.items()}
        return plot_saliency_under_noise(titled, shown)

    arrays: dict[str, Any] = {"images": shown.half()}
    for name, one in found.items():
        arrays[f"{name} masks"] = one.clean.masks.half()
        arrays[f"{name} masks under noise"] = one.noisy.masks.half()
    kept = {name: float(one.correlation.mean()) for name, one in found.items()}
    return FigureResult(
        draw, arrays, findings={"correlation of masks with and without noise": kept}
    )


def _make_frames(job: FigureJob) -> tuple[Tensor, Tensor]:
    """Return standardised frames, (B, T, C, H, W), and the curvature to steer by, (B, T, 1)."""
    count = job.choose("drives", full=64, small=1)
    data = load_task("lane-keeping", sizes=(count, 0, 1), steps=4, seed=job.seed)
    return data.train.x, data.train.y


def _train(model: ConvolutionalSequenceModel, x: Tensor, y: Tensor, steps: int) -> None:
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for step in range(steps):
        rows = [(4 * step + place) % len(x) for place in range(4)]
        prediction, _ = model(x[rows])
        loss = (prediction - y[rows]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()


ENTRIES = (
    PaperFigure(
        name="cfc-figure-5",
        title="Where driving networks look",
        source=f"{CFC}, Figure 5",
        caption="A frame of a road and the pixels that the convolutional head's deepest "
        "features come from (visual back-propagation), for three of the networks of the paper's "
        "Table 3, with and without noise of variance 0.35 on standardised images.",
        compute=_figure_5,
        differences=(
            "Drives, images and weights were not released: the frames are rendered, and each "
            "network was trained on 64 short drives for 300 steps.",
        ),
        minutes=2.5,
    ),
)
