"""Latent models of irregular sequences: Latent ODE, with either encoder, and RNN-VAE."""

from typing import ClassVar

import torch
from torch import Tensor

from tauflow._internal.allocation_limit import repeat_counted
from tauflow._internal.checks import check_at_least, check_one_of
from tauflow.cells.gated import GRUCell
from tauflow.cells.init import Generator
from tauflow.errors import ArgumentError
from tauflow.solvers import ADAPTIVE_METHODS, integrate_path

from .latent_encoders import ODERNNEncoder, RecurrentEncoder, init_linears_, make_dense_net
from .variational import AbstractLatentModel

ENCODERS = ("ode-rnn", "rnn")
_PAPER = "Rubanova et al. 2019, Latent ODEs for irregularly-sampled time series"


class LatentODE(AbstractLatentModel):
    r"""Latent ODE: an encoder infers the initial state of an ODE that generates the sequence.

    .. math::
        z_0 \sim q(z_0 | x), \qquad \dot z = f(z), \qquad x(t) \sim N(W z(t) + b,\; s^2)

    f is a dense net with tanh. The encoder reads from the last measurement back to the first: a GRU
    on [x; observed; dt] (``"rnn"``), or an ODE-RNN (``"ode-rnn"``). Steps at which nothing was
    measured are passed over; a path gives their reconstruction. z0 belongs to the time of the first
    valid step. See :class:`AbstractLatentModel` for the loss, which :meth:`loss` returns.

    With D inputs, N latent dimensions, R = ``encoder_size``, U = ``units``, G = ``gru_units``, L
    and l layers (generative, encoder), a field of width n and k layers has F(n, k) = 2 n U
    + k (U^2 + U) + U + n parameters, and the model F(N, L) + (N + 1) D, plus for its encoder
    F(R, l) + (10 R + 6 D + 3) G + 204 R + 202 N + 100, or 3 R (2 D + R + 3) + 50 R + 102 N + 50
    for ``"rnn"``; a head adds its own.

    Source: Rubanova et al. 2019, "Latent ODEs for irregularly-sampled time series", and their
    released code.

    Differs from the released code: every sequence has its own times instead of the union of a
    batch's; time steps run between measurements, where the code's ODE-RNN begins with a step of
    -0.01; the sum over samples is taken per sequence (``bound="batch"`` is the code's); the cross
    entropy is not divided by the number of samples once more; the GRU of ``"rnn"`` passes over
    steps without a measurement.

    Args:
        input_size: features D.
        latent_size: N.
        encoder: ``"ode-rnn"`` ("C enc.", Latent-ODE-ODE) or ``"rnn"`` ("D enc.", Latent-ODE-RNN).
        encoder_size: R, neurons of the encoder.
        units: U, neurons of a field's hidden layers.
        layers: L, hidden layers of the generative field beyond the first.
        encoder_layers: l, the same for the ODE-RNN's field; 3 by default.
        gru_units: G, neurons of the hidden layers of the ODE-RNN's gates; 50 by default.
        encoder_steps: Euler steps that the ODE-RNN cuts a sequence's time into; 50 by default.
        method: of the generative solver, one of :data:`tauflow.solvers.ADAPTIVE_METHODS`.
        rtol: relative tolerance of the generative solver.
        atol: absolute tolerance of the generative solver.
        max_steps: steps that a path may take.
        observation_std: s.
        samples: states drawn from the posterior for a loss.
        bound: ``"sequence"`` or ``"batch"``, over what the samples' likelihoods are joined.
        classes: outputs of the classification head; 0 for none.
        per_step: whether the head reads every z(t), or the samples of z0.
        linear_head: whether the head is one dense layer.
        objective: ``"reconstruction"``, ``"classification"`` or ``"both"``.
        classification_weight: weight of the cross entropy in ``"both"``.
        kl_wait: epochs of training without the divergence; see
            :func:`tauflow.models.kl_coefficient`.
        kl_rate: how slowly its weight grows to 1 afterwards.
    """

    paper: ClassVar[str] = _PAPER

    def __init__(
        self,
        input_size: int,
        latent_size: int,
        *,
        encoder: str = "ode-rnn",
        encoder_size: int = 40,
        units: int = 50,
        layers: int = 3,
        encoder_layers: int | None = None,
        gru_units: int | None = None,
        encoder_steps: int | None = None,
        method: str = "dopri5",
        rtol: float = 1e-3,
        atol: float = 1e-4,
        max_steps: int = 1000,
        observation_std: float = 0.01,
        samples: int = 3,
        bound: str = "sequence",
        classes: int = 0,
        per_step: bool = False,
        linear_head: bool = False,
        objective: str | None = None,
        classification_weight: float = 100.0,
        kl_wait: int = 10,
        kl_rate: float = 0.99,
    ) -> None:
        super().__init__(
            input_size,
            latent_size,
            observation_std=observation_std,
            samples=samples,
            bound=bound,
            classes=classes,
            per_step=per_step,
            linear_head=linear_head,
            objective=objective,
            classification_weight=classification_weight,
            kl_wait=kl_wait,
            kl_rate=kl_rate,
        )
        check_at_least(1, encoder_size=encoder_size)
        check_at_least(1, units=units)
        only_ode = {
            "encoder_layers": encoder_layers,
            "gru_units": gru_units,
            "encoder_steps": encoder_steps,
        }
        unused = [name for name, value in only_ode.items() if value is not None]
        if check_one_of(ENCODERS, encoder=encoder) == "rnn":
            if unused:
                raise ArgumentError(
                    f"{', '.join(unused)} describe the encoder 'ode-rnn'. Drop them, or choose it."
                )
            self.encoder = RecurrentEncoder(input_size, encoder_size, latent_size, 50)
        else:
            self.encoder = ODERNNEncoder(
                input_size,
                encoder_size,
                latent_size,
                units=units,
                layers=check_at_least(
                    0, encoder_layers=3 if encoder_layers is None else encoder_layers
                ),
                gru_units=check_at_least(1, gru_units=50 if gru_units is None else gru_units),
                steps=check_at_least(
                    1, encoder_steps=50 if encoder_steps is None else encoder_steps
                ),
            )
        hidden = repeat_counted(units, check_at_least(0, layers=layers) + 1)
        self.field = make_dense_net([latent_size, *hidden, latent_size])
        self.decoder = make_dense_net([latent_size, input_size])
        self.method = check_one_of(ADAPTIVE_METHODS, method=method)
        self.rtol, self.atol, self.max_steps = rtol, atol, max_steps
        self.reset_parameters()

    def reset_parameters(self, generator: Generator = None) -> None:
        """Draw dense layers from N(0, 0.01) with zero biases; the GRU as torch does."""
        init_linears_(self, generator)
        if isinstance(self.encoder, RecurrentEncoder):
            self.encoder.reset_parameters(generator)

    def decode(
        self, z0: Tensor, elapsed: Tensor, valid: Tensor | None = None
    ) -> tuple[Tensor, Tensor, int]:
        """Solve the ODE from first states, (B, N), to the times ``elapsed`` since them, (B, T).

        Args:
            z0: first states.
            elapsed: times, 0 or more, not decreasing along a row; they may lie beyond the data's.
            valid: does not matter here.

        Returns:
            The states, (B, T, N), their decoded means, (B, T, D), and the calls of the field.

        Raises:
            SolverError: a path could not be followed to its end.
        """
        # Steps are chosen by errors far below the rounding of a field in mixed precision.
        with torch.autocast(z0.device.type, enabled=False):
            latent, statistics = integrate_path(
                self.field,
                z0,
                elapsed,
                method=self.method,
                rtol=self.rtol,
                atol=self.atol,
                max_steps=self.max_steps,
            )
        return latent, self.decoder(latent), statistics.evaluations


