"""Image sequences: a convolutional head on every frame, and a sequence module on its features."""

from collections.abc import Sequence
from typing import Any, ClassVar

from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from tauflow._internal.checks import check_at_least, is_readable, shape_error
from tauflow._internal.init_args import CaptureInitArgs
from tauflow._internal.sanitize import format_count
from tauflow.cells.activations import get_activation as known_activation
from tauflow.errors import ArgumentError
from tauflow.sequence import SequenceModule
from tauflow.sequence.finite_checks import check_missing_inputs
from tauflow.sequence.inputs import (
    Lengths,
    PaddedOrPacked,
    TimeSteps,
    check_dtype_and_device,
    prepare_inputs,
)

from .base import AbstractWholeModel
from .stateless import check_no_state, hold_last_valid, make_empty_state

DRIVING_LAYERS = ((24, 5, 2), (36, 5, 2), (48, 3, 2), (64, 3, 1), (64, 3, 1))
"""Convolutions of the lane-keeping networks: (channels, kernel, stride) each."""


class ConvolutionalHead(nn.Module, metaclass=CaptureInitArgs):
    r"""Convolutions without padding, flattened, then dense layers; an activation after each.

    With channels c_0 (the image's), c_1, ..., kernels k_l and a flattened size F = w_0, dense
    layers of widths w_1, ... :

    .. math::
        \text{parameters} = \sum_l (k_l^2 c_{l-1} + 1)\, c_l + \sum_j (w_{j-1} + 1)\, w_j

    Args:
        image_size: (channels, height, width).
        layers: (channels, kernel, stride) of each convolution.
        dense: widths of the dense layers, at least one.
        activation: after each layer.
    """

    options: dict[str, Any]

    def __init__(
        self,
        image_size: Sequence[int],
        *,
        layers: Sequence[Sequence[int]] = DRIVING_LAYERS,
        dense: Sequence[int] = (64,),
        activation: str = "relu",
    ) -> None:
        super().__init__()
        self.image_size = _check_sizes("image_size", image_size, 3)
        known_activation(activation)  # a wrong name is refused now, not in the first forward
        self.activation = activation
        self.convolutions, self.dense = nn.ModuleList(), nn.ModuleList()
        channels, height, width = self.image_size
        for number, layer in enumerate(layers):
            wide, kernel, stride = _check_sizes(f"layers[{number}]", layer, 3)
            if kernel > min(height, width):
                raise ArgumentError(
                    f"image_size={self.image_size}: only {height} x "
                    f"{format_count(width, 'position')} reach "
                    f"convolution {number}, whose kernel is {kernel}. Use larger images, or fewer "
                    "or smaller convolutions."
                )
            self.convolutions.append(nn.Conv2d(channels, wide, kernel, stride))
            channels = wide
            height, width = (height - kernel) // stride + 1, (width - kernel) // stride + 1
        if len(dense) == 0:
            raise ArgumentError("dense is empty; name the width of one dense layer at least.")
        features = channels * height * width
        for wide in _check_sizes("dense", dense, len(dense)):
            self.dense.append(nn.Linear(features, wide))
            features = wide
        self.output_size = features

    def forward(self, images: Tensor) -> Tensor:
        """Return the features (N, F) of images (N, C, H, W)."""
        act = known_activation(self.activation)
        for convolution in self.convolutions:
            images = act(convolution(images))
        features = images.flatten(1)
        for layer in self.dense:
            features = act(layer(features))
        return features


