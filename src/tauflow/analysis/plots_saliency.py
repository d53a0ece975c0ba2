"""Pictures of images and of where a convolutional head looks in them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jaxtyping import Float
from torch import Tensor

from tauflow._internal.checks import shape_error

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def plot_saliency(
    images: Float[Tensor, "N C H W"],
    masks: Float[Tensor, "N H W"],
    *,
    names: Sequence[str] | None = None,
) -> "Figure":
    """Plot images in one row, and their saliency masks over faded copies below.

    Args:
        images: grey ones (C = 1) or in colour (C = 3); other channels are averaged. Each is
            stretched to the range of its own values.
        masks: their masks, from 0 to 1.
        names: a title for each image.
    """
    from matplotlib import pyplot as plt
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    expected = (images.shape[0], *images.shape[2:])
    if images.ndim != 4 or tuple(masks.shape) != expected:
        raise shape_error(
            "plot_saliency",
            "masks",
            masks,
            f"(N, H, W) of images (N, C, H, W) {tuple(images.shape)}",
            "Flatten batch and time of both.",
        )
    count = len(images)
    width = 1.9 * max(1.0, images.shape[3] / images.shape[2])
    figure, rows = plt.subplots(
        2, count, figsize=(width * count + 0.9, 4.2), layout="constrained", squeeze=False
    )
    for column in range(count):
        plot_image(rows[0][column], images[column], None)
        plot_image(rows[1][column], images[column], masks[column])
        if names is not None:
            rows[0][column].set_title(names[column], fontsize=10)
    rows[0][0].set_ylabel("image")
    rows[1][0].set_ylabel("saliency")
    scale = ScalarMappable(Normalize(0, 1), "inferno")
    figure.colorbar(scale, ax=list(rows[1]), shrink=0.8)
    return figure


def plot_image(ax: "Axes", image: Float[Tensor, "C H W"], mask: Tensor | None) -> None:
    """Draw an image, with a mask a faded copy with the mask over it.

    Args:
        ax: where to draw.
        image: stretched to the range of its own values.
        mask: (H, W), from 0 to 1, or ``None``.
    """
    pixels = _to_display_range(image)
    if mask is not None:
        grey = pixels.mean(dim=-1) if pixels.ndim == 3 else pixels
        pixels = 1 - 0.45 * (1 - grey)
    # Without interpolation files hold the pixels themselves, and noise stays as sharp as it is.
    ax.imshow(pixels.numpy(), cmap="gray", vmin=0, vmax=1, interpolation="none")
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