class RNNVAE(AbstractLatentModel):
    r"""Recurrent variational autoencoder: a GRU infers z0, another GRU decodes it.

    .. math::
        z_0 \sim q(z_0 | x), \qquad \hat x_j = \mathrm{MLP}(h_j), \qquad h_0 = z_0, \qquad
        h_j = \mathrm{GRU}([\hat x_{j-1};\; 1;\; t_j - t_{j-1}],\; h_{j-1})

    The encoder is a GRU on [x; observed; dt] from the last measurement to the first, passing over
    steps at which nothing was measured. The head reads the mean of z0, or every h.

    With D inputs, N latent dimensions, R = ``encoder_size`` and U = ``units``: 3 R (2 D + R + 3) +
    (R + 1) U + 2 N (U + 1) for the encoder, 3 N (2 D + N + 3) + (N + 1) U + (U + 1) D for the
    decoder; a head adds its own.

    Source: Rubanova et al. 2019, "Latent ODEs for irregularly-sampled time series", its baseline
    RNN-VAE, and their released code.

    Differs from the released code: time is reversed for the encoder, where the code reverses the
    batch; the decoder sees z0 and times alone and predicts every step, where the code copies the
    first measurement as its own prediction, feeds it to the decoder and lags two steps behind; the
    first step is passed over too if nothing was measured.

    Args:
        input_size: features D.
        latent_size: N.
        encoder_size: R, neurons of the encoder.
        units: U, neurons of the hidden layers of the nets to q(z0) and to the data.
        observation_std: of the Gaussian around a decoded state.
        samples: states drawn from the posterior for a loss.
        bound: ``"sequence"`` or ``"batch"``, over what the samples' likelihoods are joined.
        classes: outputs of the classification head; 0 for none.
        per_step: whether the head reads every h, or the mean of z0.
        linear_head: whether the head is one dense layer.
        objective: ``"reconstruction"``, ``"classification"`` or ``"both"``.
        classification_weight: weight of the cross entropy in ``"both"``.
        kl_wait: epochs of training without the divergence; see
            :func:`tauflow.models.kl_coefficient`.
        kl_rate: how slowly its weight grows to 1 afterwards.
    """

    paper: ClassVar[str] = _PAPER

    def __init__(
        self,
        input_size: int,
        latent_size: int,
        *,
        encoder_size: int = 40,
        units: int = 50,
        observation_std: float = 0.01,
        samples: int = 1,
        bound: str = "sequence",
        classes: int = 0,
        per_step: bool = False,
        linear_head: bool = False,
        objective: str | None = None,
        classification_weight: float = 100.0,
        kl_wait: int = 10,
        kl_rate: float = 0.99,
    ) -> None:
        super().__init__(
            input_size,
            latent_size,
            observation_std=observation_std,
            samples=samples,
            bound=bound,
            classes=classes,
            per_step=per_step,
            linear_head=linear_head,
            objective=objective,
            classification_weight=classification_weight,
            kl_wait=kl_wait,
            kl_rate=kl_rate,
        )
        check_at_least(1, encoder_size=encoder_size)
        check_at_least(1, units=units)
        self.encoder = RecurrentEncoder(input_size, encoder_size, latent_size, units)
        self.unroller = GRUCell(2 * input_size + 1, latent_size)
        self.decoder = make_dense_net([latent_size, units, input_size])
        self.reset_parameters()

    def reset_parameters(self, generator: Generator = None) -> None:
        """Draw dense layers from N(0, 0.01) with zero biases; the GRUs as torch does."""
        init_linears_(self, generator)
        assert isinstance(self.encoder, RecurrentEncoder)
        self.encoder.reset_parameters(generator)
        self.unroller.reset_parameters(generator)

    def read_head(self, mean: Tensor, z0: Tensor, latent: Tensor) -> Tensor | None:
        """Return the head's logits, of the posterior's mean unless per step."""
        return super().read_head(mean, mean.unsqueeze(0), latent)

    def decode(
        self, z0: Tensor, elapsed: Tensor, valid: Tensor | None = None
    ) -> tuple[Tensor, Tensor, int]:
        """Unroll first states, (B, N), over the steps at times ``elapsed`` since them, (B, T).

        Args:
            z0: first states.
            elapsed: times, not decreasing along a row.
            valid: (B, T) bool; a step that is not there keeps the state of the one before.

        Returns:
            The states, (B, T, N), their decoded means, (B, T, D), and 0 calls of a field.
        """
        valid = torch.ones_like(elapsed, dtype=torch.bool) if valid is None else valid
        begun = valid.int().cumsum(dim=1) > 1  # the first step that is there has state z0
        moves = (valid & begun).unsqueeze(-1)
        gaps = elapsed.diff(dim=1, prepend=elapsed[:, :1]).unsqueeze(-1)
        h, decoded = z0, self.decoder(z0)
        states, outputs = [h], [decoded]
        for step in range(1, elapsed.shape[1]):
            features = torch.cat([decoded, torch.ones_like(decoded), gaps[:, step]], dim=-1)
            h = torch.where(moves[:, step], self.unroller.step(features, h, gaps[:, step]), h)
            decoded = self.decoder(h)
            states.append(h)
            outputs.append(decoded)
        return torch.stack(states, dim=1), torch.stack(outputs, dim=1), 0
