r"""Saliency of images for a convolutional head: visual back-propagation.

With the feature maps of layer l averaged over its channels, :math:`a_l` (:math:`a_0` stands for 1
everywhere in the image), and :math:`U_l` a transposed convolution of layer l's kernel size and
stride with all weights 1, the mask of the deepest layer is multiplied downwards,

.. math::
    m_L = a_L, \qquad m_{l-1} = a_{l-1} \odot U_l\, m_l

until it has the size of the image. A pixel counts if a path of active features leads from it to the
deepest layer.

Source: Bojarski et al. 2016, "VisualBackProp: efficient visualization of CNNs".

Differs from the source: it assumes ReLU features; here negative features of other activations count
as 0.
"""

from dataclasses import dataclass, fields

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from tauflow._internal.checks import check_bool, check_floating_point, shape_error
from tauflow.cells.activations import get_activation
from tauflow.errors import ArgumentError


@dataclass(frozen=True, eq=False)
class Saliency:
    """Saliency masks of images, and the feature maps behind them.

    Args:
        masks: one per image, without the channels' axis; from 0 to 1 if normalised.
        features: each layer's features averaged over channels, ``(*batch, Y, X)`` with the layer's
            own Y and X, the first layer first.
    """

    masks: Float[Tensor, "*batch H W"]
    features: tuple[Tensor, ...]


@torch.no_grad()
def visual_backprop(
    model: nn.Module,
    images: Float[Tensor, "*batch C H W"],
    *,
    normalize: bool = True,
) -> Saliency:
    """Mark the pixels that activate the deepest features of a convolutional head.

    Args:
        model: a convolutional head, or a model with one as its ``head``, such as
            :class:`tauflow.models.ConvolutionalSequenceModel`; what follows it has no part.
        images: the images, with any axes in front: frames, or sequences of frames.
        normalize: whether to shift and scale each mask so that it reaches from 0 to 1; a mask that
            is the same everywhere becomes 0.

    Raises:
        ArgumentError: the model has no convolutional head.
        ShapeError: the images have another size than the head's.
    """
    head = _get_head_layers(model)
    check_bool(normalize=normalize)
    _check_images(head, images)
    flat = images.reshape(-1, *head.image_size)
    features = _compute_mean_features(head, flat)
    mask = features[-1]
    for layer in range(len(features) - 1, -1, -1):
        below = features[layer - 1] if layer else None
        size = head.image_size[1:] if below is None else below.shape[-2:]
        mask = _spread_mask(mask, head.convolutions[layer], (int(size[0]), int(size[1])))
        mask = mask if below is None else mask * below
    if normalize:
        mask = _normalize(mask)
    batch = images.shape[:-3]
    return Saliency(
        mask.reshape(*batch, *mask.shape[-2:]),
        tuple(part.reshape(*batch, *part.shape[-2:]) for part in features),
    )


@dataclass(frozen=True, eq=False)
class _HeadLayers:
    """What is read of a :class:`tauflow.models.ConvolutionalHead`, or of a module like it."""

    image_size: tuple[int, ...]
    activation: str
    convolutions: nn.ModuleList


def _get_head_layers(model: nn.Module) -> _HeadLayers:
    names = [field.name for field in fields(_HeadLayers)]
    for module in (model, getattr(model, "head", None)):
        if all(hasattr(module, name) for name in names):
            return _HeadLayers(**{name: getattr(module, name) for name in names})
    raise ArgumentError(
        f"visual_backprop: {type(model).__name__} has no convolutional head. Pass a "
        "ConvolutionalSequenceModel or its head."
    )


def _check_images(head: _HeadLayers, images: Tensor) -> None:
    check_floating_point("visual_backprop", images=images)
    if images.ndim < 3 or tuple(images.shape[-3:]) != head.image_size:
        expected = ", ".join(map(str, head.image_size))
        raise shape_error(
            "visual_backprop", "images", images, f"(..., {expected})", "Channels come first."
        )
    if len(head.convolutions) == 0:
        raise ArgumentError("visual_backprop: the head has no convolutions to look through.")


def _compute_mean_features(head: _HeadLayers, images: Tensor) -> list[Tensor]:
    """Return each layer's features averaged over channels, (N, 1, Y, X)."""
    act, averages = get_activation(head.activation), []
    for convolution in head.convolutions:
        images = act(convolution(images))
        averages.append(images.clamp_min(0).mean(dim=1, keepdim=True))
    return averages


def _spread_mask(mask: Tensor, convolution: nn.Module, size: tuple[int, int]) -> Tensor:
    """Give each position's value to all the positions that its kernel sees."""
    assert isinstance(convolution, nn.Conv2d)
    kernel, stride = convolution.kernel_size, convolution.stride
    # Rows and columns at the far edge that no kernel reached get nothing.
    missing = [
        size[axis] - ((mask.shape[axis - 2] - 1) * stride[axis] + kernel[axis]) for axis in (0, 1)
    ]
    spread = F.conv_transpose2d(mask, mask.new_ones(1, 1, *kernel), stride=stride)
    return F.pad(spread, (0, missing[1], 0, missing[0]))


def _normalize(mask: Tensor) -> Tensor:
    low = mask.amin(dim=(-2, -1), keepdim=True)
    height = mask.amax(dim=(-2, -1), keepdim=True) - low
    return torch.where(height > 0, (mask - low) / height, torch.zeros_like(mask))
