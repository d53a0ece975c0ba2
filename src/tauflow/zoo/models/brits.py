"""BRITS: missing values estimated forwards and backwards in time, in agreement."""

import math
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from tauflow._internal.checks import check_at_least, check_within
from tauflow.batch import SequenceBatch
from tauflow.errors import ArgumentError
from tauflow.models.stateless import AbstractStatelessModel, get_observed
from tauflow.sequence import RNN
from tauflow.sequence.inputs import SequenceInputs
from tauflow.training.elementwise import PredictionLoss
from tauflow.zoo.cells.rits import RITSCell


class EstimatingRITSCell(RITSCell):
    """:class:`~tauflow.cells.RITSCell` that emits its estimate of the sample, not its state."""

    @property
    def output_size(self) -> int:
        """Width of the estimate, D."""
        return self.input_size

    def readout(self, h: Float[Tensor, "*batch S"]) -> Float[Tensor, "*batch D"]:
        """Return the estimate of the last sample."""
        return self.imputed(h)


class BRITS(AbstractStatelessModel):
    r"""Bidirectional recurrent imputation: two RITS cells, and the mean of their estimates.

    Each direction estimates every value from what it has read before it,
    :math:`\hat c^f` and :math:`\hat c^b`, see :class:`~tauflow.cells.RITSCell`. The output is
    their mean. The training loss is

    .. math::
        \sum_{d \in \{f, b\}} \mathrm{mean}_{m = 1} |x - \hat c^d|
        + w\, \mathrm{mean} |\hat c^f - \hat c^b|

    and that of the predictions, if the batch has targets, as values that were hidden are.

    Source: Cao et al. 2018, "BRITS: Bidirectional recurrent imputation for time series", Sections
    4.2 and 4.3, with the weight w of the released code.

    Differs from the paper: absolute differences between the directions, as in the released code;
    the errors of the last of the three estimates of a direction, where the paper adds those of all.

    As ``model="brits"`` of :class:`tauflow.estimators.SequenceImputer` it fills what is missing.

    Args:
        input_size: features D per time point.
        hidden_size: neurons N of each direction.
        classes: how many of the features to return, the first ones; by default all.
        per_step: must be true: every value is estimated.
        consistency: w.

    Raises:
        ArgumentError: it is to return more than its features, or one answer per sequence.
    """

    paper: ClassVar[str] = "Cao et al. 2018, BRITS: Bidirectional recurrent imputation"
    uses_observed: ClassVar[bool] = True
    uses_absolute_times: ClassVar[bool] = False
    has_per_step_output: ClassVar[bool] = True
    is_causal: ClassVar[bool] = False
    has_head: ClassVar[bool] = True
    estimates_inputs: ClassVar[bool] = True

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        classes: int | None = None,
        per_step: bool = True,
        consistency: float = 0.1,
    ) -> None:
        D = check_at_least(1, input_size=input_size)
        width = D if classes is None else check_at_least(1, classes=classes)
        if width > D or not per_step:
            raise ArgumentError(
                "BRITS estimates the values of its inputs, and has no other targets: take it as "
                "model='brits' of SequenceImputer, or another model."
            )
        super().__init__(D, width, return_sequences=True)
        self.hidden_size = check_at_least(1, hidden_size=hidden_size)
        self.consistency = check_within(0.0, math.inf, consistency=consistency)
        self.rnn = RNN(EstimatingRITSCell(input_size, hidden_size), bidirectional=True)

    def reset_parameters(self) -> None:
        """Draw all parameters again, from the global generator."""
        self.rnn.reset_parameters()

    def encode(self, inputs: SequenceInputs, times: Tensor) -> Tensor:
        """Return the mean of both estimates of every value, (B, T, ``output_size``)."""
        forwards, backwards = self._estimate(inputs)
        return ((forwards + backwards) / 2)[..., : self.output_size]

    def training_loss(
        self, batch: SequenceBatch, prediction_loss: PredictionLoss, *, epoch: int
    ) -> Tensor:
        """Return the loss above, for :func:`tauflow.training.train`.

        Args:
            batch: inputs, with NaN or ``observed`` where values are missing, and targets.
            prediction_loss: of the output, against the targets.
            epoch: not used.
        """
        inputs_of_batch: dict[str, Any] = {
            "dt": batch.dt,
            "mask": batch.mask,
            "observed": batch.observed,
        }
        inputs, _ = self._prepare(
            f"{type(self).__name__}.training_loss", batch.x, **inputs_of_batch
        )
        estimates = torch.stack(self._estimate(inputs))
        measured = get_observed(inputs).to(estimates.dtype)
        valid = torch.ones_like(measured)
        if inputs.mask is not None:
            valid = valid * inputs.mask.unsqueeze(-1)
        errors = ((estimates - inputs.x).abs() * measured).sum() / measured.sum().clamp(min=1)
        differences = (estimates[0] - estimates[1]).abs() * valid
        disagreement = differences.sum() / valid.sum().clamp(min=1)
        loss = errors + self.consistency * disagreement
        return loss + prediction_loss(estimates.mean(0)[..., : self.output_size], batch)

    def _estimate(self, inputs: SequenceInputs) -> tuple[Tensor, Tensor]:
        """Return what each direction estimates, (B, T, D)."""
        y, _ = self.rnn(
            inputs.x, dt=inputs.dt.squeeze(-1), mask=inputs.mask, observed=inputs.observed
        )
        assert isinstance(y, Tensor)
        forwards, backwards = y.chunk(2, dim=-1)
        return forwards, backwards
