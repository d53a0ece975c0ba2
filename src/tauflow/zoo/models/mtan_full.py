"""The multi-time attention network whole: a variational autoencoder between two attentions."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from tauflow._internal.checks import check_at_least
from tauflow.cells.init import Generator
from tauflow.sequence import GRU

from .latent_encoders import Observations, make_dense_net
from .mtan import MTAN, TimeAttention, reset_layers
from .variational import AbstractLatentModel

_DENSE_UNITS = 50


class MTANFull(AbstractLatentModel):
    r"""Multi-time attention network that also reconstructs its input (mTAND-Full).

    A latent state z_k at each of K reference times r_k explains the whole sequence. An encoder
    attends to the samples from the reference times, a decoder to the reference times from those of
    the samples; each has a two-way GRU along the grid and a dense net with one hidden layer of 50
    ReLUs:

    .. math::
        q(z_k | x) = N(\mu_k, \sigma_k^2), \qquad
        [\mu_k; \log \sigma_k^2] = \mathrm{MLP}(\mathrm{GRU}(\hat x(r_1), \ldots, \hat x(r_K))_k)

    .. math::
        x(t) \sim N(\mathrm{MLP}(\hat h(t)),\; s^2), \qquad
        \hat h(t) = \mathrm{mix}_h \sum_k \mathrm{softmax}_k
            \left( \frac{(W_h \phi(t) + b_h) \cdot V_h \phi(r_k)}{\sqrt{e}} \right) h_k, \qquad
        h = \mathrm{GRU}(z_1, \ldots, z_K)

    with :math:`\hat x` and :math:`\phi` of :class:`~tauflow.models.MTAN`. The head reads z by a
    GRU: two layers of 300 ReLUs on its last state. The loss is that of
    :class:`~tauflow.LatentODE`, but the log-likelihood is a mean over all measurements of a
    sequence, and the divergence a sum over the N K latent dimensions divided by their number. Times
    count from the first valid step.

    Source: Shukla & Marlin 2021, "Multi-time attention networks for irregularly sampled time
    series", Sections 3.2 to 3.4, with the loss and the settings of the released code, whose
    classifier of PhysioNet has ``latent_size=20``, ``classes=1`` and 0.858 in the paper.

    Differs from the released code: it predicts from the posterior's mean, where the code draws a
    sample; times count from the first valid step; no bias of the keys, which the softmax would
    cancel.

    Args:
        input_size: channels D per time point.
        latent_size: N, width of the latent state at each reference time.
        encoder_size: width of the encoder's mixed values, of its GRU and of the head's.
        decoder_size: width of the decoder's GRU.
        embedding_size: length of the embedding of a time, a multiple of ``heads``.
        heads: attention heads, of encoder and decoder each.
        reference_points: K.
        horizon: last reference time, in the unit of times; the first is 0.
        observation_std: s.
        samples: states drawn from the posterior for a loss.
        classes: outputs of the classification head; 0 for none.
        per_step: whether the head reads what the decoder attends to at each step, or z.
        objective: ``"reconstruction"``, ``"classification"`` or ``"both"``.
        classification_weight: weight of the cross entropy in ``"both"``.
        kl_wait: epochs of training without the divergence; see
            :func:`tauflow.models.kl_coefficient`.
        kl_rate: how slowly its weight grows to 1 afterwards.
    """

    paper: ClassVar[str] = MTAN.paper
    has_horizon: ClassVar[bool] = True

    def __init__(
        self,
        input_size: int,
        latent_size: int,
        *,
        encoder_size: int = 256,
        decoder_size: int = 50,
        embedding_size: int = 128,
        heads: int = 1,
        reference_points: int = 128,
        horizon: float = 48.0,
        observation_std: float = 0.01,
        samples: int = 1,
        classes: int = 0,
        per_step: bool = False,
        objective: str | None = None,
        classification_weight: float = 100.0,
        kl_wait: int = 10,
        kl_rate: float = 0.99,
    ) -> None:
        N, K = (
            check_at_least(1, latent_size=latent_size),
            check_at_least(2, reference_points=reference_points),
        )
        check_at_least(1, encoder_size=encoder_size)
        check_at_least(1, decoder_size=decoder_size)
        super().__init__(
            input_size,
            K * N,
            observation_std=observation_std,
            samples=samples,
            bound="sequence",
            classes=classes,
            per_step=per_step,
            linear_head=False,
            objective=objective,
            classification_weight=classification_weight,
            kl_wait=kl_wait,
            kl_rate=kl_rate,
            head_size=2 * decoder_size if per_step else encoder_size,
        )
        attention = {
            "embedding_size": embedding_size,
            "heads": heads,
            "reference_points": K,
            "horizon": horizon,
        }
        self.encoder = _Encoder(input_size, N, encoder_size, **attention)
        self.decoder = _Decoder(input_size, N, decoder_size, **attention)
        reads_grid = classes and not per_step
        self.reader = GRU(N, encoder_size, return_sequences=False) if reads_grid else None
        self.horizon = self.encoder.horizon
        self.reset_parameters()

    def reset_parameters(self, generator: Generator = None) -> None:
        """Draw every layer as torch does, from U(-1/sqrt(inputs), 1/sqrt(inputs))."""
        reset_layers(self, generator)

    def decode(
        self, z0: Tensor, elapsed: Tensor, valid: Tensor | None = None
    ) -> tuple[Tensor, Tensor, int]:
        """Decode latent states of the whole grid, (B, K N), at the times ``elapsed``, (B, T).

        Args:
            z0: latent states, one reference time after the other.
            elapsed: times since the first step.
            valid: does not matter here.

        Returns:
            What was attended to, (B, T, 2 decoder_size), decoded means, (B, T, D), and 0 calls of a
            field.
        """
        latent, decoded = self.decoder(self._on_grid(z0), elapsed)
        return latent, decoded, 0

    def read_head(self, mean: Tensor, z0: Tensor, latent: Tensor) -> Tensor | None:
        """Return the head's logits, (K, B, C), of latent states (K, B, N), or those per step."""
        if self.head is None or self.reader is None:
            return super().read_head(mean, z0, latent)
        last, _ = self.reader(self._on_grid(z0.flatten(0, 1)))
        logits: Tensor = self.head(last).unflatten(0, z0.shape[:2])
        return logits

    @staticmethod
    def mean_of_measurements(values: Tensor, observed: Tensor) -> Tensor:
        """Return means over all that was measured of a sequence, (K, B); 0 if nothing was."""
        total = torch.where(observed, values, torch.zeros_like(values)).sum(dim=(-2, -1))
        return total / observed.sum(dim=(-2, -1)).clamp(min=1)

    @staticmethod
    def mean_of_divergences(kl: Tensor, observed: Tensor) -> Tensor:
        """Return the divergence per measurement of a sequence, (B,)."""
        return kl.sum(dim=-1) / observed.sum(dim=(-2, -1)).clamp(min=1)

    def _on_grid(self, z: Tensor) -> Tensor:
        points: Tensor = z.unflatten(-1, (self.encoder.reference_points, -1))
        return points


