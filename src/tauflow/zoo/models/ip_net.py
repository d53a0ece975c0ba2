"""Interpolation-prediction network: irregular samples onto a regular grid, then a GRU."""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

from tauflow._internal.allocation_limit import repeat_counted
from tauflow._internal.checks import (
    check_at_least,
    check_bool_tensor,
    check_finite,
    check_within,
    shape_error,
)
from tauflow._internal.sanitize import format_count
from tauflow.batch import SequenceBatch
from tauflow.cells.precision import ConstantBufferMixin
from tauflow.errors import ArgumentError
from tauflow.models.stateless import AbstractStatelessModel, get_observed
from tauflow.sequence import GRU
from tauflow.sequence.inputs import SequenceInputs
from tauflow.training.elementwise import PredictionLoss
from tauflow.training.evaluation_loop import predict

_EPSILON = 1e-12


class IPNet(ConstantBufferMixin, AbstractStatelessModel):
    r"""Interpolation-prediction network.

    Each channel d has a width alpha_d = softplus(a_d). At a reference time r, over the samples of
    that channel:

    .. math::
        \omega_i = e^{-\alpha_d (r - t_i)^2}, \qquad
        \lambda_d = \sum_i \omega_i, \qquad
        \sigma_d = \sum_i \omega_i x_i / \lambda_d

    are its intensity and its smooth interpolant; the sharp one, gamma, has kappa alpha_d for
    alpha_d. Channels then inform each other, and a GRU reads [chi, lambda, gamma - chi] along the
    grid; its last state is the output, (B, H):

    .. math::
        \chi = \rho^\top \left( \frac{\lambda}{\sum_d \lambda_d} \odot (\sigma - \bar\sigma) \right)
        + \bar\sigma, \qquad \bar\sigma = \text{mean of } \sigma \text{ over the grid}

    A channel that a sequence never measured counts as measured once, at time 0, with the channel's
    mean. Times are absolute: pass ``t``, or ``dt`` with the first sample's time as its first time
    step. Memory grows with samples times grid points times channels.

    With D channels and H units the model has D + D^2 + 9 D H + 3 H^2 + 6 H parameters.

    Source: Shukla & Marlin 2019, "Interpolation-prediction networks for irregularly sampled time
    series"; for what the paper leaves open, the authors' code.

    Differs from the code: a GRU with its reset gate behind the recurrent product, and so 3 H more
    parameters, without dropout of its state; masked steps do not enter the mean of
    :meth:`autoencoding_loss`, so that padding changes nothing; what is held out is drawn again for
    every step of training, where the code draws once.

    Args:
        input_size: channels D per time point.
        hidden_size: units H.
        horizon: last reference time, in the unit of times; the first is 0.
        reference_points: number of reference times.
        sharpness: kappa.
        dropout: probability of dropping a channel of the GRU's input from a whole sequence while
            training.
        channel_means: what a channel that was never measured is taken to be; by default 0 for all,
            as for standardised data.
        channel_deviations: standard deviations, the units of the autoencoding loss; by default 1.
        autoencoding_weight: of that loss, which :func:`tauflow.training.train` adds to that of the
            predictions; 0 for none.
    """

    paper: ClassVar[str] = "Shukla & Marlin 2019, Interpolation-prediction networks"
    uses_observed: ClassVar[bool] = True
    is_causal: ClassVar[bool] = False
    has_horizon: ClassVar[bool] = True

    means: Tensor
    deviations: Tensor

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        horizon: float = 48.0,
        reference_points: int = 192,
        sharpness: float = 10.0,
        dropout: float = 0.2,
        channel_means: Sequence[float] | None = None,
        channel_deviations: Sequence[float] | None = None,
        autoencoding_weight: float = 1.0,
    ) -> None:
        channels = check_at_least(1, input_size=input_size)
        super().__init__(
            channels, check_at_least(1, hidden_size=hidden_size), return_sequences=False
        )
        self.horizon = check_within(_EPSILON, float("inf"), horizon=horizon)
        self.reference_points = check_at_least(2, reference_points=reference_points)
        self.sharpness = check_within(_EPSILON, float("inf"), sharpness=sharpness)
        self.dropout = check_within(0.0, 1.0, dropout=dropout)
        self.autoencoding_weight = check_within(
            0.0, float("inf"), autoencoding_weight=autoencoding_weight
        )
        means = _to_channel_values("channel_means", channel_means, 0.0, channels)
        deviations = _to_channel_values("channel_deviations", channel_deviations, 1.0, channels)
        for i, value in enumerate(deviations):
            check_within(_EPSILON, float("inf"), **{f"channel_deviations[{i}]": value})
        self.register_constant("means", torch.tensor(means, dtype=torch.float64))
        self.register_constant("deviations", torch.tensor(deviations, dtype=torch.float64))
        self.a = nn.Parameter(torch.empty(channels))
        self.rho = nn.Parameter(torch.empty(channels, channels))
        self.rnn = GRU(3 * channels, hidden_size, init="keras", return_sequences=False)
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Set a = 0 and rho to the identity; draw the GRU as Keras does."""
        nn.init.zeros_(self.a)
        nn.init.eye_(self.rho)
        self.rnn.cell.reset_parameters(generator)

    def encode(self, inputs: SequenceInputs, times: Tensor) -> Tensor:
        """Return the GRU's last state, (B, H)."""
        features = self.interpolate(inputs.x, times, get_observed(inputs))
        if self.training and self.dropout:
            features = features * F.dropout(torch.ones_like(features[:, :1]), self.dropout)
        y, _ = self.rnn(features)
        last: Tensor = y
        return last

    def interpolate(self, x: Tensor, times: Tensor, observed: Tensor) -> Tensor:
        """Return [chi, lambda, gamma - chi] on the grid, (B, K, 3 D).

        Args:
            x: (B, T, D), finite everywhere.
            times: (B, T), absolute.
            observed: (B, T, D) bool.
        """
        grid = torch.linspace(
            0, self.horizon, self.reference_points, dtype=x.dtype, device=x.device
        ).expand(x.shape[0], -1)
        samples = self._with_missing_channels(x, times, observed)
        smooth, intensity = self._kernel_smooth(*samples, grid, 1.0)
        sharp, _ = self._kernel_smooth(*samples, grid, self.sharpness)
        crossed = self._mix_channels(smooth, intensity, smooth.mean(1, keepdim=True))
        return torch.cat([crossed, intensity.exp(), sharp - crossed], dim=-1)

    def hold_out(
        self, observed: Tensor, fraction: float = 0.2, generator: torch.Generator | None = None
    ) -> Tensor:
        """Choose measured values at random, for :meth:`autoencoding_loss` to hold out.

        Args:
            observed: (B, T, D) bool.
            fraction: of each channel of each sequence, rounded down; below two it is 0, as in
                the authors' code.
            generator: source of randomness.

        Returns:
            (B, T, D) bool, true at the chosen ones.
        """
        share = check_within(0.0, 0.5, fraction=fraction)
        check_bool_tensor("IPNet.hold_out", observed=observed)
        draws = torch.rand(observed.shape, generator=generator, device=observed.device)
        rank = draws.masked_fill(~observed, 2.0).argsort(1).argsort(1)
        number = (observed.sum(1, keepdim=True) * share + 1e-6).floor()
        return (rank < number) & (number > 1) & observed

    def autoencoding_loss(
        self,
        x: Tensor | PackedSequence,
        *,
        held_out: Tensor | None = None,
        generator: torch.Generator | None = None,
        **times_and_masks: Any,
    ) -> Tensor:
        r"""Return how badly held-out values are interpolated from the others; add it to the loss.

        .. math::
            \frac{1}{B D} \sum_{b, d} \frac{1}{s_d^2} \,
            \mathrm{mean}_{i\ \text{held out}} (x_i - \chi_d(t_i))^2

        Args:
            x: as for :meth:`forward`.
            held_out: bool, in the shape of x, which measured values to hold out; by default those
                of :meth:`hold_out`, a fifth.
            generator: source of randomness for that.
            **times_and_masks: ``dt``, ``t``, ``mask``, ``lengths``, ``observed``, as for
                :meth:`forward`.
        """
        return self._held_out_errors(x, held_out, generator, **times_and_masks).mean()

    def _held_out_errors(
        self,
        x: Tensor | PackedSequence,
        held_out: Tensor | None,
        generator: torch.Generator | None,
        **times_and_masks: Any,
    ) -> Tensor:
        """Return the terms of :meth:`autoencoding_loss`, (B, D)."""
        where = "IPNet.autoencoding_loss"
        inputs, times = self._prepare(where, x, **times_and_masks)
        observed = get_observed(inputs)
        if held_out is None:
            held = self.hold_out(observed, generator=generator)
        else:
            held = (
                _match_batch_axis(where, check_bool_tensor(where, held_out=held_out), inputs)
                & observed
            )
        guess = self._interpolate_at_samples(inputs, times, observed & ~held)
        error = ((inputs.x - guess) / self.deviations).square() * held
        return error.sum(1) / held.sum(1).clamp(min=1)

    def training_loss(
        self, batch: SequenceBatch, prediction_loss: PredictionLoss, *, epoch: int
    ) -> Tensor:
        """Return the loss of predictions plus, weighted, that of :meth:`autoencoding_loss`.

        Args:
            batch: inputs and targets.
            prediction_loss: of the output.
            epoch: finished epochs; of no matter here.
        """
        loss = prediction_loss(predict(self, batch), batch)
        if not self.autoencoding_weight:
            return loss
        errors = self._held_out_errors(
            batch.x, None, None, dt=batch.dt, mask=batch.mask, observed=batch.observed
        )
        return loss + self.autoencoding_weight * batch.mean_over_sequences(errors.mean(-1))

    def _interpolate_at_samples(
        self, inputs: SequenceInputs, times: Tensor, observed: Tensor
    ) -> Tensor:
        """Return chi at the sample times, (B, T, D)."""
        samples = self._with_missing_channels(inputs.x, times, observed)
        smooth, intensity = self._kernel_smooth(*samples, times, 1.0)
        valid = torch.ones_like(times) if inputs.mask is None else inputs.mask.to(times.dtype)
        weight = valid.unsqueeze(-1)
        mean = (smooth * weight).sum(1, keepdim=True) / weight.sum(1, keepdim=True).clamp(min=1)
        return self._mix_channels(smooth, intensity, mean)

    def _with_missing_channels(
        self, x: Tensor, times: Tensor, observed: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Append a sample at time 0 that measures, as their mean, the channels never measured."""
        missing = ~observed.any(1, keepdim=True)
        means = self.means.to(x.dtype).expand_as(x[:, :1])
        return (
            torch.cat([x, means], dim=1),
            torch.cat([times, torch.zeros_like(times[:, :1])], dim=1),
            torch.cat([observed, missing], dim=1),
        )

    def _kernel_smooth(
        self, x: Tensor, times: Tensor, observed: Tensor, at: Tensor, sharpness: float
    ) -> tuple[Tensor, Tensor]:
        """Return interpolants and logarithms of intensities at times (B, K): (B, K, D) each."""
        alpha = sharpness * F.softplus(self.a)
        squares = (times.unsqueeze(2) - at.unsqueeze(1)).square()  # (B, T, K)
        logits = (-alpha * squares.unsqueeze(-1)).masked_fill(~observed.unsqueeze(2), -torch.inf)
        # In logarithms: far from all samples every weight underflows, but not their ratios.
        weights = logits.softmax(dim=1)
        return torch.einsum("btkd,btd->bkd", weights, x), logits.logsumexp(dim=1)

    def _mix_channels(self, smooth: Tensor, log_intensity: Tensor, mean: Tensor) -> Tensor:
        return (log_intensity.softmax(-1) * (smooth - mean)) @ self.rho + mean


def _to_channel_values(
    name: str, values: Sequence[float] | None, default: float, channels: int
) -> list[float]:
    if values is None:
        return repeat_counted(default, channels)
    if not isinstance(values, Sequence) or len(values) != channels:
        raise ArgumentError(
            f"{name} must hold {format_count(channels, 'number')}, one per channel, got {values!r}."
        )
    return [check_finite(**{f"{name}[{i}]": value}) for i, value in enumerate(values)]


def _match_batch_axis(where: str, held_out: Tensor, inputs: SequenceInputs) -> Tensor:
    """Return ``held_out`` with a batch axis."""
    expected = inputs.x.shape if inputs.batched else inputs.x.shape[1:]
    if held_out.shape != expected:
        raise shape_error(
            where, "held_out", held_out, f"that of x, {tuple(expected)}", "It marks single values."
        )
    return held_out.reshape(inputs.x.shape)
