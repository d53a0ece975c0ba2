"""Models around trained models: the mean of several, and calibrated probabilities."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tauflow._internal.checks import check_one_of, check_positive
from tauflow._internal.init_args import CaptureInitArgs
from tauflow._internal.sanitize import format_count
from tauflow.batch import SequenceBatch
from tauflow.data.card import TASKS
from tauflow.data.imputation import IMPUTE_STRATEGIES, impute_with_indicators
from tauflow.errors import ArgumentError

_MIN_PROBABILITY = 1e-12  # a probability of 0 has no logarithm


class AbstractModelWrapper(nn.Module, metaclass=CaptureInitArgs):
    """Base of models that call other models on whole sequences, and keep no state."""

    options: dict[str, Any]

    @property
    def wrapped_models(self) -> Sequence[nn.Module]:
        """The models that are called."""
        raise NotImplementedError

    @property
    def ignores_padding(self) -> bool:
        """Whether masked steps at the ends of sequences change nothing, as all models say."""
        return all(getattr(model, "ignores_padding", False) for model in self.wrapped_models)

    @property
    def uses_observed(self) -> bool:
        """Whether the models take the (B, T, I) mask of measured features."""
        return all(getattr(model, "uses_observed", False) for model in self.wrapped_models)

    @property
    def quantile_levels(self) -> tuple[float, ...]:
        """The levels of the quantiles that the models have learned; ``()`` for none."""
        levels: tuple[float, ...] = getattr(self.wrapped_models[0], "quantile_levels", ())
        return levels


class Ensemble(AbstractModelWrapper):
    """The mean prediction of several models of one task.

    Values are averaged as they are, classes by their probabilities, so that the softmax (or
    sigmoid) of what is returned is the mean of the members' probabilities. Averaging members that
    differ in their seeds alone: Lakshminarayanan et al. 2017, "Simple and Scalable Predictive
    Uncertainty Estimation using Deep Ensembles".

    Args:
        members: the models, each called as ``prediction, state = model(x, dt=..., mask=...)``.
        task: ``"regress"``, ``"classify"`` (a logit per class), or ``"binary"`` (a logit per
            label).
        weights: how much each member counts, above 0; by default all count alike. They are divided
            by their sum.

    Raises:
        ArgumentError: there are no members, or not one weight above 0 for each.
    """

    def __init__(
        self,
        members: Sequence[nn.Module],
        task: str = "regress",
        *,
        weights: Sequence[float] | None = None,
    ) -> None:
        super().__init__()
        if not len(members):
            raise ArgumentError("an Ensemble needs at least one member, got none.")
        self.members = nn.ModuleList(members)
        self.task = check_one_of(TASKS, task=task)
        self.weights = None if weights is None else tuple(map(float, weights))
        if self.weights is not None and (
            len(self.weights) != len(members) or not all(0 < w < math.inf for w in self.weights)
        ):
            raise ArgumentError(
                "weights must be one number above 0 for each of "
                f"{format_count(len(members), 'member')}, got {weights!r}."
            )

    @property
    def wrapped_models(self) -> Sequence[nn.Module]:
        """The members."""
        return list(self.members)

    def forward(self, x: Tensor, **times_and_masks: Any) -> tuple[Tensor, None]:
        """Return the mean prediction, (B, T, O) or (B, O), and no state."""
        return self.average(self.predict_members(x, **times_and_masks)), None

    def predict_members(self, x: Tensor, **times_and_masks: Any) -> Tensor:
        """Return the prediction of each member, (M, ..., O)."""
        return torch.stack([member(x, **times_and_masks)[0] for member in self.members])

    def average(self, predictions: Tensor) -> Tensor:
        """Return the mean of predictions of members, (M, ..., O)."""
        return average_predictions(predictions, self.task, self.weights)

    def quantiles(self, x: Tensor, **times_and_masks: Any) -> Tensor:
        """Return the mean of the members' quantiles, (..., O, Q)."""
        members = [member.quantiles(x, **times_and_masks) for member in self.members]  # type: ignore[operator]
        return average_predictions(torch.stack(members), "regress", self.weights)


def average_predictions(
    predictions: Tensor,
    task: str,
    weights: Sequence[float] | None = None,
) -> Tensor:
    """Return the mean prediction: of values as they are, of classes by their probabilities.

    Args:
        predictions: of M models, (M, ..., O).
        task: as of :class:`Ensemble`.
        weights: how much each model counts; by default all count alike.
    """
    if weights is None:
        share = torch.full((len(predictions),), 1 / len(predictions), dtype=torch.float64)
    else:
        share = torch.tensor(weights, dtype=torch.float64)
        share = share / share.sum()
    share = share.to(predictions).view(-1, *[1] * (predictions.ndim - 1))
    if task == "regress":
        return (predictions * share).sum(0)
    log_share = share.log()
    if task == "classify":
        return (predictions.log_softmax(-1) + log_share).logsumexp(0)
    log_yes, log_no = ((F.logsigmoid(s * predictions) + log_share).logsumexp(0) for s in (1, -1))
    return log_yes - log_no


