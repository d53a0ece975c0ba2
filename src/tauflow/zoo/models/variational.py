"""Base class of latent models: posterior of the first state, paths and variational loss."""

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from tauflow._internal.checks import (
    check_at_least,
    check_bool,
    check_floating_point,
    check_one_of,
    check_same_device,
    check_within,
    shape_error,
)
from tauflow.batch import SequenceBatch
from tauflow.cells.init import Generator
from tauflow.errors import ArgumentError, DtypeError
from tauflow.models.stateless import AbstractStatelessModel
from tauflow.sequence.inputs import Lengths, PaddedOrPacked, SequenceInputs, TimeSteps
from tauflow.solvers.adaptive import check_elapsed
from tauflow.training.elementwise import PredictionLoss
from tauflow.training.losses import LOSSES

from .latent_encoders import Observations, init_linears_, make_dense_net

OBJECTIVES = ("reconstruction", "classification", "both")


@dataclass(frozen=True, eq=False)
class LatentPaths:
    """Paths sampled from the posterior, for K samples of the initial state.

    Args:
        mean: of q(z0), (B, N).
        std: of q(z0), (B, N).
        elapsed: times of the steps since z0, (B, T).
        z0: samples of the first state, (K, B, N).
        latent: states at the steps, (K, B, T, N).
        reconstruction: decoded states, (K, B, T, D).
        logits: classification, (K, B, C), or (K, B, T, C) per step; None without a head. K is 1
            where the head reads the posterior's mean.
        evaluations: calls of the generative field; 0 without one.
    """

    mean: Tensor
    std: Tensor
    elapsed: Tensor
    z0: Tensor
    latent: Tensor
    reconstruction: Tensor
    logits: Tensor | None
    evaluations: int


@dataclass(frozen=True, eq=False)
class VariationalLoss:
    """A loss and its terms; means are weighted by the weights of the sequences.

    Args:
        loss: the sum, with a graph.
        log_likelihood: mean over samples and sequences.
        kl: divergence of the posterior from the prior, mean over latent dimensions and sequences.
        squared_error: of the reconstruction, mean as the log-likelihood's.
        classification: cross entropy, or None without a head.
        paths: what it was computed from.
    """

    loss: Tensor
    log_likelihood: Tensor
    kl: Tensor
    squared_error: Tensor
    classification: Tensor | None
    paths: LatentPaths


def kl_coefficient(epoch: int, *, wait: int = 10, rate: float = 0.99) -> float:
    """Return the published weight of the divergence: 0 at first, then ``1 - rate^(epoch - wait)``.

    Args:
        epoch: epochs done.
        wait: epochs without the divergence.
        rate: how slowly the weight grows to 1.
    """
    done = check_at_least(0, epoch=epoch) - check_at_least(0, wait=wait)
    return 1 - float(check_within(0.0, 1.0, rate=rate)) ** max(0, done)