class _Encoder(TimeAttention):
    """Moments of the latent states at all reference times, (B, K N) each."""

    def __init__(self, input_size: int, latent_size: int, units: int, **attention: Any) -> None:
        super().__init__()
        self._make_attention(2 * input_size, units, **attention)
        self.rnn = GRU(units, units, bidirectional=True)
        self.to_moments = make_dense_net([2 * units, _DENSE_UNITS, 2 * latent_size], nn.ReLU)

    def forward(self, observations: Observations) -> tuple[Tensor, Tensor]:
        grid = self.interpolate(observations.x, observations.elapsed, observations.observed)
        mean, log_variance = self.to_moments(self.rnn(grid)[0]).chunk(2, dim=-1)
        return mean.flatten(1), torch.exp(0.5 * log_variance).flatten(1)


class _Decoder(TimeAttention):
    """What is attended to at times, (B, T, 2 U), and means of the data, (B, T, D)."""

    def __init__(self, input_size: int, latent_size: int, units: int, **attention: Any) -> None:
        super().__init__()
        self._make_attention(2 * units, 2 * units, **attention)
        self.rnn = GRU(latent_size, units, bidirectional=True)
        self.to_data = make_dense_net([2 * units, _DENSE_UNITS, input_size], nn.ReLU)

    def forward(self, z: Tensor, times: Tensor) -> tuple[Tensor, Tensor]:
        values, _ = self.rnn(z)
        shares = self.compare(times, self.grid(times)).softmax(dim=-1)  # (B, T, h, K)
        attended = torch.einsum("bthk,bkd->bthd", shares, values).flatten(2)
        latent: Tensor = self.mix(attended)
        return latent, self.to_data(latent)
