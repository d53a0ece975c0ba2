"""Scaling inside an exported model, which takes and gives unscaled numbers."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from tauflow.errors import ExportError


class IOScaling(nn.Module):
    """Scale inputs, and outputs if their scale is known, in the dtype of a model.

    A mean far from zero, such as a coordinate in metres, has more digits than single precision
    holds. It is kept as the sum of two numbers of that precision: ``x - high`` loses nothing where
    x is near the mean, and ``low`` is the rest.

    Args:
        scales: mean and scale of the inputs, (I,), then of the outputs, (O,), in double precision.
        like: a tensor of the model's dtype, on its device.

    Raises:
        ExportError: the dtype does not hold one of them.
    """

    x_high: Tensor
    x_low: Tensor
    x_scale: Tensor
    y_high: Tensor
    y_low: Tensor
    y_scale: Tensor

    def __init__(self, scales: Sequence[Tensor], like: Tensor) -> None:
        super().__init__()
        self._exact = tuple(scale.to(like.device, torch.float64) for scale in scales)
        self.has_outputs = len(scales) > 2
        for index, side in enumerate("xy"[: 1 + self.has_outputs]):
            mean, scale = self._exact[2 * index : 2 * index + 2]
            high = mean.to(like.dtype)
            _check_representable(f"{side}_mean", mean, high, bool(high.isfinite().all()))
            rounded = scale.to(like.dtype)
            _check_representable(
                f"{side}_scale", scale, rounded, bool((rounded.isfinite() & (rounded != 0)).all())
            )
            parts = {"high": high, "low": (mean - high.double()).to(like.dtype), "scale": rounded}
            for name, value in parts.items():
                self.register_buffer(f"{side}_{name}", value, persistent=False)

    def scale_inputs(self, x: Tensor) -> Tensor:
        """Return what the model reads of inputs (..., I); 0 where one is missing, as in training.

        Missing ones are NaN.
        """
        return torch.where(x.isnan(), 0.0, ((x - self.x_high) - self.x_low) / self.x_scale)

    def unscale_outputs(self, y: Tensor) -> Tensor:
        """Return outputs (..., O) as they were before scaling, as far as their scale is known."""
        return (y * self.y_scale + self.y_low) + self.y_high if self.has_outputs else y

    def scale_inputs_in_double(self, x: Tensor) -> Tensor:
        """Do :meth:`scale_inputs` in double precision, without the parts of the mean."""
        mean, scale = self._exact[:2]
        return ((x.double() - mean) / scale).nan_to_num(nan=0.0)

    def unscale_outputs_in_double(self, y: Tensor) -> Tensor:
        """Do :meth:`unscale_outputs` in double precision, without the parts of the mean."""
        if not self.has_outputs:
            return y.double()
        mean, scale = self._exact[2:]
        return y.double() * scale + mean

    def rescale_outputs(self, y: Tensor) -> Tensor:
        """Return outputs as they were before :meth:`unscale_outputs`, in double precision."""
        if not self.has_outputs:
            return y.double()
        mean, scale = self._exact[2:]
        return (y.double() - mean) / scale

    def rounding_error(self, y: Tensor) -> Tensor:
        """Return by how much two roundings of outputs to their dtype may differ before scaling.

        Those with a mean far from zero have few digits left.
        """
        error = y.double().abs() * torch.finfo(y.dtype).eps
        return error / self._exact[3].abs() if self.has_outputs else torch.zeros_like(error)

    def unscale_inputs(self, x: Tensor) -> Tensor:
        """Return inputs before scaling, in double precision, of those that the model reads."""
        mean, scale = self._exact[:2]
        return x.double() * scale + mean


def _check_representable(name: str, exact: Tensor, rounded: Tensor, is_representable: bool) -> None:
    if not is_representable:
        raise ExportError(
            f"{name} is {exact.tolist()}, which {rounded.dtype} does not hold. Convert the model "
            "with "
            ".float() or .double(), or leave the scaling outside."
        )
