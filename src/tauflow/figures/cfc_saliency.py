"""Where driving networks look: saliency masks with and without noise on the images."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tauflow.analysis import SaliencyUnderNoise, draw_saliency_under_noise, saliency_under_noise
from tauflow.data.catalog import DATASETS, load_task
from tauflow.models import DRIVING_MODELS, ConvolutionalSequenceModel, driving_model
from tauflow.models.driving import DRIVING_IMAGE

from .cfc import CFC
from .entry import Job, PaperFigure, Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DRIVES = "lane-keeping"


def _figure_5(job: Job) -> Result:
    names = job.choose("models", full=("ncp", "cfc", "lstm"), small=("cfc",))
    steps = job.choose("training steps", full=60, small=0)
    job.settings |= {"variance of the noise": 0.35}
    with job.timed("frames"):
        drives, curvature = _frames(job)
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
        return draw_saliency_under_noise(titled, shown)

    arrays: dict[str, Any] = {"images": shown.half()}
    for name, one in found.items():
        arrays[f"{name} masks"] = one.clean.masks.half()
        arrays[f"{name} masks under noise"] = one.noisy.masks.half()
    kept = {name: float(one.correlation.mean()) for name, one in found.items()}
    return Result(draw, arrays, findings={"correlation of masks with and without noise": kept})


def _frames(job: Job) -> tuple[Tensor, Tensor]:
    """Return standardised frames, (B, T, C, H, W), and the curvature to steer by, (B, T, 1)."""
    count = job.choose("drives", full=16, small=1)
    if _DRIVES in DATASETS:
        job.settings |= {"frames are": f"rendered drives of the data set {_DRIVES!r}"}
        data = load_task(_DRIVES, sizes=(count, 0, 1), steps=4, seed=job.seed)
        x, y = data.train.x, data.train.y
    else:
        job.settings |= {"frames are": "drawn shapes of a road"}
        x, y = _drawn_road(count, 4, torch.Generator().manual_seed(job.seed))
    return (x - x.mean()) / x.std(), y


def _drawn_road(count: int, steps: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw two white lines on grey ground that bend with the curvature, below a sky."""
    _, height, width = DRIVING_IMAGE
    bend = 2 * torch.rand(count, 1, generator=generator) - 1
    bend = (bend + 0.1 * torch.randn(count, steps, generator=generator)).clamp(-1, 1)
    horizon = height // 3
    near = torch.linspace(0, 1, height - horizon)  # 0 at the horizon, 1 at the car
    middle = width / 2 + 45 * bend[..., None] * (1 - near).square()  # (B, T, rows)
    column = torch.arange(width, dtype=torch.float32)
    lines = torch.zeros(count, steps, height - horizon, width)
    for side in (-1, 1):
        away = column - (middle + side * 48 * near)[..., None]
        lines += torch.exp(-(away / (0.8 + 2.5 * near[:, None])).square())
    images = torch.empty(count, steps, 3, height, width)
    images[..., :horizon, :] = torch.tensor([0.55, 0.7, 0.9]).view(3, 1, 1)
    images[..., horizon:, :] = 0.35 + 0.6 * lines.clamp_max(1)[:, :, None]
    images += 0.02 * torch.randn(images.shape, generator=generator)
    return images.clamp(0, 1), bend.unsqueeze(-1)


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
        "features come from (visual back-propagation), for the networks of the paper's Table 3, "
        "with and without noise of variance 0.35 on standardised images.",
        compute=_figure_5,
        differs=(
            "Drives, images and weights were not released: the frames are generated, and each "
            "network was trained on 16 short drives for 60 steps.",
        ),
        minutes=1.5,
    ),
)
