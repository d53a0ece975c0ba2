"""Inputs with one value per sequence, such as the age, on the way to the head."""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from tauflow.errors import ArgumentError
from tauflow.sequence import SequenceModule
from tauflow.sequence.inputs import SequenceInputs, infer_observed
from tauflow.sequence.read_call import read_call

from .base import AbstractWholeModel

_MASKS = ("mask", "lengths", "observed", "episode_start")


class StaticInputs(AbstractWholeModel):
    """A body that hands the static inputs of a sequence to the head, beside its own output.

    A head on top of it then reads them directly, and not only what the body remembers of them. The
    body reads them as before. Where a static input is missing, or the step is masked, the head
    reads its last measured value, and 0 before the first.

    Args:
        rnn: the body, a sequence module or a whole model without a head.
        places: numbers of the static inputs, which have the same value at all steps of a sequence.

    Raises:
        ArgumentError: there are no such inputs, or the body has its own loss or head.
    """

    paper: ClassVar[str] = ""

    def __init__(self, rnn: SequenceModule | AbstractWholeModel, places: Sequence[int]) -> None:
        super().__init__()
        if isinstance(rnn, AbstractWholeModel) and rnn.has_head:
            raise ArgumentError(f"{type(rnn).__name__} has its own head, which takes no more.")
        if hasattr(rnn, "training_loss"):
            raise ArgumentError(
                f"{type(rnn).__name__} has its own loss, which knows no static inputs of the "
                "head. Choose another model."
            )
        places = tuple(places)
        if not places or not all(0 <= place < rnn.input_size for place in places):
            raise ArgumentError(
                f"places={places!r} must be numbers of inputs below {rnn.input_size}, at least one."
            )
        self.rnn, self.places = rnn, places
        self.input_size, self.output_size = rnn.input_size, rnn.output_size + len(places)
        self.uses_observed = rnn.uses_observed  # type: ignore[misc]
        self.ignores_padding = rnn.ignores_padding  # type: ignore[misc]

    def forward(self, x: Tensor, *state: Any, **times_and_masks: Any) -> tuple[Tensor, Tensor]:
        """Return the output of the body with the static inputs behind it, and its state.

        Args:
            x: inputs, (B, T, I) or (T, I).
            *state: to start from.
            **times_and_masks: as for the body.

        Raises:
            ArgumentError: x is a packed sequence.
        """
        if isinstance(x, PackedSequence):
            raise ArgumentError("StaticInputs takes padded sequences. Give lengths or a mask.")
        y, h = self.rnn(x, *state, **times_and_masks)
        masks: dict[str, Any] = {name: times_and_masks.get(name) for name in _MASKS}
        inputs = read_call("StaticInputs.forward", self.input_size, x, **masks)
        static = self._fill_forward(infer_observed(inputs))
        if not inputs.batched:
            static = static[0]
        if y.ndim < x.ndim:  # one output per sequence
            static = static[..., -1, :]
        return torch.cat([y, static.to(y.dtype)], -1), h

    def _fill_forward(self, inputs: SequenceInputs) -> Tensor:
        """Return the static inputs, (B, T, P), the last measured value of each at every step."""
        static = inputs.x[..., list(self.places)]
        measured, again = inputs.observed, inputs.episode_start
        there = torch.ones_like(static, dtype=torch.bool)
        there = there if measured is None else measured[..., list(self.places)]
        there = there if inputs.mask is None else there & inputs.mask.unsqueeze(-1)
        steps = torch.arange(static.shape[1], device=static.device).view(1, -1, 1)
        last = torch.where(there, steps, -1).cummax(1).values
        first = 0 if again is None else torch.where(again[..., None], steps, 0).cummax(1).values
        return static.gather(1, last.clamp(min=0)).masked_fill(last < first, 0.0)