class AbstractLatentModel(AbstractStatelessModel):
    r"""A sequence explained by the first state of a path: q(z0 | x), z(t), p(x(t) | z(t)).

    .. math::
        L = -\log \sum_k \exp\big(\log p_k - \beta\, KL\big)
            \; [\; +\; w \cdot \text{cross entropy} \;]

    with :math:`\log p_k` the Gaussian log-likelihood of sample k, averaged over the measurements of
    each feature, then over features, and KL from N(0, 1), averaged over latent dimensions.

    A subclass sets ``encoder`` and writes :meth:`decode`.

    Args:
        input_size: features D.
        latent_size: N.
        observation_std: of the Gaussian around a decoded state.
        samples: K, states drawn from the posterior for a loss.
        bound: whether the sum over samples is taken for each ``"sequence"``, so that a batch's loss
            is the mean of its sequences', or for the mean over the ``"batch"``, as in the released
            code.
        classes: outputs of the classification head; 0 for none, 1 for a binary one.
        per_step: whether the head reads every state z(t), or the first one.
        linear_head: whether the head is one dense layer, or has two hidden ones of 300 ReLUs.
        objective: ``"reconstruction"`` (the default without a head), ``"both"`` (the default with
            one) or ``"classification"`` alone.
        classification_weight: w, for ``"both"``.
        kl_wait: epochs of training without the divergence; see :func:`kl_coefficient`.
        kl_rate: how slowly its weight grows to 1 afterwards.
        head_size: width of what the head reads; N by default.
    """

    uses_observed: ClassVar[bool] = True
    uses_absolute_times: ClassVar[bool] = False
    has_per_step_output: ClassVar[bool] = True
    is_causal: ClassVar[bool] = False
    has_head: ClassVar[bool] = True
    encoder: nn.Module

    def __init__(
        self,
        input_size: int,
        latent_size: int,
        *,
        observation_std: float,
        samples: int,
        bound: str,
        classes: int,
        per_step: bool,
        linear_head: bool,
        objective: str | None,
        classification_weight: float,
        kl_wait: int,
        kl_rate: float,
        head_size: int | None = None,
    ) -> None:
        super().__init__(
            check_at_least(1, input_size=input_size),
            check_at_least(0, classes=classes) or input_size,
            return_sequences=check_bool(per_step=per_step) or not classes,
        )
        self.latent_size = check_at_least(1, latent_size=latent_size)
        self.observation_std = check_within(0.0, math.inf, observation_std=observation_std)
        if not observation_std > 0:
            raise ArgumentError("observation_std must be greater than 0.")
        self.samples = check_at_least(1, samples=samples)
        self.bound = check_one_of(("sequence", "batch"), bound=bound)
        self.classes, self.per_step = classes, per_step
        if not classes and (per_step or check_bool(linear_head=linear_head)):
            raise ArgumentError(
                "per_step and linear_head describe a head. Set classes, or drop them."
            )
        self.objective = check_one_of(
            OBJECTIVES, objective=objective or ("both" if classes else "reconstruction")
        )
        if (self.objective == "reconstruction") == bool(classes):
            raise ArgumentError(
                f"objective={self.objective!r} does not go with classes={classes}: a head learns "
                "from 'classification' or 'both', a model without one from 'reconstruction'."
            )
        self.classification_weight = check_within(
            0.0, math.inf, classification_weight=classification_weight
        )
        self.kl_wait = check_at_least(0, kl_wait=kl_wait)
        self.kl_rate = check_within(0.0, 1.0, kl_rate=kl_rate)
        sizes = [head_size or latent_size, *([] if linear_head else [300, 300]), classes]
        self.head = make_dense_net(sizes, between=nn.ReLU) if classes else None

    def reset_parameters(self, generator: Generator = None) -> None:
        """Draw dense layers from N(0, 0.01) with zero biases; recurrent ones as torch does."""
        init_linears_(self, generator)

    @abstractmethod
    def decode(
        self, z0: Tensor, elapsed: Tensor, valid: Tensor | None = None
    ) -> tuple[Tensor, Tensor, int]:
        """Follow first states, (B, N), to the times ``elapsed`` since them, (B, T).

        Times must not decrease along a row, and may lie beyond those of the data. ``valid``, (B, T)
        bool, marks the steps that are there; by default all are.

        Returns:
            The states, (B, T, N), their decoded means, (B, T, D), and the calls of the field.
        """

    def read_head(self, mean: Tensor, z0: Tensor, latent: Tensor) -> Tensor | None:
        """Return the head's logits."""
        if self.head is None:
            return None
        logits: Tensor = self.head(latent if self.per_step else z0)
        return logits

    @staticmethod
    def mean_of_measurements(values: Tensor, observed: Tensor) -> Tensor:
        """Return means over what was seen of each feature, then over features; 0 of one unseen.

        Args:
            values: (K, B, T, D), finite.
            observed: (B, T, D) bool.
        """
        total = torch.where(observed, values, torch.zeros_like(values)).sum(dim=-2)
        return (total / observed.sum(dim=-2).clamp(min=1)).mean(dim=-1)

    @staticmethod
    def mean_of_divergences(kl: Tensor, observed: Tensor) -> Tensor:
        """Return the divergence of each sequence, (B,): the mean over latent dimensions.

        Args:
            kl: of each dimension, (B, N).
            observed: (B, T, D) bool.
        """
        return kl.mean(dim=-1)

    def infer(
        self,
        x: Tensor | PackedSequence,
        *,
        dt: TimeSteps | None = None,
        t: PaddedOrPacked | None = None,
        mask: Tensor | None = None,
        lengths: Lengths | None = None,
        observed: PaddedOrPacked | None = None,
        samples: int | None = None,
        generator: Generator = None,
    ) -> LatentPaths:
        """Return paths from samples of the posterior of the first state.

        Where nothing at all was measured, that is the prior.

        Args:
            x: inputs, as for :meth:`tauflow.RNN.forward`; anything where not observed, NaN too.
            dt: time steps; the one in front of the first valid step does not count.
            t: absolute times; only their differences count.
            mask: (B, T) bool, false at steps that are not there.
            lengths: valid steps of each sequence, (B,).
            observed: (B, T, D) bool, which features were measured; by default all.
            samples: how many; by default the model's number. 0 takes the posterior's mean.
            generator: source of random numbers; by default torch's global one.
        """
        where = f"{type(self).__name__}.infer"
        inputs, _ = self._prepare(
            where, x, dt=dt, t=t, mask=mask, lengths=lengths, observed=observed
        )
        return self._infer_paths(Observations.from_inputs(inputs), samples, generator)

    def encode(self, inputs: SequenceInputs, times: Tensor) -> Tensor:
        """Predict from the posterior's mean: without sampling, in training too.

        Returns:
            The logits, (B, C), or (B, T, C) with ``per_step``; without a head the reconstruction,
            (B, T, D).
        """
        paths = self._infer_paths(Observations.from_inputs(inputs), 0, None)
        return (paths.reconstruction if paths.logits is None else paths.logits)[0]

    def loss(
        self,
        batch: SequenceBatch,
        *,
        kl_weight: float = 1.0,
        samples: int | None = None,
        generator: Generator = None,
        prediction_loss: PredictionLoss | None = None,
    ) -> VariationalLoss:
        """Return the loss of reconstructing a batch's own inputs, and of classifying it.

        Args:
            batch: inputs with time steps and masks; with a head also its targets y, classes as
                integers or, with ``classes=1``, 0 and 1 as floating-point numbers.
            kl_weight: weight of the divergence, e.g. :func:`kl_coefficient` of the epoch.
            samples: how many; by default the model's number. 0 takes the posterior's mean.
            generator: source of random numbers; by default torch's global one.
            prediction_loss: of the head's logits, by default the cross entropy; another one makes
                of the head what that loss compares with the targets.

        Raises:
            ShapeError, DtypeError, DataError: targets do not fit the head.
        """
        check_within(0.0, math.inf, kl_weight=kl_weight)
        where = f"{type(self).__name__}.loss"
        inputs, _ = self._prepare(
            where, batch.x, dt=batch.dt, mask=batch.mask, observed=batch.observed
        )
        observations = Observations.from_inputs(inputs)
        paths = self._infer_paths(observations, samples, generator)
        squared = (observations.x - paths.reconstruction) ** 2
        variance = self.observation_std**2
        density = -0.5 * (squared / variance + math.log(2 * math.pi * variance))
        likelihood = self.mean_of_measurements(density, observations.observed)  # (K, B)
        errors = self.mean_of_measurements(squared, observations.observed)
        kl = 0.5 * (paths.mean**2 + paths.std**2 - 1) - paths.std.log()
        kl = self.mean_of_divergences(kl, observations.observed)  # (B,)
        bounds = likelihood - kl_weight * kl
        if self.bound == "batch":
            loss = -batch.mean_over_sequences(bounds).logsumexp(dim=0)
        else:
            loss = -batch.mean_over_sequences(bounds.logsumexp(dim=0))
        entropy = None
        if paths.logits is not None:
            score = prediction_loss or LOSSES["bce" if self.classes == 1 else "cross_entropy"]
            entropy = torch.stack([score(logits, batch) for logits in paths.logits]).mean()
            alone = self.objective == "classification"
            loss = entropy if alone else loss + self.classification_weight * entropy
        return VariationalLoss(
            loss=loss,
            log_likelihood=batch.mean_over_sequences(likelihood).mean().detach(),
            kl=batch.mean_over_sequences(kl).detach(),
            squared_error=batch.mean_over_sequences(errors).mean().detach(),
            classification=None if entropy is None else entropy.detach(),
            paths=paths,
        )

    def training_loss(
        self, batch: SequenceBatch, prediction_loss: PredictionLoss, *, epoch: int
    ) -> Tensor:
        """Return :meth:`loss` with the divergence's weight of an epoch, for the training loop.

        Args:
            batch: inputs and targets.
            prediction_loss: of the head's logits; not asked without a head.
            epoch: finished epochs.
        """
        weight = kl_coefficient(epoch, wait=self.kl_wait, rate=self.kl_rate)
        return self.loss(batch, kl_weight=weight, prediction_loss=prediction_loss).loss

    def generate(self, elapsed: Tensor, *, generator: Generator = None) -> tuple[Tensor, Tensor]:
        """Draw first states from the prior and follow them.

        Args:
            elapsed: times since the first state, (B, T), 0 or more, not decreasing along a row, in
                the model's dtype; one path per row.
            generator: source of random numbers; by default torch's global one.

        Returns:
            The states, (B, T, N), and their decoded means, (B, T, D).

        Raises:
            ShapeError, DtypeError, ArgumentError: ``elapsed`` is no such tensor, or is on another
                device than the model.
            TimeError: a time is negative or not finite, or times run backwards.
        """
        self._check_elapsed(elapsed)
        z0 = _sample_normal((elapsed.shape[0], self.latent_size), elapsed, generator)
        latent, decoded, _ = self.decode(z0, elapsed)
        return latent, decoded

    def _check_elapsed(self, elapsed: Tensor) -> None:
        where = f"{type(self).__name__}.generate"
        check_floating_point(where, elapsed=elapsed)
        if elapsed.ndim != 2 or not elapsed.shape[1]:
            advice = "One path per row; for times of one path, elapsed[None]."
            raise shape_error(where, "elapsed", elapsed, "(B, T) with T >= 1", advice)
        param = next(self.parameters())
        if elapsed.dtype is not param.dtype:
            raise DtypeError(
                f"{where}: elapsed has dtype {elapsed.dtype}, but parameters have {param.dtype}. "
                f"Convert it with elapsed.to({param.dtype})."
            )
        check_same_device(where, param, elapsed=elapsed)
        check_elapsed(where, "elapsed", elapsed)

    def _infer_paths(
        self, observations: Observations, samples: int | None, generator: Generator
    ) -> LatentPaths:
        count = self.samples if samples is None else check_at_least(0, samples=samples)
        # Under autocast the encoder answers in less precision than the times have.
        mean, std = (moment.to(observations.elapsed.dtype) for moment in self.encoder(observations))
        # Without a measurement the posterior is the prior; an untrained encoder answers 0 +- 0.
        has_measurement = observations.has_measurement.any(dim=1, keepdim=True)
        mean = torch.where(has_measurement, mean, torch.zeros_like(mean))
        std = torch.where(has_measurement, std, torch.ones_like(std))
        z0 = mean.unsqueeze(0)
        if count:
            z0 = z0 + std * _sample_normal((count, *mean.shape), mean, generator)
        rows = z0.shape[0]
        latent, decoded, evaluations = self.decode(
            z0.flatten(0, 1),
            observations.elapsed.repeat(rows, 1),
            observations.valid.repeat(rows, 1),
        )
        latent, decoded = (v.unflatten(0, (rows, -1)) for v in (latent, decoded))
        logits = self.read_head(mean, z0, latent)
        return LatentPaths(
            mean, std, observations.elapsed, z0, latent, decoded, logits, evaluations
        )


def _sample_normal(shape: tuple[int, ...], like: Tensor, generator: Generator) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=like.dtype, device=like.device)
