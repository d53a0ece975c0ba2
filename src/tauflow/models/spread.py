"""Heads that predict how targets spread around a prediction: quantiles and a Gaussian."""

from abc import abstractmethod
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.distributions import Normal
from torch.nn import functional as F

from tauflow._internal.checks import check_one_of
from tauflow.batch import SequenceBatch
from tauflow.training.elementwise import Score

QUANTILE_LEVELS = (0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.975)
"""Levels of the quantiles that a spread head gives: ends of intervals of 95, 90, 80 and 50 %."""
_HALF = len(QUANTILE_LEVELS) // 2


class AbstractSpreadHead(nn.Module):
    """Base of heads that read the body beside a readout of the prediction.

    Args:
        input_size: width of the body.
        output_size: O, number of values predicted.
        numbers: learned for each of them.
    """

    def __init__(self, input_size: int, output_size: int, numbers: int) -> None:
        super().__init__()
        self.output_size, self.numbers = output_size, numbers
        self.linear = nn.Linear(input_size, output_size * numbers)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights; targets then lie about one standard deviation around predictions."""
        self.linear.reset_parameters()
        nn.init.zeros_(self.linear.bias)

    @abstractmethod
    def quantiles(self, features: Tensor, prediction: Tensor, unit: Tensor | None = None) -> Tensor:
        """Return increasing quantiles, (..., O, Q).

        Args:
            features: the body, (..., H).
            prediction: (..., O).
            unit: of each prediction, (..., O), by which its distances are multiplied; by default 1.
        """

    @abstractmethod
    def loss(
        self,
        features: Tensor,
        prediction: Tensor,
        batch: SequenceBatch,
        unit: Tensor | None = None,
    ) -> Tensor:
        """Return the loss of the spread, to add to that of the predictions."""

    def _read(self, features: Tensor) -> Tensor:
        read: Tensor = self.linear(features)
        return read.view(*read.shape[:-1], self.output_size, self.numbers)


class QuantileHead(AbstractSpreadHead):
    """Quantiles at :data:`QUANTILE_LEVELS`, trained by the pinball loss.

    The median is free, and each further quantile lies a positive distance (a softplus) beyond the
    one before, so that they never cross. Source of the loss: Koenker and Bassett 1978, "Regression
    Quantiles".
    """

    def __init__(self, input_size: int, output_size: int) -> None:
        super().__init__(input_size, output_size, len(QUANTILE_LEVELS))

    def reset_parameters(self) -> None:
        """Draw the weights; the quantiles begin as those of a standard normal distribution."""
        super().reset_parameters()
        gaps = Normal(0.0, 1.0).icdf(torch.tensor(QUANTILE_LEVELS)).diff()
        gaps = torch.cat([gaps[:_HALF], gaps.new_zeros(1), gaps[_HALF:]])
        bias = torch.where(gaps > 0, gaps.expm1().log(), 0.0)
        with torch.no_grad():
            self.linear.bias.copy_(bias.repeat(self.output_size))

    def quantiles(self, features: Tensor, prediction: Tensor, unit: Tensor | None = None) -> Tensor:
        """Return increasing quantiles, (..., O, Q)."""
        raw = self._read(features)
        median = raw[..., _HALF : _HALF + 1]
        below = F.softplus(raw[..., :_HALF]).flip(-1).cumsum(-1).flip(-1)
        above = F.softplus(raw[..., _HALF + 1 :]).cumsum(-1)
        offsets = torch.cat([median - below, median, median + above], -1)
        return prediction.unsqueeze(-1) + (offsets if unit is None else unit[..., None] * offsets)

    def loss(
        self,
        features: Tensor,
        prediction: Tensor,
        batch: SequenceBatch,
        unit: Tensor | None = None,
    ) -> Tensor:
        """Return the mean pinball loss of all levels."""
        # The prediction follows its own loss; the quantiles are learned around it.
        levels = self.quantiles(features, prediction.detach(), unit).to(batch.y.dtype)
        count = levels.shape[-1]
        y = batch.y.view(levels.shape[:-1]).repeat_interleave(count, -1)
        known = batch.y_mask
        if known is not None and known.ndim == 3:  # of each value
            known = known.repeat_interleave(count, -1)
        return _PINBALL(levels.flatten(-2), replace(batch, y=y, y_mask=known))


class GaussianHead(AbstractSpreadHead):
    r"""Standard deviation :math:`\sigma` of a normal distribution around the prediction.

    Trained by the negative log likelihood of the errors with the prediction held fixed, which
    itself follows its own loss, the mean squared error as a rule: the :math:`\beta`-NLL of Seitzer
    et al. 2022, "On the Pitfalls of Heteroscedastic Uncertainty Estimation", with
    :math:`\beta = 1` for the mean.
    """

    def __init__(self, input_size: int, output_size: int) -> None:
        super().__init__(input_size, output_size, 1)

    def quantiles(self, features: Tensor, prediction: Tensor, unit: Tensor | None = None) -> Tensor:
        """Return the quantiles of the normal distribution, (..., O, Q)."""
        z = Normal(0.0, 1.0).icdf(torch.tensor(QUANTILE_LEVELS)).to(prediction)
        scale = self._read(features).exp()
        scale = scale if unit is None else unit[..., None] * scale
        quantile: Tensor = prediction.unsqueeze(-1) + scale * z
        return quantile

    def loss(
        self,
        features: Tensor,
        prediction: Tensor,
        batch: SequenceBatch,
        unit: Tensor | None = None,
    ) -> Tensor:
        """Return the mean of log(sigma) + (error / sigma)² / 2."""
        # Both terms are means over the entries that count, which a Score knows.
        log_scale = self._read(features).squeeze(-1).to(batch.y.dtype)
        if unit is not None:  # of entries without a query it is 0
            log_scale = log_scale + torch.where(unit > 0, unit, 1.0).log().to(log_scale)
        scale = log_scale.exp()
        scaled = replace(batch, y=batch.y.view_as(scale) / scale)
        half_square = _HALF_SQUARE(prediction.detach().to(scale) / scale, scaled)
        return _LOG_SCALE(log_scale, batch) + half_square


def pinball(quantiles: Tensor, y: Tensor) -> Tensor:
    """Return the pinball loss of each of the quantiles at :data:`QUANTILE_LEVELS`.

    Args:
        quantiles: of each output Q numbers one after the other, (N * Q,) in any shape.
        y: their targets, in as many copies.
    """
    levels = quantiles.new_tensor(QUANTILE_LEVELS)
    error = (y.reshape(quantiles.shape) - quantiles).reshape(-1, len(levels))
    loss: Tensor = torch.maximum(levels * error, (levels - 1) * error).view_as(quantiles)
    return loss


_PINBALL = Score("pinball", "values", pinball)
_LOG_SCALE = Score("log scale", "values", lambda prediction, y: prediction)
_HALF_SQUARE = Score(
    "squared error", "values", lambda prediction, y: (prediction - y.view_as(prediction)) ** 2 / 2
)
_HEADS: dict[str, type[QuantileHead] | type[GaussianHead]] = {
    "quantile": QuantileHead,
    "gaussian": GaussianHead,
}
SPREADS = tuple(_HEADS)


def build_spread_head(kind: str, input_size: int, output_size: int) -> QuantileHead | GaussianHead:
    """Return a head by its name, ``"quantile"`` or ``"gaussian"``."""
    return _HEADS[check_one_of(SPREADS, spread=kind)](input_size, output_size)
