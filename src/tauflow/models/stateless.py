"""What models without a state of fixed size share: the library's one call, and its border."""

from abc import abstractmethod
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from tauflow.checks import no_missing_features, values_readable
from tauflow.errors import ArgumentError
from tauflow.recorded import changed_options
from tauflow.sequence.gaps import refuse_coarse
from tauflow.sequence.inputs import (
    Companion,
    Gaps,
    Lengths,
    SequenceInputs,
    check_parameters,
    prepare,
    with_missing,
)
from tauflow.sequence.overflow import refuse_missing

from .base import AbstractWholeModel

_NEARER = (
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

    reads_times: ClassVar[bool] = True
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
        dt: Gaps | None = None,
        t: Companion | None = None,
        mask: Tensor | None = None,
        lengths: Lengths | None = None,
        observed: Companion | None = None,
    ) -> tuple[Tensor | PackedSequence, Tensor]:
        """Run the model.

        Args:
            x: inputs, as for :meth:`tauflow.RNN.forward`.
            hx: must be ``None``.
            dt: gaps; the absolute times are their running sums, the first gap included.
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
        refuse_state(where, hx)
        inputs, times = self._prepared(
            where, x, dt=dt, t=t, mask=mask, lengths=lengths, observed=observed
        )
        y = self.encode(inputs, times)
        result = inputs.like_input(y, every_step=self.return_sequences)
        return result, empty_state(inputs)

    def _prepared(
        self, where: str, x: Tensor | PackedSequence, **times_and_masks: Any
    ) -> tuple[SequenceInputs, Tensor]:
        """Return the call in its one form, x zero where it was not measured, and the times."""
        inputs = prepare(where, self.input_size, x, **times_and_masks)
        check_parameters(where, self, inputs.x)
        times = absolute_times(inputs)
        if self.reads_times and inputs.t is not None and inputs.t.dtype is not times.dtype:
            refuse_coarse(where, times, inputs.dt.squeeze(-1), inputs.mask, _NEARER)
        if self.uses_observed:
            inputs = with_missing(inputs)
        elif inputs.observed is not None:
            raise no_missing_features(where, self)
        if values_readable(inputs.x):
            refuse_missing(where, self, inputs)
        if inputs.observed is None:
            return inputs, times
        x = inputs.x.masked_fill(~inputs.observed, 0.0)  # never 0 * NaN
        return replace(inputs, x=x), times

    def extra_repr(self) -> str:
        """Show the options that differ from their defaults."""
        return changed_options(self)


def refuse_state(where: str, hx: object) -> None:
    """Raise unless ``hx`` is ``None``."""
    if hx is not None:
        raise ArgumentError(
            f"{where}: hx must be None. This model looks at all samples of a sequence at once and "
            "carries no state of fixed size from call to call; pass the whole sequence in one."
        )


def empty_state(inputs: SequenceInputs) -> Tensor:
    """Return the state of a model that has none, (B, 0), or (0,) for a single sequence."""
    return inputs.x.new_zeros((inputs.x.shape[0], 0) if inputs.batched else (0,))


def absolute_times(inputs: SequenceInputs) -> Tensor:
    """Return the times of the samples, (B, T), in the dtype of gaps; 0 where the mask is false."""
    steps = inputs.x.shape[:2]
    gaps = inputs.dt.squeeze(-1)
    times = gaps.cumsum(1) if inputs.t is None else inputs.t.reshape(steps).to(gaps.dtype)
    return times if inputs.mask is None else times.masked_fill(~inputs.mask, 0.0)


def held(y: Tensor, mask: Tensor | None) -> Tensor:
    """Return outputs (B, T, H) that repeat the last valid one at masked steps; zero before any."""
    if mask is None:
        return y
    steps = torch.arange(y.shape[1], device=y.device).expand(y.shape[:2])
    latest = torch.where(mask, steps, -1).cummax(1).values.unsqueeze(-1)
    return y.gather(1, latest.clamp(min=0).expand_as(y)).masked_fill(latest < 0, 0.0)


def measured(inputs: SequenceInputs) -> Tensor:
    """Return which features of which steps are there, (B, T, I) bool."""
    there = inputs.observed
    if there is None:
        there = torch.ones_like(inputs.x, dtype=torch.bool)
    return there if inputs.mask is None else there & inputs.mask.unsqueeze(-1)
