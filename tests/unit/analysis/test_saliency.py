"""Visual back-propagation by hand, and against loops in NumPy."""

import numpy as np
import pytest
import torch

import tauflow
from tauflow.analysis import visual_backprop
from tauflow.errors import ArgumentError, DtypeError, ShapeError
from tauflow.models import ConvolutionalHead, ConvolutionalSequenceModel


def head_of_ones(size, layers):
    head = ConvolutionalHead((1, *size), layers=layers, dense=(2,)).double()
    with torch.no_grad():
        for convolution in head.convolutions:
            convolution.weight.fill_(1.0)
            convolution.bias.zero_()
    return head


def test_one_bright_pixel_by_hand():
    """A 2 x 2 kernel of ones sees the pixel from four places, and gives each back to four."""
    image = torch.zeros(1, 1, 5, 6, dtype=torch.float64)
    image[0, 0, 2, 3] = 7.0
    saliency = visual_backprop(head_of_ones((5, 6), ((1, 2, 1),)), image, normalize=False)
    expected = torch.zeros(5, 6, dtype=torch.float64)
    pyramid = torch.tensor([[1.0, 2, 1], [2, 4, 2], [1, 2, 1]], dtype=torch.float64)
    expected[1:4, 2:5] = 7 * pyramid
    torch.testing.assert_close(saliency.masks[0], expected)
    normalized = visual_backprop(head_of_ones((5, 6), ((1, 2, 1),)), image).masks[0]
    torch.testing.assert_close(normalized, expected / 28)


def test_a_second_layer_multiplies():
    """Strided layers: only the left half of the image is seen by an active deep feature."""
    head = head_of_ones((4, 4), ((1, 2, 2), (1, 1, 1)))
    with torch.no_grad():
        head.convolutions[1].bias.fill_(-5.0)  # deep features need more than 5 below
    image = torch.zeros(1, 1, 4, 4, dtype=torch.float64)
    image[0, 0, :, :2] = 2.0  # features of 8 on the left
    image[0, 0, :, 2:] = 1.0  # and of 4 on the right
    saliency = visual_backprop(head, image, normalize=False)
    torch.testing.assert_close(saliency.features[0][0], torch.tensor([[8.0, 4], [8, 4]]).double())
    torch.testing.assert_close(saliency.features[1][0], torch.tensor([[3.0, 0], [3, 0]]).double())
    expected = torch.zeros(4, 4, dtype=torch.float64)
    expected[:, :2] = 8 * 3
    torch.testing.assert_close(saliency.masks[0], expected)


def by_hand(head, image):
    """The whole method with loops, for one image (C, H, W)."""
    features, averages = image.numpy(), []
    for convolution in head.convolutions:
        weight, bias = convolution.weight.detach().numpy(), convolution.bias.detach().numpy()
        k, s = convolution.kernel_size[0], convolution.stride[0]
        rows, columns = ((n - k) // s + 1 for n in features.shape[1:])
        out = np.zeros((len(bias), rows, columns))
        for c, i, j in np.ndindex(out.shape):
            window = features[:, s * i : s * i + k, s * j : s * j + k]
            out[c, i, j] = max(0.0, (window * weight[c]).sum() + bias[c])
        features = out
        averages.append(out.mean(axis=0))
    mask = averages[-1]
    for layer in range(len(averages) - 1, -1, -1):
        convolution = head.convolutions[layer]
        k, s = convolution.kernel_size[0], convolution.stride[0]
        below = averages[layer - 1] if layer else np.ones(image.shape[1:])
        spread = np.zeros(below.shape)
        for i, j in np.ndindex(mask.shape):
            spread[s * i : s * i + k, s * j : s * j + k] += mask[i, j]
        mask = spread * below
    return mask


def random_model(**options):
    torch.manual_seed(0)
    return ConvolutionalSequenceModel(
        tauflow.CfC(5, 4),
        (3, 17, 22),
        output_size=1,
        layers=((4, 5, 2), (6, 3, 2), (3, 2, 1)),
        dense=(5,),
        **options,
    ).double()


def videos(batch=(2, 3)):
    generator = torch.Generator().manual_seed(1)
    return torch.rand(*batch, 3, 17, 22, generator=generator, dtype=torch.float64)


def test_the_masks_of_a_random_head_are_those_of_loops():
    """Sizes that strides do not divide leave edges that no kernel reaches."""
    model, x = random_model(), videos()
    saliency = visual_backprop(model, x, normalize=False)
    assert saliency.masks.shape == (2, 3, 17, 22)
    for b, t in np.ndindex(2, 3):
        expected = by_hand(model.head, x[b, t])
        np.testing.assert_allclose(saliency.masks[b, t].numpy(), expected, rtol=1e-10, atol=1e-14)
    single = visual_backprop(model.head, x[0, 0], normalize=False)
    torch.testing.assert_close(single.masks, saliency.masks[0, 0])


def test_normalized_masks_reach_from_0_to_1():
    masks = visual_backprop(random_model(), videos()).masks
    torch.testing.assert_close(masks.amax(dim=(-2, -1)), torch.ones(2, 3).double())
    assert not masks.amin(dim=(-2, -1)).any()
    dark = head_of_ones((4, 4), ((1, 2, 2),))
    assert not visual_backprop(dark, torch.zeros(1, 4, 4).double()).masks.any()


def test_negative_features_of_other_activations_do_not_count():
    model = random_model(activation="tanh")
    saliency = visual_backprop(model, videos(), normalize=False)
    assert (saliency.masks >= 0).all()
    assert all((part >= 0).all() for part in saliency.features)


def test_bad_arguments_are_refused():
    model = random_model()
    with pytest.raises(ShapeError, match=r"expected \(..., 3, 17, 22\)"):
        visual_backprop(model, torch.rand(2, 17, 22, 3))
    with pytest.raises(DtypeError, match=r"images has dtype torch\.uint8"):
        visual_backprop(model, torch.zeros(3, 17, 22, dtype=torch.uint8))
    with pytest.raises(ArgumentError, match="LTC has no convolutional head"):
        visual_backprop(tauflow.LTC(2, 3), torch.rand(3, 17, 22))
    with pytest.raises(ArgumentError, match="the head has no convolutions"):
        visual_backprop(ConvolutionalHead((3, 17, 22), layers=()), torch.rand(3, 17, 22))