class ConvolutionalSequenceModel(AbstractWholeModel):
    r"""A convolutional head on every image, and a sequence module on its features.

    Follows the one contract, with images for features: x is (B, T, C, H, W), (T, C, H, W) for a
    single sequence, or a PackedSequence of (C, H, W). Masked images may hold anything.

    Source: Hasani et al. 2022, "Closed-form continuous-time neural networks", Table 3.

    Args:
        rnn: the sequence module, with as many input features as the head has outputs; or ``None``
            for a network that sees each image by itself, and carries no state.
        image_size: (channels, height, width).
        output_size: width of a linear readout; ``None`` for no readout.
        layers: (channels, kernel, stride) of each convolution.
        dense: widths of the dense layers between convolutions and ``rnn``.
        activation: after each layer of the head.
    """

    paper: ClassVar[str] = "Hasani et al. 2022, Closed-form continuous-time neural networks"
    takes_images: ClassVar[bool] = True
    has_per_step_output: ClassVar[bool] = True

    def __init__(
        self,
        rnn: SequenceModule | None,
        image_size: Sequence[int],
        *,
        output_size: int | None = None,
        layers: Sequence[Sequence[int]] = DRIVING_LAYERS,
        dense: Sequence[int] = (64,),
        activation: str = "relu",
    ) -> None:
        super().__init__()
        if rnn is not None and not isinstance(rnn, SequenceModule):
            raise ArgumentError(
                f"rnn must be a sequence module such as tauflow.LTC, or None, got "
                f"{type(rnn).__name__}. Wrap a cell with tauflow.RNN(cell)."
            )
        self.head = ConvolutionalHead(image_size, layers=layers, dense=dense, activation=activation)
        if rnn is not None and rnn.input_size != self.head.output_size:
            raise ArgumentError(
                f"rnn takes {format_count(rnn.input_size, 'feature')}, but the head has "
                f"{self.head.output_size}. "
                f"Build it with input_size={self.head.output_size}, or set dense."
            )
        self.rnn = rnn
        self.input_size = self.head.image_size
        body_size = self.head.output_size if rnn is None else rnn.output_size
        self.return_sequences = True if rnn is None else rnn.return_sequences
        self.readout: nn.Linear | None = None
        if output_size is not None:
            self.readout = nn.Linear(body_size, check_at_least(1, output_size=output_size))
        self.output_size = body_size if output_size is None else output_size

    def forward(
        self,
        x: Tensor | PackedSequence,
        hx: Tensor | None = None,
        *,
        dt: TimeSteps | None = None,
        t: PaddedOrPacked | None = None,
        mask: Tensor | None = None,
        lengths: Lengths | None = None,
        observed: PaddedOrPacked | None = None,
    ) -> tuple[Tensor | PackedSequence, Tensor]:
        """Run head, sequence module and readout; see :meth:`tauflow.RNN.forward`.

        Raises:
            ArgumentError: ``observed`` is given, or ``hx`` to a model without ``rnn``.
            ShapeError, DtypeError, TimeError, NonFiniteError: as for :meth:`tauflow.RNN.forward`.
        """
        where = f"{type(self).__name__}.forward"
        if observed is not None:
            raise ArgumentError(
                f"{where}: observed marks single features, and the features here come from whole "
                "images. Mark missing images in mask."
            )
        if self.rnn is None:
            check_no_state(where, hx)
        flat, pixels = self._flatten_images(where, x)
        inputs = prepare_inputs(
            where,
            pixels,
            flat,
            dt=dt,
            t=t,
            mask=mask,
            lengths=lengths,
            has_initial_state=hx is not None,
        )
        check_dtype_and_device(where, self, inputs.x)
        if is_readable(inputs.x):
            check_missing_inputs(where, self, inputs)
        images = inputs.x.reshape(-1, *self.head.image_size)
        features = self.head(images).unflatten(0, inputs.x.shape[:2])
        if self.rnn is None:
            y, h = hold_last_valid(features, inputs.mask), make_empty_state(inputs)
        else:
            y, h = self._run_rnn(features, hx, inputs.dt, inputs.mask, inputs.batched)
        if self.readout is not None:
            y = self.readout(y)
        return inputs.match_input_format(y, is_per_step=self.return_sequences), h

    def _run_rnn(
        self, features: Tensor, hx: Tensor | None, dt: Tensor, mask: Tensor | None, batched: bool
    ) -> tuple[Tensor, Tensor]:
        """Run the sequence module on (B, T, F); only states have the form of the caller."""
        assert self.rnn is not None
        if batched:
            y, h = self.rnn(features, hx, dt=dt, mask=mask)
            return y, h
        y, h = self.rnn(features[0], hx, dt=dt[0], mask=None if mask is None else mask[0])
        return y.unsqueeze(0), h

    def _flatten_images(
        self, where: str, x: Tensor | PackedSequence
    ) -> tuple[Tensor | PackedSequence, int]:
        """Return the input with each image as one row of features, and their number."""
        data = x.data if isinstance(x, PackedSequence) else x
        size = self.head.image_size
        axes = (4,) if isinstance(x, PackedSequence) else (4, 5)
        if isinstance(data, Tensor) and (data.ndim not in axes or data.shape[-3:] != size):
            expected = ", ".join(map(str, size))
            raise shape_error(
                where,
                "x",
                data,
                f"(B, T, {expected}), or (T, {expected}) for a single sequence",
                "The last axes hold channels, height and width; move them with x.permute(...).",
            )
        channels, height, width = size
        flat = data.flatten(-3) if isinstance(data, Tensor) else data
        packed = x._replace(data=flat) if isinstance(x, PackedSequence) else flat
        return packed, channels * height * width


def _check_sizes(name: str, values: Sequence[int], count: int) -> tuple[int, ...]:
    """Return that many positive integers as a tuple."""
    if not isinstance(values, Sequence) or len(values) != count:
        raise ArgumentError(f"{name} must hold {format_count(count, 'integer')}, got {values!r}.")
    return tuple(check_at_least(1, **{f"{name}[{i}]": value}) for i, value in enumerate(values))
