"""Base class of models that read a whole sequence at once and have no state."""

from abc import abstractmethod
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from tauflow._internal.checks import is_readable, missing_features_error
from tauflow._internal.init_args import format_changed_options
from tauflow.errors import ArgumentError
from tauflow.sequence.finite_checks import check_missing_inputs
from tauflow.sequence.inputs import (
    Lengths,
    PaddedOrPacked,
    SequenceInputs,
    TimeSteps,
    check_dtype_and_device,
    infer_observed,
    prepare_inputs,
)
from tauflow.sequence.time_steps import check_time_precision

from .base import AbstractWholeModel

_PRECISION_ADVICE = (
    "This model reads absolute times in the dtype of x. Subtract each sequence's first time, or "
    "another start, and keep the rest small; or run the model in torch.float64."
)


class AbstractStatelessModel(AbstractWholeModel):
    """Base of models that look at a whole sequence at once and so carry no state.

    Called as every sequence module is, ``y, h = model(x, hx=None, *, dt=None, t=None, mask=None,
    lengths=None, observed=None)``, except that ``hx`` must be ``None``; ``h`` is empty, (B, 0). A
    subclass sets the class attributes and ``output_size``, and writes :meth:`encode`.

    Args:
        input_size: features I per time point.
        output_size: width H of the output.
        return_sequences: whether the output has one entry per step.
    """

    def __init__(self, input_size: int, output_size: int, *, return_sequences: bool) -> None:
        super().__init__()
        self.input_size = input_size
        self.output_size = output_size
        self.return_sequences = return_sequences

    uses_absolute_times: ClassVar[bool] = True
    """Whether absolute times enter, in the dtype of x, and not their differences alone."""

    @abstractmethod
    def encode(self, inputs: SequenceInputs, times: Tensor) -> Tensor:
        """Return the outputs, (B, T, H), or (B, H) without ``return_sequences``.

        Args:
            inputs: the call in its one form; x is zero where it was not measured.
            times: absolute times, (B, T), in the dtype of x; zero where the mask is false.
        """

    def forward(
        self,
        x: Tensor | PackedSequence,
        hx: None = None,
        *,
        dt: TimeSteps | None = None,
        t: PaddedOrPacked | None = None,
        mask: Tensor | None = None,
        lengths: Lengths | None = None,
        observed: PaddedOrPacked | None = None,
    ) -> tuple[Tensor | PackedSequence, Tensor]:
        """Run the model.

        Args:
            x: inputs, as for :meth:`tauflow.RNN.forward`.
            hx: must be ``None``.
            dt: time steps; the absolute times are their running sums, the first time step included.
            t: absolute times, used as they are by models that know absolute time.
            mask: (B, T) bool, false at steps that are not there.
            lengths: valid steps of each sequence, (B,).
            observed: (B, T, I) bool, which features were measured, for models that use it; what
                was not may hold anything, NaN too. By default NaN is what was not.

        Returns:
            The outputs, and an empty state (B, 0).

        Raises:
            ShapeError, DtypeError, ArgumentError, TimeError, NonFiniteError: as for
                :meth:`tauflow.RNN.forward`, and ``hx`` is not ``None``.
        """
        where = f"{type(self).__name__}.forward"
        check_no_state(where, hx)
        inputs, times = self._prepare(
            where, x, dt=dt, t=t, mask=mask, lengths=lengths, observed=observed
        )
        y = self.encode(inputs, times)
        result = inputs.match_input_format(y, is_per_step=self.return_sequences)
        return result, make_empty_state(inputs)

    def _prepare(
        self, where: str, x: Tensor | PackedSequence, **times_and_masks: Any
    ) -> tuple[SequenceInputs, Tensor]:
        """Return the call in its one form, x zero where it was not measured, and the times."""
        inputs = prepare_inputs(where, self.input_size, x, **times_and_masks)
        check_dtype_and_device(where, self, inputs.x)
        times = to_absolute_times(inputs)
        if self.uses_absolute_times and inputs.t is not None and inputs.t.dtype is not times.dtype:
            check_time_precision(
                where, times, inputs.dt.squeeze(-1), inputs.mask, _PRECISION_ADVICE
            )
        if self.uses_observed:
            inputs = infer_observed(inputs)
        elif inputs.observed is not None:
            raise missing_features_error(where, self)
        if is_readable(inputs.x):
            check_missing_inputs(where, self, inputs)
        if inputs.observed is None:
            return inputs, times
        x = inputs.x.masked_fill(~inputs.observed, 0.0)  # never 0 * NaN
        return replace(inputs, x=x), times

    def extra_repr(self) -> str:
        """Show the options that differ from their defaults."""
        return format_changed_options(self)


def check_no_state(where: str, hx: object) -> None:
    """Raise unless ``hx`` is ``None``."""
    if hx is not None:
        raise ArgumentError(
            f"{where}: hx must be None. This model looks at all samples of a sequence at once and "
            "carries no state of fixed size from call to call; pass the whole sequence in one."
        )


def make_empty_state(inputs: SequenceInputs) -> Tensor:
    """Return the state of a model that has none, (B, 0), or (0,) for a single sequence."""
    return inputs.x.new_zeros((inputs.x.shape[0], 0) if inputs.batched else (0,))


def to_absolute_times(inputs: SequenceInputs) -> Tensor:
    """Return the times of the samples, (B, T), in the dtype of dt; 0 where the mask is false."""
    steps = inputs.x.shape[:2]
    gaps = inputs.dt.squeeze(-1)
    times = gaps.cumsum(1) if inputs.t is None else inputs.t.reshape(steps).to(gaps.dtype)
    return times if inputs.mask is None else times.masked_fill(~inputs.mask, 0.0)


def hold_last_valid(y: Tensor, mask: Tensor | None) -> Tensor:
    """Return outputs (B, T, H) that repeat the last valid one at masked steps; zero before any."""
    if mask is None:
        return y
    steps = torch.arange(y.shape[1], device=y.device).expand(y.shape[:2])
    latest = torch.where(mask, steps, -1).cummax(1).values.unsqueeze(-1)
    return y.gather(1, latest.clamp(min=0).expand_as(y)).masked_fill(latest < 0, 0.0)


def get_observed(inputs: SequenceInputs) -> Tensor:
    """Return which features of which steps are there, (B, T, I) bool."""
    is_observed = inputs.observed
    if is_observed is None:
        is_observed = torch.ones_like(inputs.x, dtype=torch.bool)
    return is_observed if inputs.mask is None else is_observed & inputs.mask.unsqueeze(-1)
