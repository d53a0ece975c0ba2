"""Where a convolutional head looks, with and without noise on the images.

Source: Hasani et al. 2022, "Closed-form continuous-time neural networks", Fig. 5, for driving
networks under noise of variance 0.35.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tauflow._internal.checks import check_within
from tauflow.analysis import Saliency, visual_backprop

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class SaliencyUnderNoise:
    """Masks of images with and without noise.

    Args:
        clean: masks of the images.
        noisy: masks of the images with noise.
        noisy_images: these images.
        correlation: Pearson's correlation of the two, over the pixels of each image; 0 where a mask
            is the same everywhere.
    """

    clean: Saliency
    noisy: Saliency
    noisy_images: Float[Tensor, "*batch C H W"]
    correlation: Float[Tensor, "*batch"]


def saliency_under_noise(
    model: nn.Module,
    images: Float[Tensor, "*batch C H W"],
    *,
    variance: float = 0.35,
    seed: int = 0,
) -> SaliencyUnderNoise:
    """Compare masks of images with masks of the same images under Gaussian noise.

    Args:
        model: a convolutional head, or a model with one as its ``head``.
        images: the images.
        variance: of the noise on every pixel, in the unit of the images, squared.
        seed: of the noise.
    """
    deviation = math.sqrt(check_within(0.0, math.inf, variance=variance))
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(images.shape, generator=generator, dtype=torch.float64).to(images)
    clean = visual_backprop(model, images)
    noisy_images = images + deviation * noise
    noisy = visual_backprop(model, noisy_images)
    first, other = (
        saliency.masks.flatten(-2) - saliency.masks.mean(dim=(-2, -1)).unsqueeze(-1)
        for saliency in (clean, noisy)
    )
    size = (first.square().sum(dim=-1) * other.square().sum(dim=-1)).sqrt()
    product = (first * other).sum(dim=-1)
    correlation = torch.where(size > 0, product / size, torch.zeros_like(size))
    return SaliencyUnderNoise(clean, noisy, noisy_images, correlation)


def plot_saliency(
    images: Mapping[str, Float[Tensor, "C H W"]], masks: Mapping[str, Sequence[Tensor]]
) -> "Figure":
    """Plot images in a row, and below each what every network looks at.

    Source: Hasani et al. 2022, "Closed-form continuous-time neural networks", Figure 5, whose rows
    are columns here.

    Args:
        images: by their titles.
        masks: for each network by name a mask (H, W) of every image, from 0 to 1.
    """
    from matplotlib import pyplot as plt
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    rows, columns = 1 + len(masks), len(images)
    first = next(iter(images.values()))
    height = 1.6 * first.shape[-2] / first.shape[-1]
    figure, grid = plt.subplots(
        rows,
        columns,
        figsize=(1.6 * columns + 0.9, height * rows + 0.4),
        squeeze=False,
        layout="constrained",
    )
    for ax, (title, image) in zip(grid[0], images.items(), strict=True):
        _plot_image(ax, image, None)
        ax.set_title(title)
    grid[0][0].set_ylabel("image")
    for row, (name, of_network) in zip(grid[1:], masks.items(), strict=True):
        for ax, image, mask in zip(row, images.values(), of_network, strict=True):
            _plot_image(ax, image, mask)
        row[0].set_ylabel(name)
    figure.colorbar(
        ScalarMappable(Normalize(0, 1), "inferno"), ax=list(grid.flat), shrink=0.6, label="saliency"
    )
    return figure


def _plot_image(ax: "Axes", image: Float[Tensor, "C H W"], mask: Tensor | None) -> None:
    """Draw an image, with a mask a faded copy with the mask over it.

    Args:
        ax: where to draw.
        image: stretched to the range of its values.
        mask: (H, W), from 0 to 1, or ``None``.
    """
    pixels = _to_display_range(image)
    if mask is not None:
        grey = pixels.mean(dim=-1) if pixels.ndim == 3 else pixels
        # at half the resolution, which is enough behind a mask, and makes files a third as large
        grey = nn.functional.avg_pool2d(grey[None], 2, ceil_mode=True)[0]
        pixels = 1 - 0.45 * (1 - grey)
    # Without interpolation files hold the pixels themselves, and noise stays as sharp as it is.
    rows, columns = image.shape[-2:]
    extent = (-0.5, columns - 0.5, rows - 0.5, -0.5)
    ax.imshow(pixels.numpy(), cmap="gray", vmin=0, vmax=1, interpolation="none", extent=extent)
    if mask is not None:
        # Pixels that do not count are clear, so that the image shows through.
        ax.imshow(
            mask.numpy(), cmap="inferno", vmin=0, vmax=1, alpha=mask.numpy(), interpolation="none"
        )
    ax.set_xticks([])
    ax.set_yticks([])


def _to_display_range(image: Tensor) -> Tensor:
    """Return an image (H, W) or (H, W, 3) with values from 0 to 1."""
    low, high = float(image.min()), float(image.max())
    scaled = (image - low) / (high - low) if high > low else image - low
    return scaled.movedim(0, -1) if image.shape[0] == 3 else scaled.mean(dim=0)
