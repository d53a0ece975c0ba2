"""Where driving networks look: saliency masks in summer, in winter and under noise."""

from typing import TYPE_CHECKING, Any

from torch import Tensor

from tauflow.analysis import visual_backprop
from tauflow.data.registry import load_task
from tauflow_papers.theory import plot_saliency, saliency_under_noise
from tauflow_papers.theory.driving import DRIVING_MODELS, train_driving_model

from .cfc import CFC
from .paper_figure import FigureJob, FigureResult, PaperFigure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def _figure_5(job: FigureJob) -> FigureResult:
    names = job.choose("models", full=tuple(DRIVING_MODELS), small=("cfc",))
    steps = job.choose("training steps", full=400, small=0)
    count = job.choose("drives", full=128, small=4)
    job.settings |= {"frames of a drive": 4, "variance of the noise": 0.35}
    with job.timed("frames"):
        drives = load_task("lane-keeping", sizes=(count, 0, 1), steps=4, seed=job.seed).train
        summer, winter = (_make_frame(season, job.seed + 1) for season in ("summer", "winter"))
    arrays: dict[str, Any] = {}
    masks: dict[str, tuple[Tensor, ...]] = {}
    shares: dict[str, float] = {}
    noisy = summer
    for name in names:
        with job.timed(f"training {name}"):
            model = train_driving_model(name, drives.x, drives.y, steps)
        in_summer = saliency_under_noise(model, summer, seed=job.seed)
        noisy, title = in_summer.noisy_images, DRIVING_MODELS[name].title
        seen = (in_summer.clean, visual_backprop(model, winter), in_summer.noisy)
        masks[title] = tuple(saliency.masks[0] for saliency in seen)
        shares[title] = float(in_summer.correlation[0])
        for condition, mask in zip(("summer", "winter", "noise"), masks[title], strict=True):
            arrays[f"{name} {condition}, of 255"] = (255 * mask).round().byte()
    images = {"a  summer": summer[0], "b  winter": winter[0], "c  summer, noise": noisy[0]}
    arrays |= {f"image {title}": image.half() for title, image in images.items()}

    def draw() -> "Figure":
        return plot_saliency(images, masks)

    return FigureResult(
        draw, arrays, findings={"correlation of masks with and without noise": shares}
    )


def _make_frame(season: str, seed: int) -> Tensor:
    """Return the last frame, (1, C, H, W), of a drive that is not for training."""
    data = load_task("lane-keeping", sizes=(1, 0, 1), steps=4, seasons=(season,), seed=seed)
    frame: Tensor = data.test.x[:, -1]
    return frame


ENTRIES = (
    PaperFigure(
        name="cfc-figure-5",
        title="Where driving networks look",
        source=f"{CFC}, Figure 5",
        caption="Unseen frames of roads in summer and winter, and the first with noise of variance "
        "0.35 on standardised images; below, the pixels that the deepest features of the "
        "convolutional head come from (visual back-propagation), for the seven networks of the "
        "paper's Table 3.",
        compute=_figure_5,
        differences=(
            "Drives, images and weights were not released: the frames are rendered, and each "
            "network was trained on 128 short drives for 400 steps, half of what the driving "
            "study of the claims gives it.",
            "Contradicts the paper for some networks: CfC looks at the skyline in summer and next "
            "to the road in winter, Cf-S at skyline and shadow. CNN, LSTM, NCP and CfC-noGate look "
            "at the edges of the road, and in winter at the road itself. All keep their pattern "
            "under noise, as published for CfC and NCP.",
        ),
        minutes=3.0,
    ),
)