class ImputedInputs(AbstractModelWrapper):
    """Wrapper for a model without ``observed``, for batches with missing values.

    Missing values become the last ones of their sequence, and further inputs say what was measured,
    as :func:`~tauflow.data.imputation.impute_with_indicators` does to a table before training.

    Args:
        model: the model, trained on such inputs.
        flagged: numbers of the features that get an input more.
        fill: what stands for a missing value: ``"last"`` or ``"mean"``, which is 0.
    """

    def __init__(
        self, model: nn.Module, flagged: Sequence[int], *, fill: str = IMPUTE_STRATEGIES[0]
    ) -> None:
        super().__init__()
        self.model, self.flagged = model, tuple(flagged)
        self.fill = check_one_of(IMPUTE_STRATEGIES, fill=fill)

    @property
    def wrapped_models(self) -> Sequence[nn.Module]:
        """The model."""
        return [self.model]

    @property
    def uses_observed(self) -> bool:
        """True: the wrapper takes the (B, T, I) mask of measured features."""
        return True

    def prepare(self, batch: SequenceBatch) -> SequenceBatch:
        """Return a batch as the model takes it, for training it."""
        return impute_with_indicators(batch, self.flagged, fill=self.fill)

    def forward(
        self,
        x: Tensor,
        *,
        dt: Tensor | None = None,
        mask: Tensor | None = None,
        observed: Tensor | None = None,
    ) -> tuple[Tensor, None]:
        """Return the prediction of the model, (B, T, O) or (B, O), and no state."""
        x = self._fill_in(x, mask, observed)
        return self.model(x, dt=dt, mask=mask)[0], None

    def quantiles(
        self,
        x: Tensor,
        *,
        dt: Tensor | None = None,
        mask: Tensor | None = None,
        observed: Tensor | None = None,
    ) -> Tensor:
        """Return the quantiles of the model, (..., O, Q)."""
        x = self._fill_in(x, mask, observed)
        quantiles: Tensor = self.model.quantiles(x, dt=dt, mask=mask)  # type: ignore[operator]
        return quantiles

    def _fill_in(self, x: Tensor, mask: Tensor | None, observed: Tensor | None) -> Tensor:
        return self.prepare(SequenceBatch(x, x.new_zeros(len(x)), mask=mask, observed=observed)).x


class Calibrated(AbstractModelWrapper):
    r"""A classifier whose probabilities are calibrated on validation data.

    With a temperature :math:`T` logits :math:`z` become :math:`z / T` (Guo et al. 2017, "On
    Calibration of Modern Neural Networks"). With curves each probability is mapped by a
    piecewise linear increasing one, as isotonic regression gives it; of several classes one curve
    each, and the results are normalised (Zadrozny and Elkan 2002).
    :func:`tauflow.evaluation.calibrate` fits either.

    Args:
        model: the classifier.
        task: ``"classify"`` or ``"binary"``.
        temperature: T, above 0.
        curves: knots ``(x, y)``, each increasing; of two classes, or one logit, a single curve, of
            the second class.
    """

    def __init__(
        self,
        model: nn.Module,
        task: str = "classify",
        *,
        temperature: float = 1.0,
        curves: Sequence[Sequence[Sequence[float]]] = (),
    ) -> None:
        super().__init__()
        self.model = model
        self.task = check_one_of(("classify", "binary"), task=task)
        self.temperature = check_positive(temperature=temperature)
        for number, curve in enumerate(curves):
            knots = torch.tensor(curve, dtype=torch.float64)
            self.register_buffer(f"curve_{number}", knots, persistent=False)
        self._num_curves = len(curves)

    @property
    def wrapped_models(self) -> Sequence[nn.Module]:
        """The classifier."""
        return [self.model]

    def forward(self, x: Tensor, **times_and_masks: Any) -> tuple[Tensor, None]:
        """Return calibrated logits, (B, T, O) or (B, O), and no state."""
        return self.correct(self.model(x, **times_and_masks)[0]), None

    def correct(self, logits: Tensor) -> Tensor:
        """Return calibrated logits of logits of the classifier, (..., O)."""
        logits = logits / self.temperature
        if not self._num_curves:
            return logits
        wanted = 1 if self.task == "binary" or logits.shape[-1] == 2 else logits.shape[-1]
        if self._num_curves != wanted:
            raise ArgumentError(
                f"Calibrated: {format_count(self._num_curves, 'curve')} for "
                f"{format_count(logits.shape[-1], 'logit')} of task={self.task!r}. Give {wanted}."
            )
        curves = [getattr(self, f"curve_{number}").to(logits) for number in range(self._num_curves)]
        if self.task == "binary":
            yes = interpolate(logits.sigmoid(), *curves[0])
            return _to_log(yes) - _to_log(1 - yes)
        probabilities = logits.softmax(-1)
        if len(curves) == 1:
            yes = interpolate(probabilities[..., 1], *curves[0])
            return _to_log(torch.stack([1 - yes, yes], -1))
        each = [interpolate(probabilities[..., n], *curve) for n, curve in enumerate(curves)]
        return _to_log(torch.stack(each, -1))


def list_members(model: nn.Module) -> list[nn.Module]:
    """Return the networks that a model wraps: the members of an ensemble, or the one that it is.

    One with :class:`ImputedInputs` keeps them, as it is called like the others with them only.
    """
    if isinstance(model, AbstractModelWrapper) and not isinstance(model, ImputedInputs):
        return [part for wrapped in model.wrapped_models for part in list_members(wrapped)]
    return [model]


def interpolate(p: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Return the values at p of the line through the knots (x, y), constant beyond them."""
    right = torch.searchsorted(x, p.contiguous()).clamp(1, len(x) - 1)
    share = (p - x[right - 1]) / (x[right] - x[right - 1])
    return torch.lerp(y[right - 1], y[right], share.clamp(0, 1))


def _to_log(probability: Tensor) -> Tensor:
    return probability.clamp(min=_MIN_PROBABILITY).log()
